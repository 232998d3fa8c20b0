"""A tick costs the same however much history there is: none of its statements reads a table of jobs from one end to the other."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uuid_utils.compat as uuid_utils
from sqlalchemy import Engine, event

from scribe_pipeline.database import EmbeddedServer, connect, upgrade
from scribe_pipeline.errors import Category
from scribe_pipeline.jobs import end_attempt
from scribe_pipeline.outcomes import FAMILIES, Family, longest_waiting
from tests.conftest import drop_database
from tests.endings import FLYERS, JOBS, Endings
from tests.history import add_history
from tests.houses import House
from tests.mail_sink import MailSink

HISTORY = 20_000
# By what each statement of a tick is about: the indexes of which one serves it, and words that no other statement has.
KINDS = {
    "rows to record": ("unrecorded", r"AS is_history"),
    "who waits longest": ("unrecorded", r"AS waits"),
    "the hour's claims": ("notice_claims", r"SELECT count.*to_char"),
    "notices to send again": ("undelivered", r"AS is_late"),
    "the last digest": ("digest", r"SELECT coalesce.*max\("),
    "rows of the digest": ("digest_waiting", r"SELECT.*failure_notified_at IS NULL ORDER BY"),
    "their claim": ("digest_waiting|pkey", r"UPDATE.*= ANY"),
    "their release": ("digest", r"UPDATE.*failure_notified_at = %"),
    "earlier jobs": ("by_file|by_input|by_image", r"SELECT count.*created_at <"),
    "an outcome": ("unrecorded|pkey", r"UPDATE.*outcome_class="),
    "a step of a notice": ("undelivered|pkey", r"UPDATE.*SET outcome_facts="),
}
Statement = tuple[str, dict[str, Any]]


@contextmanager
def statements_of(engine: Engine) -> Iterator[list[Statement]]:
    """Collect the statements with their parameters."""
    seen: list[Statement] = []

    def see(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        seen.append((statement, dict(parameters or {})))

    event.listen(engine, "before_cursor_execute", see)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", see)


@pytest.fixture(scope="module")
def ticks(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, list[Statement]]]:
    """A house with history, and the statements of ticks in which all happens that can happen in one.

    The jobs of its history have no pages, so the invariants are not asked for.
    """
    server.ensure_database("history")
    engine = connect(server.url("history"))
    upgrade(engine)
    house = House(engine, tmp_path_factory.mktemp("blobs"))
    for family in FAMILIES.values():
        add_history(house, family, HISTORY)
    with MailSink() as sink:
        endings = Endings(house, sink, max_per_hour=1)
        endings.active()
        endings.flyer(file_id=uuid_utils.uuid7())
        endings.flyer(input_key="a key")
        for _ in range(2):
            house.job()
            end_attempt(engine, house.claim(), Category.AUTHENTICATION)
        endings.unguarded("UPDATE transcription_jobs SET updated_at = now() - interval '5 minutes' WHERE status = 'failed'")
        sink.order(451, times=None)
        with statements_of(engine) as seen:
            with engine.connect() as connection:
                assert longest_waiting(connection, FAMILIES.values()) is not None
            endings.scan()
            endings.scan()
            endings.digest()
    yield house, seen
    engine.dispose()
    drop_database(server, "history")


def plan(house: House, statement: str, values: dict[str, Any], *, generic: bool) -> list[dict[str, Any]]:
    """The nodes of a statement's plan: for these values, or, as a session makes it that has run it often, for any."""
    with house.engine.connect() as connection, connection.connection.cursor() as cursor:
        if generic:
            numbers = {name: f"${number}" for number, name in enumerate(values, 1)}
            numbered = re.sub(r"%\((.+?)\)s", lambda found: numbers[found[1]], statement)
            cursor.execute(f"EXPLAIN (FORMAT JSON, GENERIC_PLAN) {numbered}")
        else:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", values)
        (((whole,),),) = cursor.fetchall()
    nodes = [whole["Plan"]]
    for node in nodes:
        nodes += node.get("Plans", ())
    return nodes


@pytest.mark.parametrize("generic", [False, True], ids=["values", "generic"])
@pytest.mark.parametrize("family", [FLYERS, JOBS], ids=["flyer", "job"])
def test_no_statement_reads_the_history(ticks: tuple[House, list[Statement]], family: Family, generic: bool) -> None:
    """R172, R174: each finds its rows by an index that holds little besides; none reads the table, nor an index of all its rows."""
    house, seen = ticks
    met = set()
    for statement, values in seen:
        if family.name not in statement:
            continue
        (kind,) = [kind for kind, (_, words) in KINDS.items() if re.search(words, statement, re.DOTALL)]
        met.add(kind)
        nodes = plan(house, statement, values, generic=generic)
        used = {node["Index Name"] for node in nodes if family.name in node.get("Index Name", "")}
        assert len(used) == 1 and re.fullmatch(f"{family.name}_({KINDS[kind][0]})", *used), f"{kind}: {used}"
        assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Relation Name"] == family.name], kind
    assert met == {*KINDS}
