"""`scribe job`: the queue as an operator sees it, and what he may ask of it. Nobody edits a row."""

from dataclasses import asdict
from typing import Annotated

import typer

from commands.output import JsonOption, ReasonOption, load_settings, operator, print_audit, print_json, print_table, read_id
from scribe_pipeline.errors import Category, ScribeError

app = typer.Typer(help="Transcription jobs.", no_args_is_help=True)

_STATUSES = ("pending", "running", "completed", "failed", "canceled", "superseded")
_LIST_COLUMNS = ("job", "page", "status", "age", "attempts", "input", "category")
# After what one asks whether an engine with a key works at all.
_OF_ENGINES = ("authentication", "invalid_request", "rate_limited", "timeout", "transport", "upstream")
_ASK_ENGINE = "; scribe ready tells whether it works"
_ATTEMPT_COLUMNS = ("attempt", "outcome", "category", "input", "result", "started", "finished", "worker")

JobArgument = Annotated[str, typer.Argument(metavar="ID")]


@app.command("list")
def list_jobs(
    status: Annotated[str | None, typer.Option(help=f"Only jobs that are so: {', '.join(_STATUSES)}.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="ID", help="Only jobs of this batch.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many at most.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first."""
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.jobs import list_jobs as listed

    if status is not None and status not in _STATUSES:
        raise ScribeError(Category.INVALID_ARGUMENT, f"no job is ever {status!r}; it is one of {', '.join(_STATUSES)}")
    key = read_id(batch, "batch") if batch else None
    engine = current_database(load_settings())
    jobs = in_transaction(engine, lambda connection: listed(connection, status=status, batch_id=key, limit=limit))
    if as_json:
        print_json([asdict(job) for job in jobs])
    elif jobs:
        rows = [
            (
                job.id,
                job.page,
                job.status,
                _duration(job.age_seconds),
                f"{job.attempt_count}/{job.max_attempts}",
                job.input_revision,
                job.error_category,
            )
            for job in jobs
        ]
        print_table(_LIST_COLUMNS, rows, may_be_cut=("page",))
    else:
        typer.echo("no such jobs", err=True)


@app.command("show")
def show(job_id: JobArgument, as_json: JsonOption = False) -> None:
    """Show a job with its attempts in order, and whether the page is what it made of it."""
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.jobs import load_job

    key = read_id(job_id, "job")
    detail = in_transaction(current_database(load_settings()), lambda connection: load_job(connection, key))
    if as_json:
        print_json(asdict(detail) | {"verdict": detail.verdict})
        return
    job = detail.job
    facts = {
        "job": job.id,
        "page": f"{job.page} (image {job.item_image_id})",
        "batch": detail.batch_id,
        "status": f"{job.status}{f': {detail.error}' if detail.error else ''}",
        "category": job.error_category,
        "age": _duration(job.age_seconds),
        "not before": detail.retry_after and f"{detail.retry_after:%Y-%m-%d %H:%M:%S}",
        "worker": detail.lease_owner and f"{detail.lease_owner}, lease until {detail.lease_until:%H:%M:%S}",
        "read with": f"{detail.transcriber}, context {detail.context}{_ASK_ENGINE if job.error_category in _OF_ENGINES else ''}",
        "lines": f"{detail.completed_segments} read, {detail.failed_segments} failed, of {detail.total_segments}",
        "failures": ", ".join(f"{category} {count}" for category, count in detail.failures.items()) or None,
        "revisions": f"input {job.input_revision}, result {detail.result_revision or '-'}, page now {detail.page_revision or '-'}"
        f" ({detail.verdict})",
        "outcome": detail.outcome_class and f"{detail.outcome_class}, notice {detail.notice}",
        "supersedes": detail.supersedes,
        "superseded by": detail.superseded_by,
    }
    for name, value in facts.items():
        if value is not None:
            typer.echo(f"{name:<14} {value}")
    typer.echo("")
    rows = [
        (
            attempt.attempt_number,
            attempt.outcome,
            attempt.error_category,
            attempt.input_revision,
            attempt.result_revision,
            f"{attempt.started_at:%Y-%m-%d %H:%M:%S}",
            attempt.finished_at and f"{attempt.finished_at:%H:%M:%S}",
            attempt.lease_owner,
        )
        for attempt in detail.attempts
    ]
    print_table(_ATTEMPT_COLUMNS, rows)
    print_audit(detail.audit)


@app.command("create")
def create(
    image_id: Annotated[str, typer.Argument(metavar="IMAGE")],
    context: Annotated[str | None, typer.Option(help="How the page is read; without it, as the last time.")] = None,
    reason: ReasonOption = "",
) -> None:
    """Ask for a page to be transcribed anew as it stands now, and print the job's id.

    An active job of the page is superseded, unless it is the same and will be done anyway.
    """
    from scribe_pipeline.database import current_database
    from scribe_pipeline.jobs import request_job

    settings = load_settings()
    engine = current_database(settings)
    made = request_job(engine, read_id(image_id, "image"), context, settings.max_attempts, operator(reason))
    if not made.created:
        typer.echo("the same job is active already", err=True)
    if made.corrected_by is not None:
        typer.echo(f"the page was corrected by {made.corrected_by}: what is read now replaces it; it stays a revision", err=True)
    if made.superseded is not None:
        typer.echo(f"superseded {made.superseded}", err=True)
    typer.echo(made.job_id)


@app.command("cancel")
def cancel(job_id: JobArgument, reason: ReasonOption = "") -> None:
    """Cancel an active job; from then on its worker can write nothing."""
    from scribe_pipeline.database import current_database
    from scribe_pipeline.jobs import cancel_job

    changed = cancel_job(current_database(load_settings()), read_id(job_id, "job"), operator(reason))
    typer.echo("canceled" if changed else "it was canceled before")


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
