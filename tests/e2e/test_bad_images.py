"""A folder of bad files, as a person runs it."""

import json
import shutil
from pathlib import Path

import psycopg

from scribe_pipeline.errors import Category
from tests.bad_images import FOLDER, RIGHT, needed
from tests.commands import scribe

# The smallest file of several pages; what becomes of the other pages needs no engines and is in tests/store.
PAGE = "multipage.tiff"
# What a folder's files are that are no images by name or by first bytes.
PASSED_OVER = {"negative_size.ppm", "test-ole-file.doc"}


def test_each_bad_file_is_one_plain_sentence(environment: dict[str, str], tmp_path: Path) -> None:
    """R87: each refused file has a line of its own, libraries say nothing, the exit code is 1, and nothing is left of them."""
    needed()
    bad = {name: right for name, right in RIGHT.items() if isinstance(right, Category) and name not in PASSED_OVER}
    inbox = tmp_path / "in"
    inbox.mkdir()
    for name in (*bad, *PASSED_OVER, PAGE):
        shutil.copy(FOLDER / name, inbox)
    done = scribe(environment, "run", inbox, "--json")
    assert done.returncode == 1
    said = [line.split(": ", 2) for line in done.stderr.splitlines() if line.startswith("Refused: ")]
    assert {name for _, name, _ in said} == set(bad) and len(said) == len(bad)
    assert all(sentence.startswith(name) for _, name, sentence in said)
    own = (
        "Refused: ",
        "Passed over",
        "Batch ",
        "ingest ",
        "segment ",
        "transcribe ",
        "3 of 12 pages are drafts",
        "Mend or leave out the others",
    )
    assert [line for line in done.stderr.splitlines() if not line.startswith(own)] == []
    (passed_over,) = (line for line in done.stderr.splitlines() if line.startswith("Passed over"))
    assert all(name in passed_over for name in PASSED_OVER)
    pages = json.loads(done.stdout)
    assert {page["file"]: page["error_category"] for page in pages if page["file"] != PAGE} == bad
    assert [(page["frame"], page["status"]) for page in pages if page["file"] == PAGE] == [(n, "completed") for n in (1, 2, 3)]

    url = scribe(environment, "db", "url").stdout.strip()
    with psycopg.connect(url) as connection:
        owned = {row[0] for row in connection.execute("SELECT object_key FROM item_images")}
        assert connection.execute("SELECT count(*) FROM resource_cleanup_outbox").fetchone() == (0,)
    assert {path.name for path in (Path(environment["SCRIBE_HOME"]) / "blobs").iterdir()} == owned
    assert len(owned) == 3
