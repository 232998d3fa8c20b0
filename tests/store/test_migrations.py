"""Migrations go forward, with data in the database that an earlier release has made."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, insert

from scribe_pipeline.contexts import Condition, add_rule, find_context, resolve_context
from scribe_pipeline.database import EmbeddedServer, connect, is_current, upgrade
from scribe_pipeline.database.tables import item_images
from scribe_pipeline.errors import Category
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import claim_jobs, end_attempt
from scribe_pipeline.outcomes import FAMILIES, Mailer, Policy, scan_outcomes
from scribe_pipeline.pages import Image, insert_image
from tests import houses
from tests.conftest import ROOT, broken_invariants, drop_database
from tests.houses import House


def insert_image_without_frame(connection: Connection, image: Image) -> None:
    connection.execute(insert(item_images).values(**{name: value for name, value in vars(image).items() if name != "frame"}))


@pytest.fixture(params=["0001", "0002", "0003", "0004", "0005"])
def old(server: EmbeddedServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A database as an earlier release has left it."""
    if request.param < "0004":
        monkeypatch.setattr(houses, "insert_counted", insert_image_without_frame if request.param < "0003" else insert_image)
    server.ensure_database("earlier_release")
    engine = connect(server.url("earlier_release"))
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, request.param)
    yield engine
    engine.dispose()
    drop_database(server, "earlier_release")


JOBS = """
    INSERT INTO transcription_jobs (id, workspace_id, item_image_id, context_id, context_snapshot, input_revision, max_attempts,
                                    status, attempt_count, retry_after, lease_owner, lease_token, lease_until)
    SELECT gen_random_uuid(), image.workspace_id, image.id, context.id, '{}', 1, 3, queued.status, queued.attempts,
           clock_timestamp() + queued.wait, queued.owner, queued.owner || ': its token', clock_timestamp() + queued.lease
    FROM (VALUES (1, 'pending', 0, NULL::interval, NULL, NULL::interval), (2, 'pending', 0, '1 hour', NULL, NULL),
                 (3, 'running', 1, NULL, 'alive', '1 hour'), (4, 'running', 1, NULL, 'dead', '-1 hour'))
         AS queued (number, status, attempts, wait, owner, lease)
    JOIN (SELECT *, row_number() OVER (ORDER BY id) AS number FROM item_images) AS image USING (number)
    JOIN contexts AS context ON context.name = 'letter'"""
ATTEMPTS = """
    INSERT INTO transcription_job_attempts (job_id, attempt_number, workspace_id, context_snapshot, input_revision, lease_owner,
                                            lease_token)
    SELECT id, 1, workspace_id, context_snapshot, input_revision, lease_owner, lease_token
    FROM transcription_jobs WHERE status = 'running'"""


def test_a_queue_goes_on_after_the_upgrade(old: Engine, server: EmbeddedServer, tmp_path: Path) -> None:
    """R37, R96: jobs that were waiting, deferred, running and lost before the upgrade are what they were after it."""
    house = House(old, tmp_path / "blobs")
    images = [house.page() for _ in range(4)]
    house.execute(JOBS)
    house.execute(ATTEMPTS)
    assert not is_current(old)
    upgrade(old)
    assert is_current(old)
    assert house.execute("SELECT FROM item_images WHERE frame = 1") == 4
    claims = claim_jobs(old, 60, limit=9)
    assert {claim.item_image_id: claim.attempt_number for claim in claims} == {images[0].id: 1, images[3].id: 2}
    for claim in claims:
        end_attempt(old, claim, Category.UPSTREAM)
    assert broken_invariants(server.url("earlier_release")) == {}


ENDED = """
    INSERT INTO transcription_jobs (id, workspace_id, item_image_id, context_id, context_snapshot, input_revision, max_attempts,
                                    status, attempt_count, error_category, finished_at, created_at, updated_at)
    SELECT gen_random_uuid(), image.workspace_id, image.id, context.id, context.snapshot, 1, 3, ended.status, ended.attempts,
           ended.category, clock_timestamp() - interval '1 hour', clock_timestamp() - interval '2 hours',
           clock_timestamp() - interval '1 hour'
    FROM (VALUES (1, 'superseded', 0, NULL), (2, 'failed', 1, 'timeout'), (3, 'failed', 1, 'upstream'))
         AS ended (number, status, attempts, category)
    JOIN (SELECT *, row_number() OVER (ORDER BY id) AS number FROM item_images) AS image USING (number)
    JOIN (SELECT id, json_build_object('name', name)::text AS snapshot FROM contexts WHERE name = 'letter') AS context ON true"""
THEIR_ATTEMPTS = """
    INSERT INTO transcription_job_attempts (job_id, attempt_number, workspace_id, context_snapshot, input_revision, lease_owner,
                                            lease_token, started_at, finished_at, outcome, error_category)
    SELECT id, 1, workspace_id, context_snapshot, input_revision, 'gone', id || ': its token', created_at, finished_at, 'failed',
           error_category
    FROM transcription_jobs WHERE status = 'failed'"""
THEIR_EVENTS = """
    INSERT INTO event_outbox (id, workspace_id, event_type, job_id, item_image_id, subject, body)
    SELECT gen_random_uuid(), workspace_id, 'dev.scribe.transcription.failed', id, item_image_id, 'a job', '{}'
    FROM transcription_jobs WHERE status = 'failed'"""
FLYERS = """
    INSERT INTO flyer_tagging_jobs (status, passed, error, updated_at)
    SELECT status, passed, error, clock_timestamp() - interval '1 hour'
    FROM (VALUES ('done', true, NULL), ('failed', NULL, 'worker lost')) AS ended (status, passed, error)"""


def test_of_what_had_ended_before_the_upgrade_nobody_is_told(old: Engine, server: EmbeddedServer, tmp_path: Path) -> None:
    """R199: jobs that ended before have no outcome after the upgrade, and ended when they did; a scan records them as history."""
    house = House(old, tmp_path / "blobs")
    for _ in range(3):
        house.page()
    house.execute(ENDED)
    house.execute(THEIR_ATTEMPTS)
    house.execute(THEIR_EVENTS)
    ended = house.rows("SELECT id, updated_at FROM transcription_jobs ORDER BY id")
    upgrade(old)
    assert house.rows("SELECT id, updated_at FROM transcription_jobs ORDER BY id") == ended
    assert (
        house.value("SELECT num_nonnulls(outcome_class, outcome_facts, outcome_recorded_at) FROM transcription_jobs LIMIT 1") == 0
    )
    house.execute(FLYERS)
    policy = Policy(enabled=True, recipient="admin@example.org", lookback_hours=24, max_per_hour=12)
    # a mail to this one would be a problem of the scan
    nobody = Mailer(None, None, "scribe@example.org")
    done = scan_outcomes(old, dict.fromkeys(FAMILIES.values(), policy), nobody)
    assert done is not None and not done.problems
    assert done.notices == {"backfill": 3, "none": 2}
    assert house.rows("SELECT id, updated_at FROM transcription_jobs ORDER BY id") == ended
    assert broken_invariants(server.url("earlier_release")) == {}


def test_contexts_go_on_after_the_upgrade(old: Engine, server: EmbeddedServer, tmp_path: Path) -> None:
    """R99, R166: contexts that were added by hand are what they were, with the jobs made of them, and rules may name them."""
    house = House(old, tmp_path / "blobs")
    house.execute(
        """INSERT INTO contexts (id, workspace_id, name, is_default, segmentation_model, transcription_provider,
                                 transcription_model)
           SELECT gen_random_uuid(), id, 'own', true, 'kraken-blla', 'local', 'PP-OCRv6_rec_small' FROM workspaces"""
    )
    images = [house.page() for _ in range(4)]
    house.execute(JOBS)
    kept = "SELECT to_jsonb(context) - 'segmentation_model' - 'updated_at' FROM contexts AS context ORDER BY name"
    before, jobs = house.rows(kept), "SELECT id, context_id, context_snapshot FROM transcription_jobs ORDER BY id"
    snapshots = house.rows(jobs)
    upgrade(old)
    assert house.rows(kept) == before
    assert house.rows(jobs) == snapshots
    owner = images[0].workspace_id
    with old.connect() as connection:
        assert resolve_context(connection, owner).reason == "workspace default"
    add_rule(old, "default", "own", [Condition(field="hand", operator="eq", value="own")], 0, Operator("test"))
    add_rule(old, "default", "letter", [Condition(field="hand", operator="eq", value="typed")], 0, Operator("test"))
    with old.connect() as connection:
        found = [find_context(connection, owner, metadata={"hand": hand}).name for hand in ("own", "typed", "other")]
    assert found == ["own", "letter", "own"]
