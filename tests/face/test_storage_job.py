"""Dagster's view of storage: a run gives room back or is red, checks tell what stays behind, and a report shows who holds what."""

import base64
import io
import os
import re
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import numpy as np
import pytest
from PIL import Image as Picture
from sqlalchemy import Connection

from definitions import build_defs
from scribe_pipeline.config import Settings
from scribe_pipeline.database import in_transaction, lock
from scribe_pipeline.database.tables import storage_quota_usage
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.exports import derive_exports
from scribe_pipeline.ingest import Collection, request_batch
from scribe_pipeline.ingest.collect import DeclaredFile
from scribe_pipeline.storage import (
    UPLOAD,
    Blob,
    CleanupHealth,
    LocalBlobStore,
    cleanup_health,
    give_up_blobs,
    hand_over_projections,
    new_object_key,
    open_store,
    stage_upload,
)
from scribe_pipeline.workspaces import guards, set_limit, workspace_id
from tests.houses import House, InlinePool

MINUTE = 60
GREEN, VERMILION, BLUE = (0, 158, 115), (213, 94, 0), (0, 114, 178)


class Refusing(LocalBlobStore):
    """A store that removes nothing that `refused` names; one that is not there at all, if that names everything."""

    def __init__(self, folder: Path, refused: str = "") -> None:
        super().__init__(folder)
        self.refused = refused
        self.asked: list[str] = []

    def check(self) -> None:
        """Answer unless it is not there."""
        if not self.refused:
            raise ScribeError(Category.UNAVAILABLE, "the store does not answer")

    def delete(self, key: str) -> None:
        """Remove the object or refuse to."""
        self.asked.append(key)
        if self.refused in key:
            raise ScribeError(Category.UNAVAILABLE, "the store does not answer")
        super().delete(key)


def execute(house: House, job: str, *, store: LocalBlobStore | None = None, seconds: float | None = None, **settings: Any) -> Any:
    """Execute a job."""
    made = Settings(home=house.folder, blob_url=house.store_url, **settings)
    own = {} if store is None else {"store": store}
    defs = build_defs(settings=made, database=house.engine, pool=InlinePool(), **own)
    config = {} if seconds is None else {"ops": {"remove_uploads": {"config": {"seconds": seconds}}}}
    return defs.resolve_job_def(job).execute_in_process(
        instance=dg.DagsterInstance.ephemeral(), run_config=config, raise_on_error=False
    )


def counts(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    """What a run that cleaned up has told, at its end or of its failure."""
    if result.success:
        (output,) = [event.step_output_data for event in result.all_events if event.is_successful_output]
        return {name: value.value for name, value in output.metadata.items()}
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert failure.user_failure_data is not None
    return {name: value.value for name, value in failure.user_failure_data.metadata.items()}


def staged(house: House, data: bytes, workspace: str = "default", seconds: float = 3600) -> str:
    """An object that was announced and written, and then forgotten."""
    key = new_object_key("0" * 64, "png")

    def stage(connection: Connection) -> None:
        owner = workspace_id(connection, workspace)
        lock(connection, {storage_quota_usage: guards(owner)})
        stage_upload(connection, Blob(owner, key, len(data)), uuid4(), None, seconds)

    in_transaction(house.engine, stage)
    LocalBlobStore(Path(house.store_url)).write(key, data, "test")
    return key


def given_up(house: House, data: bytes, workspace: str = "default") -> str:
    """An object whose removal is due."""
    key = staged(house, data, workspace)
    in_transaction(house.engine, lambda connection: give_up_blobs(connection, [key], 0))
    return key


def reserved(house: House, size: int, workspace: str = "default", seconds: float = 3600) -> None:
    """Room that is promised to a batch of one file."""
    file = DeclaredFile("page.png", f"file:///{uuid4()}.png", size, "0" * 64)
    request_batch(
        house.engine,
        Collection("folder", (file,), ()),
        workspace=workspace,
        context=None,
        max_attempts=3,
        reservation_seconds=seconds,
    )


def objects(house: House) -> set[str]:
    """What lies in the store."""
    return {path.name for path in Path(house.store_url).iterdir()}


def used(house: House) -> list[tuple[int, int]]:
    """The counters' bytes, used and reserved: of all workspaces, of the default one."""
    return [tuple(row) for row in house.rows("SELECT used_bytes, reserved_bytes FROM storage_quota_usage ORDER BY scope DESC")]


def test_a_run_gives_room_back(house: House) -> None:
    """R49, R70, R74: what is due is removed and its bytes are free, an expired promise too; what is not due, or kept, stays."""
    kept, waiting = house.image(), staged(house, b"five!")
    due = {given_up(house, b"four"), given_up(house, b"eleven byte")}
    reserved(house, 1000, seconds=-1)
    reserved(house, 77)
    size = kept.storage_bytes
    assert used(house) == [(size + 20, 1077)] * 2
    assert objects(house) == {kept.object_key, waiting, *due}
    result = execute(house, "upload_cleanup")
    assert result.success
    assert counts(result) == {"removed": 2, "still_referred_to": 0, "to_be_tried_again": 0, "temporaries": 0, "stray_copies": 0}
    assert objects(house) == {kept.object_key, waiting}
    assert used(house) == [(size + 5, 77)] * 2
    assert counts(execute(house, "upload_cleanup"))["removed"] == 0


def test_writes_that_were_broken_off_are_swept(house: House) -> None:
    """R75: the run removes temporaries older than an hour; younger ones and scans of whatever age stay."""
    image = house.image()
    folder = Path(house.store_url)
    for name, minutes in ((".scribe-upload-dead", 61), (".scribe-upload-live", 59), (image.object_key, 600)):
        (folder / name).touch()
        then = time.time() - minutes * MINUTE
        os.utime(folder / name, (then, then))
    assert counts(execute(house, "upload_cleanup"))["temporaries"] == 1
    assert objects(house) == {".scribe-upload-live", image.object_key}


def test_a_run_is_bounded(house: House) -> None:
    """R49: when its time is up, a run leaves the rest to the next one."""
    key = given_up(house, b"four")
    assert counts(execute(house, "upload_cleanup", seconds=1e-9))["removed"] == 0
    assert objects(house) == {key}
    assert counts(execute(house, "upload_cleanup"))["removed"] == 1


def test_a_store_that_is_away_is_red(house: House) -> None:
    """R30, R57, R78: the run fails and says why after one try; rows wait, bytes count; it is green when the store is back."""
    keys = {given_up(house, b"four") for _ in range(3)}
    store = Refusing(Path(house.store_url))
    result = execute(house, "upload_cleanup", store=store)
    assert not result.success
    assert (counts(result)["to_be_tried_again"], len(store.asked)) == (1, 1)
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert "1 could not be removed and will be tried again: the store does not answer" in str(failure.error)
    assert objects(house) == keys
    assert used(house) == [(12, 0)] * 2
    assert house.rows("SELECT status, attempt_count FROM resource_cleanup_outbox ORDER BY 2 DESC") == [
        ("pending", 1), ("pending", 0), ("pending", 0)
    ]  # fmt: skip
    house.execute("UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp()")
    assert counts(execute(house, "upload_cleanup"))["removed"] == 3
    assert (objects(house), used(house)) == (set(), [(0, 0)] * 2)


def test_a_folder_that_is_away_is_red(house: House) -> None:
    """R30, R79: the run fails and names the folder; the bytes are free when the folder is back and the object gone from it."""
    given_up(house, b"four")
    folder = Path(house.store_url)
    folder.rename(house.folder / "elsewhere")
    folder.touch()
    result = execute(house, "upload_cleanup")
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert f"the folder {folder} for scans cannot be" in str(failure.error)
    assert (house.rows("SELECT status FROM resource_cleanup_outbox"), used(house)) == ([("pending",)], [(4, 0)] * 2)
    folder.unlink()
    (house.folder / "elsewhere").rename(folder)
    house.execute("UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp()")
    assert counts(execute(house, "upload_cleanup"))["removed"] == 1
    assert (objects(house), used(house)) == (set(), [(0, 0)] * 2)


def test_one_object_stops_no_other(house: House) -> None:
    """R30, R57: what cannot be removed makes the run red, and is the only thing left; temporaries are swept all the same."""
    stubborn, *others = (given_up(house, b"four") for _ in range(4))
    old = Path(house.store_url) / ".scribe-upload-dead"
    old.touch()
    os.utime(old, (0, 0))
    store = Refusing(Path(house.store_url), stubborn)
    result = execute(house, "upload_cleanup", store=store)
    assert not result.success
    assert counts(result) == {"removed": 3, "still_referred_to": 0, "to_be_tried_again": 1, "temporaries": 1, "stray_copies": 0}
    assert sorted(store.asked) == sorted([stubborn, *others])
    assert objects(house) == {stubborn}


def told(house: House, **settings: Any) -> dict[str, dg.AssetCheckEvaluation]:
    """What the standing checks of storage say."""
    result = execute(house, "standing_checks", **settings)
    assert result.success
    return {said.check_name: said for said in result.get_asset_check_evaluations() if said.asset_key.path == ["storage_report"]}


def verdicts(house: House, **settings: Any) -> dict[str, bool]:
    """Which of them pass."""
    return {name: said.passed for name, said in told(house, **settings).items()}


def health(house: House, kind: str = UPLOAD) -> CleanupHealth:
    """The numbers that they read."""
    return in_transaction(house.engine, lambda connection: cleanup_health(connection, [kind]))


def removal(house: House, kind: str = UPLOAD, created: int = 0, due: int = 0, **columns: str) -> None:
    """A row of the cleanup outbox without bytes, made and due so many minutes ago."""
    key = new_object_key("0" * 64, "png") if kind == UPLOAD else str(uuid4())
    values = {"kind": kind, "resource_key": key} | columns
    house.execute(
        f"""INSERT INTO resource_cleanup_outbox (id, workspace_id, created_at, next_attempt_at, {", ".join(values)})
            SELECT gen_random_uuid(), id, clock_timestamp() - interval '{created} minutes',
                   clock_timestamp() - interval '{due} minutes', {", ".join(f":{name}" for name in values)}
            FROM workspaces WHERE name = 'default'""",
        **values,
    )


def test_a_removal_that_was_given_up_is_told(house: House) -> None:
    """R60: one failed row, of a kind that nobody has to remove here, turns the check red as an error, and is counted."""
    with house.engine.begin() as connection:
        hand_over_projections(connection, workspace_id(connection, "default"), uuid4(), [uuid4()])
    assert verdicts(house) == {"failed_removals": True, "removal_age": True, "stored_bytes": True}
    house.execute("UPDATE resource_cleanup_outbox SET status = 'failed' WHERE kind = 'triplet_presentation_item'")
    said = told(house)["failed_removals"]
    assert (said.passed, said.severity, said.metadata["failed"].value) == (False, dg.AssetCheckSeverity.ERROR, 1)
    assert verdicts(house) == {"failed_removals": False, "removal_age": True, "stored_bytes": True}


def test_the_age_of_the_oldest_removal_is_told(house: House) -> None:
    """R61: the seconds, by the database's clock, that a removal has been due; above the threshold the check warns."""
    assert health(house) == CleanupHealth(0, 0, 0)
    removal(house, created=500, due=-10, status="staged")
    removal(house, "triplet_presentation_image", created=500, due=400)
    removal(house, "triplet_presentation_item", created=500, due=400, status="failed", last_error="it was too much")
    assert health(house) == health(house, "triplet_presentation_item") == CleanupHealth(1, 0, 0)
    removal(house, created=500, due=50)
    removal(house, created=40, due=40)
    due_for = "SELECT extract(epoch FROM clock_timestamp() - min(next_attempt_at)) FROM resource_cleanup_outbox WHERE kind = :kind"
    earlier = house.value(due_for, kind=UPLOAD)
    told_of = health(house)
    assert told_of.due == 2
    assert earlier <= told_of.oldest_due_seconds <= house.value(due_for, kind=UPLOAD)
    assert verdicts(house)["removal_age"]
    said = told(house, cleanup_warn_seconds=49 * MINUTE)["removal_age"]
    assert (said.passed, said.severity, said.metadata["due"].value) == (False, dg.AssetCheckSeverity.WARN, 2)
    assert 50 * MINUTE <= float(str(said.metadata["oldest due (s)"].value)) < 60 * MINUTE


def test_a_removal_that_fails_again_and_again_grows_old(house: House) -> None:
    """R61: each failure puts the next attempt ahead, and the age is still that of the removal."""
    removal(house, created=70, due=-50, last_error="the store does not answer")
    assert 70 * MINUTE <= health(house).oldest_due_seconds < 71 * MINUTE
    assert not verdicts(house)["removal_age"]


def test_the_bytes_of_uploads_are_told(house: House) -> None:
    """R62: used bytes are those of scans and of what waits to be removed, as they lie in the store; near the limit it warns."""
    house.image()
    given_up(house, b"four")
    reserved(house, 10_000)
    stored = sum(path.stat().st_size for path in Path(house.store_url).iterdir())
    said = told(house)["stored_bytes"]
    assert said.passed
    assert {name: value.value for name, value in said.metadata.items()} == {"used": stored, "waiting": 4, "limit": 30 * 2**30}
    set_limit(house.engine, None, stored * 2, Operator("test"))
    assert told(house, storage_warn_share=0.5)["stored_bytes"].passed
    said = told(house, storage_warn_share=0.499)["stored_bytes"]
    assert (said.passed, said.severity) == (False, dg.AssetCheckSeverity.WARN)
    set_limit(house.engine, None, 0, Operator("test"))
    assert not verdicts(house)["stored_bytes"]


def report(house: House) -> tuple[list[dict[str, str]], dict[str, Any], np.ndarray]:
    """The report that the standing checks' run has made: its table's rows, its numbers, its picture."""
    result = execute(house, "standing_checks")
    assert result.success
    (made,) = result.asset_materializations_for_node("storage_report")
    said = {name: value.value for name, value in made.metadata.items()}
    header, _, *lines = [line.split(" | ") for line in said.pop("workspaces").splitlines()]
    (png,) = re.findall(r"data:image/png;base64,([^)]+)\)", said.pop("bars"))
    picture = Picture.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    return [dict(zip(header, line, strict=True)) for line in lines], said, np.asarray(picture).astype(int)


def longest(picture: np.ndarray, colour: tuple[int, int, int]) -> int:
    """How many pixels of a colour are in the row of the bars that has the most of it."""
    return int((np.abs(picture[40:] - colour).max(axis=-1) < 40).sum(axis=1).max())


def test_the_report_is_what_the_rows_say(house: House) -> None:
    """R62, R77: what each workspace may hold, holds, will be rid of and has been promised, the fullest first; all in front."""
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'second')")
    size = house.image().storage_bytes
    house.image()
    page = house.page(workspace="second")
    exported = sum(export.size_bytes for export in derive_exports(house.engine, open_store(house.store_url), page.id, 1).exports)
    given_up(house, b"x" * 5000, "second")
    reserved(house, 12_345, "second")
    set_limit(house.engine, "second", 20_000, Operator("test"))

    def row(name: str, limit: int, kept: int, waiting: int, promised: int, number: int, exports: int) -> dict[str, str]:
        free = limit - kept - waiting - promised
        numbers = {"limit": limit, "used": kept + waiting, "waiting": waiting, "reserved": promised, "free": free}
        numbers |= {"images": number, "exports": exports}
        return {"workspace": name} | {column: f"{value:,}" for column, value in numbers.items()}

    table, numbers, _ = report(house)
    assert table == [
        row("all", 30 * 2**30, 3 * size, 5000, 12_345, 3, exported),
        row("second", 20_000, size, 5000, 12_345, 1, exported),
        row("default", 5 * 2**30, 2 * size, 0, 0, 2, 0),
    ]
    assert {name: f"{value:,}" for name, value in numbers.items()} == {
        name: value for name, value in table[0].items() if name != "workspace"
    }


def test_the_picture_shows_the_shares(house: House) -> None:
    """R62: a workspace's bar has parts as long as its shares of the limit, and another picture when they change."""
    limit = 10 * house.image().storage_bytes
    set_limit(house.engine, "default", limit, Operator("test"))
    *_, before = report(house)
    assert [longest(before, colour) for colour in (GREEN, VERMILION, BLUE)] == pytest.approx([40, 0, 0], abs=4)
    given_up(house, b"x" * (limit // 4))
    reserved(house, limit // 2)
    *_, after = report(house)
    assert [longest(after, colour) for colour in (GREEN, VERMILION, BLUE)] == pytest.approx([40, 100, 200], abs=4)


def test_the_report_of_a_new_house(house: House) -> None:
    """R62: nothing is stored, and that is what it says."""
    table, numbers, _ = report(house)
    assert [row["workspace"] for row in table] == ["all", "default"]
    assert (numbers["used"], numbers["images"], numbers["free"]) == (0, 0, 30 * 2**30)
