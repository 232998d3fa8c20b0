"""Exports as files: their names, their contents, and that each is whole or not there."""

import errno
from pathlib import Path

import pytest

from scribe_pipeline.errors import ScribeError
from scribe_pipeline.exports import check_folder, export_stems, write_files


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
    assert export_stems([(source, 1) for source in sources]) == {
        (source, 1): stem for source, stem in zip(sources, stems, strict=True)
    }


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
    """R163: on file systems that take letters of either case as the same, too; nor do the pages of files of several."""
    for frames in ((1,), (1, 2, 3)):
        places = [(source, frame) for source in sources for frame in frames]
        stems = export_stems(places)
        assert set(stems) == set(places)
        assert len({stem.lower() for stem in stems.values()}) == len(places)


@pytest.mark.parametrize(
    ("places", "stems"),
    [
        pytest.param([("a.tif", 1), ("a.tif", 2), ("a.tif", 10)], ["a", "a-2", "a-10"], id="their number behind the name"),
        pytest.param([("a.tif", 2)], ["a-2"], id="also of one that is exported alone"),
        pytest.param(
            [("a.tif", 1), ("a.tif", 2), ("a.png", 1)], ["a.tif", "a.tif-2", "a.png"], id="with the extension where needed"
        ),
        pytest.param(
            [("a.tif", 1), ("a.tif", 2), ("a-2.png", 1)], ["a.tif", "a.tif-2", "a-2.png"], id="another file's name looks like it"
        ),
        pytest.param([("x/a.tif", 2), ("y/a.tif", 2)], ["x-a.tif-2", "y-a.tif-2"], id="one name in two folders"),
    ],
)
def test_further_pages_of_a_file_are_numbered(places: list[tuple[str, int]], stems: list[str]) -> None:
    """R163: NAME-2 and so on; all pages of a file begin alike, and no page has another file's name."""
    assert export_stems(places) == dict(zip(places, stems, strict=True))


CONTENTS = {"alto": b"<alto/>", "page": b"<PcGts/>", "hocr": b"<html/>", "txt": "كتب 𐌰\n".encode(), "json": b"{}"}


def test_a_page_has_a_file_for_each_format(tmp_path: Path) -> None:
    """R163: NAME.alto.xml, NAME.page.xml, NAME.hocr, NAME.txt and NAME.json, with just these bytes."""
    written = write_files(tmp_path, "a", CONTENTS)
    assert [path.name for path in written] == ["a.alto.xml", "a.page.xml", "a.hocr", "a.txt", "a.json"]
    assert [path.read_bytes() for path in written] == list(CONTENTS.values())
    assert sorted(tmp_path.iterdir()) == sorted(written)


def test_newer_exports_take_the_place_of_older_ones(tmp_path: Path) -> None:
    """R163: and files that are not ours stay."""
    (tmp_path / "mine.txt").write_text("mine")
    write_files(tmp_path, "a", {"txt": b"a longer first text"})
    write_files(tmp_path, "a", {"txt": b"new"})
    assert (tmp_path / "a.txt").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "mine.txt"]


def test_a_failed_write_leaves_the_older_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R163: a file is whole or not there, also when the disk takes only half of it."""
    write_whole = Path.write_bytes

    def write_half(self: Path, data: bytes) -> None:
        write_whole(self, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "no space left on device")

    (tmp_path / "a.txt").write_bytes(b"old\n")
    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(ScribeError, match="no space"):
        write_files(tmp_path, "a", {"txt": b"a new text"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.txt": b"old\n"}


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    """R163: nor a whole one under another name."""
    (tmp_path / "a.json").mkdir()
    with pytest.raises(ScribeError, match="directory"):
        write_files(tmp_path, "a", {"txt": b"text", "json": b"{}"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.txt"]


def test_a_folder_is_made_or_refused(tmp_path: Path) -> None:
    """R163: before anything is exported into it."""
    check_folder(tmp_path / "made" / "for it")
    assert (tmp_path / "made" / "for it").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ScribeError, match=r"file cannot be written to: it is a file$"):
        check_folder(tmp_path / "file")
