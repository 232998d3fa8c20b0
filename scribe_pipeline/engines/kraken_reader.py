"""Recognition models of Kraken that an administrator has registered: they read one line crop at a time, on this machine."""

from importlib import metadata
from typing import ClassVar

import numpy as np
from PIL import Image

from scribe_pipeline.engines.containers import LineText, ReadingOptions
from scribe_pipeline.engines.images import Pixels, pad_flat
from scribe_pipeline.engines.kraken_files import check_kraken, load_kraken
from scribe_pipeline.engines.models import Model

_MAX_ASPECT = 60


class KrakenReader:
    """A transcriber of single lines; loading it takes seconds, so a process keeps one.

    Raises ScribeError (unavailable) for a file that is not the one registered, or holds no recogniser.
    """

    concurrent: ClassVar[bool] = False
    proven: ReadingOptions | None = None
    version = staticmethod(lambda: f"kraken {metadata.version('kraken')}")

    def __init__(self, model: Model) -> None:
        check_kraken()
        import torch
        from kraken.configs import RecognitionInferenceConfig
        from kraken.tasks import RecognitionTaskModel

        torch.set_num_threads(1)
        self._net = load_kraken(RecognitionTaskModel, model).net
        # one line needs no processes beside this one to cut it out
        self._net.prepare_for_inference(RecognitionInferenceConfig(accelerator="cpu", num_line_workers=0))

    def transcribe(self, crop: Pixels, options: ReadingOptions) -> LineText:
        """Read one line crop, (height, width, 3) RGB. A blank answer has an empty value. There are no options to heed.

        The text stands in the order in which it is read, also where that is from right to left. The confidence is the mean of its
        characters'.
        """
        from kraken.binarization import nlbin
        from kraken.containers import BBoxLine, Segmentation

        picture = Image.fromarray(pad_flat(crop, _MAX_ASPECT))
        width, height = picture.size
        darkest, lightest = picture.convert("L").getextrema()
        if darkest == lightest:  # which Kraken refuses to make black and white
            return LineText("", 0.0)
        if self._net.one_channel_mode == "1":
            picture = nlbin(picture)
        # what the model was trained on: boxes, or lines made straight along their baselines, for which Kraken takes a level one
        kind = self._net.seg_type or "baselines"
        if kind == "bbox":
            line = BBoxLine("line", bbox=(0, 0, width, height))
        else:
            line = BBoxLine("line", bbox=(0, 0, width - 1, height - 1)).to_baseline()
        page = Segmentation(
            type=kind,
            imagename="",
            text_direction="horizontal-lr",
            script_detection=False,
            lines=[line],
            regions={},
            line_orders=[],
        )
        (record,) = self._net.predict(im=picture, segmentation=page)
        if not record.prediction:
            return LineText("", 0.0)
        return LineText(record.prediction, float(np.mean(record.confidences)))
