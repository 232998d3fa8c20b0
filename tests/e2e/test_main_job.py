"""The main job with the real engines, as a person runs it."""

import json
import subprocess
import sys
from pathlib import Path

import iiif_prezi3
import pytest

from scribe_pipeline.metrics import Line, evaluate, read_ground_truth
from scribe_pipeline.pages import read_lines
from tests.commands import assert_no_worse_than_baseline, scribe, scribe_json
from tests.conftest import ROOT, SHARED
from tests.proofs import size_of

SAMPLES = ROOT / "samples"
# A page of each kind first, so that a small proof has them.
SHARED_PAGES = (
    "newspapers/eng-print-20c-udolpho-p27.png",
    "medieval/lat-textualis-15c-sbb-hdschr25-021v.jpg",
    "letters/eng-typed-1905-jls-L244.jpg",
    "letters/eng-hand-1905-jls-L245.jpg",
    "letters/eng-hand-1905-jls-L251.jpg",
    "letters/eng-hand-1905-jls-i084.jpg",
    "letters/fra-hand-19c-boudreau-003.jpg",
    "medieval/gml-hybrida-15c-sbb-germoct511-027r.jpg",
    "medieval/lat-textualis-14c-ubl758-024v.jpg",
    "medieval/lat-textualis-15c-sbb-hdschr25-022r.jpg",
)


def test_the_samples_become_drafts(environment: dict[str, str], tmp_path: Path) -> None:
    """R85-R90, R160: two pages, one of two columns, are read line by line; the same files again redo nothing."""
    inbox = tmp_path / "in"
    inbox.mkdir()
    for name in ("letter.jpg", "newspaper.png"):
        (inbox / name).write_bytes((SAMPLES / name).read_bytes())
    (inbox / "notes.txt").write_text("not a scan")
    (inbox / "broken.png").write_bytes((SAMPLES / "newspaper.png").read_bytes()[:20_000])
    out = tmp_path / "out"

    first = scribe(environment, "run", inbox, "--export", out, "--json")
    assert first.returncode == 1, "a file was refused"
    assert "notes.txt" in first.stderr
    assert "broken.png is damaged" in first.stderr
    assert "Traceback" not in first.stderr
    broken, letter, newspaper = json.loads(first.stdout)
    assert (broken["status"], broken["error_category"]) == ("failed", "damaged")
    for page in (letter, newspaper):
        assert (page["status"], page["revision"], page["failed_lines"]) == ("completed", 2, 0)
        assert page["mean_confidence"] > 0.9
    extensions = ("alto.xml", "page.xml", "hocr", "txt", "json")
    assert {path.name for path in out.iterdir()} == {
        f"{stem}.{extension}" for stem in ("letter", "newspaper") for extension in extensions
    }

    for stem in ("letter", "newspaper"):
        payload = (out / f"{stem}.json").read_text()
        iiif_prezi3.AnnotationPage.model_validate_json(payload)
        found = [Line(line.shape.polygon, line.text) for line in read_lines(payload)]
        score = evaluate(found, read_ground_truth(SAMPLES / f"{stem}.xml"))
        assert (score.recall, score.precision, score.order_tau) == (1.0, 1.0, 1.0)
        assert score.cer is not None
        assert score.cer <= 0.01

    again = scribe(environment, "run", inbox, "--json")
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert dagster_shows(environment) == [("process_ingest_batch", "SUCCESS")]


def dagster_shows(environment: dict[str, str]) -> list[tuple[str, str]]:
    """Return job and status of the runs that the persistent instance knows."""
    from dagster import DagsterInstance

    with DagsterInstance.from_config(str(Path(environment["SCRIBE_HOME"]) / "dagster")) as instance:
        return [(run.job_name, run.status.value) for run in instance.get_runs()]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "nowhere"], 2, "nowhere is not there"),
        (["run"], 2, "Missing argument"),
        (["run", "samples", "--context", "diary"], 2, "there is no context 'diary'; there are: letter, manuscript, newspaper"),
        (["run", "samples", "--workspace", "nobody"], 2, "there is no workspace 'nobody'"),
        (["run", "migrations"], 1, "no image in migrations"),
        (["batch", "show", "01900000-0000-7000-8000-000000000000"], 1, "scribe run or scribe db upgrade fills it"),
        (["ingest", "samples/README.md", "nowhere"], 2, "nowhere is not there"),
        (["run", "samples/letter.jpg", "--export", "README.md"], 1, "README.md cannot be written to: it is a file"),
        (["dev", "--port", "99999"], 2, "'--port'"),
    ],
)
def test_bad_requests_get_one_line(environment: dict[str, str], arguments: list[str], code: int, words: str) -> None:
    """R87: a bad request is one line that says what to do, with the right exit code and no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "commands", *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [
        ("SCRIBE_LEASE_SECONDS", "soon", 2),
        ("SCRIBE_MAX_ATTEMPTS", "99999999999", 2),
        ("SCRIBE_HOME", "~nosuchuser/x", 2),
        ("SCRIBE_BLOB_URL", "s3://bucket/prefix", 2),
        ("SCRIBE_DATABASE_URL", "postgresql://x@127.0.0.1:notaport/x", 2),
        ("SCRIBE_DATABASE_URL", "postgresql://x@127.0.0.1:1/x?bogus=1", 2),
    ],
)
def test_a_variable_that_is_wrong_is_named(environment: dict[str, str], variable: str, value: str, code: int) -> None:
    """R87: configuration errors are one line that names the variable."""
    done = scribe(environment | {variable: value}, "ingest", SAMPLES / "letter.jpg")
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert variable in done.stderr


def test_a_database_that_is_not_there_is_one_line(environment: dict[str, str]) -> None:
    """R87: so is a server that does not answer; the variable that leads there is named, and neither user nor password."""
    elsewhere = environment | {"SCRIBE_DATABASE_URL": "postgresql://reader:s3cret@127.0.0.1:1/scans"}
    for command in (["run", str(SAMPLES / "letter.jpg")], ["job", "list"]):
        done = scribe(elsewhere, *command)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert "the database does not answer" in done.stderr
        assert "in SCRIBE_DATABASE_URL, which names the database scans at 127.0.0.1:1\n" in done.stderr
        assert "s3cret" not in done.stderr and "reader" not in done.stderr


def test_ready_says_what_is_there(environment: dict[str, str]) -> None:
    """R28, R157: readiness names database, blob store and the engines of every context, and what is wrong with them."""
    not_yet = scribe(environment, "ready", "--json")
    assert not_yet.returncode == 1
    said = json.loads(not_yet.stdout)["database"]
    assert said.startswith(f"the database in {environment['SCRIBE_HOME']} is empty: ") and "look at SCRIBE_HOME" in said
    assert scribe(environment, "db", "upgrade").returncode == 0
    segmentors = ("segmentor kraken-blla", "segmentor kraken-blla-columns")
    parts = ("database", "blob store", *segmentors, "transcriber local/PP-OCRv6_rec_small")
    assert scribe_json(environment, "ready") == dict.fromkeys(parts, "ready")
    unknown = "UPDATE contexts SET transcription_provider = 'oracle' WHERE name = 'letter'"
    assert scribe(environment, "db", "psql", "-c", unknown).returncode == 0
    missing = scribe(environment, "ready", "--json")
    assert missing.returncode == 1
    assert "not in the model registry" in json.loads(missing.stdout)["transcriber oracle/PP-OCRv6_rec_small"]
    assert json.loads(missing.stdout)[parts[-1]] == "ready"
    shown = scribe(environment, "db", "url").stdout
    assert shown.startswith("postgresql://") and shown.count("\n") == 1
    assert scribe(environment, "db", "stop").stdout == "stopped\n"
    assert scribe(environment, "db", "stop").stdout == "it was not running\n"


@pytest.fixture
def shared_pages() -> list[Path]:
    """The real pages of this proof's size."""
    if not SHARED.is_dir():
        pytest.skip(f"the real pages are in {SHARED}, which is not on this machine")
    return [SHARED / "pages" / name for name in SHARED_PAGES[: size_of("shared_pages")]]


@pytest.mark.proof
def test_real_pages_read_as_well_as_the_bare_engines(environment: dict[str, str], shared_pages: list[Path], tmp_path: Path) -> None:
    """R88, R89: line recall, order and character error rate on real pages are those of the bare engines."""
    pages = scribe_json(environment, "run", *shared_pages, "--export", tmp_path)
    assert [page["status"] for page in pages] == ["completed"] * len(shared_pages)
    assert_no_worse_than_baseline(tmp_path, shared_pages)
