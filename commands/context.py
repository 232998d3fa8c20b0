"""`scribe context`: how pages are read, and which rules choose so for whose items."""

from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commands.metadata import MetadataOption, read_metadata
from commands.output import JsonOption, ReasonOption, load_settings, operator, print_audit, print_json, print_table, read_id
from scribe_pipeline.errors import Category, ScribeError

if TYPE_CHECKING:
    from scribe_pipeline.contexts import ContextListing, Rule

app = typer.Typer(help="Contexts: how pages are read. A job keeps the one it was made with.", no_args_is_help=True)
rule = typer.Typer(help="Rules choose a context by an item's metadata.", no_args_is_help=True)
app.add_typer(rule, name="rule")

_LIST_COLUMNS = ("context", "workspace", "default", "segmentor", "transcriber", "lines", "longest", "description")
_RULE_COLUMNS = ("rule", "priority", "context", "conditions")

NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
OwnerOption = Annotated[str | None, typer.Option(metavar="NAME", help="Whose it is; without it, it is everybody's.")]
RulesWorkspaceOption = Annotated[str, typer.Option(metavar="NAME", help="Whose items they are.")]
SegmentorOption = Annotated[str | None, typer.Option(metavar="ID", help="The registered segmentor that finds the lines.")]
TranscriberOption = Annotated[
    str | None, typer.Option(metavar="PROVIDER/MODEL", help="The registered transcriber that reads them.")
]
TemperatureOption = Annotated[str | None, typer.Option(metavar="NUMBER", help="0 to 2; none for the model's own.")]
PromptOption = Annotated[str | None, typer.Option(metavar="TEXT", help="What a model is told with each line; empty for nothing.")]
PromptFileOption = Annotated[Path | None, typer.Option(metavar="FILE", help="The same from a file.")]
CapOption = Annotated[int | None, typer.Option(metavar="N", help="How many lines a page may have; 500 if it is not said.")]
ConcurrencyOption = Annotated[int | None, typer.Option(metavar="N", help="How many lines are read at once; 6.")]
TimeoutOption = Annotated[float | None, typer.Option(metavar="SECONDS", help="How long one line may take; 6.")]
DescriptionOption = Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for, on one line.")]


@app.command("list")
def list_all(
    workspace: Annotated[str | None, typer.Option(metavar="NAME", help="Only those that this workspace sees.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List contexts, everybody's first."""
    from scribe_pipeline.contexts import list_contexts
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.workspaces import workspace_id

    listed = in_transaction(
        current_database(load_settings()),
        lambda connection: list_contexts(connection, workspace_id(connection, workspace) if workspace else None),
    )
    if as_json:
        print_json([_context_json(one) for one in listed])
        return
    rows = [
        (
            one.context.name,
            one.workspace or "(all)",
            "yes" if one.is_default else None,
            one.context.segmentation_model,
            f"{one.context.transcription_provider}/{one.context.transcription_model}",
            f"{one.context.segment_cap:,}",
            f"{one.context.longest_seconds:,.0f} s",
            one.description,
        )
        for one in listed
    ]
    print_table(_LIST_COLUMNS, rows, may_be_cut=("description", "context", "workspace", "transcriber"))


@app.command("show")
def show(name: NameArgument, workspace: OwnerOption = None, as_json: JsonOption = False) -> None:
    """Show a context, what it has read, and who changed it. With a workspace, its own goes before everybody's."""
    from scribe_pipeline.contexts import MAX_PUSH_SECONDS, context_totals, load_context
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.events import read_audit
    from scribe_pipeline.workspaces import workspace_id

    engine = current_database(load_settings())
    owner = in_transaction(engine, lambda connection: workspace_id(connection, workspace)) if workspace else None
    listed = in_transaction(engine, lambda connection: load_context(connection, owner, name))
    context = listed.context
    totals = in_transaction(engine, lambda connection: context_totals(connection, context.context_id, owner))
    if as_json:
        print_json(_context_json(listed) | {"totals": [asdict(total) for total in totals]})
        return
    delivery = "may be delivered by push" if context.may_be_pushed else f"polled for only: a push waits {MAX_PUSH_SECONDS} s"
    facts = {
        "context": f"{context.name} ({context.context_id})",
        "workspace": listed.workspace or "(all)",
        "default": "yes" if listed.is_default else "no",
        "description": listed.description or None,
        "segmentor": context.segmentation_model,
        "transcriber": f"{context.transcription_provider}/{context.transcription_model}",
        "temperature": context.temperature,
        "lines": f"{context.segment_cap:,} a page at most, {context.line_concurrency} at once, {context.line_timeout_s:g} s each",
        "longest page": f"{context.longest_seconds:,.0f} s ({delivery})",
    }
    for title, value in facts.items():
        if value is not None:
            typer.echo(f"{title:<13} {value}")
    if context.system_prompt is not None:
        typer.echo(f"\nprompt\n{indent(context.system_prompt, '  ')}")
    if totals:
        typer.echo("")
        rows = [
            (
                total.workspace,
                total.total_runs,
                total.corrected_runs,
                None if total.avg_levenshtein_distance is None else f"{total.avg_levenshtein_distance:.1f}",
            )
            for total in totals
        ]
        print_table(("workspace", "pages read", "corrected", "mean distance"), rows, may_be_cut=("workspace",))
    print_audit(in_transaction(engine, lambda connection: read_audit(connection, f"context {context.context_id}")))


@app.command("create")
def create(
    name: NameArgument,
    segmentor: Annotated[str, typer.Option(metavar="ID", help="The registered segmentor that finds the lines.")],
    transcriber: Annotated[str, typer.Option(metavar="PROVIDER/MODEL", help="The registered transcriber that reads them.")],
    temperature: TemperatureOption = None,
    prompt: PromptOption = None,
    prompt_file: PromptFileOption = None,
    segment_cap: CapOption = None,
    concurrency: ConcurrencyOption = None,
    timeout: TimeoutOption = None,
    description: DescriptionOption = None,
    workspace: OwnerOption = None,
    default: Annotated[bool, typer.Option("--default", help="Make it the default in place of the one there is.")] = False,
    reason: ReasonOption = "",
) -> None:
    """Make a context and print its id. Any registered segmentor goes with any registered transcriber."""
    from scribe_pipeline.contexts import create_context
    from scribe_pipeline.database import current_database

    fields = _said(segmentor, transcriber, temperature, prompt, prompt_file, segment_cap, concurrency, timeout, description)
    engine = current_database(load_settings())
    typer.echo(create_context(engine, {"name": name} | fields, operator(reason), workspace=workspace, default=default))


@app.command("edit")
def edit(
    name: NameArgument,
    segmentor: SegmentorOption = None,
    transcriber: TranscriberOption = None,
    temperature: TemperatureOption = None,
    prompt: PromptOption = None,
    prompt_file: PromptFileOption = None,
    segment_cap: CapOption = None,
    concurrency: ConcurrencyOption = None,
    timeout: TimeoutOption = None,
    description: DescriptionOption = None,
    workspace: OwnerOption = None,
    default: Annotated[bool | None, typer.Option("--default/--no-default", help="Whether it is the default.")] = None,
    reason: ReasonOption = "",
) -> None:
    """Change what is said of a context. Jobs that are there, and batches, go on as they were asked for."""
    from scribe_pipeline.contexts import edit_context
    from scribe_pipeline.database import current_database

    changes = _said(segmentor, transcriber, temperature, prompt, prompt_file, segment_cap, concurrency, timeout, description)
    engine = current_database(load_settings())
    changed = edit_context(engine, name, changes, operator(reason), workspace=workspace, default=default)
    typer.echo(f"changed {', '.join(changed)}" if changed else "it is so already")


@app.command("resolve")
def resolve(
    context: Annotated[str | None, typer.Option(metavar="NAME", help="As a request that names it.")] = None,
    workspace: RulesWorkspaceOption = "default",
    metadata: MetadataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell which context an item with these metadata would get, and why."""
    from scribe_pipeline.contexts import resolve_context
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.workspaces import workspace_id

    known = read_metadata(metadata)
    found = in_transaction(
        current_database(load_settings()),
        lambda connection: resolve_context(connection, workspace_id(connection, workspace), context, known),
    )
    if as_json:
        print_json({"context": found.context.name, "id": found.context.context_id, "reason": found.reason, "rule": found.rule_id})
    else:
        typer.echo(f"{found.context.name} ({found.reason}{f' {found.rule_id}' if found.rule_id else ''})")


@rule.command("add")
def add(
    name: NameArgument,
    when: Annotated[
        list[str],
        typer.Option(
            metavar="CONDITION",
            help="FIELD OPERATOR VALUE, as in 'language eq la'; the operator is eq, neq, contains, starts_with or ends_with. "
            "Given again, all of them have to hold.",
        ),
    ],
    priority: Annotated[int, typer.Option(help="The highest is tried first.")] = 0,
    workspace: RulesWorkspaceOption = "default",
    reason: ReasonOption = "",
) -> None:
    """Have items whose metadata are so read with this context, and print the rule's id."""
    from scribe_pipeline.contexts import Condition, add_rule
    from scribe_pipeline.database import current_database

    conditions = [Condition.parse(text) for text in when]
    typer.echo(add_rule(current_database(load_settings()), workspace, name, conditions, priority, operator(reason)))


@rule.command("list")
def list_all_rules(workspace: RulesWorkspaceOption = "default", as_json: JsonOption = False) -> None:
    """List a workspace's rules in the order in which they are tried."""
    from scribe_pipeline.contexts import list_rules
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.workspaces import workspace_id

    rules = in_transaction(
        current_database(load_settings()), lambda connection: list_rules(connection, workspace_id(connection, workspace))
    )
    if as_json:
        print_json([_rule_json(one) for one in rules])
    elif rules:
        rows = [(one.id, one.priority, one.context, " and ".join(map(str, one.conditions))) for one in rules]
        print_table(_RULE_COLUMNS, rows, may_be_cut=("conditions", "context"))
    else:
        typer.echo(f"the workspace {workspace} has no rules", err=True)


@rule.command("remove")
def remove(rule_id: Annotated[str, typer.Argument(metavar="ID")], reason: ReasonOption = "") -> None:
    """Remove a rule. What it has chosen stays so."""
    from scribe_pipeline.contexts import remove_rule
    from scribe_pipeline.database import current_database

    remove_rule(current_database(load_settings()), read_id(rule_id, "rule"), operator(reason))
    typer.echo("removed")


def _said(
    segmentor: str | None,
    transcriber: str | None,
    temperature: str | None,
    prompt: str | None,
    prompt_file: Path | None,
    segment_cap: int | None,
    concurrency: int | None,
    timeout: float | None,
    description: str | None,
) -> dict[str, Any]:
    """Return the fields of a context that the options name."""
    fields = {
        "segmentation_model": segmentor,
        "system_prompt": _prompt(prompt, prompt_file),
        "segment_cap": segment_cap,
        "line_concurrency": concurrency,
        "line_timeout_s": timeout,
        "description": description,
    }
    said: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if transcriber is not None:
        provider, separator, model = transcriber.partition("/")
        if not separator:
            raise ScribeError(Category.INVALID_ARGUMENT, f"--transcriber {transcriber} is not of the form PROVIDER/MODEL")
        said |= {"transcription_provider": provider, "transcription_model": model}
    if temperature is not None:
        said["temperature"] = None if temperature == "none" else temperature
    return said


def _prompt(prompt: str | None, file: Path | None) -> str | None:
    if file is None:
        return prompt
    if prompt is not None:
        raise ScribeError(Category.INVALID_ARGUMENT, "the prompt comes from --prompt or from --prompt-file, and not from both")
    try:
        return file.read_text("utf-8").strip()
    except OSError as error:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{file} is no text in UTF-8") from None


def _context_json(listed: "ContextListing") -> dict[str, object]:
    context = listed.context
    whose = {name: value for name, value in asdict(listed).items() if name != "context"}
    return (
        context.model_dump(mode="json")
        | whose
        | {
            "longest_seconds": context.longest_seconds,
            "may_be_pushed": context.may_be_pushed,
        }
    )


def _rule_json(one: "Rule") -> dict[str, object]:
    conditions = [condition.model_dump() for condition in one.conditions]
    return {"id": one.id, "priority": one.priority, "context": one.context, "context_id": one.context_id, "conditions": conditions}
