"""The working objects themselves: database, blob store, worker processes, progress; and the same as Dagster resources."""

import os
from collections.abc import Iterator
from typing import Any, Protocol

import dagster as dg
from sqlalchemy import Engine

from scribe_pipeline.config import Settings
from scribe_pipeline.database import connect, database_url
from scribe_pipeline.engines import EnginePool, ImageLimits
from scribe_pipeline.ingest import IngestSettings, RefusedFile, SegmentedPage
from scribe_pipeline.jobs import TranscribedPage
from scribe_pipeline.pages import Image
from scribe_pipeline.storage import BlobStore, open_store, store_url


class Progress(Protocol):
    """Hears of each page as soon as its stage is committed."""

    def ingested(self, image: Image) -> None:
        """A file, or a page of it, has become an image."""

    def further(self, pages: int) -> None:
        """A file turns out to have so many pages more than the one it was counted as."""

    def refused(self, file: RefusedFile) -> None:
        """A file has been refused."""

    def segmented(self, page: SegmentedPage) -> None:
        """An image has its lines."""

    def transcribed(self, page: TranscribedPage) -> None:
        """A page has its draft, or an attempt at one has failed."""


class SilentProgress:
    """For runs that nobody watches line by line."""

    def ingested(self, image: Image) -> None:
        """Say nothing."""

    def further(self, pages: int) -> None:
        """Say nothing."""

    def refused(self, file: RefusedFile) -> None:
        """Say nothing."""

    def segmented(self, page: SegmentedPage) -> None:
        """Say nothing."""

    def transcribed(self, page: TranscribedPage) -> None:
        """Say nothing."""


def ingest_settings(settings: Settings, engine: Engine) -> IngestSettings:
    """Return what validation and segmentation need of the configuration."""
    return IngestSettings(
        engine=engine,
        store_url=store_url(settings),
        public_url=settings.public_url,
        lease_seconds=settings.lease_seconds,
        max_attempts=settings.max_attempts,
        limits=ImageLimits.of(settings),
        reservation_seconds=settings.reservation_seconds,
    )


def resource_defs() -> dict[str, object]:
    """Return the resources by the names that ops and sensors ask for; each reads the environment when it is set up."""
    return {
        "settings": _settings,
        "database": _database,
        "store": _store,
        "pool": _pool,
        "progress": SilentProgress(),
        "io_manager": dg.mem_io_manager,
    }


@dg.resource
def _settings() -> Settings:
    return Settings()


@dg.resource(required_resource_keys={"settings"})
def _database(context: dg.InitResourceContext) -> Iterator[Engine]:
    engine = connect(database_url(context.resources.settings))
    try:
        yield engine
    finally:
        engine.dispose()


@dg.resource(required_resource_keys={"settings"})
def _store(context: dg.InitResourceContext) -> BlobStore:
    return open_store(store_url(context.resources.settings), _gcs_client)


def _gcs_client() -> Any:
    from dagster_gcp import GCSResource

    return GCSResource(project=os.environ.get("GOOGLE_CLOUD_PROJECT")).get_client()


@dg.resource(required_resource_keys={"settings"})
def _pool(context: dg.InitResourceContext) -> Iterator[EnginePool]:
    pool = EnginePool(context.resources.settings.workers)
    try:
        yield pool
    finally:
        pool.stop()
