"""Recovery of jobs: when a job is due, what it replaces, webhooks, blob cleanup, the operators' audit, the sensors' heartbeats."""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Run the SQL file beside this one."""
    op.get_bind().connection.cursor().execute(Path(__file__).with_suffix(".sql").read_text("utf-8"))
