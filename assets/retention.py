"""The job that keeps Dagster's own storage small: old runs go, and their events with them."""

from datetime import UTC, datetime, timedelta

import dagster as dg
from pydantic import Field

_PAGE = 100
_OVER = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


class RetentionConfig(dg.Config):
    """For how many days runs are kept once they are over."""

    days: float = Field(default=30, gt=0)


@dg.op
def delete_old_runs(context: dg.OpExecutionContext, config: RetentionConfig) -> None:
    """Delete runs that are over and have not changed for so long. What they made is in the application database and stays."""
    before = datetime.now(UTC) - timedelta(days=config.days)
    deleted = 0
    while runs := context.instance.get_runs(filters=dg.RunsFilter(statuses=_OVER, updated_before=before), limit=_PAGE):
        for run in runs:
            context.instance.delete_run(run.run_id)
        deleted += len(runs)
        context.log.info(f"{deleted} runs deleted")
    context.add_output_metadata({"runs": deleted})


@dg.job(executor_def=dg.in_process_executor, description="Deletes old Dagster runs with their events.")
def retention() -> None:
    """Delete what is old."""
    delete_old_runs()
