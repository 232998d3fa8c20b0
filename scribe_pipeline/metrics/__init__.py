"""How good a transcription is: ground truth read from files, and segmentation, reading order and text measured against it.

Here belong readers of ground truth, pure measures over lines and text, pictures of what they found, and the run of a recipe over
pages with ground truth. Not here: rows, exports (they only write ALTO and PAGE), and the thresholds that decide whether a score is
good enough (`benchmarks/`).
"""

from scribe_pipeline.metrics.evaluation import (
    MIN_IOU,
    NORMALISATION,
    NORMALISATION_NFC,
    Line,
    PageScore,
    evaluate,
    normalise,
)
from scribe_pipeline.metrics.groundtruth import GroundTruthLine, read_ground_truth
from scribe_pipeline.metrics.pictures import draw_evaluation, draw_measures, draw_shares
from scribe_pipeline.metrics.recipe import EvaluatedPage, FailedPage, evaluate_recipe, total_of

__all__ = [
    "MIN_IOU",
    "NORMALISATION",
    "NORMALISATION_NFC",
    "EvaluatedPage",
    "FailedPage",
    "GroundTruthLine",
    "Line",
    "PageScore",
    "draw_evaluation",
    "draw_measures",
    "draw_shares",
    "evaluate",
    "evaluate_recipe",
    "normalise",
    "read_ground_truth",
    "total_of",
]
