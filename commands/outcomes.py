"""`scribe outcomes`: what became of jobs that have ended, who is told of failures, and what kinds of files fail."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from commands.output import JsonOption, load_settings, print_json, print_table
from scribe_pipeline.errors import Category, ScribeError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from scribe_pipeline.outcomes import Answer, Family, Policy

app = typer.Typer(help="What became of jobs that have ended, and what kinds of files fail.", no_args_is_help=True)

_FLYERS, _TRANSCRIPTIONS = "flyer_tagging_jobs", "transcription_jobs"
_SHORT = {"flyers": _FLYERS, "transcriptions": _TRANSCRIPTIONS}
_FAMILIES_HELP = f"{_FLYERS} or {_TRANSCRIPTIONS}, in short: {' or '.join(_SHORT)}"


@app.command("scan")
def scan(as_json: JsonOption = False) -> None:
    """Record the outcomes of jobs that have ended, 25 of each family at most, and tell of failures; exit 1 for any problem."""
    from scribe_pipeline.database import current_database
    from scribe_pipeline.outcomes import Scan, notice_policies, open_mailer, scan_outcomes

    settings = load_settings()
    policies, mailer = notice_policies(settings), open_mailer(settings)
    engine = current_database(settings)
    done = scan_outcomes(engine, policies, mailer)
    if done is None:
        typer.echo("another scan is under way", err=True)
    came_of_it = done or Scan()
    for problem in came_of_it.problems:
        _say(problem)
    # without those of which there are none
    counts = {"recorded": +came_of_it.recorded, "notices": +came_of_it.notices}
    if as_json:
        print_json({**counts, "problems": list(came_of_it.problems)})
    elif done is not None:
        for name, counted in counts.items():
            typer.echo(f"{name}: {', '.join(f'{value} {number}' for value, number in sorted(counted.items())) or 'none'}")
        for remark in _left(engine, policies, nothing=not counts["recorded"]):
            typer.echo(remark)
    if came_of_it.problems:
        raise typer.Exit(1)


@app.command("digest")
def digest(as_json: JsonOption = False) -> None:
    """Send the digests that are due: of each family one mail an hour at most; exit 1 if one could not be sent."""
    from scribe_pipeline.database import current_database
    from scribe_pipeline.outcomes import FAMILIES, notice_policies, open_mailer, send_digests

    settings = load_settings()
    policies, mailer = notice_policies(settings), open_mailer(settings)
    engine = current_database(settings)
    done = send_digests(engine, policies, mailer)
    for problem in done.problems:
        _say(problem)
    refused = {name for name in FAMILIES if name not in done.covered and any(said.startswith(name) for said in done.problems)}
    nothing = {
        name: "no digest was sent" if name in refused else _why_no_digest(engine, family, policies.get(family))
        for name, family in FAMILIES.items()
        if name not in done.covered
    }
    if as_json:
        print_json({"covered": done.covered, "nothing": nothing, "problems": done.problems})
    else:
        for name in FAMILIES:
            typer.echo(f"{name}: {f'failures covered: {done.covered[name]}' if name in done.covered else nothing[name]}")
    if refused:
        raise typer.Exit(1)


@app.command("summary")
def summary(
    family: Annotated[str | None, typer.Option(help=f"Only {_FAMILIES_HELP}.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how many jobs ended how, and the notices that were not delivered, of each family."""
    from scribe_pipeline.database import current_database
    from scribe_pipeline.outcomes import FAMILIES, ask

    families = FAMILIES.values() if family is None else [_family(family)]
    engine = current_database(load_settings())
    answers = {one.name: {name: ask(engine, name, one) for name in ("outcome_mix", "notices_not_delivered")} for one in families}
    if as_json:
        print_json({name: {query: _documents(answer) for query, answer in of.items()} for name, of in answers.items()})
        return
    for number, (name, of) in enumerate(answers.items()):
        typer.echo(f"{'' if number == 0 else chr(10)}{name}")
        for query, heading, nothing in (
            ("outcome_mix", None, "no outcome is recorded"),
            ("notices_not_delivered", "notices not delivered", "no notice waits or was given up"),
        ):
            if of[query].rows:
                if heading is not None:
                    typer.echo(heading)
                print_table(of[query].columns, of[query].rows)
            else:
                typer.echo(nothing)


@app.command("query")
def query(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="outcome_mix, failure_rate, class_by_producer, top_failures, pipeline_errors or notices_not_delivered.",
        ),
    ],
    family: Annotated[str, typer.Option(help=f"Whose jobs: {_FAMILIES_HELP}.")] = _FLYERS,
    by: Annotated[
        str | None, typer.Option(help="The fact by which failure_rate is told, such as pages; without it, scanned.")
    ] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the query instead, to be run in psql.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask one of the six questions about the outcomes of a family's jobs. It only reads."""
    from scribe_pipeline.database import current_database
    from scribe_pipeline.outcomes import ask, query_text, recorded_facts

    asked = _family(family)
    text = query_text(name, asked, by)
    if sql:
        typer.echo(text.rstrip())
        return
    engine = current_database(load_settings())
    facts = recorded_facts(engine, asked) if by is not None else ()
    if facts and by not in facts:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{asked.name} have no fact {by!r}; they have: {', '.join(facts)}")
    answer = ask(engine, name, asked, by)
    if as_json:
        print_json(_documents(answer))
    elif answer.rows:
        rows = [["?" if cell is None else cell for cell in row] for row in answer.rows]
        print_table(answer.columns, rows, may_be_cut=[column for column in answer.columns if column in ("failure", "error")])
    else:
        typer.echo(f"nothing of that kind is recorded of {asked.name}", err=True)


def _family(name: str) -> "Family":
    from scribe_pipeline.outcomes import FAMILIES

    found = FAMILIES.get(_SHORT.get(name, name))
    if found is None:
        raise ScribeError(Category.INVALID_ARGUMENT, f"there is no family {name!r}: it is {_FAMILIES_HELP}")
    return found


def _left(engine: "Engine", policies: "Mapping[Family, Policy]", *, nothing: bool) -> Iterator[str]:
    """Say what a scan has left, of each family; that all is left alone only if nothing was recorded."""
    from scribe_pipeline.database import in_transaction
    from scribe_pipeline.outcomes import FAMILIES, is_recordable, longest_waiting, settling

    for name, family in FAMILIES.items():
        if family not in policies:
            if nothing:
                yield f"{name}: not scanned while {family.switch} is off"
        elif not in_transaction(engine, partial(is_recordable, family=family)):
            continue  # which is told as a problem
        elif in_transaction(engine, partial(longest_waiting, families=[family])) is not None:
            yield f"{name}: more wait for the next scan"
        elif nothing and (recent := in_transaction(engine, partial(settling, family=family))):
            yield f"{name}: ended less than two minutes ago, and left to a later scan: {recent}"


def _why_no_digest(engine: "Engine", family: "Family", policy: "Policy | None") -> str:
    from scribe_pipeline.outcomes import ask

    if policy is None or not policy.enabled:
        return "nothing is sent, as notices are off"
    if policy.recipient is None:
        return "nothing is sent, as nobody is to be told"
    waiting = dict(ask(engine, "notices_not_delivered", family).rows).get("digest", 0)
    return f"failures that wait: {waiting}; the last digest is less than an hour old" if waiting else "nothing waits"


def _documents(answer: "Answer") -> Sequence[dict[str, object]]:
    return [
        {column: float(cell) if isinstance(cell, Decimal) else cell for column, cell in zip(answer.columns, row, strict=True)}
        for row in answer.rows
    ]


def _say(problem: str) -> None:
    typer.echo(f"scribe: {problem}", err=True)
