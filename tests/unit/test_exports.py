"""Exports as files: their names, their contents, and that each is whole or not there."""

import errno
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from scribe_pipeline.engines import LineText
from scribe_pipeline.errors import ScribeError
from scribe_pipeline.exports import write_exports
from scribe_pipeline.exports.files import export_stems
from scribe_pipeline.pages import Image, build_page, canvas_uri, fill_lines, read_lines
from tests.houses import PUBLIC_URL, line_shape


def payload(*texts: str) -> str:
    """A page with these lines."""
    number = UUID(int=1)
    image = Image(number, number, number, 1, "a", "key", "0" * 64, 1, "image/png", 400, 300, canvas_uri(PUBLIC_URL, number))
    page = build_page(image, [line_shape(20 + 40 * position) for position in range(len(texts))])
    return fill_lines(page, {line.annotation_id: LineText(text, 0.5) for line, text in zip(read_lines(page), texts, strict=True)})


@pytest.mark.parametrize(
    ("sources", "stems"),
    [
        pytest.param(["a.jpg", "b.png"], ["a", "b"], id="the name without its extension"),
        pytest.param(["box/a.jpg", "b.tar.tif"], ["a", "b.tar"], id="of the file alone"),
        pytest.param(["a", "b.png"], ["a", "b"], id="no extension"),
        pytest.param(["a.jpg", "a.png", "b.png"], ["a.jpg", "a.png", "b"], id="one stem, two extensions"),
        pytest.param(["A.jpg", "a.png"], ["A.jpg", "a.png"], id="stems that differ in case"),
        pytest.param(["x/a.jpg", "y/a.jpg"], ["x-a.jpg", "y-a.jpg"], id="one name in two folders"),
        pytest.param(["x/A.jpg", "y/a.jpg"], ["x-A.jpg", "y-a.jpg"], id="names that differ in case"),
        pytest.param(["x/1/a.jpg", "y/1/a.jpg", "b.jpg"], ["x-1-a.jpg", "y-1-a.jpg", "b"], id="deeper folders"),
        pytest.param(["a.jpg", "x/a.jpg"], ["a.jpg", "x-a.jpg"], id="one of them in no folder"),
    ],
)
def test_files_are_named_after_their_source(sources: list[str], stems: list[str]) -> None:
    """R163: NAME; with its extension where two would be the same; with its folder in front where that is not enough."""
    assert export_stems(sources) == dict(zip(sources, stems, strict=True))


@pytest.mark.parametrize(
    "sources",
    [
        pytest.param(["a.jpg", "A.jpg"], id="only case"),
        pytest.param(["a.jpg", "a.png", "a.jpg.tif"], id="a stem that looks like a name"),
        pytest.param(["x/y/a.jpg", "x-y/a.jpg"], id="folders that join alike"),
        pytest.param(["x/a.jpg", "y/a.jpg", "x-a.jpg"], id="a name that looks like a folder"),
        pytest.param(
            ["a.jpg", "a.png", "a.jpg.tif", "a.jpg-2.png"],
            id="a name that looks like a number",
        ),
    ],
)
def test_no_two_files_share_a_name(sources: list[str]) -> None:
    """R163: on file systems that take letters of either case as the same, too."""
    stems = export_stems(sources)
    assert set(stems) == set(sources)
    assert len({stem.lower() for stem in stems.values()}) == len(sources)


def test_the_contents_are_those_of_the_revision(tmp_path: Path) -> None:
    """R163: the AnnotationPage byte by byte, and the text of its lines in canonical order; R165: of any script, as UTF-8."""
    first, second = payload("b first", "", "a second"), payload("كتب 𐌰 e\u0301")
    folder = tmp_path / "made" / "for it"
    written = write_exports(folder, {"box/1.png": first, "2.png": second})
    assert [path.name for path in written] == ["1.txt", "1.json", "2.txt", "2.json"]
    assert {path: path.read_bytes() for path in folder.iterdir()} == {
        folder / "1.txt": b"b first\na second\n",
        folder / "1.json": first.encode(),
        folder / "2.txt": "كتب 𐌰 e\u0301\n".encode(),
        folder / "2.json": second.encode(),
    }


def test_a_page_without_text_has_its_files_too(tmp_path: Path) -> None:
    """R163: an empty text, not a missing one."""
    write_exports(tmp_path, {"a.png": payload()})
    assert (tmp_path / "a.txt").read_bytes() == b"" and (tmp_path / "a.json").read_text() == payload()


def test_newer_exports_take_the_place_of_older_ones(tmp_path: Path) -> None:
    """R163: and files that are not ours stay."""
    (tmp_path / "mine.txt").write_text("mine")
    write_exports(tmp_path, {"a.png": payload("a longer first text")})
    write_exports(tmp_path, {"a.png": payload("new")})
    assert (tmp_path / "a.txt").read_text() == "new\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.txt", "mine.txt"]


def test_a_failed_write_leaves_the_older_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R163: a file is whole or not there, also when the disk takes only half of it."""

    def write_half(self: Path, data: str, *arguments: Any, **options: Any) -> None:
        self.write_bytes(data.encode()[: len(data) // 2])
        raise OSError(errno.ENOSPC, "no space left on device")

    (tmp_path / "a.txt").write_bytes(b"old\n")
    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(ScribeError, match="no space"):
        write_exports(tmp_path, {"a.png": payload("a new text")})
    assert (tmp_path / "a.txt").read_bytes() == b"old\n" and not (tmp_path / "a.json").exists()


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    """R163: nor a whole one under another name."""
    (tmp_path / "a.json").mkdir()
    with pytest.raises(ScribeError, match="directory"):
        write_exports(tmp_path, {"a.png": payload("text")})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.txt"]
