"""How a context has done: what it has read in each workspace, and how much of it people have changed."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Float, cast, func, select, true

from scribe_pipeline.database.tables import ocr_runs, workspaces

runs = ocr_runs


@dataclass(frozen=True)
class ContextTotals:
    """Of one workspace: pages read, how many of them were corrected, and the mean edit distance of those (None without any)."""

    workspace: str
    total_runs: int
    corrected_runs: int
    avg_levenshtein_distance: float | None


def context_totals(connection: Connection, context_id: UUID, workspace_id: UUID | None = None) -> list[ContextTotals]:
    """Return the totals of a context in each workspace where it has read something, or in one workspace."""
    corrected = func.count(runs.c.canonical_revision)
    distance = cast(func.avg(runs.c.levenshtein_distance), Float)
    rows = connection.execute(
        select(workspaces.c.name, func.count(), corrected, distance)
        .join_from(runs, workspaces, workspaces.c.id == runs.c.workspace_id)
        .where(runs.c.context_id == context_id, true() if workspace_id is None else runs.c.workspace_id == workspace_id)
        .group_by(workspaces.c.name)
        .order_by(workspaces.c.name)
    )
    return [ContextTotals(*row) for row in rows]
