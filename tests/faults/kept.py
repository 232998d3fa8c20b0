"""Rows of a whole database that are kept, and put there again as they were, within milliseconds."""

from typing import Any

import psycopg

_VACUUM_EVERY = 100
_FIXED = ("workspaces", "contexts", "alembic_version")
_COLUMNS = """SELECT table_name, string_agg(column_name, ', ' ORDER BY ordinal_position)
    FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
    WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND is_generated = 'NEVER' AND table_name <> ALL (%s)
    GROUP BY table_name ORDER BY table_name"""
# The number under which the rows of a database are kept in which nothing has been done yet.
EMPTY = -1


class KeptRows:
    """All rows of a database, but those of workspaces and contexts, as they were at several times; each has a number."""

    def __init__(self, url: str) -> None:
        self._put = 0
        self._rows: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._rows.execute("SET session_replication_role = replica; CREATE SCHEMA kept")  # rows that are evidence go, too
        self._columns: dict[str, str] = dict(self._rows.execute(_COLUMNS, [list(_FIXED)]).fetchall())
        for table, columns in self._columns.items():
            self._rows.execute(f"CREATE TABLE kept.{table} AS SELECT 0 AS stage, {columns} FROM {table} WITH NO DATA")
        self.keep(EMPTY)

    def keep(self, number: int) -> None:
        """Keep the rows as they are now."""
        kept = (f"INSERT INTO kept.{table} SELECT {number}, {columns} FROM {table}" for table, columns in self._columns.items())
        self._rows.execute("; ".join(kept))

    def put(self, number: int) -> None:
        """Replace all rows by those that were kept under the number."""
        gone = (f"DELETE FROM {table}" for table in self._columns)
        again = (
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM kept.{table} WHERE stage = {number}"
            for table, columns in self._columns.items()
        )
        self._rows.execute("; ".join([*gone, *again]))
        self._put += 1
        if self._put % _VACUUM_EVERY == 0:  # dead rows slow down every query
            self._rows.execute(f"VACUUM {', '.join(self._columns)}")

    def close(self) -> None:
        """Leave an empty database, as what was wrong with the rows has been told, and give up the connection."""
        self.put(EMPTY)
        self._rows.close()
