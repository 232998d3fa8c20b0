"""The engines that look at scans: segmentors and transcribers behind the trusted registry, and the processes they run in.

They get pixels and give geometry and text; they know no row and decide nothing.
"""

from scribe_pipeline.engines.containers import ImageFacts, ImageLimits, LineShape, LineText, Point, Reading, Segmentation
from scribe_pipeline.engines.formats import image_extension
from scribe_pipeline.engines.images import crop_line
from scribe_pipeline.engines.pictures import decode_upright, inspect_image
from scribe_pipeline.engines.pool import EnginePool, ProcessExpired, Ticket
from scribe_pipeline.engines.registry import check_segmentor, check_transcriber, transcriber_version
from scribe_pipeline.engines.tasks import segment, transcribe
from scribe_pipeline.engines.tiff_pages import Tiff

__all__ = [
    "EnginePool",
    "ImageFacts",
    "ImageLimits",
    "LineShape",
    "LineText",
    "Point",
    "ProcessExpired",
    "Reading",
    "Segmentation",
    "Ticket",
    "Tiff",
    "check_segmentor",
    "check_transcriber",
    "crop_line",
    "decode_upright",
    "image_extension",
    "inspect_image",
    "segment",
    "transcribe",
    "transcriber_version",
]
