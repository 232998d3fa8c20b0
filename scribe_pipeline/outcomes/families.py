"""The two families of jobs whose outcomes are recorded, and all that differs between them; the rest of this room asks an adapter.

`flyer_tagging_jobs` are written by other services, `transcription_jobs` by this program.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, func, select

from scribe_pipeline.database import load_json
from scribe_pipeline.database.tables import (
    annotation_page_revisions,
    files,
    flyer_tagging_jobs,
    item_images,
    items,
    transcription_jobs,
    workspaces,
)
from scribe_pipeline.outcomes.classes import Verdict
from scribe_pipeline.outcomes.facts import (
    MAX_BYTES,
    count,
    error_text,
    failure_texts,
    flag,
    label,
    mapping,
    media_type,
    number,
    slug,
    strings,
    version,
    word,
)

flyers, jobs, images, revisions = flyer_tagging_jobs, transcription_jobs, item_images, annotation_page_revisions

# A file may be called `letter.pdf` or `Password.pdf`: such a word alone tells of nobody, and facts and failures are full of them.
_COMMON = re.compile(
    "absent|batch|broken|database|email|metadata|timeout|website|card|compliance|context|copy|default|diff|digital|document|draft|error|file|final|flyer|font|"
    "fonts|form|fraktur|handwriting|host|image|images|index|input|invoice|item|job|lambda|layout|letter|letters|line|lines|"
    "list|local|manuscript|menu|missing|model|native|newspaper|notice|ocr|original|output|page|pages|photo|picture|pixel|"
    "poster|preflight|present|print|printed|report|result|sample|scan|scanned|scans|single|source|structure|table|tagged|"
    "test|text|title|tree|upload|uploads|pdf|png|jpe?g|tiff?|webp|jp2|"
    # by these redaction knows a secret that follows
    "access|api|apikey|auth|authorization|basic|bearer|cookie|credentials?|digest|key|keys|pass|passphrase|passwd|password|"
    "private|pwd|secret|secrets|session|sig|signature|token",
    re.IGNORECASE,
)


class Family(ABC):
    """Where jobs that have ended are found, how their rows are read, and what their columns and characteristics are called."""

    table: ClassVar[Table]
    terminal: ClassVar[tuple[str, ...]]
    # What kind of job they are, as mails call it; what the variables of their notices begin with; whether they are recorded even
    # while nobody is told.
    kind: ClassVar[str]
    variables: ClassVar[str]
    always_recorded: ClassVar[bool]
    # Whether somebody is charged for a job, and may be refunded.
    charged: ClassVar[bool]
    # Characteristics that a digest counts: its heading, and the fact with the names of its values.
    digest_counts: ClassVar[Mapping[str, tuple[str, Mapping[str, str]]]]

    @property
    def name(self) -> str:
        """The family's name, which is its table's."""
        return self.table.name

    @property
    def switch(self) -> str:
        """What switches its notices on."""
        return f"{self.variables}_NOTIFY_ENABLED"

    @property
    def unset(self) -> str:
        """What has to be set so that somebody is told."""
        return f"{self.variables}_NOTIFY_TO (or ALERT_EMAIL) and SCRIBE_SMTP_URL"

    @abstractmethod
    def verdict(self, row: Row[Any]) -> Verdict:
        """Read how a job ended."""

    @abstractmethod
    def facts(self, connection: Connection, row: Row[Any]) -> dict[str, Any]:
        """Read what kind of file it was: every key is there, with None for what is unknown; nothing tells of a person."""

    @abstractmethod
    def how_to_look(self, row: Row[Any]) -> str:
        """Return the command that shows the job."""

    @abstractmethod
    def link(self, template: str, row: Row[Any]) -> str:
        """Fill in the address of a page about the job."""


class FlyerTagging(Family):
    """Jobs that tag a file in place, with the file's row where there is one."""

    table = flyers
    terminal = ("done", "failed")
    kind = "tagging"
    variables = "PRESERVE_FAILURE"
    always_recorded = False
    charged = True
    digest_counts: ClassVar[Mapping[str, tuple[str, Mapping[str, str]]]] = {
        "Scanned or text": ("scanned", {"true": "scanned", "false": "text"}),
        "Producers": ("producer", {}),
    }

    def verdict(self, row: Row[Any]) -> Verdict:
        """A job is finished if it is `done`."""
        return Verdict(row.status == "done", row.passed, strings(row.failures), row.error)

    def facts(self, connection: Connection, row: Row[Any]) -> dict[str, Any]:
        """Read the preflight and the file's row; either may be missing."""
        columns = [column for column in files.columns if column.name not in ("created_at", "updated_at")]
        file = connection.execute(select(*columns).where(files.c.id == row.file_id)).one_or_none()
        known = _known(row.input_key, row.user_id, row.file_id, row.id, None if file is None else file.name)
        preflight = mapping(row.preflight)
        signals = mapping(preflight.get("signals"))
        pages, pages_source = _pages(
            {
                "preflight": signals.get("page_count"),
                "progress": mapping(row.progress).get("pagesTotal"),
                "charge_units": row.charge_units,
            }
        )
        mode, tree_state = word(preflight.get("mode"), known), word(preflight.get("tree_state"), known)
        return {
            "pages": pages,
            "pages_source": pages_source,
            "bytes": None if file is None else count(file.size, MAX_BYTES),
            "mime_type": None if file is None else media_type(file.mime_type, known),
            "producer": label(signals.get("producer"), known),
            "creator": label(signals.get("creator"), known),
            "pdf_version": version(signals.get("pdf_version")),
            "mode": mode,
            "scanned": None if mode is None else mode == "ocr",
            "ocr_kind": word(preflight.get("ocr_kind"), known),
            "tree_state": tree_state,
            "already_tagged": None if tree_state is None else tree_state.startswith("present"),
            "route": word(preflight.get("route"), known),
            "eligible": flag(preflight.get("eligible")),
            "design_dense": flag(preflight.get("design_dense")),
            "widget_count": count(signals.get("widget_count")),
            "has_xfa": flag(signals.get("has_xfa")),
            "unembedded_fonts": count(signals.get("unembedded_fonts")),
            "substituted_fonts": count(signals.get("substituted_fonts")),
            "text_line_count": count(signals.get("text_line_count")),
            "raster_coverage": number(signals.get("raster_coverage")),
            "input_audit_score": None if file is None or file.input_audit_score is None else number(float(file.input_audit_score)),
            "input_audit_band": None if file is None else word(file.input_audit_band, known),
            "input_audit_already_accessible": None if file is None else file.input_audit_already_accessible,
            "lane": word(row.lane, known),
            "rerouted": row.rerouted,
            "force": row.force,
            "flatten": row.flatten,
            "source": word(row.source, known),
            "prior_attempts": self._prior_attempts(connection, row),
            "duration_seconds": _seconds(row.created_at, row.updated_at),
            "failures": failure_texts(strings(row.failures), known),
            "error": error_text(row.error, known),
        }

    def _prior_attempts(self, connection: Connection, row: Row[Any]) -> int:
        if row.file_id is None and row.input_key is None:
            return 0
        # keys of any length are indexed by their digest
        same_key = and_(func.md5(flyers.c.input_key) == func.md5(row.input_key), flyers.c.input_key == row.input_key)
        same = flyers.c.file_id == row.file_id if row.file_id is not None else same_key
        return _earlier(connection, flyers, row, and_(same, flyers.c.user_id.is_not_distinct_from(row.user_id)))

    def how_to_look(self, row: Row[Any]) -> str:
        """Return a query: these jobs are another service's."""
        return f"scribe db psql -x -c \"SELECT * FROM flyer_tagging_jobs WHERE id = '{row.id}'\""

    def link(self, template: str, row: Row[Any]) -> str:
        """Fill in the job's, the file's and the user's ids; what is unknown is left empty."""
        return _filled(template, row.id, row.file_id, row.user_id)


class Transcription(Family):
    """Jobs that transcribe a page."""

    table = jobs
    terminal = ("completed", "failed", "canceled", "superseded")
    kind = "transcription"
    variables = "SCRIBE_FAILURE"
    always_recorded = True
    charged = False
    digest_counts: ClassVar[Mapping[str, tuple[str, Mapping[str, str]]]] = {
        "Media types": ("media_type", {}),
        "Engines": ("engine", {}),
    }

    def verdict(self, row: Row[Any]) -> Verdict:
        """A job is finished if it is `completed`; one that was canceled or superseded counts as cancelled."""
        cancelled = row.status in ("canceled", "superseded")
        return Verdict(row.status == "completed", row.passed, strings(row.failures), row.error, cancelled)

    def facts(self, connection: Connection, row: Row[Any]) -> dict[str, Any]:
        """Read the preflight, and the image's row for what a job that ended before it cannot say."""
        # revision 1 of a page is what found its lines, for all of its jobs, unless somebody brought the page along
        first_by_ocr = and_(revisions.c.revision == 1, revisions.c.author_kind == "ocr")
        image = connection.execute(
            select(
                images,
                items.c.name.label("item"),
                workspaces.c.name.label("workspace"),
                revisions.c.author.label("segmentation_engine"),
            )
            .outerjoin(items, items.c.id == images.c.item_id)
            .outerjoin(workspaces, workspaces.c.id == images.c.workspace_id)
            .outerjoin(revisions, and_(revisions.c.item_image_id == images.c.id, first_by_ocr))
            .where(images.c.id == row.item_image_id)
        ).one_or_none()
        names = () if image is None else (image.label, image.item, image.workspace, image.object_key)
        known = _known(row.id, row.item_image_id, row.workspace_id, *names)
        preflight, context = mapping(row.preflight), mapping(load_json(row.context_snapshot))
        stored = (
            {}
            if image is None
            else {"bytes": image.storage_bytes}
            | {name: getattr(image, name) for name in ("width", "height", "media_type", "segmentation_engine")}
        )
        seen = stored | preflight
        return {
            "pages": 1,
            "pages_source": "image",
            "width": count(seen.get("width")),
            "height": count(seen.get("height")),
            "bytes": count(seen.get("bytes"), MAX_BYTES),
            "media_type": media_type(seen.get("media_type"), known),
            "segments": count(preflight.get("segments")),
            "completed_segments": row.completed_segments,
            "failed_segments": row.failed_segments,
            "segmentation_model": slug(context.get("segmentation_model"), known),
            "segmentation_engine": label(stored.get("segmentation_engine"), known),
            "provider": slug(context.get("transcription_provider"), known),
            "model": label(context.get("transcription_model"), known),
            "engine": label(preflight.get("engine"), known),
            "context": slug(context.get("name"), known),
            "origin": "single" if row.batch_id is None else "batch",
            "attempts": row.attempt_count,
            "prior_attempts": _earlier(connection, jobs, row, jobs.c.item_image_id == row.item_image_id),
            "duration_seconds": _seconds(row.created_at, row.finished_at),
            "error_category": row.error_category,
            "failures": failure_texts(strings(row.failures), known),
            "error": error_text(row.error, known),
        }

    def how_to_look(self, row: Row[Any]) -> str:
        """Return the command that shows the job with its attempts."""
        return f"scribe job show {row.id}"

    def link(self, template: str, row: Row[Any]) -> str:
        """Fill in the job's and the image's ids; jobs have no user."""
        return _filled(template, row.id, row.item_image_id, None)


FAMILIES: Mapping[str, Family] = {family.name: family for family in (FlyerTagging(), Transcription())}


def _pages(sources: Mapping[str, object]) -> tuple[int | None, str | None]:
    """Return the first number of pages that is known, and where it was found."""
    for source, value in sources.items():
        pages = count(value) if isinstance(value, int | float) else None
        if pages is not None:
            return pages, source
    return None, None


def _known(*values: object) -> set[str]:
    """What the rows themselves know that a text must not tell: ids, keys and names, these without their extension too."""
    texts = {str(value) for value in values if value is not None}
    # a backslash may be part of a name, or part it from its folder
    names = {PurePosixPath(form).name for text in texts for form in (text, text.replace("\\", "/"))}
    known = {text for text in texts | names | {PurePosixPath(name).stem for name in names} if not _is_common(text)}
    # a failure that is an object is told as JSON, where quotes and backslashes look otherwise, and at times letters with accents
    return known | {json.dumps(text, ensure_ascii=ascii_alone)[1:-1] for text in known for ascii_alone in (False, True)}


def _is_common(text: str) -> bool:
    """Whether it is nothing but everyday words and numbers, such as `page-12.png`."""
    words = [word for word in re.split(r"[\W\d_]+", text) if word]
    return bool(words) and (all(_COMMON.fullmatch(word) for word in words) or _COMMON.fullmatch("".join(words)) is not None)


def _earlier(connection: Connection, table: Table, row: Row[Any], same: ColumnElement[bool]) -> int:
    before = and_(same, table.c.created_at < row.created_at)
    return connection.scalar(select(func.count()).select_from(table).where(before)) or 0


def _seconds(began: datetime, ended: datetime) -> float:
    return max(0.0, round((ended - began).total_seconds(), 3))


def _filled(template: str, job_id: object, file_id: object, user_id: object) -> str:
    for name, value in (("jobId", job_id), ("fileId", file_id), ("userId", user_id)):
        template = template.replace("{" + name + "}", "" if value is None else str(value))
    return template
