"""Errors and claims as they travel and print: categories, pickles, and that no token shows."""

import dataclasses
import pickle
from typing import Any

import pytest
from pydantic import SecretStr

from scribe_pipeline.database import DatabaseError, Lease, new_lease
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.ingest.claims import FileClaim
from scribe_pipeline.jobs.queue import JobClaim

TOKEN = "a-token-that-nobody-may-see"
LEASE = Lease("host:1", SecretStr(TOKEN), 60)


def filled(kind: Any) -> Any:
    """A claim with the lease and nothing else."""
    return kind(**{field.name: LEASE if field.name == "lease" else None for field in dataclasses.fields(kind)})


@pytest.mark.parametrize(
    ("category", "retryable"),
    [
        ("invalid_request", False),
        ("authentication", False),
        ("canceled", False),
        ("timeout", True),
        ("transport", True),
        ("rate_limited", True),
        ("upstream", True),
        ("response_too_large", False),
        ("invalid_response", False),
        ("unclassified", True),
        ("page_changed", False),
        ("page_unavailable", False),
        ("snapshot_invalid", False),
        ("too_many_segments", False),
        ("no_text", False),
        ("interrupted", True),
        ("attempts_exhausted", False),
        ("credential", False),
        ("empty", False),
        ("damaged", False),
        ("unsupported_type", False),
        ("too_large", False),
        ("unreadable", False),
    ],
)
def test_the_list_of_categories_says_what_may_be_tried_again(category: str, retryable: bool) -> None:
    """B17 and section 12 of the domain facts: the values of `error_category`, and which of them a retry may help."""
    assert Category(category).retryable is retryable


def test_categories_that_no_row_stores_are_the_only_others() -> None:
    """B17: the list is closed."""
    others = {"invalid_argument", "not_found", "failed_precondition", "lease_lost", "unavailable"}
    assert others < set(Category) and len(Category) == 23 + len(others)
    assert {category for category in others if Category(category).retryable} == {"unavailable"}


@pytest.mark.parametrize("category", Category)
def test_an_error_crosses_process_borders(category: Category) -> None:
    error = ScribeError(category, "scan.png is damaged: ‘é’")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is ScribeError
    assert (back.category, back.message, str(back)) == (category, error.message, error.message)
    assert back.category is category


def test_a_kind_of_error_stays_that_kind() -> None:
    back = pickle.loads(pickle.dumps(DatabaseError(Category.UNAVAILABLE, "the database does not answer")))
    assert type(back) is DatabaseError and back.category is Category.UNAVAILABLE


def test_a_database_error_keeps_its_state() -> None:
    back = pickle.loads(pickle.dumps(DatabaseError(Category.UNAVAILABLE, "refused", "23505", "items_pkey")))
    assert (back.sqlstate, back.constraint) == ("23505", "items_pkey")


@pytest.mark.parametrize("holder", [LEASE, filled(JobClaim), filled(FileClaim)], ids=["lease", "job", "file"])
def test_a_token_does_not_show(holder: object) -> None:
    """B2: whoever has the token may write; it is in no log and no message."""
    for shown in (repr(holder), str(holder), f"{holder}", repr([holder]), repr(dataclasses.asdict(holder))):  # type: ignore[call-overload]
        assert TOKEN not in shown and "host:1" in shown


def test_leases_are_of_this_process_with_tokens_of_their_own() -> None:
    """B2: a token that nobody has seen."""
    leases = [new_lease(60) for _ in range(50)]
    tokens = {lease.token.get_secret_value() for lease in leases}
    assert len(tokens) == 50 and min(map(len, tokens)) >= 32
    assert len({lease.owner for lease in leases}) == 1
