"""The one order in which rows are locked. Whoever holds two of them took them here, so that nobody waits in a circle."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, select

from scribe_pipeline.database import tables

_ORDER = (
    tables.storage_quota_usage,
    tables.ingest_batches,
    tables.ingest_batch_files,
    tables.items,
    tables.item_images,
    tables.transcription_jobs,
    tables.annotation_pages,
)
# Rows of a table go by its key, but the counter that all share comes before those of single workspaces.
_ROWS = {tables.storage_quota_usage: (tables.storage_quota_usage.c.scope != "global", tables.storage_quota_usage.c.scope)}


def lock(connection: Connection, wanted: Mapping[Table, ColumnElement[bool]]) -> dict[Table, list[Row[Any]]]:
    """Lock the rows wanted of each table `FOR UPDATE` and return them, in the order in which they were locked.

    Tables are taken in the house's order, whatever the mapping's. A condition is asked when its table's turn has come, so that
    it sees what those who held the tables before have committed.
    """
    return {
        table: list(
            connection.execute(
                select(table).where(wanted[table]).order_by(*_ROWS.get(table, table.primary_key)).with_for_update(of=table)
            ).all()
        )
        for table in sorted(wanted, key=_ORDER.index)
    }
