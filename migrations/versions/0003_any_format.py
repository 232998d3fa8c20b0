"""Any scan in, any format out: frames of one file, exports of a revision, the newspaper recipe by columns."""

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Run the SQL file beside this one."""
    op.get_bind().connection.cursor().execute(Path(__file__).with_suffix(".sql").read_text("utf-8"))
