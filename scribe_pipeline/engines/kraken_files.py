"""Kraken and the files of models that an administrator has registered for it."""

from importlib import metadata, util
from typing import Any

from scribe_pipeline.engines.models import Model
from scribe_pipeline.errors import Category, ScribeError


def check_kraken() -> None:
    """See that Kraken is installed, without loading it. Raises ScribeError saying what to install."""
    if util.find_spec("kraken") is None:
        raise ScribeError(Category.UNAVAILABLE, "Kraken is not installed: pip install 'scribe-pipeline[kraken]'")


def load_kraken(task: Any, model: Model) -> Any:
    """Return one of Kraken's tasks with the registered file. Raises ScribeError (unavailable) for a file that is not fit for it."""
    path = model.checked_file()
    try:
        return task.load_model(path)
    except Exception:  # each of Kraken's loaders raises what its format makes it raise
        problem = (
            f"the file of the model {model.id}, {path}, holds no {model.kind} that Kraken {metadata.version('kraken')} can load"
        )
        raise ScribeError(Category.UNAVAILABLE, problem) from None
