"""The calls by which a folder of objects is read and changed, any of which can be made to fail here, in this process."""

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

# How a call fails: before it has done anything, half-way, or after it was done; and a name that is lost in a power cut.
_WAYS = {
    "check": ("before",),
    "open": ("before",),
    "read": ("before",),
    "write": ("before", "half-way"),
    "sync": ("before", "after"),
    "link": ("before", "after"),
    "sync folder": ("before", "after", "lost"),
    "unlink": ("before", "after"),
}
_ERRORS = (errno.EIO, errno.ENOSPC)


class Disk:
    """What one folder is on. `calls` counts what was asked of it; with `room`, it holds so many bytes and no more."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.calls = 0
        self._faults: list[str] = []
        self.room: int | None = None
        self._failing = range(0)
        self._chance = Random()
        # a name that nobody has made sure of yet
        self._linked: Path | None = None
        self._open, self._temporary = Path.open, tempfile.TemporaryFile
        self._fsync, self._link, self._unlink = os.fsync, os.link, os.unlink
        disk = self

        def open_path(path: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            if path.parent != disk.folder:
                return disk._open(path, mode, *arguments, **named)
            opened = disk._pass("read" if "r" in mode else "open", lambda: disk._open(path, mode, *arguments, **named))
            return opened if "r" in mode else _File(opened, disk)

        patch.setattr(Path, "open", open_path)
        patch.setattr(tempfile, "TemporaryFile", lambda **named: disk._pass("check", lambda: disk._temporary(**named)))
        patch.setattr(os, "fsync", self._sync)
        patch.setattr(os, "link", self._make_link)
        patch.setattr(os, "unlink", self._remove)

    def order(self, first: int, times: int, chance: Random) -> list[str]:
        """Let so many calls fail from the first on, counted from now; return the list in which these are noted."""
        self._failing, self._chance = range(self.calls + first, self.calls + first + times), chance
        self._faults = []
        return self._faults

    def mend(self) -> None:
        """Let all go well again."""
        self._failing = range(0)

    def write(self, file: Any, data: bytes) -> None:
        """Write to an open file, as far as there is room."""
        if self.room is not None:
            used = sum(path.stat().st_size for path in self.folder.iterdir())
            if used + len(data) > self.room:
                file.write(data[: self.room - used])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._pass("write", lambda: file.write(data), half=lambda: file.write(data[: len(data) // 2]))

    def _sync(self, descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            self._pass("sync", lambda: self._fsync(descriptor))
        else:
            self._pass("sync folder", lambda: self._fsync(descriptor))
            self._linked = None

    def _make_link(self, source: Path, target: Path) -> None:
        self._linked = target
        self._pass("link", lambda: self._link(source, target))

    def _remove(self, path: Any, **named: Any) -> None:
        if Path(path).parent == self.folder:
            self._pass("unlink", lambda: self._unlink(path, **named))
        else:
            self._unlink(path, **named)

    def _pass(self, call: str, done: Callable[[], Any], half: Callable[[], Any] = lambda: None) -> Any:
        self.calls += 1
        if self.calls - 1 not in self._failing:
            return done()
        way, error = self._chance.choice(_WAYS[call]), self._chance.choice(_ERRORS)
        self._faults.append(f"{call} {way}")
        if way == "after":
            done()
        elif way == "half-way":
            half()
        elif way == "lost" and self._linked is not None and self._linked.exists():
            self._unlink(self._linked)
        raise OSError(error, os.strerror(error))


class _File:
    """A file that is being written."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file = file
        self._disk = disk

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        self._disk.write(self._file, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
