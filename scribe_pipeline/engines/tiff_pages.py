"""The pages of a TIFF or BigTIFF: how many there are, and one of them as a file of its own.

Nothing is decoded here: a page's compressed strips or tiles are copied as they are, so that an archive loses nothing.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The bytes of one value, by the kind that a directory entry gives it.
_KIND_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 16: 8}
_SHORT, _LONG, _LONG8 = 3, 4, 16
_NEW_SUBFILE_TYPE, _SUBFILE_TYPE = 254, 255
_REDUCED_OR_MASK, _OLD_REDUCED = 0b101, 2
# Which tag says where pieces of the picture lie, and which one how long they are.
_STRIPS, _OLD_JPEG = 273, 513
_PIECES = {_STRIPS: 279, 324: 325, _OLD_JPEG: 514}
# Old JPEG keeps its tables outside the picture; those for quantisation have one length, the others say theirs in 16 counts.
_QUANTISATION_TABLES, _HUFFMAN_TABLES = 519, (520, 521)
_QUANTISATION_BYTES, _HUFFMAN_COUNTS = 64, 16
_OUTSIDE = (*_PIECES, _QUANTISATION_TABLES, *_HUFFMAN_TABLES)
# Directories within a directory: thumbnails, EXIF, GPS and the like.
_INNER_DIRECTORIES = (330, 400, 34665, 34853, 40965)
# A chain that is longer, or a tag of more numbers, belongs to no scan.
_MOST_DIRECTORIES, _MOST_NUMBERS = 65_536, 2_000_000

# What reading beyond the file's end, or numbers that make no sense, raise.
_UNREADABLE = (ValueError, OverflowError, KeyError, struct.error)


@dataclass(frozen=True)
class _Directory:
    """One picture of the chain; `entries` is None if the directory cannot be read, and then it is the last one."""

    number: int
    entries: NDArray[Any] | None


def _entry(order: str, offset: np.dtype[Any]) -> np.dtype[Any]:
    """How an entry of a directory is laid out."""
    return np.dtype([("tag", f"{order}u2"), ("kind", f"{order}u2"), ("count", offset), ("value", f"V{offset.itemsize}")])


class Tiff:
    """A TIFF as a chain of pages, numbered from 1. Reduced copies and masks are no pages."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._order = "<" if data[:2] == b"II" else ">"
        self._big = 43 in data[2:4]
        self._offset = np.dtype(f"{self._order}u{8 if self._big else 4}")
        self._count = np.dtype(f"{self._order}u{8 if self._big else 2}")
        self._entry = _entry(self._order, self._offset)

    @cached_property
    def _pages(self) -> list[_Directory]:
        chain = list(islice(self._chain(), _MOST_DIRECTORIES))
        return [directory for directory in chain if self._is_page(directory)] or chain[:1]

    @property
    def count(self) -> int:
        """How many pages there are; one that cannot be read any more counts too."""
        return len(self._pages)

    @property
    def first(self) -> int:
        """Which picture of the chain, counted from 0, is page 1."""
        return self._pages[0].number if self._pages else 0

    def page(self, number: int) -> bytes:
        """Return a page as a TIFF of its own, always the same bytes; none if it cannot be taken out of this file.

        It is no BigTIFF, whatever the file is: a page is not that large.
        """
        entries = self._pages[number - 1].entries if number <= self.count else None
        try:
            return b"" if entries is None else self._copy(entries)
        except _UNREADABLE:
            return b""

    def _chain(self) -> Iterator[_Directory]:
        number, seen = 0, set()
        try:
            place = self._number(self._offset, self._offset.itemsize)
        except _UNREADABLE:
            return
        while place and place not in seen:
            seen.add(place)
            try:
                count = self._number(self._count, place)
                start = place + self._count.itemsize
                entries = np.frombuffer(self._data, self._entry, count, start)
                place = self._number(self._offset, start + entries.nbytes)
            except _UNREADABLE:
                yield _Directory(number, None)
                return
            yield _Directory(number, entries)
            number += 1

    def _is_page(self, directory: _Directory) -> bool:
        if directory.entries is None:
            return True
        try:
            types = [self._one(directory.entries, tag) for tag in (_NEW_SUBFILE_TYPE, _SUBFILE_TYPE)]
        except _UNREADABLE:
            return True
        return not types[0] & _REDUCED_OR_MASK and types[1] != _OLD_REDUCED

    def _copy(self, entries: NDArray[Any]) -> bytes:
        """Write header and directory, then values and pieces in the order of their tags, each on an even place."""
        kept = entries[np.isin(entries["kind"], list(_KIND_BYTES)) & ~np.isin(entries["tag"], _INNER_DIRECTORIES)]
        offset = np.dtype(f"{self._order}u4")
        directory = np.zeros(len(kept), _entry(self._order, offset))
        head = self._data[:2] + np.array([42], f"{self._order}u2").tobytes() + np.array([8], offset).tobytes()
        count = np.array([len(kept)], f"{self._order}u2").tobytes()
        body_start = len(head) + len(count) + directory.nbytes + offset.itemsize
        body = bytearray()

        def append(piece: bytes) -> int:
            body.extend(bytes(len(body) % 2) + piece)
            if len(body) > 2 * len(self._data):
                raise ValueError("a page that is larger than its file")
            return body_start + len(body) - len(piece)

        for copy, entry in zip(directory, kept, strict=True):
            tag, kind, value = int(entry["tag"]), int(entry["kind"]), self._value(entry)
            if tag in _OUTSIDE:
                starts = self._numbers(value, kind)
                pieces = zip(starts.tolist(), self._lengths(entries, tag, starts).tolist(), strict=True)
                kind, value = _LONG, np.array([append(self._data[at : at + length]) for at, length in pieces], offset).tobytes()
            elif kind == _LONG8:
                kind, value = _LONG, np.array(self._numbers(value, kind).tolist(), offset).tobytes()
            field = value if len(value) <= offset.itemsize else np.array([append(value)], offset).tobytes()
            copy["tag"], copy["kind"], copy["count"] = tag, kind, entry["count"]
            copy["value"] = np.void(field.ljust(offset.itemsize, b"\0"))
        return b"".join((head, count, directory.tobytes(), bytes(offset.itemsize), body))

    def _lengths(self, entries: NDArray[Any], tag: int, starts: NDArray[Any]) -> NDArray[Any]:
        """Return how many bytes of the file lie at each place that a tag names; none for a place beyond its end."""
        if tag == _QUANTISATION_TABLES:
            lengths = np.full(len(starts), _QUANTISATION_BYTES)
        elif tag in _HUFFMAN_TABLES:
            counts = [self._data[at : at + _HUFFMAN_COUNTS] for at in starts.tolist()]
            lengths = np.array([_HUFFMAN_COUNTS + sum(count) for count in counts])
        else:
            lengths = self._tag(entries, _PIECES[tag])
            if tag == _OLD_JPEG and not len(lengths):
                # it reaches to the end of the picture that it begins
                lengths = (self._tag(entries, _STRIPS) + self._tag(entries, _PIECES[_STRIPS])).max(keepdims=True) - starts
        if len(lengths) != len(starts):
            raise ValueError("pieces without lengths")
        return np.clip(lengths, 0, np.clip(len(self._data) - starts, 0, None))

    def _one(self, entries: NDArray[Any], tag: int) -> int:
        """Return a tag's first number, or 0 if it is not there."""
        return int(next(iter(self._tag(entries, tag)), 0))

    def _tag(self, entries: NDArray[Any], tag: int) -> NDArray[Any]:
        """Return a tag's numbers, none if it is not there."""
        found = entries[entries["tag"] == tag][:1]
        return self._numbers(self._value(found[0]), int(found[0]["kind"])) if len(found) else np.array([], np.int64)

    def _value(self, entry: Any) -> bytes:
        """Return the bytes of an entry's value. Raises ValueError if the file ends before them."""
        size = int(entry["count"]) * _KIND_BYTES[int(entry["kind"])]
        field: bytes = entry["value"].tobytes()
        if size <= len(field):
            return field[:size]
        at = self._number(self._offset, 0, field)
        if at + size > len(self._data):
            raise ValueError("the value lies beyond the file's end")
        return self._data[at : at + size]

    def _numbers(self, value: bytes, kind: int) -> NDArray[Any]:
        """Return a value that consists of unsigned numbers. Raises ValueError if it does not, or if they are absurd."""
        if kind not in (_SHORT, _LONG, _LONG8) or len(value) > _MOST_NUMBERS * _KIND_BYTES[kind]:
            raise ValueError("no numbers")
        numbers = np.frombuffer(value, f"{self._order}u{_KIND_BYTES[kind]}")
        if len(numbers) and int(numbers.max()) >= 2**62:
            raise ValueError("no place in a file")
        return numbers.astype(np.int64)

    def _number(self, kind: np.dtype[Any], at: int, data: bytes | None = None) -> int:
        return int(np.frombuffer(self._data if data is None else data, kind, 1, at)[0])
