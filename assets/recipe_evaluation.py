"""The evaluation of a recipe as an asset: each materialization is one context's measures on the pages that were named."""

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field
from sqlalchemy import Engine

from assets.metadata import markdown_pictures, markdown_table
from resources import ENGINES_TAG, ingest_settings, process_tags
from scribe_pipeline.config import Settings
from scribe_pipeline.contexts import find_context
from scribe_pipeline.database import in_transaction
from scribe_pipeline.engines import EnginePool, decode_upright, transcriber_version
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.ingest import collect, local_path
from scribe_pipeline.metrics import (
    NORMALISATION,
    EvaluatedPage,
    FailedPage,
    draw_evaluation,
    draw_measures,
    evaluate_recipe,
    total_of,
)
from scribe_pipeline.workspaces import workspace_id

if TYPE_CHECKING:
    import pandas as pd

_MAX_PICTURES, _PICTURE_WIDTH, _MAX_BARS = 4, 800, 40


class EvaluationConfig(dg.Config):
    """Which pages, and how they are read."""

    paths: list[str] = Field(
        description="Absolute paths of scans with ground truth (page.xml for page.jpg) beside them, or of folders."
    )
    context: str | None = Field(default=None, description="The context's name; the default one without it.")
    workspace: str = "default"


@dg.asset(
    group_name="quality",
    kinds={"pandas"},
    description="How well a context's engines find, order and read the lines of pages with ground truth. Nothing else is stored.",
)
def recipe_evaluation(
    context: dg.AssetExecutionContext,
    config: EvaluationConfig,
    settings: dg.ResourceParam[Settings],
    database: dg.ResourceParam[Engine],
    pool: dg.ResourceParam[EnginePool],
) -> dg.MaterializeResult[None]:
    """Evaluate the pages, and show measures as a table and as bars, and some pages with their lines."""
    context.instance.add_run_tags(context.run_id, process_tags())
    scans = {file.name: local_path(file.uri) for file in collect([Path(path) for path in config.paths]).files}
    recipe = in_transaction(
        database, lambda connection: find_context(connection, workspace_id(connection, config.workspace), config.context)
    )
    done = {page.name: page for page in evaluate_recipe(pool, recipe, scans, ingest_settings(settings, database).limits)}
    pages = [page for name in scans if isinstance(page := done[name], EvaluatedPage)]
    failed = [page for name in scans if isinstance(page := done[name], FailedPage)]
    total = total_of(pages)
    if total is None:
        raise ScribeError(Category.UNAVAILABLE, failed[0].message)
    score, seconds = total
    frame = _frame(pages)
    metadata: dict[str, dg.MetadataValue] = {
        "context": dg.MetadataValue.text(recipe.name),
        "segmentor": dg.MetadataValue.text(pages[0].segmentor),
        "transcriber": dg.MetadataValue.text(f"{recipe.transcription_model}, {transcriber_version(recipe.transcription_provider)}"),
        "normalisation": dg.MetadataValue.text(NORMALISATION),
        "pages": dg.MetadataValue.int(len(pages)),
        "seconds_per_page": dg.MetadataValue.float(seconds),
        "measures": markdown_table(frame.round(4).astype(object).where(frame.notna(), "-").to_dict("records")),
        "bars": markdown_pictures([("from 0 to 1", _bars(pages))]),
        "lines": markdown_pictures([(page.name, _drawn(page)) for page in pages[:_MAX_PICTURES]]),
    }
    metadata |= {name: dg.MetadataValue.float(value) for name, value in score.measures().items() if value is not None}
    if failed:
        metadata["failed"] = markdown_table([{"page": page.name, "why": page.message} for page in failed])
    return dg.MaterializeResult(metadata=metadata)


evaluate_recipe_job = dg.define_asset_job(
    "evaluate_recipe",
    selection=[recipe_evaluation],
    executor_def=dg.in_process_executor,
    tags=ENGINES_TAG,
    description="Evaluates a context on pages with ground truth.",
)


def _frame(pages: list[EvaluatedPage]) -> "pd.DataFrame":
    """A row a page: name, lines of ground truth and found, measures, seconds; empty cells where there is no ground truth."""
    import pandas as pd

    return pd.DataFrame(
        [
            {"page": page.name, "lines": len(page.truth), "found": len(page.found), "seconds": page.seconds}
            | ({} if page.score is None else page.score.measures())
            for page in pages
        ]
    )


def _bars(pages: list[EvaluatedPage]) -> bytes:
    scored = [(page.name, page.score.measures()) for page in pages if page.score is not None]
    shown = {"recall": "lines found", "adjacency": "followed by the next line", "cer": "characters wrong"}
    return draw_measures(dict(scored[:_MAX_BARS]), shown)


def _drawn(page: EvaluatedPage) -> bytes:
    return draw_evaluation(decode_upright(page.path.read_bytes()), page.found, page.truth, _PICTURE_WIDTH)
