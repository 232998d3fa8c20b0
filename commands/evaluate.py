"""`scribe evaluate`: how well a recipe does on pages with ground truth, before a collection is read with it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commands.output import JsonOption, error_console, load_settings, print_json, print_table
from commands.run import INTERRUPTED, ContextOption, WorkspaceOption

if TYPE_CHECKING:
    from scribe_pipeline.config import Settings
    from scribe_pipeline.contexts import ContextSnapshot
    from scribe_pipeline.metrics import EvaluatedPage, FailedPage, PageScore

# What the table has of the measures, what it calls them (it is to fit a terminal), and with how many decimals.
_COLUMNS = {
    "recall": ("recall", 3),
    "precision": ("prec.", 3),
    "coverage": ("area", 3),
    "order_tau": ("tau", 3),
    "adjacency": ("next", 3),
    "cer": ("CER", 4),
    "wer": ("WER", 4),
}


def evaluate(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Scans with ground truth beside them, or folders of them.")
    ],
    context: ContextOption = None,
    workspace: WorkspaceOption = "default",
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="For the pictures; evaluation/CONTEXT in SCRIBE_HOME without it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how well a context reads scans whose ground truth, ALTO or PAGE, lies beside them: page.xml for page.jpg.
    Of a TIFF with several pages, the first is evaluated.

    Lines are the same from an IoU of 0.5. The columns: lines of the ground truth and found; recall and precision of lines; the
    share of their area that was found; reading order as Kendall's tau, and as the share of lines that are followed by the next
    one; character and word error rates of the lines that are the same; seconds a page. The last row counts over all pages with
    ground truth, and has the means of area, tau and seconds.

    Text is compared under NFKC with straight quotation marks, every dash a hyphen and single spaces. Nothing is stored but a
    picture a page, with the lines that were matched, missed, and found where there is none.
    """
    from scribe_pipeline.contexts import find_context
    from scribe_pipeline.database import in_transaction, migrated_database
    from scribe_pipeline.exports import check_folder
    from scribe_pipeline.ingest import collect, local_path
    from scribe_pipeline.metrics import FailedPage
    from scribe_pipeline.workspaces import workspace_id

    console = error_console()
    settings = load_settings()
    # a shell's pattern names the ground truth too, which is no scan
    collection = collect([path for path in paths if path.suffix.lower() != ".xml"] or paths)
    passed_over = [name for name in collection.passed_over if not name.lower().endswith(".xml")]
    if passed_over:
        console.print(f"Passed over, as they are no images: {', '.join(passed_over)}")
    recipe = in_transaction(
        migrated_database(settings), lambda connection: find_context(connection, workspace_id(connection, workspace), context)
    )
    folder = pictures or settings.home / "evaluation" / recipe.name.replace("/", "-")
    check_folder(folder)
    scans = {file.name: local_path(file.uri) for file in collection.files}
    try:
        done = {page.name: page for page in _evaluated(settings, recipe, scans, folder)}
    except KeyboardInterrupt:
        console.print("scribe: interrupted; the same command begins anew")
        raise typer.Exit(INTERRUPTED) from None
    pages = [done[name] for name in scans]
    if as_json:
        print_json(_document(recipe, pages))
    else:
        _print_pages(pages)
    failed = sum(isinstance(page, FailedPage) for page in pages)
    console.print(f"Pictures: {len(pages) - failed}, in {folder}")
    if failed:
        raise typer.Exit(1)


def _evaluated(
    settings: "Settings", recipe: "ContextSnapshot", scans: Mapping[str, Path], folder: Path
) -> Iterator["EvaluatedPage | FailedPage"]:
    """Evaluate the scans, drawing each and showing how far it has got."""
    from commands.progress import page_bar
    from scribe_pipeline.engines import EnginePool, ImageLimits, decode_upright
    from scribe_pipeline.exports import export_stems
    from scribe_pipeline.metrics import EvaluatedPage, draw_evaluation, evaluate_recipe

    stems = export_stems([(name, 1) for name in scans])
    limits = ImageLimits.of(settings)
    pool = EnginePool(settings.workers)
    try:
        pages = evaluate_recipe(pool, recipe, scans, limits)
        with page_bar(error_console(), "evaluate", len(scans)) as bar:
            for page in pages:
                if isinstance(page, EvaluatedPage):
                    picture = draw_evaluation(decode_upright(page.path.read_bytes()), page.found, page.truth)
                    (folder / f"{stems[page.name, 1]}.evaluation.jpg").write_bytes(picture)
                    bar.done(f"{page.name}: {len(page.found)} lines")
                else:
                    bar.failed(page.message)
                yield page
    finally:
        pool.stop()


def _print_pages(pages: Sequence["EvaluatedPage | FailedPage"]) -> None:
    """Print a row a page and one of all with ground truth, and below it what has no column."""
    from scribe_pipeline.metrics import NORMALISATION_NFC, EvaluatedPage, total_of

    rows = [_row(page.name, page.score, len(page.found), page.seconds) for page in pages if isinstance(page, EvaluatedPage)]
    total = total_of(pages)
    if total is not None:
        score, seconds = total
        rows.append(_row("all", score, score.found_lines, seconds))
    print_table(("page", "lines", *(name for name, _ in _COLUMNS.values()), "sec."), rows, may_be_cut=("page",))
    if total is not None:
        told = {name: _number(value, 4) for name, value in score.measures().items()}
        typer.echo(f"Of the same lines under {NORMALISATION_NFC}: CER {told['cer_nfc']}")
        typer.echo(f"Of whole pages, missed, extra and misplaced lines included: CER {told['page_cer']}, WER {told['page_wer']}")


def _row(name: str, score: "PageScore | None", found: int, seconds: float) -> tuple[str, ...]:
    measures = {} if score is None else score.measures()
    lines = f"{'-' if score is None else score.gt_lines}/{found}"
    return name, lines, *(_number(measures.get(key), places) for key, (_, places) in _COLUMNS.items()), f"{seconds:.1f}"


def _number(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def _document(recipe: "ContextSnapshot", pages: Sequence["EvaluatedPage | FailedPage"]) -> dict[str, object]:
    from scribe_pipeline.engines import transcriber_version
    from scribe_pipeline.metrics import MIN_IOU, NORMALISATION, NORMALISATION_NFC, EvaluatedPage, total_of

    provider, model = recipe.transcription_provider, recipe.transcription_model
    segmentor = next((page.segmentor for page in pages if isinstance(page, EvaluatedPage)), None)
    total = total_of(pages)
    return {
        "context": recipe.name,
        "segmentation": {"model": recipe.segmentation_model, "engine": segmentor},
        "transcription": {"provider": provider, "model": model, "engine": transcriber_version(provider)},
        "min_iou": MIN_IOU,
        "normalisation": NORMALISATION,
        "normalisation_nfc": NORMALISATION_NFC,
        "pages": [_page_json(page) for page in pages],
        "totals": None if total is None else _score_json(total[0]) | {"seconds": round(total[1], 2)},
    }


def _page_json(page: "EvaluatedPage | FailedPage") -> dict[str, object]:
    from scribe_pipeline.metrics import FailedPage

    if isinstance(page, FailedPage):
        return {"file": page.name, "error": page.message}
    scored = {} if page.score is None else _score_json(page.score)
    counts = {"found_lines": len(page.found), "failed_lines": page.failed_lines, "seconds": round(page.seconds, 2)}
    return {"file": page.name, "error": None} | scored | counts


def _score_json(score: "PageScore") -> dict[str, object]:
    counts = {"gt_lines": score.gt_lines, "found_lines": score.found_lines, "matched": score.matched}
    return counts | {name: None if value is None else round(value, 6) for name, value in score.measures().items()}
