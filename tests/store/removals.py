"""What tests of the cleanup worker have in common: objects to be removed, and how their rows are made due."""

from collections.abc import Callable

from sqlalchemy import text

from scribe_pipeline.database import in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.pages import Image
from scribe_pipeline.storage import (
    UPLOAD,
    Blob,
    Removals,
    hand_over_blobs,
    open_store,
    remove_due,
)
from scribe_pipeline.storage.removal import (
    LEASE_SECONDS,
    RemovalClaim,
    claim_removal,
)
from scribe_pipeline.workspaces import read_usage
from tests.houses import House

PROBLEM = "the store does not answer"
ROW = "SELECT status, attempt_count, delete_fenced_at, storage_bytes, last_error, lease_token FROM resource_cleanup_outbox"
DUE = "UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp()"
DUE_FOR = """UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp() - :age * interval '1 second'
             WHERE resource_key = :key"""
TRIPLET = "triplet_presentation_image"


def used(house: House) -> int:
    """Used bytes, which are the same for the one workspace and for all."""
    of_all, of_one = in_transaction(house.engine, read_usage)
    assert of_all.used_bytes == of_one.used_bytes
    return of_one.used_bytes


def given_up(house: House) -> Image:
    """An image that is no more: its object waits to be removed."""
    image = house.image()
    with house.engine.begin() as connection:
        hand_over_blobs(connection, [Blob(image.workspace_id, image.object_key, image.storage_bytes)])
        connection.execute(text("DELETE FROM item_images WHERE id = :id"), {"id": image.id})
    return image


def remove(house: House) -> Removals:
    return remove_due(house.engine, {UPLOAD: open_store(house.store_url).delete})


def claim(house: House, kind: str = UPLOAD) -> RemovalClaim:
    found = claim_removal(house.engine, {kind}, LEASE_SECONDS)
    assert found is not None
    return found


def failing(category: Category = Category.TRANSPORT) -> Callable[[str], None]:
    def fail(key: str) -> None:
        raise ScribeError(category, PROBLEM)

    return fail


def triplet(house: House, max_attempts: int = 3) -> None:
    house.execute(
        """INSERT INTO resource_cleanup_outbox (id, workspace_id, kind, resource_key, max_attempts)
           SELECT gen_random_uuid(), id, 'triplet_presentation_image', gen_random_uuid()::text, :attempts FROM workspaces""",
        attempts=max_attempts,
    )
