"""The schema as a whole, and that the migrations make exactly the tables the code knows; `test_checks` has what it refuses."""

import re
import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from scribe_pipeline.database import DatabaseError, connect, is_current, upgrade
from scribe_pipeline.database.tables import metadata
from scribe_pipeline.errors import Category
from tests.houses import House


@pytest.mark.parametrize(
    ("table", "column"), [("transcription_jobs", "input_revision"), ("transcription_job_attempts", "lease_token")]
)
def test_what_may_not_be_missing(house: House, table: str, column: str) -> None:
    """R3, R39: there is no job without an input revision, and no attempt without a token."""
    house.job()
    house.claim()
    with pytest.raises(DatabaseError) as caught:
        house.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL; UPDATE {table} SET {column} = NULL")
    assert caught.value.sqlstate == "23502"


def test_no_foreign_keys(house: House) -> None:
    """The repository layer checks ownership; the schema has no foreign key."""
    assert house.value("SELECT count(*) FROM pg_constraint WHERE contype = 'f'") == 0


def test_schema_knows_no_language(house: House) -> None:
    """R165: no check, default or search configuration of the schema names a language or a script."""
    checks = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace"
    columns = "SELECT concat(column_default, generation_expression) FROM information_schema.columns WHERE table_schema = 'public'"
    text = " ".join(row[0] for row in house.rows(checks) + house.rows(columns)).lower()
    assert "simple" in text
    assert not re.findall(r"\b(english|german|french|latin|arabic|script|language|ltr|rtl)\b", text)


def test_tables_of_code_and_migrations_agree(house: House) -> None:
    """A column that only one of the two knows would be found by a user first."""
    with house.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        found = compare_metadata(context, metadata)
    about_columns = [entry for entry in found if "index" not in str(entry[0]) and "constraint" not in str(entry[0])]
    assert about_columns == []


def test_two_processes_may_migrate_at_once(server) -> None:  # type: ignore[no-untyped-def]
    """Commands that start together each see to the schema."""
    server.ensure_database("migrated_at_once")
    engines = [connect(server.url("migrated_at_once")) for _ in range(4)]
    assert not is_current(engines[0])
    threads = [threading.Thread(target=upgrade, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert is_current(engines[0])
    for engine in engines:
        engine.dispose()


@pytest.mark.parametrize("table", ["transcription_jobs", "transcription_job_attempts", "ingest_batch_files"])
def test_categories_of_code_and_schema_agree(house: House, table: str) -> None:
    """The closed list of error categories is the same in the code and in each table that holds one."""
    check = house.value("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = :name", name=f"{table}_error_category")
    listed = set(re.findall(r"'([a-z_]+)'", check))
    stored = {category.value for category in Category if category.stored}
    only_of_jobs = {"page_changed", "page_unavailable", "too_many_segments", "no_text", "credential"}
    assert listed == (stored - only_of_jobs if table == "ingest_batch_files" else stored)
