"""Uploads that cannot leak: quotas, reservations, and a cleanup outbox whose rows cannot be made to forget bytes."""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Run the SQL file beside this one."""
    op.get_bind().connection.cursor().execute(Path(__file__).with_suffix(".sql").read_text("utf-8"))
