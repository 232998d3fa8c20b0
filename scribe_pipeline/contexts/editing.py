"""What operators change: contexts and rules, each intervention audited. Jobs that are there keep the snapshots they carry."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar
from uuid import UUID

import uuid_utils.compat as uuid_utils
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from sqlalchemy import ColumnElement, Connection, Engine, delete, insert, select, update

from scribe_pipeline.contexts.resolution import resolve_context
from scribe_pipeline.contexts.rules import Condition
from scribe_pipeline.contexts.texts import StorableText
from scribe_pipeline.database import DatabaseError, in_transaction
from scribe_pipeline.database.tables import context_selection_rules, contexts
from scribe_pipeline.engines import UnregisteredError, check_segmentor, check_transcriber, local_models, registered_models
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator, record_audit
from scribe_pipeline.workspaces import workspace_id

T = TypeVar("T")

rules = context_selection_rules

_LOCAL = "local"
_MAX_CONDITIONS = 32
_ONE_LINE = "write one line without control characters, and without a space at either end"
_MAX_PRIORITY = 2**31 - 1
# What two requests that are made at once may come to, and what the later one is told.
_TAKEN = {
    "contexts_name_unique": "there is a context of that name already: edit it, or choose another name",
    "contexts_one_default": "another context has become the default meanwhile: look at the list, and try again",
}


class ContextFields(BaseModel):
    """What may be said of a context: models by their ids in the registry, a time-out in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: StorableText = Field(pattern=r"^[^\s\pC](?:[^\pC]*[^\s\pC])?$", max_length=255)
    description: StorableText = Field(default="", pattern=r"^[^\pC]*$", max_length=1024)
    segmentation_model: StorableText
    transcription_provider: StorableText
    transcription_model: StorableText
    temperature: float | None = Field(default=None, ge=0, le=2)
    system_prompt: Annotated[StorableText | None, BeforeValidator(lambda text: text or None)] = Field(default=None, max_length=8192)
    segment_cap: int = Field(default=500, ge=1, le=100_000)
    line_concurrency: int = Field(default=6, ge=1, le=64)
    line_timeout_s: float = Field(default=6, gt=0, le=3600)


def create_context(
    engine: Engine, fields: Mapping[str, Any], operator: Operator, *, workspace: str | None = None, default: bool = False
) -> UUID:
    """Add a context for a workspace, or for all of them, and return its id; as a default it takes the place of the one before.

    `fields` are those of `ContextFields`. Raises ScribeError: invalid_argument for a field, an engine that is not registered or
    an unknown workspace, failed_precondition for a name that is taken.
    """
    _check_engines(fields)
    wanted = _checked(fields)

    def create(connection: Connection) -> UUID:
        owner = _owner(connection, workspace)
        if default:
            _unset_default(connection, owner)
        context_id = uuid_utils.uuid7()
        connection.execute(insert(contexts).values(id=context_id, workspace_id=owner, is_default=default, **wanted.model_dump()))
        record_audit(connection, operator, "context create", f"context {context_id}")
        return context_id

    return _at_once(engine, create)


def edit_context(
    engine: Engine,
    name: str,
    changes: Mapping[str, Any],
    operator: Operator,
    *,
    workspace: str | None = None,
    default: bool | None = None,
) -> tuple[str, ...]:
    """Change a workspace's own context, or one of the system, and return which fields are others now.

    A transcriber is named by provider and model together. Raises ScribeError: invalid_argument for what is not there or not
    valid, failed_precondition for the system's default, which only another context can replace.
    """
    _check_engines(changes)

    def edit(connection: Connection) -> tuple[str, ...]:
        owner = _owner(connection, workspace)
        row = connection.execute(select(contexts).where(_of(owner), contexts.c.name == name).with_for_update()).one_or_none()
        if row is None:
            names = ", ".join(connection.scalars(select(contexts.c.name).where(_of(owner)).order_by(contexts.c.name)))
            whose = "the system" if workspace is None else f"the workspace {workspace}"
            raise ScribeError(Category.INVALID_ARGUMENT, f"{whose} has no context {name!r} of its own; it has: {names or 'none'}")
        if default is False and row.is_default and owner is None:
            raise ScribeError(Category.FAILED_PRECONDITION, "the system has always a default: make another context the default")
        before = {field: getattr(row, field) for field in ContextFields.model_fields}
        after = _checked(before | dict(changes)).model_dump() | {"is_default": row.is_default if default is None else default}
        changed = {field: value for field, value in after.items() if value != (before | {"is_default": row.is_default})[field]}
        if changed:
            if changed.get("is_default"):
                _unset_default(connection, owner)
            connection.execute(update(contexts).where(contexts.c.id == row.id).values(**changed))
            record_audit(connection, operator, f"context edit: {', '.join(changed)}", f"context {row.id}")
        return tuple(changed)

    return _at_once(engine, edit)


def add_rule(
    engine: Engine, workspace: str, context: str, conditions: Sequence[Condition], priority: int, operator: Operator
) -> UUID:
    """Give a workspace's items for which all conditions hold a context that the workspace sees, and return the rule's id.

    Raises ScribeError (invalid_argument) for an unknown name, or other than 1 to 32 conditions.
    """
    if not 1 <= len(conditions) <= _MAX_CONDITIONS:
        raise ScribeError(Category.INVALID_ARGUMENT, f"a rule has 1 to {_MAX_CONDITIONS} conditions, and not {len(conditions)}")
    if abs(priority) > _MAX_PRIORITY:
        raise ScribeError(Category.INVALID_ARGUMENT, f"a priority is a number up to {_MAX_PRIORITY:,}")

    def add(connection: Connection) -> UUID:
        owner = workspace_id(connection, workspace)
        chosen = resolve_context(connection, owner, context).context.context_id
        rule_id = uuid_utils.uuid7()
        said = [condition.model_dump() for condition in conditions]
        connection.execute(
            insert(rules).values(id=rule_id, workspace_id=owner, context_id=chosen, priority=priority, conditions=said)
        )
        record_audit(connection, operator, f"rule add {rule_id}", f"context {chosen}")
        return rule_id

    return in_transaction(engine, add)


def remove_rule(engine: Engine, rule_id: UUID, operator: Operator) -> None:
    """Remove a rule; what it has chosen stays chosen. Raises ScribeError (not_found)."""

    def remove(connection: Connection) -> None:
        chosen = connection.scalar(delete(rules).where(rules.c.id == rule_id).returning(rules.c.context_id))
        if chosen is None:
            raise ScribeError(Category.NOT_FOUND, f"there is no rule {rule_id}: scribe context rule list tells them")
        record_audit(connection, operator, f"rule remove {rule_id}", f"context {chosen}")

    in_transaction(engine, remove)


def _at_once(engine: Engine, work: Callable[[Connection], T]) -> T:
    try:
        return in_transaction(engine, work)
    except DatabaseError as error:
        if error.constraint in _TAKEN:
            raise ScribeError(Category.FAILED_PRECONDITION, _TAKEN[error.constraint]) from None
        raise


def _owner(connection: Connection, workspace: str | None) -> UUID | None:
    return None if workspace is None else workspace_id(connection, workspace)


def _of(owner: UUID | None) -> ColumnElement[bool]:
    return contexts.c.workspace_id.is_not_distinct_from(owner)


def _unset_default(connection: Connection, owner: UUID | None) -> None:
    connection.execute(update(contexts).where(_of(owner), contexts.c.is_default).values(is_default=False))


def _checked(fields: Mapping[str, Any]) -> ContextFields:
    try:
        return ContextFields.model_validate(fields)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        name = str(problem["loc"][0])
        said = {"string_pattern_mismatch": _ONE_LINE}.get(problem["type"], problem["msg"])
        raise ScribeError(Category.INVALID_ARGUMENT, f"the context's {name} is not valid: {said}") from None


def _check_engines(fields: Mapping[str, Any]) -> None:
    """See that engines that are named are registered. Whether one has its key or its library here, only who reads has to know."""
    if ("transcription_provider" in fields) != ("transcription_model" in fields):
        raise ScribeError(Category.INVALID_ARGUMENT, "a transcriber is named by its provider and its model together")
    if (segmentor := fields.get("segmentation_model")) is not None:
        _check_registered(lambda: check_segmentor(segmentor))
    if (provider := fields.get("transcription_provider")) is None:
        return
    model = fields["transcription_model"]
    if provider == _LOCAL and model not in local_models():
        known = ", ".join(f"{_LOCAL}/{name}" for name in local_models())
        raise ScribeError(Category.INVALID_ARGUMENT, f"'{_LOCAL}/{model}' is not in the model registry; it has: {known}")
    _check_registered(lambda: check_transcriber(provider, model))


def _check_registered(check: Callable[[], None]) -> None:
    registered_models()  # one that cannot be read says nothing of what it has
    try:
        check()
    except UnregisteredError as error:
        raise ScribeError(Category.INVALID_ARGUMENT, error.message) from None
    except ScribeError as error:
        if error.category is not Category.UNAVAILABLE:
            raise
