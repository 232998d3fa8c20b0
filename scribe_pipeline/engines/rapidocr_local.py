"""PP-OCRv6 from RapidOCR's wheel, which needs no key and no network: its models, and the default recogniser."""

from importlib import metadata, util
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from scribe_pipeline.engines.containers import LineText, ReadingOptions
from scribe_pipeline.engines.images import Pixels, pad_flat
from scribe_pipeline.errors import Category, ScribeError

_MAX_ASPECT = 60


def local_models() -> list[str]:
    """Return the ids of the recognisers in the wheel."""
    folder = _model_folder()
    return [] if folder is None else sorted(path.stem for path in folder.glob("*_rec_*.onnx"))


def _model_folder() -> Path | None:
    found = util.find_spec("rapidocr")
    return Path(found.origin).parent / "models" if found and found.origin else None


def model_file(model: str) -> Path:
    """Return the model's file inside the wheel. Raises ScribeError if it is not there: it is never downloaded."""
    folder = _model_folder()
    path = None if folder is None else folder / f"{model}.onnx"
    if path is None or not path.is_file():
        raise ScribeError(Category.UNAVAILABLE, f"the model {model} is not in the installed rapidocr: install rapidocr 3.10 again")
    return path


def load_rapidocr(part: str, model: str, **options: object) -> Any:
    """Return RapidOCR with a model of the wheel for one part of its work, Det or Rec. Raises ScribeError if it is not there."""
    path = model_file(model)
    from rapidocr import RapidOCR

    threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    settings = {f"{part}.{name}": value for name, value in options.items()}
    return RapidOCR(params={f"{part}.model_path": str(path), "Global.log_level": "error"} | threads | settings)


class RapidOcr:
    """A transcriber of single lines."""

    concurrent: ClassVar[bool] = False
    proven: ReadingOptions | None = None
    version = staticmethod(lambda: f"rapidocr {metadata.version('rapidocr')}")

    def __init__(self, model: str) -> None:
        self._recognise = load_rapidocr("Rec", model)
        try:
            self.transcribe(np.full((48, 96, 3), 255, np.uint8), ReadingOptions())  # the model is loaded by its first use
        except Exception:  # what a broken model makes the runtime raise is not its own kind of error
            raise ScribeError(Category.UNAVAILABLE, f"the model {model} cannot be loaded: install rapidocr 3.10 again") from None

    def transcribe(self, crop: Pixels, options: ReadingOptions) -> LineText:
        """Read one line crop, (height, width, 3) RGB. A blank answer has an empty value. There are no options to heed."""
        # RapidOCR refuses a very flat crop, or needs gigabytes for it
        crop = pad_flat(crop, _MAX_ASPECT)
        result = self._recognise(crop[:, :, ::-1], use_det=False, use_cls=False, use_rec=True)
        if not result.txts:
            return LineText("", 0.0)
        return LineText(result.txts[0], float(result.scores[0]))
