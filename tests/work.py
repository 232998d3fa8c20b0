"""A batch on its way through the three stages, with engines that answer at once."""

from scribe_pipeline.ingest import Batch, RefusedFile, SegmentationSource, ValidationSource, settle_batch
from scribe_pipeline.jobs import TranscribedPage, TranscriptionSource, drain
from tests.houses import House, InlinePool


class Work:
    """The three stages of a batch, one after the other or alone, and what they told."""

    def __init__(self, house: House, batch: Batch) -> None:
        self.house = house
        self.batch = batch
        self.pool = InlinePool()
        self.refused: list[RefusedFile] = []
        self.transcribed: list[TranscribedPage] = []
        self._drop = lambda _: None

    def validate(self) -> None:
        """Files to images."""
        drain([ValidationSource(self.house.settings, self.batch.id, self._drop, self.refused.append)], self.pool, 60, 60)

    def segment(self) -> None:
        """Images to pages."""
        drain([self.segmentation()], self.pool, 60, 60)

    def segmentation(self) -> SegmentationSource:
        """The second stage's work."""
        return SegmentationSource(self.house.settings, self.batch.id, self._drop, self.refused.append)

    def transcribe(self) -> None:
        """Pages to drafts."""
        source = TranscriptionSource(self.house.engine, self.house.store_url, 60, self.transcribed.append, self.batch.id)
        drain([source], self.pool, 60, 60)

    def all(self) -> Batch:
        """Everything."""
        self.validate()
        self.segment()
        self.transcribe()
        return settle_batch(self.house.engine, self.batch.id, self.batch.dispatch_generation)
