"""The configuration: every SCRIBE_ variable, its type, its default and its bounds. Nothing is read until `Settings()` is called."""

import os
from pathlib import Path

import psutil
from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_WORKER_MEMORY_BYTES = 3 * 1024**3


def default_workers() -> int:
    """One process a core this process may use, as far as 3 GiB of memory for each are there; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, psutil.virtual_memory().total // _WORKER_MEMORY_BYTES))


class Settings(BaseSettings):
    """One reading of the environment. Sizes are bytes, times seconds, sides pixels."""

    model_config = SettingsConfigDict(
        env_prefix="SCRIBE_", env_ignore_empty=True, extra="ignore", frozen=True, validate_default=True
    )

    home: Path = Path(".scribe")
    public_url: str = Field(
        default="http://localhost:8000/presentation/v3", pattern=r"^https?://[^\s/?#\[\]]+(/[^\s?#]*[^\s/?#])?$"
    )
    database_url: str | None = None
    blob_url: str | None = None
    lease_seconds: float = Field(default=60, ge=1, le=86_400)
    max_attempts: int = Field(default=3, ge=1, le=1000)
    workers: int = Field(default_factory=default_workers, ge=1, le=256)
    reservation_seconds: float = Field(default=6 * 3600, ge=60, le=30 * 86_400)
    claim_seconds: float = Field(default=1200, gt=0, le=86_400)
    cleanup_warn_seconds: float = Field(default=3600, ge=60, le=30 * 86_400)
    storage_warn_share: float = Field(default=0.9, gt=0, le=1)
    max_image_bytes: int = Field(default=100 * 1024**2, gt=0, le=2**40)
    max_image_pixels: int = Field(default=150_000_000, gt=0, le=2**31)
    max_image_side: int = Field(default=30_000, gt=0, le=2**31)
    max_image_pages: int = Field(default=1000, gt=0, le=10_000)

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        try:
            return home.expanduser().absolute()
        except RuntimeError:
            raise ValueError("there is no such user") from None
