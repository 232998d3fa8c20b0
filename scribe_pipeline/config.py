"""The configuration: every SCRIBE_ variable, its type, its default and its bounds. Nothing is read until `Settings()` is called."""

import os
from pathlib import Path

import psutil
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

_WORKER_MEMORY_BYTES = 3 * 1024**3


def default_workers() -> int:
    """One process a core this process may use, as far as 3 GiB of memory for each are there; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, psutil.virtual_memory().total // _WORKER_MEMORY_BYTES))


class Settings(BaseSettings):
    """One reading of the environment. Sizes are bytes, times seconds, sides pixels."""

    model_config = SettingsConfigDict(env_prefix="SCRIBE_", env_ignore_empty=True, extra="ignore", frozen=True)

    home: Path = Path(".scribe")
    public_url: str = Field("http://localhost:8000/presentation/v3", pattern=r"^https?://[^?#\s]+[^/?#\s]$")
    database_url: str | None = None
    blob_url: str | None = None
    lease_seconds: float = Field(60, ge=1, allow_inf_nan=False)
    max_attempts: int = Field(3, ge=1)
    workers: int = Field(default_factory=default_workers, ge=1)
    claim_seconds: float = Field(1200, gt=0, allow_inf_nan=False)
    max_image_bytes: int = Field(100 * 1024**2, gt=0)
    max_image_pixels: int = Field(150_000_000, gt=0)
    max_image_side: int = Field(30_000, gt=0)

    @property
    def home_path(self) -> Path:
        """`home` as an absolute path."""
        return self.home.expanduser().absolute()
