"""The engines that look at scans: segmentors and transcribers behind the trusted registry, and the processes they run in.

They get pixels and give geometry and text; they know no row and decide nothing.
"""

from scribe_pipeline.engines.containers import (
    ImageFacts,
    ImageLimits,
    LineShape,
    LineText,
    Point,
    Reading,
    ReadingOptions,
    Segmentation,
)
from scribe_pipeline.engines.formats import image_extension
from scribe_pipeline.engines.images import crop_line
from scribe_pipeline.engines.models import registered_models
from scribe_pipeline.engines.pictures import decode_upright, inspect_image
from scribe_pipeline.engines.pool import EnginePool, ProcessExpired, Ticket
from scribe_pipeline.engines.rapidocr_local import local_models
from scribe_pipeline.engines.registry import (
    UnregisteredError,
    check_segmentor,
    check_transcriber,
    probe_segmentor,
    probe_transcriber,
    transcriber_version,
)
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
    "ReadingOptions",
    "Segmentation",
    "Ticket",
    "Tiff",
    "UnregisteredError",
    "check_segmentor",
    "check_transcriber",
    "crop_line",
    "decode_upright",
    "image_extension",
    "inspect_image",
    "local_models",
    "probe_segmentor",
    "probe_transcriber",
    "registered_models",
    "segment",
    "transcribe",
    "transcriber_version",
]
