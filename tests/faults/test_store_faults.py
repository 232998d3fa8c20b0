"""Disks and buckets that fail at any call: nothing half-written is ever an object, nothing is left over, files become drafts."""

import io
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from PIL import Image as Picture
from sqlalchemy import text

from scribe_pipeline.database import connect
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import Batch
from scribe_pipeline.storage import Blob, GcsBlobStore, hand_over_blobs
from scribe_pipeline.workspaces import set_limit
from tests.fake_gcs import HALF, HANGING, LOST, FakeGcs
from tests.faults.depot import Depot
from tests.faults.disk import Disk
from tests.houses import FakeEngines, House, png
from tests.proofs import named, numbers_of, seed_of, seeded_item, tell
from tests.work import Work

_ANSWERS = (503, 503, 500, 429, 401, 403, LOST, LOST, HALF, HANGING)
_NOISE = 20_000
_FILES = 6


@pytest.fixture
def depot(
    database_url: str, tmp_path: Path, engines: FakeEngines, fake_gcs: FakeGcs, request: pytest.FixtureRequest
) -> Iterator[Depot]:
    """A folder, or a folder with a bucket."""
    engines.lines = engines.lines[:1]
    both = f"gs://{fake_gcs.bucket}/letters?folder={tmp_path / 'blobs'}"
    house = House(connect(database_url), tmp_path / "blobs", both if getattr(request, "param", "folder") == "both" else None)
    made = Depot(house, database_url)
    yield made
    made.close()


def set_bounds(patch: pytest.MonkeyPatch, timeout: float) -> None:
    """Let whoever opens a bucket from now on try again for a tenth of a second only, and wait so long for an answer."""
    patch.setattr(GcsBlobStore.__init__, "__kwdefaults__", {"patience": 0.1, "pause": 0.01, "timeout": timeout})


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that comes is waited for, however slow the machine is."""
    set_bounds(monkeypatch, timeout=20)


def give_up_an_image(house: House) -> None:
    """Have an object that waits to be removed."""
    image = house.image()
    with house.engine.begin() as connection:
        hand_over_blobs(connection, [Blob(image.workspace_id, image.object_key, image.storage_bytes)])
        connection.execute(text("DELETE FROM item_images WHERE id = :id"), {"id": image.id})
        connection.execute(text("DELETE FROM items WHERE id = :id"), {"id": image.item_id})


def work(depot: Depot, batch: Batch) -> list[str]:
    """Let workers do all three stages, and a dispatcher one pass; return why they stopped, if they did."""
    said, one = [], Work(depot.house, batch)
    for stage in (one.validate, depot.clean, one.segment, one.transcribe):
        try:
            stage()
        except ScribeError as error:
            if error.category is not Category.UNAVAILABLE:
                raise
            said.append(error.message)
    return said


def disturb(gcs: FakeGcs, chance: Random) -> list[str]:
    """Order a fault of the bucket that comes after some requests, and stays for one, for some, or until it is mended.

    Return a list in which it is noted when it has come.
    """
    come: list[str] = []
    asked, first = 0, chance.randrange(1, 15)
    fault = (chance.choice(_ANSWERS), chance.choice((1, 2, 4, None)), chance.choice((None, "POST", "GET", "DELETE")))

    def count(method: str, name: str) -> None:
        nonlocal asked
        asked += 1
        if asked == first:
            gcs.order(*fault)
            come.append(f"bucket {fault[0]}")

    gcs.before = count
    return come


@contextmanager
def disturbed(depot: Depot, disk: Disk, gcs: FakeGcs, chance: Random, calls: int) -> Iterator[list[str]]:
    """The folder fails, or the bucket, if there is one, whose answers nobody waits for then; yield how."""
    if depot.shared and chance.random() < 0.6:
        with pytest.MonkeyPatch.context() as patch:
            set_bounds(patch, timeout=0.2)
            yield disturb(gcs, chance)
    else:
        yield disk.order(chance.randrange(calls), chance.choice((1, 1, 2, 5, 1000)), chance)
    gcs.before = lambda method, name: None
    gcs.mend()
    disk.mend()


def undisturbed(depot: Depot, disk: Disk, folder: Path) -> int:
    """Return how many calls a batch and a removal take when all goes well."""
    depot.empty()
    give_up_an_image(depot.house)
    before = disk.calls
    assert work(depot, depot.house.batch({"a.png": png(), "b.png": png()}, folder, again=True)) == []
    return disk.calls - before


@pytest.mark.proof
@pytest.mark.parametrize("depot", ["folder", "both"], indirect=True)
def test_faults_of_stores_heal(depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_gcs: FakeGcs) -> None:
    """R53-R58, R64, R74, R77: at whatever call a store fails, and for how long; once it works again, all is as it should be."""
    disk, seed, counted = Disk(tmp_path / "blobs", monkeypatch), seed_of("store_faults"), Counter[str]()
    house, calls, kept = depot.house, undisturbed(depot, disk, tmp_path / "files"), "both" if depot.shared else "folder"
    for number in numbers_of("store_faults"):
        chance = seeded_item(seed, f"{kept} {number}")
        with named(f"{kept}, fault {number}"):
            depot.empty()
            give_up_an_image(house)
            batch = house.batch({"a.png": png(), "b.png": png(colour="#0000fe")}, tmp_path / "files", again=True)
            with disturbed(depot, disk, fake_gcs, chance, calls) as faults:
                counted["passes that stopped"] += len(work(depot, batch)) > 0
            depot.check()
            assert depot.finish(batch).status == "completed"
            depot.pass_time()
            depot.clean()
            depot.check_at_rest()
            assert house.value("SELECT count(*) FROM item_images") == 2
            counted[faults[0] if faults else "not struck"] += 1
    tell(f"store_faults: {kept}: {', '.join(f'{count} {what}' for what, count in counted.items())}")


def noise(number: int) -> bytes:
    """A picture that cannot be made smaller."""
    out = io.BytesIO()
    Picture.frombytes("L", (400, 50), Random(number).randbytes(_NOISE)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("real", [True, False], ids=["a file system", "counted"])
def test_a_full_disk_stops_a_run_and_harms_no_file(
    real: bool, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R54, R77, R78: what has no room waits; the run says so in one line; with more room all of it is taken."""
    folder, house = tmp_path / "blobs", depot.house
    folder.mkdir()
    room = 3 * _NOISE
    if real:
        small = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}", "scribe", folder], capture_output=True)
        if small.returncode:
            pytest.skip("nobody here may mount a file system")
    disk = Disk(folder, monkeypatch)
    disk.room = None if real else room
    try:
        batch = house.batch({f"{number}.png": noise(number) for number in range(_FILES)}, tmp_path / "files")
        for _ in range(3):
            (said,) = {*work(depot, batch)}
            assert said == f"the folder {folder} for scans cannot be written to: {os.strerror(28)}"
            depot.check()
            files = house.rows("SELECT status, attempt_count FROM ingest_batch_files WHERE item_image_id IS NULL")
            assert len(files) in range(1, _FILES) and set(files) == {("pending", 0)}
            depot.pass_time()
        disk.room = None
        if real:
            subprocess.run(["mount", "-o", "remount,size=10m", folder], check=True)
        assert depot.finish(batch).status == "completed"
        depot.pass_time()
        depot.clean()
        depot.check_at_rest()
        assert house.value("SELECT count(*) FROM item_images") == _FILES
    finally:
        if real:
            subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("depot", ["both"], indirect=True)
def test_a_bucket_that_is_down_is_waited_for(depot: Depot, tmp_path: Path, fake_gcs: FakeGcs) -> None:
    """R54, R56, R58, R77, R78: uploads are refused in one line, removals wait longer each time, bytes count; then all drains."""
    house = depot.house
    give_up_an_image(house)
    files = {f"{number}.png": png(colour=f"#0000f{number}") for number in range(3)}
    batch = house.batch(files, tmp_path / "files")

    def go_down(method: str, name: str) -> None:
        """After the first check, and with a scan whose answer never comes."""
        if method == "DELETE" and name.endswith("check"):
            fake_gcs.order(LOST)
            fake_gcs.order(503, times=None)

    fake_gcs.before = go_down
    used = "SELECT DISTINCT used_bytes FROM storage_quota_usage"
    last = """SELECT attempt_count, round(extract(epoch FROM next_attempt_at - updated_at)) FROM resource_cleanup_outbox
              ORDER BY updated_at DESC LIMIT 1"""
    attempts = []
    for _ in range(12):
        depot.pass_time()
        assert work(depot, batch) == ["the bucket gs://scans/letters for scans cannot be reached just now: try again later"]
        assert set(house.rows("SELECT status, attempt_count FROM ingest_batch_files")) == {("pending", 0)}
        ((attempt, wait),) = house.rows(last)
        assert wait == 2 ** (attempt - 1)
        attempts.append(attempt)
        assert house.value(used) == len(png()) + len(files["0.png"]) + len(files["1.png"])  # two were on their way
        depot.check_rows()
    assert len(fake_gcs.objects) == 2 and max(attempts) > 3
    set_limit(house.engine, None, house.value(used) + 1, Operator("test"))
    with pytest.raises(ScribeError, match=r"there is no room for .* waits to be removed"):
        house.batch({"late.png": png()}, tmp_path / "files")
    fake_gcs.before = lambda method, name: None
    fake_gcs.mend()
    depot.pass_time()
    assert depot.clean().removed == 3
    late = house.batch({"late.png": png()}, tmp_path / "files")
    set_limit(house.engine, None, 1 << 30, Operator("test"))
    assert {depot.finish(waiting).status for waiting in (batch, late)} == {"completed"}
    depot.clean()
    depot.check_at_rest()
