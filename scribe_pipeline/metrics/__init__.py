"""How good a transcription is: ground truth read from files, and segmentation, reading order and text measured against it.

Here belong readers of ground truth and pure measures over lines and text. Not here: database rows, engines, exports (they only
write ALTO and PAGE), and the thresholds that decide whether a score is good enough (`benchmarks/`).
"""

from scribe_pipeline.metrics.evaluation import MIN_IOU, Line, PageScore, evaluate, normalise
from scribe_pipeline.metrics.groundtruth import GroundTruthLine, read_ground_truth

__all__ = ["MIN_IOU", "GroundTruthLine", "Line", "PageScore", "evaluate", "normalise", "read_ground_truth"]
