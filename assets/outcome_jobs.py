"""The jobs of the outcome record: one looks for jobs that have ended, one sends the digests.

A run is one tick. What it could not do is there for the next one, so that nothing is tried again within a run.
"""

import dagster as dg
from sqlalchemy import Engine

from resources import process_tags
from scribe_pipeline.config import Settings
from scribe_pipeline.outcomes import notice_policies, open_mailer, scan_outcomes, send_digests


class ScanConfig(dg.Config):
    """Whether notices that were not delivered are sent again: by the clock they are, not whenever a job has ended."""

    send_again: bool = True


@dg.op
def record_outcomes(
    context: dg.OpExecutionContext,
    config: ScanConfig,
    settings: dg.ResourceParam[Settings],
    database: dg.ResourceParam[Engine],
) -> None:
    """Record outcomes of 25 jobs at most of each family, tell of failures, and send again what was not delivered.

    What an operator is to see is logged as an error; the run is red only if the configuration or the database lets nothing be done.
    """
    context.instance.add_run_tags(context.run_id, process_tags())
    done = scan_outcomes(database, notice_policies(settings), open_mailer(settings), send_again=config.send_again)
    if done is None:
        context.add_output_metadata({"skipped": "another scan is under way"})
        return
    for problem in done.problems:
        context.log.error(problem)
    counts = {"recorded": done.recorded.total(), "problems": len(done.problems)}
    counts |= {f"class {name}": number for name, number in done.recorded.items()}
    counts |= {f"notice {name}": number for name, number in done.notices.items()}
    context.add_output_metadata(counts)


@dg.op
def send_due_digests(
    context: dg.OpExecutionContext, settings: dg.ResourceParam[Settings], database: dg.ResourceParam[Engine]
) -> None:
    """Send the digest of each family that has something to tell, if its last one was an hour ago."""
    context.instance.add_run_tags(context.run_id, process_tags())
    done = send_digests(database, notice_policies(settings), open_mailer(settings))
    for problem in done.problems:
        context.log.error(problem)
    counts = {"failures": sum(done.covered.values()), "problems": len(done.problems)}
    context.add_output_metadata(counts | {f"of {name}": number for name, number in done.covered.items()})


@dg.job(
    executor_def=dg.in_process_executor,
    description=(
        "Every five minutes, and soon after a job has ended: records what became of jobs and tells of failures. "
        "One run at a time does so; another says that it was skipped."
    ),
)
def outcome_scan() -> None:
    """Record outcomes."""
    record_outcomes()


@dg.job(
    executor_def=dg.in_process_executor,
    description="Every five minutes: sends one mail an hour at most that covers the failures for which the hour had no room.",
)
def send_digest() -> None:
    """Send the digests."""
    send_due_digests()
