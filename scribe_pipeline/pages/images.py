"""The images of an item: statements on `item_images`, and the addresses that follow from an image's id."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, insert, select

from scribe_pipeline.database import one_of
from scribe_pipeline.database.tables import item_images


@dataclass(frozen=True)
class Image:
    """A stored scan: who owns it, its place in the item, which object holds its bytes, its size in pixels once upright."""

    id: UUID
    workspace_id: UUID
    item_id: UUID
    sequence: int
    frame: int
    label: str
    object_key: str
    sha256: str
    storage_bytes: int
    media_type: str
    width: int
    height: int
    canvas_uri: str

    @property
    def file(self) -> str:
        """The name of the scanned file that the image is a page of."""
        return self.label if self.frame == 1 else self.label.removesuffix(f" ({self.frame})")

    @property
    def page_id(self) -> str:
        """The id of the image's canonical AnnotationPage."""
        return f"{self.canvas_uri}/annotations"


_COLUMNS = tuple(item_images.c[name] for name in Image.__dataclass_fields__)


def canvas_uri(public_url: str, image_id: UUID) -> str:
    """The id of the canvas that an image is painted on."""
    return f"{public_url}/item-image-{image_id}/canvas/page-1"


def insert_image(connection: Connection, image: Image) -> None:
    """Add the image."""
    connection.execute(insert(item_images).values(**vars(image)))


def load_image(connection: Connection, image_id: UUID | None) -> Image | None:
    """Return the image, or None if it is gone."""
    return _one(connection, item_images.c.id == image_id)


def find_image(connection: Connection, object_key: str) -> Image | None:
    """Return the image whose bytes the object holds, or None."""
    return _one(connection, item_images.c.object_key == object_key)


def load_images(connection: Connection, image_ids: Sequence[UUID]) -> list[Image]:
    """Return those of the images that are there, in their items' order."""
    order = (item_images.c.item_id, item_images.c.sequence, item_images.c.frame)
    rows = connection.execute(select(*_COLUMNS).where(one_of(item_images.c.id, image_ids)).order_by(*order))
    return [Image(*row) for row in rows]


def _one(connection: Connection, which: ColumnElement[bool]) -> Image | None:
    row = connection.execute(select(*_COLUMNS).where(which)).one_or_none()
    return None if row is None else Image(*row)
