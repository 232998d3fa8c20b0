"""The one order in which rows are locked. Whoever holds two of them took them here, so that nobody waits in a circle."""

from collections.abc import Mapping
from typing import Any

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


def lock(connection: Connection, wanted: Mapping[Table, ColumnElement[bool]]) -> dict[Table, list[Row[Any]]]:
    """Lock the rows wanted of each table `FOR UPDATE` and return them, by their keys' order.

    Tables are taken in the house's order, whatever the mapping's. A condition is asked when its table's turn has come, so that
    it sees what those who held the tables before have committed.
    """
    return {
        table: list(
            connection.execute(select(table).where(wanted[table]).order_by(*table.primary_key).with_for_update(of=table)).all()
        )
        for table in sorted(wanted, key=_ORDER.index)
    }
