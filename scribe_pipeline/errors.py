"""The one error base and the closed list of categories.

A category is chosen once, where the error is born; whether a retry can help follows from it. What a person reads is one
sentence that names the input and what to do; it never carries a driver's, a provider's or a library's own words.
"""

from enum import StrEnum


class Category(StrEnum):
    """Why something was refused or failed. The first three groups are also the values of `error_category` columns."""

    # what an engine or a provider did
    INVALID_REQUEST = "invalid_request"
    AUTHENTICATION = "authentication"
    CANCELED = "canceled"
    TIMEOUT = "timeout"
    TRANSPORT = "transport"
    RATE_LIMITED = "rate_limited"
    UPSTREAM = "upstream"
    RESPONSE_TOO_LARGE = "response_too_large"
    INVALID_RESPONSE = "invalid_response"
    UNCLASSIFIED = "unclassified"
    # what became of a job
    PAGE_CHANGED = "page_changed"
    PAGE_UNAVAILABLE = "page_unavailable"
    SNAPSHOT_INVALID = "snapshot_invalid"
    TOO_MANY_SEGMENTS = "too_many_segments"
    NO_TEXT = "no_text"
    INTERRUPTED = "interrupted"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    CREDENTIAL = "credential"
    # what was wrong with a file
    EMPTY = "empty"
    DAMAGED = "damaged"
    UNSUPPORTED_TYPE = "unsupported_type"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    # what a caller did, or what the house itself lacks; never stored in a row
    INVALID_ARGUMENT = "invalid_argument"
    NOT_FOUND = "not_found"
    FAILED_PRECONDITION = "failed_precondition"
    LEASE_LOST = "lease_lost"
    UNAVAILABLE = "unavailable"

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later; an unclassified failure counts as one that may."""
        return self in _RETRYABLE

    @property
    def stored(self) -> bool:
        """Whether it may stand in a row's `error_category`."""
        return self not in _NEVER_STORED


_RETRYABLE = frozenset(
    {
        Category.TIMEOUT,
        Category.TRANSPORT,
        Category.RATE_LIMITED,
        Category.UPSTREAM,
        Category.UNCLASSIFIED,
        Category.INTERRUPTED,
        Category.UNAVAILABLE,
    }
)

_NEVER_STORED = frozenset(
    {
        Category.INVALID_ARGUMENT,
        Category.NOT_FOUND,
        Category.FAILED_PRECONDITION,
        Category.LEASE_LOST,
        Category.UNAVAILABLE,
    }
)


class ScribeError(Exception):
    """An error with a category from the closed list and one plain sentence."""

    def __init__(self, category: Category, message: str) -> None:
        super().__init__(message)
        self.category = category
        self.message = message

    def __reduce__(self) -> tuple[type["ScribeError"], tuple[Category, str]]:
        # It crosses process borders; the default would call the class with the message alone.
        return type(self), (self.category, self.message)
