"""Dagster's view: definitions load anywhere, a run records what it made in a fixed number of events, sensors ask once."""

import os
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest

from assets import run_config
from definitions import build_defs
from resources import BATCH_TAG
from scribe_pipeline.config import Settings
from scribe_pipeline.ingest import Batch, load_batch
from scribe_pipeline.workspaces import sweep_reservations
from tests.conftest import ROOT
from tests.houses import FakeEngines, House, InlinePool, png


def execute(house: House, batch: Batch, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """Execute the job on a batch with engines that answer at once."""
    settings = Settings(home=Path(house.store_url).parent, blob_url=house.store_url)
    defs = build_defs(settings=settings, database=house.engine, pool=InlinePool())
    return defs.resolve_job_def("process_ingest_batch").execute_in_process(
        instance=instance,
        run_config=run_config(batch),
        tags={BATCH_TAG: str(batch.id)},
        raise_on_error=False,
    )


def scans(number: int) -> dict[str, bytes]:
    """Pictures that differ."""
    return {f"{index}.png": png(colour=f"#{index:02x}0000") for index in range(number)}


def test_definitions_validate_without_a_dagster_home(tmp_path: Path) -> None:
    """The definitions load in an empty environment, and loading them reads and starts nothing."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_", "SCRIBE_"))}
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-w", ROOT / "workspace.yaml"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / ".scribe").exists()


def test_names_that_outsiders_rely_on() -> None:
    """R86: all jobs, sensors and the page assets with their lineage have the names that are documented."""
    defs = build_defs()
    jobs = {"process_ingest_batch", "drain_transcription_queue", "derive_exports", "evaluate_recipe", "upload_cleanup"}
    jobs |= {"outcome_scan", "send_digest", "maintenance", "retention", "standing_checks"}
    assert jobs == {job.name for job in defs.jobs or []}
    sensors = {sensor.name: (sensor.minimum_interval_seconds, sensor.default_status) for sensor in defs.sensors or []}
    names = ("ingest_batch_sensor", "transcription_queue_sensor", "terminal_job_sensor")
    assert sensors == dict.fromkeys(names, (5, dg.DefaultSensorStatus.RUNNING))
    graph = defs.resolve_asset_graph()
    parents = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }
    assert parents == {
        "ingested_images": set(),
        "segmented_pages": {"ingested_images"},
        "transcribed_pages": {"segmented_pages"},
        "page_exports": {"transcribed_pages"},
        "outcome_summary": set(),
        "recipe_evaluation": set(),
        "storage_report": set(),
    }


def test_assets_are_materialized_by_hand(operator: dict[str, str], tmp_path: Path) -> None:
    """R86: those that may be made alone, by the job that the UI runs for that; it starts no further process."""
    assets = ("outcome_summary", "storage_report")
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "asset", "materialize", "-m", "definitions", "--select", ",".join(assets)],
        env=operator | {"DAGSTER_HOME": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    for asset in assets:
        assert f"Materialized value {asset}." in done.stderr
    assert "STEP_WORKER_STARTING" not in done.stderr


def test_a_file_without_room_fails_the_run_and_holds_up_no_other(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R78: what has room becomes a draft; the run is red and says why; the file waits, and no attempt of it is used up."""
    batch = house.batch(scans(2), tmp_path)
    house.execute("UPDATE storage_reservations SET expires_at = clock_timestamp() - interval '1 second' WHERE sequence = 1")
    sweep_reservations(house.engine)
    house.execute("UPDATE storage_quota_usage SET limit_bytes = reserved_bytes")
    result = execute(house, batch, dg.DagsterInstance.ephemeral())
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert "there is no room for" in str(failure.error)
    assert house.rows("SELECT status, attempt_count FROM ingest_batch_files ORDER BY sequence") == [
        ("pending", 0),
        ("completed", 1),
    ]
    assert house.rows("SELECT status FROM transcription_jobs") == [("completed",)]


def test_a_run_records_each_stage_once(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R86: each stage is seen as one materialization with counts, timings and previews; a run's events do not grow with pages."""
    instance = dg.DagsterInstance.ephemeral()
    events = {}
    for number in (2, 20):
        batch = house.batch(scans(number) | {"bad.png": b""}, tmp_path / str(number))
        result = execute(house, batch, instance)
        assert result.success
        made = {
            event.asset_key.to_user_string(): event.step_materialization_data.materialization.metadata
            for event in result.all_events
            if event.is_step_materialization and event.asset_key is not None
        }
        assert set(made) == {"ingested_images", "segmented_pages", "transcribed_pages"}
        assert made["ingested_images"]["images"].value == number
        assert made["ingested_images"]["refused"].value == 1
        assert made["segmented_pages"]["lines"].value == 3 * number
        assert made["transcribed_pages"]["pages"].value == number
        assert made["segmented_pages"]["preview"].value.count("data:image/jpeg;base64,") == min(number, 12)
        events[number] = len(instance.all_logs(result.run_id))
        with house.engine.connect() as connection:
            assert load_batch(connection, batch.id).status == "completed"
    assert events[2] == events[20]


def test_a_missing_engine_is_said_plainly(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R87: without its engine a batch is not begun, and the run says what to install."""
    monkeypatch.setattr("scribe_pipeline.engines.kraken_files.util.find_spec", lambda name: None)
    batch = house.batch(scans(1), tmp_path)
    result = execute(house, batch, dg.DagsterInstance.ephemeral())
    assert not result.success
    failures = [event for event in result.all_events if event.is_step_failure]
    assert "scribe-pipeline[kraken]" in str(failures[0].step_failure_data.error)
    assert house.rows("SELECT status, attempt_count FROM ingest_batch_files") == [("pending", 0)]


def test_lines_are_found_without_the_transcriber(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R156: pages get their lines where nobody can read them; the run is red and says why, and no attempt to read is used up."""
    monkeypatch.setattr("scribe_pipeline.engines.rapidocr_local.Path.is_file", lambda path: path.suffix != ".onnx")
    batch = house.batch(scans(2), tmp_path)
    result = execute(house, batch, dg.DagsterInstance.ephemeral())
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert "is not in the installed rapidocr" in str(failure.error)
    assert house.rows("SELECT status FROM ingest_batch_files") == [("completed",)] * 2
    assert house.rows("SELECT status, attempt_count FROM transcription_jobs") == [("pending", 0)] * 2


def test_time_is_up(house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R86: a run that claims no more asks for the next one, which goes on."""
    batch = house.batch(scans(2), tmp_path)
    settings = Settings(home=tmp_path, blob_url=house.store_url, claim_seconds=1e-9)
    instance = dg.DagsterInstance.ephemeral()
    job = build_defs(settings=settings, database=house.engine, pool=InlinePool()).resolve_job_def("process_ingest_batch")
    assert job.execute_in_process(instance=instance, run_config=run_config(batch)).success
    with house.engine.connect() as connection:
        left = load_batch(connection, batch.id)
    assert (left.status, left.dispatch_generation) == ("running", 1)
    assert execute(house, left, instance).success
    with house.engine.connect() as connection:
        assert load_batch(connection, batch.id).status == "completed"


def test_sensor_asks_once_for_a_due_batch(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R86: the sensor asks for a run for a due batch, by a key that says batch and generation, and for none that is over."""
    instance = dg.DagsterInstance.ephemeral()
    sensor = build_defs().resolve_sensor_def("ingest_batch_sensor")
    resources = {"settings": Settings(home=tmp_path), "database": house.engine}

    def tick() -> list[dg.RunRequest]:
        with dg.build_sensor_context(instance=instance, resources=resources) as context:
            return list(sensor.evaluate_tick(context).run_requests or [])

    assert tick() == []
    batch = house.batch(scans(1), tmp_path)
    (request,) = tick()
    assert request.run_key == f"batch:{batch.id}:0"
    assert request.tags[BATCH_TAG] == str(batch.id)
    assert request.run_config == run_config(batch)
    assert execute(house, batch, instance).success
    assert tick() == []


def test_sensor_goes_on_after_a_run_that_failed(house: House, tmp_path: Path) -> None:
    """R86: a run that died leaves its key spent; after a while the sensor raises the generation and asks again."""
    instance = dg.DagsterInstance.ephemeral()
    batch = house.batch(scans(1), tmp_path)
    job = build_defs().resolve_job_def("process_ingest_batch")
    tags = {BATCH_TAG: str(batch.id), "dagster/run_key": f"batch:{batch.id}:0"}
    run = instance.create_run_for_job(job, run_config=run_config(batch), tags=tags)
    sensor = build_defs().resolve_sensor_def("ingest_batch_sensor")

    def keys(lease_seconds: float) -> list[str | None]:
        resources = {"settings": Settings(home=tmp_path, lease_seconds=lease_seconds), "database": house.engine}
        with dg.build_sensor_context(instance=instance, resources=resources) as context:
            return [request.run_key for request in sensor.evaluate_tick(context).run_requests or []]

    assert keys(1) == [], "its run has not ended"
    instance.report_run_failed(run)
    assert keys(60) == [], "it failed just now"
    deadline = time.monotonic() + 30
    while not (asked := keys(1)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert asked == [f"batch:{batch.id}:1"]
