"""What the schema itself refuses, whoever asks, and that the migrations make exactly the tables the code knows."""

import re
import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from scribe_pipeline.database import DatabaseError, connect, is_current, upgrade
from scribe_pipeline.database.tables import metadata
from scribe_pipeline.errors import Category
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import cancel_job, claim_jobs
from tests.houses import House

LEASE = "lease_owner = 'someone', lease_token = 'token', lease_until = clock_timestamp()"


def refused(house: House, statement: str, **values: object) -> str:
    """Run a statement that must be refused and return the name of the constraint, or the code of a trigger's refusal."""
    with pytest.raises(DatabaseError) as caught:
        house.execute(statement, **values)
    return caught.value.constraint or str(caught.value.sqlstate)


@pytest.mark.parametrize(
    "change",
    [
        "status = 'running', attempt_count = 1",
        f"{LEASE}",
        "status = 'running', attempt_count = 1, lease_owner = 'someone', lease_token = 'token'",
        "status = 'running', attempt_count = 1, lease_token = 'token', lease_until = clock_timestamp()",
    ],
)
def test_running_means_leased(house: House, change: str) -> None:
    """R1: a running job has owner, token and deadline; any other has none of them."""
    job = house.job()
    assert refused(house, f"UPDATE transcription_jobs SET {change} WHERE id = :id", id=job) == "transcription_jobs_lease"


def test_terminal_job_keeps_no_lease(house: House) -> None:
    """R1: a job that ends lets go of its lease."""
    job = house.job()
    claim_jobs(house.engine, 60)
    change = "status = 'canceled', finished_at = clock_timestamp()"
    assert refused(house, f"UPDATE transcription_jobs SET {change} WHERE id = :id", id=job) == "transcription_jobs_lease"


@pytest.mark.parametrize("revision", ["NULL", "0", "-1"])
def test_input_revision_is_positive(house: House, revision: str) -> None:
    """R3: a job's input revision is there and greater than zero."""
    job = house.job()
    cancel_job(house.engine, job, Operator("test"))
    columns = "workspace_id, item_image_id, context_id, context_snapshot, max_attempts"
    insert = f"""INSERT INTO transcription_jobs (id, {columns}, input_revision)
                 SELECT gen_random_uuid(), {columns}, {revision} FROM transcription_jobs WHERE id = :id"""
    assert refused(house, insert, id=job) in ("23502", "transcription_jobs_input_revision_positive")


@pytest.mark.parametrize(
    "column", ["context_snapshot = '{}'", "input_revision = 2", "item_image_id = gen_random_uuid()", "max_attempts = 9"]
)
def test_what_a_job_asks_for_never_changes(house: House, column: str) -> None:
    """R2, R95: snapshot and input revision are frozen when the job is made."""
    job = house.job()
    assert refused(house, f"UPDATE transcription_jobs SET {column} WHERE id = :id", id=job) == "23001"


@pytest.mark.parametrize("status", ["pending", "running", "completed", "failed", "superseded"])
def test_terminal_status_stays(house: House, status: str) -> None:
    """R95: a job becomes terminal once and stays so."""
    job = house.job()
    cancel_job(house.engine, job, Operator("test"))
    assert refused(house, f"UPDATE transcription_jobs SET status = '{status}' WHERE id = :id", id=job) == "23001"


def test_one_active_job_an_image(house: House) -> None:
    """R94: no image has two active jobs, even by SQL."""
    job = house.job()
    columns = "workspace_id, item_image_id, context_id, context_snapshot, max_attempts, input_revision"
    insert = f"""INSERT INTO transcription_jobs (id, {columns})
                 SELECT gen_random_uuid(), {columns} FROM transcription_jobs WHERE id = :id"""
    assert refused(house, insert, id=job) == "transcription_jobs_one_active"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE transcription_job_attempts SET lease_token = 'other'",
        "UPDATE transcription_job_attempts SET context_snapshot = '{}', outcome = 'canceled', finished_at = clock_timestamp()",
        "UPDATE transcription_job_attempts SET input_revision = 7, outcome = 'canceled', finished_at = clock_timestamp()",
        "UPDATE transcription_job_attempts SET attempt_number = 7, outcome = 'canceled', finished_at = clock_timestamp()",
        "UPDATE transcription_job_attempts SET started_at = clock_timestamp()",
        "DELETE FROM transcription_job_attempts",
    ],
)
def test_attempt_is_evidence(house: House, statement: str) -> None:
    """R96: an attempt row never changes but for being closed, and is not deleted."""
    house.job()
    claim_jobs(house.engine, 60)
    assert refused(house, statement) == "23001"


def test_attempt_is_closed_once(house: House) -> None:
    """R12: a closed attempt is closed for good, and does not run again."""
    job = house.job()
    claim_jobs(house.engine, 60)
    cancel_job(house.engine, job, Operator("test"))
    completed = "outcome = 'completed', result_revision = 2"
    for change in (completed, "outcome = 'running', finished_at = NULL", "outcome = 'superseded'"):
        assert refused(house, f"UPDATE transcription_job_attempts SET {change}") == "23001"


@pytest.mark.parametrize("table", ["annotation_page_revisions", "ocr_runs"])
def test_revisions_and_baselines_are_append_only(house: House, table: str) -> None:
    """R162: what was once a revision or a baseline stays readable as it was."""
    image = house.page()
    house.execute(
        """INSERT INTO ocr_runs (id, workspace_id, item_image_id, context_id, provider, model, original_text)
           SELECT gen_random_uuid(), workspace_id, id, gen_random_uuid(), 'local', 'model', 'text' FROM item_images"""
    )
    column = "payload" if table == "annotation_page_revisions" else "original_text"
    assert refused(house, f"UPDATE {table} SET {column} = '{{}}' WHERE item_image_id = :id", id=image.id) == "23001"
    assert refused(house, f"DELETE FROM {table} WHERE item_image_id = :id", id=image.id) == "23001"


@pytest.mark.parametrize("revision", [1, 3])
def test_page_revisions_go_up_by_one(house: House, revision: int) -> None:
    """R162: the chain of a page's revisions has no gaps and never goes back."""
    image = house.page()
    assert refused(house, f"UPDATE annotation_pages SET revision = {revision} WHERE item_image_id = :id", id=image.id) == "23001"


@pytest.mark.parametrize("key", ["scan.png", f"{'a' * 64}.png", f"{'0' * 64}-01234567-89ab-cdef-0123-456789abcdef.png"])
def test_object_identity(house: House, key: str) -> None:
    """R51: the name of an image's object says its SHA-256, holds a UUID, and does not change."""
    image = house.image()
    columns = "workspace_id, item_id, label, sha256, storage_bytes, media_type, width, height"
    insert = f"""INSERT INTO item_images (id, sequence, object_key, canvas_uri, {columns})
                 SELECT gen_random_uuid(), 2, :key, 'other', {columns} FROM item_images WHERE id = :id"""
    assert refused(house, insert, key=key, id=image.id) in ("item_images_object_key_form", "item_images_key_names_bytes")
    assert refused(house, "UPDATE item_images SET object_key = :key WHERE id = :id", key=key, id=image.id) == "23001"


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
