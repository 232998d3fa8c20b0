"""The configuration: its defaults, its variables, its bounds; and that nothing is read before it is asked for."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from pydantic import SecretStr, ValidationError

from commands.output import load_settings
from scribe_pipeline import config
from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage import store_url

ROOT = Path(__file__).parents[2]
GIB = 1024**3


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("SCRIBE_", "PRESERVE_")) or name == "ALERT_EMAIL":
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("home", Path(".scribe").absolute()),
        ("public_url", "http://localhost:8000/presentation/v3"),
        ("lease_seconds", 60),
        ("max_attempts", 3),
        ("database_url", None),
        ("blob_url", None),
        ("max_image_bytes", 100 * 1024**2),
        ("max_image_pixels", 150_000_000),
        ("max_image_side", 30_000),
        ("max_image_pages", 1000),
        ("claim_seconds", 20 * 60),
        ("cleanup_warn_seconds", 3600),
        ("storage_warn_share", 0.9),
        ("smtp_url", None),
        ("smtp_failover_url", None),
        ("smtp_from", f"scribe@{socket.gethostname()}"),
        ("alert_email", None),
        ("failure_notify_enabled", False),
        ("failure_notify_to", None),
        ("failure_notify_lookback_hours", 24),
        ("failure_notify_max_per_hour", 12),
        ("failure_admin_url_template", None),
        ("preserve_failure_notify_enabled", False),
        ("preserve_failure_notify_to", None),
        ("preserve_failure_notify_lookback_hours", 24),
        ("preserve_failure_notify_max_per_hour", 12),
        ("preserve_failure_admin_url_template", None),
    ],
)
def test_defaults(name: str, value: object) -> None:
    """R205, R207, R208: nobody is told of failures until somebody says so, of those of a day, by twelve mails an hour."""
    assert getattr(Settings(), name) == value


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("SCRIBE_HOME", "/data/scribe", "home", Path("/data/scribe")),
        ("SCRIBE_PUBLIC_URL", "https://iiif.example.org/presentation/v3", "public_url", "https://iiif.example.org/presentation/v3"),
        ("SCRIBE_LEASE_SECONDS", "1.5", "lease_seconds", 1.5),
        ("SCRIBE_MAX_ATTEMPTS", "5", "max_attempts", 5),
        ("SCRIBE_DATABASE_URL", "postgresql://host/db", "database_url", "postgresql://host/db"),
        ("SCRIBE_BLOB_URL", "/data/blobs", "blob_url", "/data/blobs"),
        ("SCRIBE_WORKERS", "77", "workers", 77),
        ("SCRIBE_MAX_IMAGE_BYTES", "1000", "max_image_bytes", 1000),
        ("SCRIBE_MAX_IMAGE_BYTES", "1.5 GiB", "max_image_bytes", 3 << 29),
        ("SCRIBE_MAX_IMAGE_PIXELS", "1000", "max_image_pixels", 1000),
        ("SCRIBE_MAX_IMAGE_SIDE", "1000", "max_image_side", 1000),
        ("SCRIBE_MAX_IMAGE_PAGES", "50", "max_image_pages", 50),
        ("SCRIBE_CLEANUP_WARN_SECONDS", "7200", "cleanup_warn_seconds", 7200),
        ("SCRIBE_STORAGE_WARN_SHARE", "0.5", "storage_warn_share", 0.5),
        ("SCRIBE_SMTP_URL", "smtp://mail.example.org", "smtp_url", SecretStr("smtp://mail.example.org")),
        ("SCRIBE_SMTP_FAILOVER_URL", "smtps://mail.example.org", "smtp_failover_url", SecretStr("smtps://mail.example.org")),
        ("SCRIBE_SMTP_FROM", "Scribe <scribe@example.org>", "smtp_from", "Scribe <scribe@example.org>"),
        ("ALERT_EMAIL", "alert@example.org", "alert_email", "alert@example.org"),
        ("SCRIBE_FAILURE_NOTIFY_ENABLED", "true", "failure_notify_enabled", True),
        ("SCRIBE_FAILURE_NOTIFY_TO", "admin@example.org", "failure_notify_to", "admin@example.org"),
        ("SCRIBE_FAILURE_NOTIFY_LOOKBACK_HOURS", "0.5", "failure_notify_lookback_hours", 0.5),
        ("SCRIBE_FAILURE_NOTIFY_MAX_PER_HOUR", "2", "failure_notify_max_per_hour", 2),
        ("SCRIBE_FAILURE_ADMIN_URL_TEMPLATE", "https://x/{jobId}", "failure_admin_url_template", "https://x/{jobId}"),
        ("PRESERVE_FAILURE_NOTIFY_ENABLED", "1", "preserve_failure_notify_enabled", True),
        ("PRESERVE_FAILURE_NOTIFY_TO", "admin@example.org", "preserve_failure_notify_to", "admin@example.org"),
        ("PRESERVE_FAILURE_NOTIFY_LOOKBACK_HOURS", "48", "preserve_failure_notify_lookback_hours", 48),
        ("PRESERVE_FAILURE_NOTIFY_MAX_PER_HOUR", "0", "preserve_failure_notify_max_per_hour", 0),
        ("PRESERVE_FAILURE_ADMIN_URL_TEMPLATE", "https://x/{fileId}", "preserve_failure_admin_url_template", "https://x/{fileId}"),
    ],
)
def test_variables_are_read(monkeypatch: pytest.MonkeyPatch, variable: str, text: str, name: str, value: object) -> None:
    """R205, R207, R208, R209: by their own names, which for those of the other services' jobs are theirs."""
    before = getattr(Settings(), name)
    monkeypatch.setenv(variable.removeprefix("SCRIBE_"), "ignored")
    monkeypatch.setenv(variable, text)
    assert getattr(Settings(), name) == value != before


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SCRIBE_LEASE_SECONDS", "abc"),
        ("SCRIBE_LEASE_SECONDS", "0.5"),
        ("SCRIBE_LEASE_SECONDS", "nan"),
        ("SCRIBE_MAX_ATTEMPTS", "0"),
        ("SCRIBE_WORKERS", "0"),
        ("SCRIBE_MAX_IMAGE_BYTES", "0"),
        ("SCRIBE_CLEANUP_WARN_SECONDS", "59"),
        ("SCRIBE_STORAGE_WARN_SHARE", "0"),
        ("SCRIBE_STORAGE_WARN_SHARE", "1.01"),
        ("SCRIBE_STORAGE_WARN_SHARE", "nan"),
        ("SCRIBE_PUBLIC_URL", "localhost:8000"),
        ("SCRIBE_PUBLIC_URL", "http://localhost:8000/"),
        ("SCRIBE_PUBLIC_URL", "http://localhost:8000/v3?x"),
        ("SCRIBE_PUBLIC_URL", "http://local host"),
        pytest.param(
            "SCRIBE_LEASE_SECONDS",
            "inf",
        ),
        *(
            (f"{family}_FAILURE_NOTIFY_{name}", text)
            for family in ("SCRIBE", "PRESERVE")
            for name, texts in {
                "ENABLED": ("maybe", "2"),
                "LOOKBACK_HOURS": ("0", "-1", "8761", "nan", "inf", "a day"),
                "MAX_PER_HOUR": ("-1", "1.5", "10001", "many"),
            }.items()
            for text in texts
        ),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_variables_name(monkeypatch: pytest.MonkeyPatch, variable: str, text: str) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ScribeError, match=rf"^{variable} is not valid: .+$") as refused:
        load_settings()
    assert refused.value.category is Category.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("SCRIBE_PUBLIC_URL", "foo", "it must be an address such as https://iiif.example.org/presentation/v3, without "),
        ("SCRIBE_FAILURE_NOTIFY_ENABLED", "maybe", "it must be true or false"),
        ("SCRIBE_MAX_ATTEMPTS", "many", "it must be a whole number"),
        ("SCRIBE_MAX_ATTEMPTS", "0", "it must be greater than or equal to 1"),
        ("SCRIBE_LEASE_SECONDS", "soon", "it must be a number"),
        ("SCRIBE_MAX_IMAGE_BYTES", "much", "much is no size: write 50GiB, 800MB, or a number of bytes"),
        ("SCRIBE_MAX_IMAGE_BYTES", "2TiB", "it must be less than or equal to 1099511627776"),
        ("SCRIBE_HOME", "~nosuchuser/x", "there is no such user"),
    ],
)
def test_what_is_wanted_is_told_in_words(monkeypatch: pytest.MonkeyPatch, variable: str, text: str, words: str) -> None:
    """R87: which variable it is, and what it must be, in no library's words."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(ScribeError) as refused:
        load_settings()
    assert refused.value.message.startswith(f"{variable} is not valid: {words}")


def test_a_switch_is_off_unless_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """R205: by the word, or without any."""
    for text, value in {"": False, "false": False, "off": False, "0": False, "on": True, "yes": True, "True": True}.items():
        monkeypatch.setenv("PRESERVE_FAILURE_NOTIFY_ENABLED", text)
        assert Settings().preserve_failure_notify_enabled is value


def test_a_mail_servers_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: where settings are printed."""
    for name in ("SCRIBE_SMTP_URL", "SCRIBE_SMTP_FAILOVER_URL"):
        monkeypatch.setenv(name, "smtps://user:s3cret@mail.example.org")
    assert "s3cret" not in f"{Settings()!r} {Settings()} {Settings().model_dump()}"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().max_attempts = 4


def test_home_is_absolute_and_holds_the_scans_unless_a_store_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/reader")
    assert Settings().home == tmp_path / ".scribe"
    assert Settings(home=Path("~/scribe")).home == Path("/home/reader/scribe")
    assert store_url(Settings()) == str(tmp_path / ".scribe" / "blobs")
    assert store_url(Settings(blob_url="/data")) == "/data"


@pytest.mark.parametrize(("cores", "gib", "workers"), [(8, 64, 8), (8, 12, 4), (2, 64, 2), (4, 1, 1), (1, 64, 1)])
def test_workers_fit_cores_and_memory(monkeypatch: pytest.MonkeyPatch, cores: int, gib: int, workers: int) -> None:
    monkeypatch.setattr(config.os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=gib * GIB))
    assert Settings().workers == workers


_IMPORT_ALL = """
import importlib, pkgutil, socket, sys
def refuse(*arguments, **options):
    raise AssertionError(f"the network was used: {arguments}")
socket.socket.connect = socket.getaddrinfo = refuse
for name in ("scribe_pipeline", "resources", "sensors", "assets", "commands"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
import definitions, commands.main
print(len([name for name in sys.modules if name.startswith("scribe_pipeline.")]), "torch" in sys.modules)
"""


def test_importing_anything_does_nothing(tmp_path: Path) -> None:
    """Rule 2 of the house: no environment, network or file at import; and no model is loaded either."""
    poison = {"SCRIBE_LEASE_SECONDS": "abc", "SCRIBE_WORKERS": "none", "SCRIBE_PUBLIC_URL": "nowhere", "SCRIBE_HOME": "/dev/null/x"}
    poison |= {"SCRIBE_SMTP_URL": "nowhere", "PRESERVE_FAILURE_NOTIFY_MAX_PER_HOUR": "many"}
    environment = os.environ | poison | {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    run = [sys.executable, "-c", _IMPORT_ALL]
    done = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    modules, torch = done.stdout.split()
    assert int(modules) > 30 and torch == "False"
    assert list(tmp_path.iterdir()) == []
