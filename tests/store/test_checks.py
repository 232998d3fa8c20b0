"""Every constraint and every trigger of the schema refuses what it is there to refuse, and nobody else refuses it.

`refusals` lists the changes. Each is tried, and undone, in one database that holds a row of every kind.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, text

from scribe_pipeline.database import DatabaseError, EmbeddedServer, connect, in_transaction
from scribe_pipeline.events import Operator
from scribe_pipeline.exports import derive_exports
from scribe_pipeline.ingest import cancel_batch
from scribe_pipeline.storage import UPLOAD, open_store
from scribe_pipeline.storage.removal import claim_removal, fence_removal
from tests.conftest import fresh_database
from tests.houses import House, png
from tests.store.refusals import BESIDE, CHECKS, EVIDENCE, KEPT, OPENING, STATEMENTS, STAYING, STEPS, TOUCHING, UNIQUE
from tests.store.refusals import outcome as recorded_outcome

# PostgreSQL's restrict_violation: how the triggers refuse.
REFUSED = "23001"
CONSTRAINTS = CHECKS | {name: (change,) for name, change in UNIQUE.items()}
REFUSING = [*dict.fromkeys((*KEPT, *STEPS, *EVIDENCE, *STAYING, *STATEMENTS))]
TRIGGERS = [*dict.fromkeys((*REFUSING, *TOUCHING, *OPENING))]
# Which rows may be changed at all.
OPEN = {"transcription_jobs": " WHERE status = 'pending'", "transcription_job_attempts": " WHERE outcome = 'running'"}


class UndoneError(Exception):
    """Nothing refused the change; it is rolled back."""


@pytest.fixture(scope="module")
def furnished(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A database with rows of every table, in the states that the listed changes begin from."""
    with fresh_database(server) as url:
        engine = connect(url)
        house = House(engine, tmp_path_factory.mktemp("blobs"))
        furnish(house)
        yield house
        engine.dispose()


def furnish(house: House) -> None:
    """Two completed jobs, one that runs in its second try, two pending; an open batch and a canceled one; deliveries, exports.

    Of the removals one is fenced, one claimed, one staged, one waits and one has failed; of the reservations one is bound. Of the
    jobs of each family one has an outcome, with a notice that has failed in its first attempt.
    """
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'other')")
    house.execute(
        """INSERT INTO context_selection_rules (id, workspace_id, context_id, conditions)
           SELECT gen_random_uuid(), workspaces.id, contexts.id, '[{"field": "language", "operator": "eq", "value": "la"}]'
           FROM workspaces, contexts WHERE workspaces.name = 'default' AND contexts.name = 'manuscript'"""
    )
    house.execute(
        """INSERT INTO webhook_subscriptions (id, workspace_id, target_url, signing_secret)
           SELECT gen_random_uuid(), id, 'https://' || place, repeat('s', 32)
           FROM workspaces, unnest(ARRAY['one', 'two']) AS place WHERE workspaces.name = 'default'"""
    )
    house.ingested(3, incomplete=2)
    house.ingested(1)
    house.complete(house.claim())
    house.complete(house.claim())
    house.claim()
    house.expire_lease()
    house.claim()
    drafted = house.value("SELECT item_image_id FROM annotation_pages WHERE revision = 2 LIMIT 1")
    derive_exports(house.engine, open_store(house.store_url), drafted, 2)
    canceled, _ = house.ingested(1, incomplete=3)
    cancel_batch(house.engine, canceled, Operator("test"))
    claim = claim_removal(house.engine, {UPLOAD}, 60)
    assert claim is not None and fence_removal(house.engine, claim)
    assert claim_removal(house.engine, {UPLOAD}, 60)
    _, (image,) = house.ingested(0, incomplete=1)
    house.unstore(image.id)
    house.execute(
        """INSERT INTO resource_cleanup_outbox (id, workspace_id, kind, resource_key, status)
           SELECT gen_random_uuid(), id, 'triplet_presentation_item', 'item', 'failed' FROM workspaces WHERE name = 'default'"""
    )
    house.batch({"a.png": png(), "b.png": png()}, house.folder / "in")
    house.execute("UPDATE storage_reservations SET resource_key = 'bound' WHERE sequence = 1")
    house.execute("UPDATE storage_quota_usage SET reserved_bytes = reserved_bytes / 2")
    house.job()
    house.execute(
        """UPDATE webhook_deliveries SET status = 'delivered'
           WHERE id IN (SELECT id FROM webhook_deliveries ORDER BY created_at, id LIMIT 1)"""
    )
    house.execute(
        """INSERT INTO flyer_tagging_jobs (status, error)
           VALUES ('queued', NULL), ('failed', 'worker lost'), ('failed', 'worker lost too')"""
    )
    house.execute("INSERT INTO outcome_activations (family) VALUES ('flyer_tagging_jobs')")
    for table, ended in (("flyer_tagging_jobs", "error = 'worker lost'"), ("transcription_jobs", "status = 'completed'")):
        first = f"WHERE id = (SELECT id FROM {table} WHERE {ended} ORDER BY created_at, id LIMIT 1)"
        assert house.execute(f"UPDATE {table} SET {recorded_outcome('failed', 1)} {first}") == 1


def outcome(house: House, statement: str, before: str) -> str:
    """Run a statement after another and undo both; return who or what refused the second, or how many rows it changed."""

    def try_it(connection: Connection) -> None:
        connection.execute(text(before))
        raise UndoneError(f"{connection.execute(text(statement)).rowcount} rows")

    try:
        in_transaction(house.engine, try_it)
    except DatabaseError as error:
        return error.constraint or str(error.sqlstate)
    except UndoneError as error:
        return str(error)
    raise AssertionError("unreachable")


def table_of(house: House, name: str) -> str:
    """The table of a constraint, an index or a trigger, there or not: what its name begins with."""
    tables = "SELECT tablename FROM pg_tables WHERE starts_with(:name, tablename || '_') ORDER BY length(tablename) DESC"
    return str(house.value(tables, name=name))


def removal(house: House, name: str) -> str:
    """The statement that removes a constraint, a unique index or a trigger."""
    if name in TRIGGERS:
        return f"DROP TRIGGER {name} ON {table_of(house, name)}"
    if house.rows("SELECT FROM pg_constraint WHERE conname = :name", name=name):
        return f"ALTER TABLE {table_of(house, name)} DROP CONSTRAINT {name}"
    return f"DROP INDEX {name}"


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_each_constraint_refuses(furnished: House, name: str) -> None:
    """R1, R3, R11, R39, R51, R94: the change breaks this one constraint, triggers aside, and without it would go through."""
    no_triggers = "SET LOCAL session_replication_role = replica"
    for change in CONSTRAINTS[name]:
        statement = f"UPDATE {table_of(furnished, name)} SET {change}"
        assert outcome(furnished, statement, no_triggers) == name, change
        without = outcome(furnished, statement, f"{no_triggers}; {removal(furnished, name)}")
        assert without.endswith(" rows") and without != "0 rows", f"{change}: {without}"


def refused_by(house: House, name: str) -> list[str]:
    """The statements that a trigger is to refuse."""
    if name in STATEMENTS:
        return [*STATEMENTS[name]]
    table = table_of(house, name)
    types = dict(house.rows("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = :table", table=table))
    if name in STAYING:
        return [f"TRUNCATE {table}"]
    beside = f", {BESIDE[name]}" if name in BESIDE else ""
    updates = [f"{column} = {other_value(column, types[column])}{beside}{OPEN.get(table, '')}" for column in KEPT.get(name, ())]
    updates += STEPS.get(name, ())
    if EVIDENCE.get(name) == "UPDATE OR DELETE":
        updates.append("created_at = created_at")
    return [f"UPDATE {table} SET {change}" for change in updates] + ([f"DELETE FROM {table}"] if name in EVIDENCE else [])


def other_value(column: str, data_type: str) -> str:
    """An expression for another value than the column has."""
    if data_type == "uuid":
        return "gen_random_uuid()"
    if data_type == "text":
        return f"{column} || ' '"
    if data_type == "jsonb":
        return f"{column} || {column}"
    return f"{column} + interval '1 hour'" if data_type.startswith("timestamp") else f"{column} + 1"


@pytest.mark.parametrize("name", REFUSING)
def test_each_trigger_refuses(furnished: House, name: str) -> None:
    """R2, R12, R32, R34, R51, R56, R67, R68, R79, R95, R96, R162: the change is refused as an offence against history.

    It is this trigger alone that refuses it.
    """
    for statement in refused_by(furnished, name):
        assert outcome(furnished, statement, "SELECT") == REFUSED, statement
        assert outcome(furnished, statement, removal(furnished, name)) not in (REFUSED, "0 rows"), statement


def test_a_page_begins_with_revision_one(furnished: House) -> None:
    """R162: no page is made at another revision."""
    statement = """INSERT INTO annotation_pages (item_image_id, workspace_id, page_id, canvas_uri, payload, revision, updated_by)
                   SELECT gen_random_uuid(), workspace_id, 'new', 'new', '{}', 2, 'test' FROM annotation_pages LIMIT 1"""
    assert outcome(furnished, statement, "SELECT") == REFUSED


@pytest.mark.parametrize("name", EVIDENCE)
@pytest.mark.parametrize("reason", ["item", "retention"])
def test_evidence_goes_with_its_item_or_when_its_time_is_over(furnished: House, name: str, reason: str) -> None:
    """R12: whoever says why may delete evidence; changing it is refused all the same, and so is any other reason."""
    delete = f"DELETE FROM {table_of(furnished, name)}"
    assert outcome(furnished, delete, f"SET LOCAL scribe.deleting = '{reason}'").endswith(" rows")
    assert outcome(furnished, delete, "SET LOCAL scribe.deleting = 'other'") == REFUSED
    if EVIDENCE[name] == "UPDATE OR DELETE":
        update = f"UPDATE {table_of(furnished, name)} SET created_at = created_at"
        assert outcome(furnished, update, f"SET LOCAL scribe.deleting = '{reason}'") == REFUSED


@pytest.mark.parametrize("name", TOUCHING)
def test_each_change_says_when_it_was_made(furnished: House, name: str) -> None:
    """A row's `updated_at` is the database's time of its last change, whatever the statement says."""
    table, late = table_of(furnished, name), "updated_at = '2000-01-01'"
    forged = f"UPDATE {table} SET {TOUCHING[name]}, {late}{OPEN.get(table, '')}"
    seen = f"DO $$ BEGIN ASSERT (SELECT count(*) FROM {table} WHERE {late}) = 0; END $$"
    undone = outcome(furnished, seen, forged)
    assert undone.endswith(" rows")
    assert outcome(furnished, seen, f"{removal(furnished, name)}; {forged}") == "P0004", "only this trigger does it"


@pytest.mark.parametrize("name", OPENING)
def test_a_new_workspace_has_its_quota(furnished: House, name: str) -> None:
    """R78: nothing is stored in a workspace without a limit; it is there as soon as the workspace is."""
    made = "INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'new')"
    seen = """DO $$ BEGIN ASSERT (SELECT limit_bytes = 5368709120 FROM storage_quota_usage AS quota
                                  JOIN workspaces ON workspaces.id::text = quota.scope WHERE name = 'new'); END $$"""
    assert outcome(furnished, seen, made).endswith(" rows")
    assert outcome(furnished, seen, f"{removal(furnished, name)}; {made}") == "P0004", "only this trigger does it"


def test_the_lists_are_complete(furnished: House) -> None:
    """A new constraint, unique index or trigger has its entry in `refusals`."""
    assert names(furnished, "SELECT conname FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace") == {
        *CHECKS
    }
    unique = "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
    unique += " WHERE indisunique AND NOT indisprimary AND relnamespace = 'public'::regnamespace"
    assert names(furnished, unique) == {*UNIQUE}
    assert names(furnished, "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal") == {*TRIGGERS}


def names(house: House, query: str) -> set[Any]:
    """The names that a query of the catalog gives."""
    return {row[0] for row in house.rows(query)}


def test_the_lists_of_kept_columns_are_complete(furnished: House) -> None:
    """R2, R96: a column that a trigger keeps is tried above."""
    in_catalog = furnished.rows("SELECT tgname, tgargs FROM pg_trigger WHERE tgfoid = 'scribe_keep_columns'::regproc")
    assert {row.tgname: tuple(bytes(row.tgargs).decode().split("\0")[:-1]) for row in in_catalog} == KEPT
