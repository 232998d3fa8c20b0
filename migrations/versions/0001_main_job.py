"""Workspaces, contexts, items, ingest, pages, jobs with their attempts, and the event outbox."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Run the SQL file beside this one, as it is: the driver looks for placeholders only where there are parameters."""
    op.get_bind().connection.cursor().execute(Path(__file__).with_suffix(".sql").read_text("utf-8"))
