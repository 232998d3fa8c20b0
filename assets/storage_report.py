"""How many bytes of uploads there are as an asset: each materialization is the state of all workspaces at that moment."""

from typing import TYPE_CHECKING

import dagster as dg
from sqlalchemy import Engine

from assets.metadata import markdown_pictures, markdown_table
from scribe_pipeline.database import in_transaction
from scribe_pipeline.metrics import draw_shares
from scribe_pipeline.storage import WorkspaceStorage, workspace_storage
from scribe_pipeline.workspaces import Usage

if TYPE_CHECKING:
    import pandas as pd

_MIB = 1024**2
_MAX_BARS = 40
_TOGETHER = "all"


@dg.asset(
    group_name="storage",
    kinds={"pandas"},
    description=(
        "Bytes of uploads, in all workspaces together and in each, the fullest first: how many there may be (limit), are (used), "
        "are among those but wait to be removed (waiting), are promised (reserved), and what is left. Exports do not count."
    ),
)
def storage_report(database: dg.ResourceParam[Engine]) -> dg.MaterializeResult[None]:
    """Show all workspaces as a table and as bars; the numbers of all together are metadata of their own, which the UI plots."""
    together, *each = in_transaction(database, workspace_storage)
    rows = [together, *sorted(each, key=lambda row: row.quota.free_bytes / max(1, row.quota.limit_bytes))]
    frame = _frame(rows)
    table = frame.map("{:,}".format).reset_index().to_dict("records")
    metadata: dict[str, dg.MetadataValue] = {
        "workspaces": markdown_table(table),
        "bars": markdown_pictures([("of what each may hold", _bars([row.quota for row in rows[:_MAX_BARS]]))]),
    }
    metadata |= {name: dg.MetadataValue.int(int(value)) for name, value in frame.iloc[0].items()}
    return dg.MaterializeResult(metadata=metadata)


def _frame(rows: list[WorkspaceStorage]) -> "pd.DataFrame":
    """A row a quota, by its workspace's name: bytes, but for the number of images."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "workspace": row.quota.workspace or _TOGETHER,
                "limit": row.quota.limit_bytes,
                "used": row.quota.used_bytes,
                "waiting": row.quota.pending_bytes,
                "reserved": row.quota.reserved_bytes,
                "free": row.quota.free_bytes,
                "images": row.images,
                "exports": row.export_bytes,
            }
            for row in rows
        ]
    ).set_index("workspace")


def _bars(quotas: list[Usage]) -> bytes:
    rows = [
        (
            f"{quota.workspace or _TOGETHER}: {quota.used_bytes / _MIB:,.1f} of {quota.limit_bytes / _MIB:,.0f} MiB",
            quota.limit_bytes,
            (quota.used_bytes - quota.pending_bytes, quota.pending_bytes, quota.reserved_bytes),
        )
        for quota in quotas
    ]
    return draw_shares(rows, ["kept", "waits to be removed", "reserved"])
