"""`scribe evaluate` and the asset `recipe_evaluation` with engines that answer at once: what is told, and that nothing is kept."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
import typer
from PIL import Image

from commands.evaluate import evaluate
from definitions import build_defs
from scribe_pipeline.config import Settings
from scribe_pipeline.engines import ImageFacts, ImageLimits, LineShape, Ticket, inspect_image
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.metrics import NORMALISATION, NORMALISATION_NFC
from tests.houses import THREE_LINES, FakeEngines, House, InlinePool, line_shape, png

Run = Callable[..., tuple[str, str]]


def ground_truth(*lines: tuple[LineShape, str], sides: str = 'imageWidth="400" imageHeight="300"') -> str:
    """A PAGE file of these lines."""
    drawn = "".join(
        f'<TextLine><Coords points="{" ".join(f"{x},{y}" for x, y in shape.polygon)}"/>'
        f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv></TextLine>"
        for shape, text in lines
    )
    return f"<PcGts><Page {sides}><TextRegion>{drawn}</TextRegion></Page></PcGts>"


TRUTH = ground_truth(*((shape, f"line {number}") for number, shape in enumerate(THREE_LINES, 1)))


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Three scans: `1.png` with ground truth, `deep/2.png` with that of another page, `3.png` with regions only."""
    folder = tmp_path / "scans"
    (folder / "deep").mkdir(parents=True)
    for name, colour in (("1", "white"), ("deep/2", "grey"), ("3", "silver")):
        (folder / f"{name}.png").write_bytes(png(colour=colour))
    (folder / "1.xml").write_text(TRUTH)
    (folder / "deep" / "2.xml").write_text(ground_truth((line_shape(20), "line 4"), (line_shape(200), "line 5")))
    (folder / "3.xml").write_text(ground_truth())
    return folder


@pytest.fixture
def run(
    house: House, database_url: str, engines: FakeEngines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run the command in this process on the house's database; return what it printed, and what it said."""
    for name, value in house.environment(database_url).items():
        if name.startswith("SCRIBE_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr("scribe_pipeline.engines.EnginePool", StoppablePool)

    def evaluated(*paths: Path, **options: Any) -> tuple[str, str]:
        evaluate(list(paths), **options)
        said = capsys.readouterr()
        return said.out, said.err

    return evaluated


class StoppablePool(InlinePool):
    """An `InlinePool` that has no processes to stop."""

    def stop(self) -> None:
        """Do nothing."""


def test_the_document(run: Run, house: House, scans: Path) -> None:
    """R167: measures a page and in all, with engines and normalisation; a page without lines of ground truth is listed."""
    out, _ = run(scans, as_json=True)
    document = json.loads(out)
    assert (document["context"], document["segmentation"]) == ("letter", {"model": "kraken-blla", "engine": "fake 1.0"})
    assert document["transcription"]["provider"] == "local"
    assert (document["min_iou"], document["normalisation"], document["normalisation_nfc"]) == (
        0.5,
        NORMALISATION,
        NORMALISATION_NFC,
    )
    first, third, second = document["pages"]
    assert (first["file"], first["recall"], first["precision"], first["adjacency"], first["cer"]) == ("1.png", 1, 1, 1, 0)
    assert (third["file"], third["found_lines"], third["error"]) == ("3.png", 3, None)
    assert "recall" not in third
    assert (second["file"], second["gt_lines"], second["found_lines"], second["matched"]) == ("deep/2.png", 2, 3, 1)
    assert (second["recall"], second["order_tau"], second["coverage"]) == (0.5, None, 0.5)
    totals = document["totals"]
    assert (totals["gt_lines"], totals["matched"], totals["found_lines"], totals["recall"]) == (5, 4, 6, 0.8)
    assert totals["coverage"] == 0.75


def test_the_table_and_the_pictures(run: Run, house: House, scans: Path) -> None:
    """R167: a row a page and one of all, '-' where nothing is measured; a picture a page where the command says they are."""
    out, err = run(scans, scans / "1.xml")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:5] == ["page", "lines", "recall", "prec.", "area"]
    assert lines[1][:8] == ["1.png", "3/3", "1.000", "1.000", "1.000", "1.000", "1.000", "0.0000"]
    assert lines[2][:9] == ["3.png", "-/3", *"-------"]
    assert lines[3][:3] == ["deep/2.png", "2/3", "0.500"]
    assert lines[4][:3] == ["all", "5/6", "0.800"]
    assert max(map(len, out.splitlines()[:5])) <= 80, "it fits a terminal"
    folder = house.folder / "home" / "evaluation" / "letter"
    assert f"Pictures: 3, in {folder}" in err
    assert "xml" not in err
    assert sorted(path.name for path in folder.iterdir()) == ["1.evaluation.jpg", "2.evaluation.jpg", "3.evaluation.jpg"]
    with Image.open(folder / "2.evaluation.jpg") as picture:
        assert picture.format == "JPEG" and np.asarray(picture).std() > 0


def test_nothing_is_stored(run: Run, house: House, scans: Path, tmp_path: Path) -> None:
    """R167: no page, job or other row comes of an evaluation, and no scan is copied."""
    house.page()
    rows, files = house.everything(), sorted(house.folder.rglob("*.png"))
    run(scans, pictures=tmp_path / "pictures")
    assert house.everything() == rows
    assert sorted(house.folder.rglob("*.png")) == files
    assert len(list((tmp_path / "pictures").iterdir())) == 3


def test_pages_at_fault_do_not_keep_the_others(run: Run, scans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R87, R167: each page that cannot be evaluated is one sentence that names it; the rest is reported, the exit code is 1."""
    (scans / "broken.png").write_bytes(png()[:60])
    (scans / "turned.png").write_bytes(png())
    (scans / "turned.xml").write_text(TRUTH.replace('imageWidth="400" imageHeight="300"', 'imageWidth="300" imageHeight="400"'))
    (scans / "4.png").write_bytes(png(colour="blue"))
    (scans / "4.xml").write_text("<PcGts>")
    with pytest.raises(typer.Exit) as ended:
        run(scans, as_json=True)
    assert ended.value.exit_code == 1
    said = capsys.readouterr()
    pages = {page["file"]: page["error"] for page in json.loads(said.out)["pages"]}
    assert [file for file, error in pages.items() if error] == ["4.png", "broken.png", "turned.png"]
    assert "4.xml is not well-formed" in pages["4.png"]
    for file in ("broken.png", "turned.png"):
        assert pages[file].startswith(file.removesuffix(".png")) and pages[file] in said.err
    assert json.loads(said.out)["totals"]["gt_lines"] == 5


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ScribeError(Category.DAMAGED, "it cannot be decoded"), "1.png: it cannot be decoded"),
        (RuntimeError("key=secret"), "1.png: the engine failed for a reason that is not known"),
    ],
)
def test_an_engine_that_fails_costs_one_page(
    run: Run,
    engines: FakeEngines,
    scans: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    words: str,
) -> None:
    """R87, R167: whatever an engine raises for one page, in our words, the other pages are evaluated."""
    find = engines.segment

    def fails_once(picture: Image.Image) -> tuple[LineShape, ...]:
        if find(picture) and engines.segmented == 1:
            raise error
        return engines.lines

    monkeypatch.setattr(engines, "segment", fails_once)
    with pytest.raises(typer.Exit):
        run(scans)
    said = capsys.readouterr()
    assert f"Failed: {words}" in said.err
    assert "secret" not in said.err
    assert "deep/2.png" in said.out and "1.png" not in said.out


def test_a_decoder_that_fails_costs_one_page(
    run: Run, scans: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R87, R167: scans are decoded by the workers alone, whatever comes of it."""

    def fails_for_one(data: bytes, name: str, limits: ImageLimits) -> ImageFacts:
        if name == "1.png":
            raise MemoryError
        return inspect_image(data, name, limits)

    monkeypatch.setattr("scribe_pipeline.metrics.recipe.inspect_image", fails_for_one)
    with pytest.raises(typer.Exit):
        run(scans)
    said = capsys.readouterr()
    assert "Failed: 1.png: the engine failed for a reason that is not known" in said.err
    assert "deep/2.png" in said.out and "1.png" not in said.out


def test_a_line_that_cannot_be_read_is_found_without_text(run: Run, engines: FakeEngines, scans: Path) -> None:
    """R167: it counts as found, and all its characters as wrong."""
    engines.answer = lambda number: RuntimeError() if number == 2 else f"line {number}"
    page = json.loads(run(scans / "1.png", as_json=True)[0])["pages"][0]
    assert (page["recall"], page["failed_lines"]) == (1, 1)
    assert page["cer"] == pytest.approx(6 / 18, abs=1e-6)


def test_a_page_with_more_lines_than_the_context_allows_fails_as_it_would(
    run: Run, house: House, scans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R167: a recipe is evaluated as the main job would run it."""
    house.execute("UPDATE contexts SET segment_cap = 2 WHERE name = 'letter'")
    with pytest.raises(typer.Exit):
        run(scans)
    assert "1.png: it has 3 lines, more than the 2 that the context allows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "options", "category", "words"),
    [
        (["3.png"], {}, Category.FAILED_PRECONDITION, "put ALTO or PAGE XML with lines beside each scan"),
        (["1.xml"], {}, Category.FAILED_PRECONDITION, "put ALTO or PAGE XML with lines beside each scan"),
        (["1.png"], {"context": "diary"}, Category.INVALID_ARGUMENT, "there is no context 'diary'"),
        (["1.png"], {"workspace": "nobody"}, Category.INVALID_ARGUMENT, "there is no workspace 'nobody'"),
        (["absent.png"], {}, Category.INVALID_ARGUMENT, "absent.png is not there"),
    ],
)
def test_what_cannot_be_evaluated_is_one_sentence(
    run: Run, engines: FakeEngines, scans: Path, arguments: list[str], options: dict[str, str], category: Category, words: str
) -> None:
    """R87, R167: before any engine works."""
    with pytest.raises(ScribeError, match=words) as refused:
        run(*(scans / name for name in arguments), **options)
    assert (refused.value.category, engines.segmented) == (category, 0)


def test_an_interrupt_ends_with_130(
    run: Run, scans: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R167: Ctrl-C is one line, and the worker processes are stopped."""
    stopped: list[bool] = []

    def interrupt(self: InlinePool, *_: object) -> Ticket:
        raise KeyboardInterrupt

    monkeypatch.setattr(StoppablePool, "submit", interrupt)
    monkeypatch.setattr(StoppablePool, "stop", lambda self: stopped.append(True))
    with pytest.raises(typer.Exit) as ended:
        run(scans)
    assert (ended.value.exit_code, stopped) == (130, [True])
    assert "scribe: interrupted" in capsys.readouterr().err


def materialize(house: House, **config: object) -> dg.ExecuteInProcessResult:
    """Execute the asset's job as the web UI would launch it."""
    settings = Settings(home=house.folder, blob_url=house.store_url)
    job = build_defs(settings=settings, database=house.engine, pool=InlinePool()).resolve_job_def("evaluate_recipe")
    return job.execute_in_process(
        instance=dg.DagsterInstance.ephemeral(),
        run_config={"ops": {"recipe_evaluation": {"config": config}}},
        raise_on_error=False,
    )


def test_the_asset_shows_measures_and_pictures(house: House, engines: FakeEngines, scans: Path) -> None:
    """R167: a materialization has the totals, a table, bars and pictures; it stores no row, and is a run that uses engines."""
    (scans / "4.png").write_bytes(png(colour="blue"))
    (scans / "4.xml").write_text("<PcGts>")
    rows = house.everything()
    result = materialize(house, paths=[str(scans)])
    assert result.success
    assert result.dagster_run.tags["scribe/engines"] == "all"
    (made,) = result.asset_materializations_for_node("recipe_evaluation")
    told = {name: entry.value for name, entry in made.metadata.items()}
    assert (told["context"], told["segmentor"], told["pages"], told["recall"]) == ("letter", "fake 1.0", 3, 0.8)
    assert told["normalisation"] == NORMALISATION
    header, _, *table = told["measures"].splitlines()
    assert header.split(" | ")[:4] == ["page", "lines", "found", "seconds"]
    assert [row.split(" | ")[0] for row in table] == ["1.png", "3.png", "deep/2.png"]
    assert table[1].endswith(" | -")
    assert told["bars"].count("data:image/png;base64,") == 1
    assert told["lines"].count("data:image/jpeg;base64,") == 3
    assert "4.xml is not well-formed" in told["failed"]
    assert house.everything() == rows


def test_the_asset_says_why_it_is_not_made(house: House, engines: FakeEngines, scans: Path) -> None:
    """R87, R167: without ground truth the run fails with the sentence that says what is missing."""
    result = materialize(house, paths=[str(scans / "3.png")], context="manuscript")
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "there is no ground truth to evaluate with" in str(failure.step_failure_data.error)
