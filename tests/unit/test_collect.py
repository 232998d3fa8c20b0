"""From paths to a declared list of files: which are taken, in what order, and by what names."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.ingest import collect
from scribe_pipeline.ingest.collect import local_path
from tests.houses import png

PICTURE = png(8, 8)


def put(folder: Path, *names: str, data: bytes = PICTURE) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def names(*paths: Path) -> list[str]:
    return [file.name for file in collect(paths).files]


def test_a_folder_is_taken_in_natural_order_at_any_depth(tmp_path: Path) -> None:
    put(tmp_path, "page10.png", "Page2.png", "page1.png", "box 10/a.png", "box 2/b.png", "box 2/deeper/c.PNG")
    expected = ["box 2/b.png", "box 2/deeper/c.PNG", "box 10/a.png", "page1.png", "Page2.png", "page10.png"]
    assert names(tmp_path) == expected


def test_the_order_does_not_depend_on_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is part of the request's hash: the same folder must give the same batch."""
    put(tmp_path, "1.png", "01.png", "001.png", "A.png", "a.png")
    orders = []
    listed = Path.rglob
    for backwards in (False, True):
        monkeypatch.setattr(Path, "rglob", lambda self, pattern, back=backwards: sorted(listed(self, pattern), reverse=back))
        orders.append(names(tmp_path))
    assert orders[0] == orders[1]


@pytest.mark.parametrize("extension", ["jpg", "JPG", "jpeg", "png", "tif", "tiff", "gif", "webp", "jp2", "heic"])
def test_an_image_is_told_by_its_extension_whatever_it_holds(tmp_path: Path, extension: str) -> None:
    """Whether it is a good scan is validation's to say: a damaged one must not vanish in silence."""
    put(tmp_path, f"a.{extension}", data=b"no picture")
    assert names(tmp_path) == [f"a.{extension}"]


@pytest.mark.parametrize("name", ["scan", "scan.dat", "scan.001"])
def test_or_by_its_first_bytes(tmp_path: Path, name: str) -> None:
    put(tmp_path, name)
    assert names(tmp_path) == [name]


def test_hidden_files_are_skipped_and_others_are_named(tmp_path: Path) -> None:
    put(tmp_path, "a.png", ".b.png", ".cache/c.png", "box/.d/e.png", "box/.DS_Store")
    put(tmp_path, "readme.txt", "box/page.xml", "scan.pdf", data=b"text")
    collection = collect([tmp_path])
    assert [file.name for file in collection.files] == ["a.png"]
    assert collection.passed_over == ("box/page.xml", "readme.txt", "scan.pdf")


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "empty.png"])
def test_a_file_that_is_named_is_always_taken(tmp_path: Path, name: str) -> None:
    put(tmp_path, name, data=b"")
    assert names(tmp_path / name) == [name]


def test_a_folder_below_a_hidden_one_is_taken_when_it_is_named(tmp_path: Path) -> None:
    put(tmp_path, ".scans/box/a.png")
    assert names(tmp_path / ".scans" / "box") == ["a.png"]


@pytest.mark.parametrize(
    "paths", [("a.png", "a.png"), (".", "a.png"), ("a.png", "."), (".", "."), ("a.png", "link.png"), ("box/../a.png", "a.png")]
)
def test_a_file_that_is_reached_twice_is_one_file(tmp_path: Path, paths: tuple[str, ...]) -> None:
    put(tmp_path, "a.png")
    (tmp_path / "box").mkdir()
    if "link.png" in paths:
        (tmp_path / "link.png").symlink_to(tmp_path / "a.png")
    assert names(*(tmp_path / path for path in paths)) == ["a.png"]


def test_two_files_with_the_same_bytes_are_two_pages(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    first, second = collect([tmp_path]).files
    assert (first.name, second.name) == ("a.png", "b.png") and first.sha256 == second.sha256


def test_files_of_one_name_in_several_folders_can_be_told_apart(tmp_path: Path) -> None:
    """Reports and exports are by name: none may stand for two files. Names that one file has stay short."""
    put(tmp_path, "x/box/a.png", "y/box/a.png", "y/box/b.png", "z/a.png")
    assert names(tmp_path / "x" / "box", tmp_path / "y" / "box" / "a.png", tmp_path / "y" / "box", tmp_path / "z") == [
        "x/box/a.png",
        "y/box/a.png",
        "b.png",
        "z/a.png",
    ]


def test_a_file_is_declared_as_it_is(tmp_path: Path) -> None:
    """R51: the hash is of the bytes, whatever the name."""
    put(tmp_path, "box/a.png")
    collection = collect([tmp_path / "box"])
    (file,) = collection.files
    assert (file.size, file.sha256) == (len(PICTURE), hashlib.sha256(PICTURE).hexdigest())
    assert local_path(file.uri) == (tmp_path / "box" / "a.png").resolve()
    assert collection.name == "box"


def test_files_keep_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    put(tmp_path, "b.png", "a.png", "box/2.png", "box/1.png")
    assert names(tmp_path / "b.png", tmp_path / "box", tmp_path / "a.png") == ["b.png", "1.png", "2.png", "a.png"]


@pytest.mark.parametrize(
    ("given", "category", "sentence"),
    [
        (["absent.png"], Category.INVALID_ARGUMENT, r"absent\.png is not there"),
        (["a.png", "absent"], Category.INVALID_ARGUMENT, r"absent is not there"),
        (["dangling.png"], Category.INVALID_ARGUMENT, r"dangling\.png is not there"),
        (["empty"], Category.UNSUPPORTED_TYPE, r"^no image in .*empty: "),
        (["texts", "empty"], Category.UNSUPPORTED_TYPE, r"^no image in .*texts, .*empty: "),
    ],
)
def test_what_leaves_nothing_to_take_is_refused(tmp_path: Path, given: list[str], category: Category, sentence: str) -> None:
    """R87: before there is any row."""
    put(tmp_path, "a.png")
    put(tmp_path, "texts/a.txt", data=b"text")
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ScribeError, match=sentence) as refused:
        collect([tmp_path / name for name in given])
    assert refused.value.category is category


@pytest.mark.parametrize("name", ["a.png", "a"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    put(tmp_path, name)

    def refuse(self: Path, *arguments: Any, **options: Any) -> None:
        raise PermissionError(13, "no", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ScribeError, match=rf"/{name} cannot be read: no$") as refused:
        collect([tmp_path])
    assert refused.value.category is Category.UNREADABLE


@pytest.mark.parametrize("kind", ["fifo", "device", "long name"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """R87: nothing that would be read for ever is opened, and no path ends in a traceback."""
    path = {"fifo": tmp_path / "fifo.png", "device": Path("/dev/zero"), "long name": tmp_path / ("x" * 300)}[kind]
    if kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(ScribeError) as refused:
        collect([path])
    assert "\n" not in refused.value.message


def test_a_folder_that_cannot_be_read_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R85: pages in a folder below that may not be looked into are not left out without a word."""
    put(tmp_path, "a.png", "below/b.png")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("below"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ScribeError, match="below cannot be read: Permission denied"):
        collect([tmp_path])


def test_names_that_cannot_be_printed_stay_apart(tmp_path: Path) -> None:
    """A name's escape is never another file's name, or one page would take the other's place."""
    put(tmp_path, "a\x01.png", "a\\x01.png")
    assert sorted(names(tmp_path)) == [r"a\\x01.png", r"a\x01.png"]


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    put(tmp_path, "a.png")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nothing")
    found = collect([tmp_path])
    assert [file.name for file in found.files] == ["a.png"]
    assert found.passed_over == ("gone.png",)
