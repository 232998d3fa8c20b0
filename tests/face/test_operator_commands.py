"""What an operator reads and asks for on the command line: the six steps from readiness to audit, and never a token."""

import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from PIL import Image as Picture
from sqlalchemy import text

from scribe_pipeline.database import EmbeddedServer
from scribe_pipeline.engines import LineText
from scribe_pipeline.errors import Category
from scribe_pipeline.jobs import claim_jobs, complete_job, end_attempt
from scribe_pipeline.pages import load_head, read_lines
from tests.commands import SCRIBE, TIMEOUT_SECONDS, scribe, scribe_json
from tests.conftest import drop_database
from tests.houses import FakeEngines, House, line_shape
from tests.work import Work


def test_the_six_steps(house: House, operator: dict[str, str]) -> None:
    """R29, R31, R33, R34: list, show with the attempts in order, ask anew, verify the revision, read the audit; no token."""
    image = house.page()
    job = house.job(image)
    end_attempt(house.engine, house.claim(), Category.UPSTREAM)
    house.execute("UPDATE transcription_jobs SET retry_after = NULL")
    house.claim()
    house.expire_lease()
    house.claim()
    house.expire_lease()

    (listed,) = scribe_json(operator, "job", "list")
    assert (listed["id"], listed["status"], listed["input_revision"], listed["attempt_count"]) == (str(job), "running", 1, 3)
    assert listed["age_seconds"] > 0
    shown = scribe(operator, "job", "show", str(job)).stdout
    lines = shown.split("attempt ")[1].splitlines()[1:]
    assert [line.split()[:2] for line in lines[:2]] == [["1", "retryable_failed"], ["2", "lease_expired"]]
    assert lines[0].split()[2:4] == ["upstream", "1"]
    assert lines[2].split()[:2] == ["3", "running"]

    made = scribe(operator, "job", "create", str(image.id), "--reason", "provider is back")
    new = made.stdout.strip()
    assert f"superseded {job}" in made.stderr
    house.complete(house.claim())
    document = scribe_json(operator, "job", "show", new)
    assert (document["job"]["status"], document["result_revision"], document["page_revision"], document["verdict"]) == (
        "completed", 2, 2, "match"
    )  # fmt: skip
    (entry,) = document["audit"]
    assert (entry["action"], entry["reason"]) == ("job create", "provider is back")
    assert "@" in entry["actor"]
    after = scribe(operator, "job", "show", new).stdout
    assert "(match)" in after and "provider is back" in after

    tokens = [row.lease_token for row in house.rows("SELECT lease_token FROM transcription_job_attempts")]
    everything = shown + after + json.dumps([listed, document]) + made.stderr
    assert len(tokens) == 4
    assert not any(token in everything for token in tokens)


@pytest.mark.parametrize(
    ("before", "verdict"),
    [
        (lambda house, image: house.save(image.id, 2), "match, revised since"),
        (lambda house, image: None, "match"),
    ],
)
def test_the_result_is_verified(
    house: House, operator: dict[str, str], before: Callable[[House, object], object], verdict: str
) -> None:
    """R33: a completed job's result is its input revision and one; whether it is still the head is told."""
    image = house.page()
    job = house.job(image)
    house.complete(house.claim())
    before(house, image)
    assert scribe_json(operator, "job", "show", str(job))["verdict"] == verdict


def test_what_failed_of_a_page_is_counted_by_kind(house: House, operator: dict[str, str]) -> None:
    """R29, R114: of a page that was read in part; of one that was read whole nothing is said."""
    image = house.page(*(line_shape(20 + 50 * row) for row in range(5)))
    job = str(house.job(image))
    with house.engine.connect() as connection:
        head = load_head(connection, image.id)
    assert head is not None
    read, *others = [line.annotation_id for line in read_lines(head.payload)]
    why = (Category.NO_TEXT, Category.UPSTREAM, Category.TIMEOUT, Category.UPSTREAM)
    complete_job(house.engine, house.claim(), image, {read: LineText("text", 0.9)}, dict(zip(others, why, strict=True)))
    told = scribe(operator, "job", "show", job).stdout
    assert "\nfailures       upstream 2, no_text 1, timeout 1\n" in told
    assert "\nread with      local/PP-OCRv6_rec_small, context letter\n" in told
    assert scribe_json(operator, "job", "show", job)["failures"] == {"upstream": 2, "no_text": 1, "timeout": 1}
    whole = str(house.job())
    house.complete(house.claim())
    assert "\nfailures" not in scribe(operator, "job", "show", whole).stdout
    assert scribe_json(operator, "job", "show", whole)["failures"] == {}


@pytest.mark.parametrize("snapshot", ['{"transcription_provider": 7}', '{"name": ' + "[" * 1500 + "]" * 1500 + "}"])
def test_a_job_whose_row_is_odd_can_be_shown(house: House, operator: dict[str, str], snapshot: str) -> None:
    """R29: it is what one looks at when a snapshot is invalid."""
    job = str(house.job())
    with house.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        odd = text("UPDATE transcription_jobs SET context_snapshot = :snapshot, failures = '[{}]'")
        connection.execute(odd, {"snapshot": snapshot})
    shown = scribe(operator, "job", "show", job)
    assert (shown.returncode, shown.stderr) == (0, "") and "\nread with      " in shown.stdout


def test_where_an_engine_refused_ready_is_what_to_ask(house: House, operator: dict[str, str]) -> None:
    """R29: the engine and the context of a job are told, and after a failure of that engine how to see whether it works."""
    job = str(house.job())
    end_attempt(house.engine, house.claim(), Category.AUTHENTICATION)
    told = scribe(operator, "job", "show", job).stdout
    assert "\nread with      local/PP-OCRv6_rec_small, context letter; scribe ready tells whether it works\n" in told
    assert scribe_json(operator, "job", "show", job)["transcriber"] == "local/PP-OCRv6_rec_small"


def test_ages_are_each_jobs_own(house: House, operator: dict[str, str]) -> None:
    """R29: how long a job has been due, or has run; a job that is over, or not due yet, has no age."""
    for _ in range(4):
        house.job()
    done, deferred, running = claim_jobs(house.engine, 60, limit=3)
    house.complete(done)
    end_attempt(house.engine, deferred, Category.UPSTREAM)
    house.execute("UPDATE transcription_jobs SET retry_after = clock_timestamp() - interval '2 hours' WHERE attempt_count = 0")
    ages = {row["id"]: row["age_seconds"] for row in scribe_json(operator, "job", "list")}
    assert ages.pop(str(done.job_id)) is None
    assert ages.pop(str(deferred.job_id)) is None
    assert 0 < ages.pop(str(running.job_id)) < 600
    (waiting,) = ages.values()
    assert 7200 < waiting < 7800


def test_a_correction_that_will_be_read_over_is_told(house: House, operator: dict[str, str]) -> None:
    """R31: who asks for a page anew that a person has corrected is told whose text will be replaced."""
    image = house.page()
    house.save(image.id, 1)
    assert "corrected by reader" in scribe(operator, "job", "create", str(image.id)).stderr


def test_page_show_and_save(house: House, operator: dict[str, str], tmp_path: Path) -> None:
    """R91: a page is read, corrected and saved on the revision that was seen; a second save on it is refused in one line."""
    image = house.page()
    shown = scribe(operator, "page", "show", str(image.id))
    assert shown.stderr == "revision 1\n"
    page = json.loads(shown.stdout)
    page["items"][0]["body"]["value"] = "Lieber Karl,"
    file = tmp_path / "page.json"
    file.write_text(json.dumps(page))
    assert scribe(operator, "page", "save", str(image.id), str(file), "--revision", "1").stdout == "2\n"
    file.write_text(json.dumps(page).replace("Karl", "Franz"))
    stale = scribe(operator, "page", "save", str(image.id), str(file), "--revision", "1")
    assert (stale.returncode, stale.stdout, stale.stderr.count("\n")) == (1, "", 1)
    assert "is at revision 2" in stale.stderr
    assert "Lieber Karl," in scribe(operator, "page", "show", str(image.id), "--revision", "2").stdout
    assert "Lieber Karl," not in scribe(operator, "page", "show", str(image.id), "--revision", "1").stdout


def test_a_page_that_is_shown_is_saved_as_it_is(house: House, operator: dict[str, str], tmp_path: Path) -> None:
    """R91, R165: it is shown by lines, in UTF-8 in any locale, and saved unchanged it is stored byte for byte as it was."""
    image = house.page()
    house.save(image.id, 1, "Grüße 𝔄 \u05e9\u2028")
    latin = operator | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    command = [SCRIBE, "page", "show", str(image.id)]
    shown = subprocess.run(command, env=latin, capture_output=True, timeout=TIMEOUT_SECONDS).stdout.decode()
    lines = shown.split("\n")
    assert '        "value": "Grüße 𝔄 \u05e9\u2028"' in [line.rstrip(",") for line in lines] and max(map(len, lines)) < 400
    file = tmp_path / "page.json"
    file.write_text(shown)
    assert scribe(operator, "page", "save", str(image.id), str(file), "--revision", "2").stdout == "3\n"
    stored = "SELECT count(DISTINCT payload) FROM annotation_page_revisions WHERE revision > 1"
    assert house.value(stored) == 1
    file.write_text(shown.replace('"items": [', '"items": {', 1))
    refused = scribe(operator, "page", "save", str(image.id), str(file), "--revision", "3")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert f"{file}: the page cannot be taken: it is not JSON: line " in refused.stderr


def test_page_export(house: House, operator: dict[str, str], tmp_path: Path) -> None:
    """R92, R163: a page is exported at the revision that was seen: one format to the output, or files; a stale one is refused."""
    image = house.page()
    house.save(image.id, 1, "Lieber Karl,")
    command = ("page", "export", str(image.id), "--revision")
    assert scribe(operator, *command, "2", "--format", "txt").stdout == "Lieber Karl,\n"
    alto = scribe(operator, *command, "2", "--format", "alto")
    assert 'CONTENT="Lieber"' in alto.stdout and alto.stderr == ""
    out = tmp_path / "out"
    listed = scribe(operator, *command, "2", "--to", out).stdout.splitlines()
    assert listed == [str(out / f"1.{extension}") for extension in ("alto.xml", "page.xml", "hocr", "txt", "json")]
    assert (out / "1.alto.xml").read_text() == alto.stdout
    some = tmp_path / "some"
    scribe(operator, *command, "2", "--to", some, "--format", "json", "--format", "hocr", "--format", "json")
    assert sorted(path.name for path in some.iterdir()) == ["1.hocr", "1.json"]
    for number in ("1", "3"):
        stale = scribe(operator, *command, number, "--to", tmp_path / "stale")
        assert (stale.returncode, stale.stdout, stale.stderr.count("\n")) == (1, "", 1)
        assert f"is at revision 2, not at {number}" in stale.stderr
    assert not list((tmp_path / "stale").iterdir())


def test_a_further_page_is_exported_by_its_number(
    house: House, operator: dict[str, str], engines: FakeEngines, tmp_path: Path
) -> None:
    """R163: the exports of the second page of a file without an extension, too."""
    scan = io.BytesIO()
    first, second = (Picture.new("RGB", (400, 300), colour) for colour in ("white", "grey"))
    first.save(scan, "TIFF", save_all=True, append_images=[second])
    Work(house, house.batch({"x": scan.getvalue()}, tmp_path)).all()
    image_id = house.value("SELECT id FROM item_images WHERE frame = 2")
    out = tmp_path / "out"
    listed = scribe(operator, "page", "export", str(image_id), "--revision", "2", "--to", out, "--format", "txt").stdout
    assert listed == f"{out / 'x-2.txt'}\n"


def test_cancel_on_the_command_line(house: House, operator: dict[str, str]) -> None:
    """R23, R24, R34: a job and a batch are canceled with their reasons, once."""
    batch, images = house.ingested(2)
    job = str(house.value("SELECT id FROM transcription_jobs WHERE item_image_id = :id", id=images[0].id))
    assert scribe(operator, "job", "cancel", job, "--reason", "twice\n\x1b scanned").stdout == "canceled\n"
    assert scribe(operator, "job", "cancel", job).stdout == "it was canceled before\n"
    assert scribe(operator, "batch", "cancel", str(batch), "--reason", "wrong box").stdout == "canceled\n"
    assert scribe(operator, "batch", "cancel", str(batch)).stdout == "it was canceled before\n"
    assert {row["status"] for row in scribe_json(operator, "job", "list", "--batch", str(batch))} == {"canceled"}
    reasons = house.rows("SELECT action, reason FROM operator_audit ORDER BY created_at")
    assert [tuple(row) for row in reasons] == [("job cancel", "twice scanned"), ("batch cancel", "wrong box")]
    assert "twice scanned" in scribe(operator, "job", "show", job).stdout
    assert "batch cancel (wrong box)" in scribe(operator, "batch", "show", str(batch)).stdout


NOBODY = "01900000-0000-7000-8000-00000000dead"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["job", "show", "7"], 2, "7 is no job's id"),
        (["job", "show", NOBODY], 1, "there is no job"),
        (["job", "list", "--status", "lost"], 2, "no job is ever 'lost'"),
        (["job", "cancel", NOBODY], 1, "there is no job"),
        (["job", "create", NOBODY], 1, "there is no image"),
        (["batch", "cancel", NOBODY], 1, "there is no batch"),
        (["page", "show", NOBODY], 1, "has no page"),
        (["page", "save", NOBODY, "nowhere.json", "--revision", "1"], 2, "nowhere.json cannot be read"),
        (
            ["page", "save", NOBODY, "README.md", "--revision", "1"],
            2,
            "README.md: the page cannot be taken: it is not JSON: line 1, column 1",
        ),
        (["page", "save", NOBODY, "-", "--revision", "1"], 2, "standard input: the page cannot be taken: it is not JSON: line 1"),
        (["page", "save", NOBODY, "README.md"], 2, "--revision"),
        (["page", "save", NOBODY, "docs/preview.png", "--revision", "1"], 2, "is no text in UTF-8"),
        (["page", "show", NOBODY, "--revision", "99999999999"], 2, "--revision"),
        (["page", "export", NOBODY, "--revision", "1", "--format", "txt"], 1, "there is no image"),
        (["page", "export", NOBODY, "--revision", "1", "--format", "docx"], 2, "there are: alto, page, hocr, txt, json"),
        (["page", "export", NOBODY, "--revision", "1"], 2, "only one format can be printed"),
        (["page", "export", NOBODY, "--revision", "1", "--to", "README.md"], 1, "README.md cannot be written to: it is a file"),
        (["page", "export", NOBODY], 2, "--revision"),
        (["job", "list", "--limit", "99999999999999999999"], 2, "--limit"),
        (["job", "cancel", NOBODY, "--reason", "x" * 1025], 2, "longer than 1,024 characters"),
        (["worker", "--limit", "0"], 2, "--limit"),
    ],
)
def test_bad_requests_get_one_line(operator: dict[str, str], arguments: list[str], code: int, words: str) -> None:
    """R29: a bad request is answered by what is wrong and with the right exit code, and never by a traceback."""
    done = scribe(operator, *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_looking_does_not_migrate(operator: dict[str, str], server: EmbeddedServer) -> None:
    """R29: a schema that is not this program's, or not there, is named and left as it is; of an empty database, where it is."""
    server.ensure_database("not_migrated")
    try:
        url = server.url("not_migrated")
        other = operator | {"SCRIBE_DATABASE_URL": url}
        empty = scribe(other, "job", "list")
        assert (empty.returncode, empty.stderr.count("\n")) == (1, 1)
        place = url.rpartition("@")[2].partition("/")[0]
        assert f"the database not_migrated at {place} is empty" in empty.stderr and "look at SCRIBE_DATABASE_URL" in empty.stderr
        assert (url.partition("@")[0].rpartition(":")[2]) not in empty.stderr
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,)
            connection.execute("CREATE TABLE alembic_version AS SELECT '0001' AS version_num")
        for command in (["job", "list"], ["batch", "list"], ["worker", "--once"]):
            done = scribe(other, *command)
            assert (done.returncode, done.stderr.count("\n")) == (1, 1)
            assert "run scribe db upgrade" in done.stderr
    finally:
        drop_database(server, "not_migrated")


def test_every_command_is_told_in_a_whole_sentence() -> None:
    """R29: the list of commands fits a terminal of 80 columns."""
    listed = scribe(dict(os.environ) | {"COLUMNS": "80"}, "--help").stdout.partition("Commands:\n")[2].splitlines()
    assert len(listed) == 16 and all(line.endswith(".") and not line.endswith("...") for line in listed)


def test_no_command_edits_a_row(operator: dict[str, str]) -> None:
    """R36: the commands ask, read and cancel; none of them edits, requeues or deletes a job or an attempt."""
    commands = {
        line.split()[0] for line in scribe(operator, "job", "--help").stdout.split("Commands:")[1].splitlines() if line.strip()
    }
    assert commands == {"list", "show", "create", "cancel"}
