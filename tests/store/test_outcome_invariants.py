"""The invariants of outcomes can be broken: each finds rows as no program writes them."""

import json

import psycopg
import pytest

from tests.conftest import broken_in
from tests.houses import House
from tests.store.refusals import outcome

FILE = "01900000-0000-7000-8000-0000000000aa"
ORDINARY = ["worker lost at page 3", "and/or image@2x 24/12/2026", "[file] in [path]", "page", "letters from home.pdfs"]
TELLING = [
    "to someone@example.org", "see HTTPS://host", "job 01900000-0000-7000-8000-0000000000ff",
    "user 0190000000007000800000000000000f", "in /home/someone", "Letters from HOME.pdf is broken", "read keys-of-1912: no",
]  # fmt: skip


def broken(url: str, *statements: str) -> set[str]:
    """The invariants that these statements break, past triggers and constraints."""
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        for table in ("flyer_tagging_jobs", "transcription_jobs"):
            connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_outcome")
        for statement in statements:
            connection.execute(statement)
        found = {*broken_in(connection)}
        connection.rollback()
    return found


def a_flyer(notice: str = "none", told: str = "NULL", recorded: str = "'2 minutes'", **facts: object) -> str:
    """An insert of a job whose outcome was recorded so long after its end."""
    written = {"failures": [], "notice": notice, "notice_attempts": 0} | facts
    return f"""INSERT INTO flyer_tagging_jobs (status, user_id, file_id, input_key, outcome_class, outcome_facts,
                                               outcome_recorded_at, failure_notified_at, updated_at)
               VALUES ('failed', gen_random_uuid(), '{FILE}', 'keys-of-1912', 'pipeline_error', '{json.dumps(written)}',
                       now() + interval {recorded}, {told}, now())"""


@pytest.mark.parametrize(
    ("invariant", "statements"),
    [
        (None, [a_flyer(), a_flyer(recorded="'-1 second'")]),
        (None, [a_flyer("digest", "now()"), a_flyer("digest", "now() - interval '1 hour'"), a_flyer("digest", "now()")]),
        ("I13 a notice", [a_flyer(notice_attempts=4)]),
        ("I13 the digests", [a_flyer("digest", "now()"), a_flyer("digest", "now() - interval '59 minutes'")]),
        ("I14", [a_flyer(recorded="'119 seconds'")]),
        ("I14", [a_flyer(recorded="'0 seconds'")]),
        *((None, [a_flyer(error=text)]) for text in ORDINARY),
        *(("I16 no facts", [a_flyer(error=text)]) for text in TELLING),
        ("I16 no facts", [a_flyer(failures=["none", *TELLING])]),
    ],
)
def test_invariants_of_tagging_jobs_find_what_breaks_them(
    house: House, database_url: str, invariant: str | None, statements: list[str]
) -> None:
    """I13, I14, I16: nothing is found of rows in order, and of others by the one invariant that they break."""
    file = f"INSERT INTO files (id, name) VALUES ('{FILE}', 'letters from home.pdf')"
    found = broken(database_url, file, *statements)
    assert [name.startswith(invariant) for name in found] == [True] if invariant else not found


@pytest.mark.parametrize(
    ("invariant", "change"),
    [
        ("I13 a notice", """outcome_facts = outcome_facts || '{"notice_attempts": 4}'"""),
        ("I14", "outcome_recorded_at = updated_at + interval '1 minute'"),
        ("I16 no facts", """outcome_facts = outcome_facts || '{"engine": "for Letters 1912.png"}'"""),
    ],
)
def test_invariants_of_transcription_jobs_find_what_breaks_them(
    house: House, database_url: str, invariant: str, change: str
) -> None:
    """I13, I14, I16: the same of the other family, whose files are images of items."""
    job_id = house.job()
    named = f"UPDATE item_images SET label = 'letters 1912.png' WHERE id = '{house.image_of(job_id)}'"
    ended = f"UPDATE transcription_jobs SET status = 'superseded', finished_at = now(), {outcome('none', 0)}"
    assert broken(database_url, named, ended) == set()
    (found,) = broken(database_url, named, ended, f"UPDATE transcription_jobs SET {change}")
    assert found.startswith(invariant)
