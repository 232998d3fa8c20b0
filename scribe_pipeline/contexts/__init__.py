"""Processing contexts: which engines read a page and how. A job never looks here again: it carries a frozen snapshot."""

from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, select

from scribe_pipeline.database import dump_json
from scribe_pipeline.database.tables import contexts
from scribe_pipeline.errors import Category, ScribeError

__all__ = ["ContextSnapshot", "all_contexts", "find_context", "refresh_context"]


class ContextSnapshot(BaseModel):
    """All of a context that influences what the engines are asked; credentials are not part of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    context_id: UUID = Field(validation_alias="id")
    name: str
    segmentation_model: str
    transcription_provider: str
    transcription_model: str
    temperature: float | None
    system_prompt: str | None
    segment_cap: int
    line_concurrency: int
    line_timeout_s: float

    def to_text(self) -> str:
        """The text that a row stores."""
        return dump_json({"id": str(self.context_id)} | self.model_dump(mode="json", exclude={"context_id"}))

    @classmethod
    def from_text(cls, text: str) -> "ContextSnapshot":
        """Read what `to_text` wrote. Raises ScribeError (snapshot_invalid)."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            raise ScribeError(Category.SNAPSHOT_INVALID, "transcription context snapshot is invalid") from None


def find_context(connection: Connection, workspace_id: UUID, name: str | None = None) -> ContextSnapshot:
    """Freeze the context of that name, or the default one; the workspace's own goes before the system's.

    Raises ScribeError (invalid_argument) that lists the names there are.
    """
    visible = select(contexts).where(contexts.c.workspace_id.is_(None) | (contexts.c.workspace_id == workspace_id))
    wanted = contexts.c.is_default if name is None else contexts.c.name == name
    row = connection.execute(visible.where(wanted).order_by(contexts.c.workspace_id.nulls_last()).limit(1)).one_or_none()
    if row is None:
        names = ", ".join(sorted({known.name for known in connection.execute(visible)}))
        raise ScribeError(Category.INVALID_ARGUMENT, f"there is no context {name!r}; there are: {names}")
    return ContextSnapshot.model_validate(row)


def refresh_context(connection: Connection, context_id: UUID) -> ContextSnapshot | None:
    """Freeze a context as it is now, or None if it is gone."""
    row = connection.execute(select(contexts).where(contexts.c.id == context_id)).one_or_none()
    return None if row is None else ContextSnapshot.model_validate(row)


def all_contexts(connection: Connection) -> list[ContextSnapshot]:
    """Return every context of every workspace and of the system."""
    return [ContextSnapshot.model_validate(row) for row in connection.execute(select(contexts).order_by(contexts.c.name))]
