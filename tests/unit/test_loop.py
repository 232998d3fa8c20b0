"""The loop's promise to give back what it holds, at whatever moment it is interrupted."""

from collections.abc import Callable
from typing import Any

import pytest

from scribe_pipeline.engines import Ticket
from scribe_pipeline.errors import Category
from scribe_pipeline.jobs import drain
from tests.houses import InlinePool


class Unit:
    """Work that tells how it ended."""

    task = staticmethod(print)
    arguments: tuple[Any, ...] = ()

    def __init__(self, name: str, ends: list[tuple[str, Category | None]]) -> None:
        self.name = name
        self.ends = ends

    def renew(self) -> bool:
        return True

    def progress(self, succeeded: int, failed: int) -> None:
        pass

    def finish(self, result: Any) -> None:
        self.ends.append((self.name, None))

    def fail(self, category: Category, message: str) -> None:
        self.ends.append((self.name, category))


class InterruptedPool(InlinePool):
    """A pool whose user presses Ctrl-C while it is handed its second task."""

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Ticket:
        if self.calls:
            raise KeyboardInterrupt
        return super().submit(task, *arguments)


def test_what_is_claimed_and_not_begun_is_given_back() -> None:
    """R37, R86: of three units claimed together one is under way when the interrupt comes; none waits for its lease."""
    ends: list[tuple[str, Category | None]] = []
    units = [Unit(name, ends) for name in ("begun", "being begun", "not begun")]

    class Source:
        def claim(self, limit: int) -> list[Unit]:
            return units

    with pytest.raises(KeyboardInterrupt):
        drain([Source()], InterruptedPool(3), 60, 60)
    assert sorted(ends) == [(name, Category.INTERRUPTED) for name in ("begun", "being begun", "not begun")]
