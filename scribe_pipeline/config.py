"""The configuration: every variable, its type, its default and its bounds. Nothing is read until `Settings()` is called.

Variables begin with SCRIBE_, but for those of the flyers' notices, which keep the names that their operators know.
"""

import os
import re
import socket
from pathlib import Path

import psutil
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_WORKER_MEMORY_BYTES = 3 * 1024**3
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?(?:([KMGT])(i?))?(?:B|bytes)?", re.IGNORECASE | re.ASCII)
_ADDRESS = re.compile(r"https?://[^\s/?#\[\]]+(/[^\s?#]*[^\s/?#])?")


def default_workers() -> int:
    """One process a core this process may use, as far as 3 GiB of memory for each are there; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, psutil.virtual_memory().total // _WORKER_MEMORY_BYTES))


def read_size(size: str) -> int:
    """Return how many bytes a size such as 50GiB, 800MB or 4096 is. Raises ValueError with what to write instead."""
    said = _SIZE.fullmatch(size.strip())
    if said is None:
        raise ValueError(f"{size} is no size: write 50GiB, 800MB, or a number of bytes")
    number, unit, binary = said.groups()
    if "." in number and not unit:
        raise ValueError(f"{size} is no size: a byte has no parts")
    factor = (1024 if binary else 1000) ** (" KMGT".index(unit.upper()) if unit else 0)
    return int(float(number) * factor) if "." in number else int(number) * factor


class Settings(BaseSettings):
    """One reading of the environment. Sizes are bytes, times seconds, sides pixels."""

    model_config = SettingsConfigDict(
        env_prefix="SCRIBE_", env_ignore_empty=True, extra="ignore", frozen=True, validate_default=True, populate_by_name=True
    )

    home: Path = Path(".scribe")
    public_url: str = "http://localhost:8000/presentation/v3"
    database_url: str | None = None
    blob_url: str | None = None
    models_file: Path | None = None
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

    smtp_url: SecretStr | None = None
    smtp_failover_url: SecretStr | None = None
    smtp_from: str = Field(default_factory=lambda: f"scribe@{socket.gethostname() or 'localhost'}")
    alert_email: str | None = Field(default=None, validation_alias="ALERT_EMAIL")
    failure_notify_enabled: bool = False
    failure_notify_to: str | None = None
    failure_notify_lookback_hours: float = Field(default=24, gt=0, le=8760)
    failure_notify_max_per_hour: int = Field(default=12, ge=0, le=10_000)
    failure_admin_url_template: str | None = None
    preserve_failure_notify_enabled: bool = Field(default=False, validation_alias="PRESERVE_FAILURE_NOTIFY_ENABLED")
    preserve_failure_notify_to: str | None = Field(default=None, validation_alias="PRESERVE_FAILURE_NOTIFY_TO")
    preserve_failure_notify_lookback_hours: float = Field(
        default=24, validation_alias="PRESERVE_FAILURE_NOTIFY_LOOKBACK_HOURS", gt=0, le=8760
    )
    preserve_failure_notify_max_per_hour: int = Field(
        default=12, validation_alias="PRESERVE_FAILURE_NOTIFY_MAX_PER_HOUR", ge=0, le=10_000
    )
    preserve_failure_admin_url_template: str | None = Field(default=None, validation_alias="PRESERVE_FAILURE_ADMIN_URL_TEMPLATE")

    @field_validator("home", "models_file")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        try:
            return None if path is None else path.expanduser().absolute()
        except RuntimeError:
            raise ValueError("there is no such user") from None

    @field_validator("public_url")
    @classmethod
    def _address(cls, url: str) -> str:
        if _ADDRESS.fullmatch(url) is None:
            raise ValueError(
                "it must be an address such as https://iiif.example.org/presentation/v3, without a query and without a / at its end"
            )
        return url

    @field_validator("max_image_bytes", mode="before")
    @classmethod
    def _size(cls, size: object) -> object:
        return read_size(size) if isinstance(size, str) else size
