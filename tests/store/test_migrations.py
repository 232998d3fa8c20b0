"""Migrations go forward, with data in the database that an earlier release has made."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, insert

from scribe_pipeline.database import EmbeddedServer, connect, is_current, upgrade
from scribe_pipeline.database.tables import item_images
from scribe_pipeline.errors import Category
from scribe_pipeline.jobs import claim_jobs, end_attempt
from scribe_pipeline.pages import Image, insert_image
from tests import houses
from tests.conftest import ROOT, broken_invariants, drop_database
from tests.houses import House


def insert_image_without_frame(connection: Connection, image: Image) -> None:
    connection.execute(insert(item_images).values(**{name: value for name, value in vars(image).items() if name != "frame"}))


@pytest.fixture(params=["0001", "0002", "0003"])
def old(server: EmbeddedServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A database as an earlier release has left it."""
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
