"""Registries of models for tests: files that say what is registered, and tiny models of Kraken that are made on the spot."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scribe_pipeline.engines import registry
from scribe_pipeline.engines.models import registered_models


def registry_text(*entries: dict[str, Any]) -> str:
    """The file's text; what JSON writes of texts and numbers is TOML too."""
    return "\n".join(
        "\n".join(["[[model]]", *(f"{name} = {json.dumps(value)}" for name, value in entry.items())]) for entry in entries
    )


@contextmanager
def registered(monkeypatch: pytest.MonkeyPatch, file: Path | None) -> Iterator[None]:
    """This process as one that begins with SCRIBE_MODELS_FILE set like this, and afterwards as one that begins without."""
    if file is not None:
        monkeypatch.setenv("SCRIBE_MODELS_FILE", str(file))
    forget()
    yield
    monkeypatch.delenv("SCRIBE_MODELS_FILE", raising=False)
    forget()


def forget() -> None:
    """Have this process read the registry, and load models, anew."""
    for cached in (registered_models, registry.segmentor, registry.transcriber, registry._reader):
        cached.cache_clear()


def file_entry(path: Path, kind: str = "transcriber", **values: Any) -> dict[str, Any]:
    """An entry for a file of Kraken."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"id": path.stem, "kind": kind, "engine": "kraken", "location": str(path), "sha256": digest} | values


def tiny_reader(path: Path, alphabet: str = "abcdefgh", lines: str | None = "baselines", channel: str = "L") -> Path:
    """Write a recogniser with random weights, always the same; it reads nonsense. What it is written as is said by the suffix."""
    import torch
    from kraken.lib.vgsl import TorchVGSLModel
    from kraken.models.writers import write_coreml, write_safetensors

    codec = {char: [label] for label, char in enumerate(alphabet, 1)}
    layers = f"[1,24,0,1 Cr3,3,4 Mp2,2 S1(1x12)1,3 Lbx8 O1c{len(alphabet) + 1}]"
    with torch.random.fork_rng():
        torch.manual_seed(7)
        net = TorchVGSLModel(vgsl=layers, model_type=["recognition"], seg_type=lines, one_channel_mode=channel, codec=codec)
    (write_coreml if path.suffix == ".mlmodel" else write_safetensors)([net], path)
    return path
