"""The one order in which rows are locked. Whoever holds two of them took them here, so that nobody waits in a circle."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, Row, Table, select

from scribe_pipeline.database import tables

_ORDER = (
    tables.ingest_batches,
    tables.ingest_batch_files,
    tables.items,
    tables.item_images,
    tables.transcription_jobs,
    tables.annotation_pages,
)


def lock(connection: Connection, wanted: Mapping[Table, ColumnElement[bool]]) -> dict[Table, Row[tuple[object, ...]] | None]:
    """Lock one row of each table `FOR UPDATE`, in the house's order whatever the mapping's; a row that is not there is None."""
    return {
        table: connection.execute(select(table).where(wanted[table]).with_for_update()).one_or_none()
        for table in sorted(wanted, key=_ORDER.index)
    }
