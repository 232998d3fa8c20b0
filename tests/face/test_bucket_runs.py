"""Dagster and the commands with a bucket: its client comes from Dagster's own resource, and readiness names it."""

import json
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from assets import run_config
from commands.main import app
from definitions import build_defs
from resources import BATCH_TAG
from scribe_pipeline.config import Settings
from tests.fake_gcs import FakeGcs
from tests.houses import FakeEngines, House, InlinePool, png

URL = "gs://scans/letters"


def test_a_run_keeps_everything_in_both(
    house: House, engines: FakeEngines, fake_gcs: FakeGcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R74, R87: scans and exports lie in the folder and in the bucket, and another machine reads them from there."""
    from dagster_gcp import GCSResource

    made: list[str | None] = []
    get_client = GCSResource.get_client
    monkeypatch.setattr(GCSResource, "get_client", lambda self: (made.append(self.project), get_client(self))[1])
    batch = house.batch({"a.png": png(), "b.png": png(colour="red")}, tmp_path)
    defs = build_defs(settings=Settings(home=tmp_path / "home", blob_url=URL), database=house.engine, pool=InlinePool())
    instance = dg.DagsterInstance.ephemeral()
    read = defs.resolve_job_def("process_ingest_batch").execute_in_process(
        instance=instance, run_config=run_config(batch), tags={BATCH_TAG: str(batch.id)}
    )
    assert read.success and len(fake_gcs.objects) == 2
    exported = defs.resolve_job_def("derive_exports").execute_in_process(instance=instance)
    assert exported.success and made == ["test"]
    keys = {key for (key,) in house.rows("SELECT object_key FROM item_images UNION SELECT object_key FROM page_exports")}
    assert len(keys) == 12
    near = {path.name: path.read_bytes() for path in (tmp_path / "home" / "blobs").iterdir()}
    far = {name.removeprefix("letters/"): stored.data for name, stored in fake_gcs.objects.items()}
    assert near == far and set(near) == keys


def test_ready_names_the_bucket(fake_gcs: FakeGcs, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: and what is wrong with it."""
    monkeypatch.setenv("SCRIBE_HOME", environment["SCRIBE_HOME"])
    monkeypatch.setenv("SCRIBE_BLOB_URL", URL)

    def state() -> str:
        return str(json.loads(CliRunner().invoke(app, ["ready", "--json"]).stdout)[f"blob store {URL}"])

    assert state() == "ready"
    fake_gcs.order(403, times=None)
    assert state().startswith(f"{URL} is refused to the credentials in use")
    monkeypatch.setenv("SCRIBE_BLOB_URL", "gs://Scans")
    answer = json.loads(CliRunner().invoke(app, ["ready", "--json"]).stdout)
    assert answer["blob store gs://Scans"].startswith("SCRIBE_BLOB_URL must be gs://bucket")
