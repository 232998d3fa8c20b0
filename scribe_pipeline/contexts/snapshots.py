"""A context as a job carries it: frozen, as the text that rows store, and what it asks of the engines."""

import math
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scribe_pipeline.database import dump_json
from scribe_pipeline.engines import ReadingOptions
from scribe_pipeline.errors import Category, ScribeError

# How long a page may take of a worker to whom it is delivered by push.
MAX_PUSH_SECONDS = 540


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

    @property
    def reading_options(self) -> ReadingOptions:
        """How the context has lines read."""
        return ReadingOptions(self.temperature, self.system_prompt, self.line_concurrency, self.line_timeout_s)

    @property
    def longest_seconds(self) -> float:
        """How long the largest page that the context allows may take, if every line uses up its time."""
        return math.ceil(self.segment_cap / self.line_concurrency) * self.line_timeout_s

    @property
    def may_be_pushed(self) -> bool:
        """Whether its pages may be delivered by push; others are left to workers that poll and renew their leases."""
        return self.longest_seconds <= MAX_PUSH_SECONDS

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
