"""`scribe worker` with a provider: what it prints, what it leaves in the database, when it stops asking."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import cancel_job
from tests.commands import scribe
from tests.houses import House, line_shape
from tests.providers import KEY, Fault, Provider, registry_file
from tests.store.providing import context, everything_as_text

WRONG = "wrong-key-9876543210-zyxwvutsrq"


def job(house: House, double: Provider, **values: Any) -> UUID:
    """A pending job for a page of five lines."""
    context(house, double, **values)
    return house.job(house.page(*(line_shape(20 + 50 * row) for row in range(5))), context="remote")


@pytest.mark.parametrize("kind", ["gemini", "openai"])
def test_a_wrong_key_costs_one_call(house: House, operator: dict[str, str], tmp_path: Path, kind: str) -> None:
    """R19, R21: the worker says that the attempt failed, and why, without the key; nor does any row have it."""
    with Provider(kind) as double:
        job_id = job(house, double)
        own = {
            "SCRIBE_MODELS_FILE": str(registry_file(tmp_path, double.model())),
            "TEST_PROVIDER_KEY": WRONG,
            "SCRIBE_WORKERS": "1",
        }
        done = scribe(operator | own, "worker", "--once")
        shown = scribe(operator | own, "job", "show", str(job_id))
    assert done.returncode == 0 and "authentication" in done.stderr
    assert "authentication" in shown.stdout
    assert len(double.requests) == 1 and double.refused == ["wrong key"]
    told = done.stdout + done.stderr + shown.stdout + shown.stderr + everything_as_text(house)
    assert WRONG not in told and double.endpoint not in told
    for written in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert WRONG.encode() not in written.read_bytes(), written


def test_a_cancel_stops_the_calls(house: House, operator: dict[str, str], tmp_path: Path) -> None:
    """R117: canceled while line two is read, lines three to five are not asked for, and nothing is committed."""
    with Provider("gemini") as double:
        job_id = job(house, double, line_concurrency=1, line_timeout_s=5)

        def cancel(number: int) -> None:
            if number == 2:
                assert cancel_job(house.engine, job_id, Operator("test"))

        double.before = cancel
        double.order(200)
        double.order(Fault.HANGING, times=None)
        own = {"SCRIBE_MODELS_FILE": str(registry_file(tmp_path, double.model())), "TEST_PROVIDER_KEY": KEY}
        # a lease so short that its loss is noticed before the line's time-out
        done = scribe(operator | own | {"SCRIBE_WORKERS": "1", "SCRIBE_LEASE_SECONDS": "2"}, "worker", "--once")
        assert done.returncode == 0, done.stderr
        assert len(double.requests) == 2 and double.refused == []
    assert house.value("SELECT status FROM transcription_jobs") == "canceled"
    assert house.value("SELECT max(revision) FROM annotation_page_revisions") == 1
