"""Items, room, outboxes and the dispatcher on the command line: what is shown, what is removed, and that nobody edits a row."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commands.run import _remove_due
from scribe_pipeline.config import Settings
from scribe_pipeline.storage import UPLOAD, new_object_key
from scribe_pipeline.storage.removal import claim_removal
from tests.commands import SCRIBE, scribe, scribe_json
from tests.houses import House, png
from tests.proofs import wait_until
from tests.store.test_items import furnished

STRAY = new_object_key("0" * 64, "png")
NOBODY = "01900000-0000-7000-8000-00000000dead"
WAITING = "SELECT resource_key FROM resource_cleanup_outbox WHERE kind = 'upload_blob' ORDER BY 1"


def make_due(house: House) -> None:
    """Let everything that waits be due now."""
    house.execute("UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp() WHERE status IN ('staged', 'pending')")


@contextmanager
def store_away(house: House) -> Iterator[None]:
    """Have something else lie, meanwhile, where the store was."""
    place, aside = Path(house.store_url), house.folder / "aside"
    place.rename(aside)
    place.write_text("no folder")
    yield
    place.unlink()
    aside.rename(place)


def commands_of(operator: dict[str, str], noun: str) -> set[str]:
    """The commands that there are of a noun."""
    return {line.split()[0] for line in scribe(operator, noun, "--help").stdout.split("Commands:")[1].splitlines() if line.strip()}


def test_items(house: House, operator: dict[str, str]) -> None:
    """R80, R86: items are listed and shown with the stage of each image, and deleted with a reason, once."""
    item_id = str(furnished(house))
    images = house.rows("SELECT id, label FROM item_images ORDER BY sequence")
    (listed,) = scribe_json(operator, "item", "list")
    assert (listed["id"], listed["name"], listed["workspace"], listed["images"]) == (item_id, "batch", "default", 4)
    assert item_id in scribe(operator, "item", "list").stdout
    shown = scribe_json(operator, "item", "show", item_id)
    assert [(image["id"], image["stage"]) for image in shown["images"]] == [
        (str(images[0].id), "review"), *((str(image.id), "transcribe") for image in images[1:3]), (str(images[3].id), "segment")
    ]  # fmt: skip
    assert f"batch      {shown['batch_id']}" in scribe(operator, "item", "show", item_id).stdout
    said = f"deleted batch, images: 4; {4 * len(png()):,} bytes wait to be removed\n"
    assert scribe(operator, "item", "delete", item_id, "--reason", "twice").stdout == said
    again = scribe(operator, "item", "delete", item_id)
    assert (again.returncode, again.stdout, again.stderr) == (
        1,
        "",
        f"scribe: there is no item {item_id}: scribe item list tells them\n",
    )
    assert scribe_json(operator, "item", "list") == []
    (entry,) = house.rows("SELECT action, subject, reason FROM operator_audit")
    assert tuple(entry) == ("item delete", f"item {item_id}", "twice")


def test_room(house: House, operator: dict[str, str]) -> None:
    """R77, R78: what each workspace and all together may hold and hold, with what waits to be removed; exports by themselves."""
    furnished(house)
    house.execute("UPDATE resource_cleanup_outbox SET status = 'pending'")
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'press')")
    house.image(workspace="press", width=80)
    pressed = house.value("SELECT used_bytes FROM storage_quota_usage ORDER BY used_bytes LIMIT 1")
    everything, default, press = scribe_json(operator, "storage", "usage")
    assert [quota["workspace"] for quota in (everything, default, press)] == [None, "default", "press"]
    held = 5 * len(png())
    exports = house.value("SELECT sum(size_bytes) FROM page_exports")
    assert default == {
        "workspace": "default",
        "limit_bytes": 5 << 30,
        "used_bytes": held,
        "reserved_bytes": 7,
        "pending_bytes": len(png()),
        "free_bytes": (5 << 30) - held - 7,
        "export_bytes": exports,
    }
    assert (press["used_bytes"], press["export_bytes"]) == (pressed, 0)
    assert (everything["used_bytes"], everything["export_bytes"]) == (held + pressed, exports)
    table = scribe(operator, "storage", "usage").stdout.splitlines()
    assert table[0].split() == ["workspace", "limit", "used", "to", "be", "removed", "reserved", "free", "exports"]
    assert table[1].split()[:3] == ["(all)", "30,720.0", "MiB"]


@pytest.mark.parametrize(
    ("size", "limit"),
    [("50GiB", 50 << 30), ("800MB", 800_000_000), ("1.5 gib", 3 << 29), ("0", 0), ("4096", 4096), ("2kB", 2000), ("7 bytes", 7)],
)
def test_limits(house: House, operator: dict[str, str], size: str, limit: int) -> None:
    """R79: room is given by a limit, in the units that people use, and the audit keeps who did so and why."""
    command = ("storage", "limit", size, "--reason", "new disk")
    assert scribe(operator, *command, "--workspace", "default").returncode == 0
    assert house.rows("SELECT limit_bytes FROM storage_quota_usage ORDER BY scope") == [(limit,), (30 << 30,)]
    assert scribe(operator, *command).returncode == 0
    assert house.rows("SELECT limit_bytes FROM storage_quota_usage ORDER BY scope") == [(limit,), (limit,)]
    entries = house.rows("SELECT subject, reason FROM operator_audit ORDER BY created_at")
    assert [tuple(entry) for entry in entries] == [
        ("storage of workspace default", "new disk"), ("storage of all workspaces", "new disk")
    ]  # fmt: skip


def test_the_audit_says_what_is_wrong(house: House, operator: dict[str, str]) -> None:
    """R83, R84: 0 for a house in order; 1, and each damage by name, where a parent, a counter or an object was tampered with."""
    image = house.page()
    before = scribe(operator, "storage", "audit")
    assert (before.returncode, before.stdout, before.stderr) == (0, "", "nothing is wrong\n")
    assert scribe_json(operator, "storage", "audit") == []
    house.execute("DELETE FROM items")
    house.execute("UPDATE storage_quota_usage SET reserved_bytes = 5 WHERE scope = 'global'")
    (Path(house.store_url) / image.object_key).rename(Path(house.store_url) / STRAY)
    after = scribe(operator, "storage", "audit")
    assert after.returncode == 1
    wrong, orphan, stray, missing = after.stdout.splitlines()
    assert wrong.startswith("what is used and reserved is not what is stored") and "reserved 5, reserved found 0" in wrong
    assert orphan == f"item_images: no item: {image.id} (item {image.item_id})"
    assert stray == f"an object that nothing refers to: {STRAY} ({image.storage_bytes:,} bytes)"
    assert missing == f"an image whose object is not there: {image.id} (object {image.object_key})"
    told = scribe(operator, "storage", "audit", "--json")
    assert told.returncode == 1
    assert [finding["subject"] for finding in json.loads(told.stdout)] == ["global", str(image.id), STRAY, str(image.id)]
    house.empty()


def test_outboxes_are_shown(house: House, operator: dict[str, str]) -> None:
    """R48: attempts, lease, next attempt and last error of each row, by kind and status, and never a token."""
    house.subscribe()
    scribe(operator, "item", "delete", str(furnished(house)))
    claim = claim_removal(house.engine, {UPLOAD}, 90)
    assert claim is not None
    house.execute(
        """UPDATE resource_cleanup_outbox SET status = 'failed', attempt_count = 20, last_error = 'the server said no'
           WHERE kind = 'triplet_presentation_item'"""
    )
    kinds = [entry["kind"] for entry in scribe_json(operator, "outbox", "list", "--limit", "1000")]
    expected = {"webhook": 1, "upload_blob": 10, "triplet_presentation_image": 4, "triplet_presentation_item": 1}
    assert {kind: kinds.count(kind) for kind in kinds} == expected
    assert len(scribe_json(operator, "outbox", "list", "--limit", "3")) == 3
    assert len(scribe_json(operator, "outbox", "list", "--kind", "upload_blob", "--status", "pending")) == 8
    assert len(scribe_json(operator, "outbox", "list", "--status", "staged")) == 1
    (held,) = scribe_json(operator, "outbox", "list", "--status", "processing")
    assert (held["key"], held["attempt_count"], held["lease_until"] is not None) == (claim.resource_key, 1, True)
    (failed,) = scribe_json(operator, "outbox", "list", "--status", "failed")
    assert (failed["attempt_count"], failed["max_attempts"], failed["last_error"]) == (20, 20, "the server said no")
    assert failed["next_attempt_at"] is not None
    assert scribe_json(operator, "outbox", "show", failed["id"]) == failed
    shown = [scribe(operator, "outbox", "show", entry["id"]).stdout for entry in (held, failed)]
    assert "20/20" in scribe(operator, "outbox", "list", "--status", "failed").stdout
    assert "last_error       the server said no\n" in shown[1]
    token = claim.lease.token.get_secret_value()
    assert not any(token in text for text in (*shown, json.dumps(held), scribe(operator, "outbox", "list").stdout))


@pytest.mark.parametrize(
    ("noun", "commands"),
    [("outbox", {"list", "show"}), ("storage", {"usage", "audit", "limit"}), ("item", {"list", "show", "delete"})],
)
def test_no_command_edits_an_outbox(operator: dict[str, str], noun: str, commands: set[str]) -> None:
    """R47, R79: none of them edits, requeues or deletes a row of an outbox, or a counter."""
    assert commands_of(operator, noun) == commands


def test_dispatch_does_what_is_due(house: House, operator: dict[str, str]) -> None:
    """R49, R70, R75: rows that wait, and those whose worker vanished; reservations that ran out; temporaries that are old."""
    scribe(operator, "item", "delete", str(furnished(house)))
    claim_removal(house.engine, {UPLOAD}, 90)
    house.execute("UPDATE resource_cleanup_outbox SET lease_until = clock_timestamp() - interval '1 s' WHERE status = 'processing'")
    make_due(house)
    house.batch({"a.png": png()}, house.folder / "in")
    house.execute("UPDATE storage_reservations SET expires_at = clock_timestamp() - interval '1 s'")
    old = Path(house.store_url) / ".scribe-upload-old"
    old.write_bytes(b"half")
    os.utime(old, (time.time() - 3700,) * 2)
    done = scribe(operator, "dispatch", "--once")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "removed: 10, reservations taken back: 1\n")
    assert list(Path(house.store_url).iterdir()) == []
    assert house.rows("SELECT used_bytes, reserved_bytes FROM storage_quota_usage") == [(0, 0), (0, 0)]
    assert house.rows("SELECT kind, count(*) FROM resource_cleanup_outbox GROUP BY 1 ORDER BY 1") == [
        ("triplet_presentation_image", 4), ("triplet_presentation_item", 1)
    ]  # fmt: skip
    again = scribe(operator, "dispatch", "--once")
    assert (again.returncode, again.stderr) == (0, "")


def test_dispatch_waits_for_a_store(house: House, operator: dict[str, str]) -> None:
    """R49, R50: while the store is away no row is lost or changed but for its attempts, and that is said once; then it goes on.

    SIGTERM ends it.
    """
    scribe(operator, "item", "delete", str(furnished(house)))
    make_due(house)
    rows = house.rows(WAITING)
    with store_away(house):
        once = scribe(operator, "dispatch", "--once")
        assert once.returncode == 1
        assert once.stderr.count("\n") == 1
        process = subprocess.Popen([SCRIBE, "dispatch"], env=operator, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        attempts = "SELECT sum(attempt_count) FROM resource_cleanup_outbox"
        wait_until(lambda: house.value(attempts) >= 4, "further attempts at removing")
        assert house.rows(WAITING) == rows
        assert house.value("SELECT count(*) FROM resource_cleanup_outbox WHERE last_error IS NOT NULL") > 0
    make_due(house)
    wait_until(lambda: house.rows(WAITING) == [], "the removal of all")
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, "")
    assert said.splitlines()[0] == once.stderr.strip()
    assert said.count(once.stderr.strip()) == 1
    assert said.splitlines()[1].startswith("removed: ")


def test_a_run_removes_what_was_refused(house: House, tmp_path: Path) -> None:
    """R55, R74: where nobody dispatches, `scribe run` removes what is due; what it cannot remove waits, and is no failure."""
    image = house.image()
    house.unstore(image.id)
    house.execute("UPDATE resource_cleanup_outbox SET status = 'pending', next_attempt_at = clock_timestamp()")
    settings = Settings(home=tmp_path, blob_url=house.store_url)
    with store_away(house):
        _remove_due(settings, house.engine)
    assert house.rows(WAITING) == [(image.object_key,)]
    make_due(house)
    _remove_due(settings, house.engine)
    assert house.rows(WAITING) == []
    assert list(Path(house.store_url).iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["item", "show", "7"], 2, "7 is no item's id: scribe item list tells them"),
        (["item", "show", NOBODY], 1, "there is no item"),
        (["item", "delete", NOBODY], 1, "there is no item"),
        (["outbox", "show", NOBODY], 1, "there is nothing with the id"),
        (["outbox", "show", "7"], 2, "7 is no outbox row's id"),
        (["outbox", "list", "--kind", "letter"], 2, "nothing in an outbox is ever 'letter'"),
        (["outbox", "list", "--status", "lost"], 2, "staged, pending, processing, failed, delivered"),
        (["storage", "limit", "much"], 2, "much is no size: write 50GiB"),
        (["storage", "limit", "5 EiB"], 2, "5 EiB is no size"),
        (["storage", "limit", "99999999TiB"], 2, "is more than a limit may be"),
        (["storage", "limit", "5GiB", "--workspace", "nowhere"], 2, "there is no workspace 'nowhere'"),
        (["storage", "limit"], 2, "SIZE"),
    ],
)
def test_bad_requests_get_one_line(operator: dict[str, str], arguments: list[str], code: int, words: str) -> None:
    """R29: a bad request is answered by what is wrong and with the right exit code, and never by a traceback."""
    done = scribe(operator, *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
