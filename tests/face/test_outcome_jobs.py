"""Dagster's view of outcomes: a sensor and a schedule ask for scans, one process scans, and what went wrong is logged."""

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine, event

from definitions import build_defs
from resources import heartbeat_ages
from scribe_pipeline.config import Settings
from scribe_pipeline.database import DatabaseError, connect
from scribe_pipeline.errors import Category, ScribeError
from tests.conftest import ROOT
from tests.endings import FLYERS, JOBS, RECIPIENT, Endings
from tests.mail_sink import CONNECT, HANGING
from tests.proofs import wait_until


def configured(endings: Endings, **more: Any) -> Settings:
    """A configuration by which failures of both families are told."""
    told = {"preserve_failure_notify_enabled": True, "failure_notify_enabled": True, "alert_email": RECIPIENT}
    values = {"home": endings.house.folder, "smtp_url": endings.sink.url, "smtp_from": "scribe@example.org"} | told | more
    return Settings(**values)


def execute(endings: Endings, job: str, instance: dg.DagsterInstance | None = None, **more: Any) -> dg.ExecuteInProcessResult:
    """Execute a job."""
    defs = build_defs(**{"settings": configured(endings, **more), "database": endings.house.engine})
    return defs.resolve_job_def(job).execute_in_process(instance=instance or dg.DagsterInstance.ephemeral(), raise_on_error=False)


def counts(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    """What a run that went well has told at its end."""
    assert result.success
    (output,) = [event.step_output_data for event in result.all_events if event.is_successful_output]
    return {name: value.value for name, value in output.metadata.items()}


def tick(endings: Endings, job: str, **more: Any) -> tuple[dict[str, object], list[str]]:
    """Execute a job that goes well, and return what it told and the errors that it logged."""
    instance = dg.DagsterInstance.ephemeral()
    result = execute(endings, job, instance, **more)
    return counts(result), [entry.user_message for entry in instance.all_logs(result.run_id) if entry.level == logging.ERROR]


def failure(result: dg.ExecuteInProcessResult) -> str:
    """Why a run is red."""
    assert not result.success
    (failed,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    return str(failed.error)


def asked(endings: Endings, instance: dg.DagsterInstance, database: Engine | None = None, **more: Any) -> str:
    """What the sensor says at a tick: the key of the run that it asks for, or why it asks for none."""
    resources = {"settings": configured(endings, **more), "database": database or endings.house.engine}
    with dg.build_sensor_context(instance=instance, resources=resources) as context:
        said = build_defs().resolve_sensor_def("terminal_job_sensor").evaluate_tick(context)
    if said.run_requests:
        (request,) = said.run_requests
        assert request.run_key is not None
        return request.run_key
    return str(said.skip_message)


@contextmanager
def reads(endings: Endings) -> Iterator[list[str]]:
    """The statements that are executed in here."""
    said: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        said.append(statement)

    event.listen(endings.house.engine, "before_cursor_execute", note)
    yield said
    event.remove(endings.house.engine, "before_cursor_execute", note)


@contextmanager
def not_migrated(endings: Endings, *tables: str) -> Iterator[None]:
    """A database in which these tables do not have the outcome's columns yet."""
    columns = ("outcome_class", "outcome_facts", "outcome_recorded_at", "failure_notified_at")
    renamed = [(table, column) for table in tables for column in columns]
    for table, column in renamed:
        endings.house.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO not_yet_{column}")
    yield
    for table, column in renamed:
        endings.house.execute(f"ALTER TABLE {table} RENAME COLUMN not_yet_{column} TO {column}")


def unrecorded(endings: Endings) -> int:
    """How many jobs that ended two minutes ago or earlier have no outcome, or only a part of one."""
    return sum(
        endings.house.value(
            f"""SELECT count(*) FROM {family.name} WHERE status = ANY (:ended)
                AND updated_at <= clock_timestamp() - interval '2 minutes'
                AND num_nulls(outcome_class, outcome_facts, outcome_recorded_at) > 0""",
            ended=list(family.terminal),
        )
        for family in (FLYERS, JOBS)
    )


def test_runs_that_the_sensor_asks_for_record_all_that_has_ended(endings: Endings) -> None:
    """R169, R171, R174: 25 jobs a run, each run by a key of its own, until the sensor says that none waits."""
    endings.flyers(57, "success")
    endings.flyers(3, "fidelity")
    endings.failed_job()
    instance = dg.DagsterInstance.ephemeral()
    keys, recorded = list[str](), list[object]()
    while (said := asked(endings, instance)).startswith("outcomes:"):
        keys.append(said)
        recorded.append(counts(execute(endings, "outcome_scan", instance))["recorded"])
    assert said == "Seconds that a job has waited for its outcome: 0, runs under way: 0."
    assert (recorded, len(set(keys))) == ([26, 25, 10], 3)
    assert unrecorded(endings) == 0
    assert len(endings.mails) == 4


def test_a_run_tells_what_it_did(endings: Endings) -> None:
    """R171: how many jobs it recorded in which class, and in which states their notices are."""
    for shape in ("success", "cancelled", "fidelity", "fidelity"):
        endings.flyer(shape)
    told, errors = tick(endings, "outcome_scan", preserve_failure_notify_max_per_hour=1)
    assert told == {
        "recorded": 4, "problems": 0, "class success": 1, "class cancelled": 1, "class fidelity": 2,
        "notice none": 2, "notice sent": 1, "notice digest": 1,
    }  # fmt: skip
    assert errors == []
    assert tick(endings, "send_digest")[0] == {"failures": 1, "problems": 0, "of flyer_tagging_jobs": 1}
    assert tick(endings, "send_digest")[0] == {"failures": 0, "problems": 0}
    assert len(endings.mails) == 2


def test_the_sensor_asks_for_jobs_that_a_scan_would_take(endings: Endings) -> None:
    """R171, R173: none before two minutes are over; the key is that of the job that ended first, and stays until it is recorded."""
    instance = dg.DagsterInstance.ephemeral()
    job = build_defs().resolve_job_def("outcome_scan")
    endings.failed_job(ago=100)
    endings.house.job()
    endings.flyer(ago=100)
    assert asked(endings, instance).startswith("Seconds")
    endings.pass_time(200)
    endings.flyer(ago=200)
    first = endings.flyer(ago=400)
    now = "SELECT floor(extract(epoch FROM clock_timestamp()) / 600)::int"
    earliest = endings.house.value(now)
    keys = [asked(endings, instance).split(":") for _ in range(2)]
    assert [key[:2] for key in keys] == [["outcomes", str(first)]] * 2
    assert all(earliest <= int(key[2]) <= endings.house.value(now) for key in keys)
    run = instance.create_run_for_job(job)
    assert re.fullmatch(r"Seconds that a job has waited for its outcome: 2[89]\d, runs under way: 1\.", asked(endings, instance))
    instance.report_run_failed(run)
    assert asked(endings, instance).split(":")[1] == str(first)


def test_each_good_tick_of_the_sensor_is_noted(endings: Endings) -> None:
    """R30: one that finds nothing is; one whose read fails is red, and is not."""
    instance = dg.DagsterInstance.ephemeral()
    away = connect("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(DatabaseError):
        asked(endings, instance, database=away)
    away.dispose()
    assert heartbeat_ages(endings.house.engine) == {}
    asked(endings, instance)
    assert list(heartbeat_ages(endings.house.engine)) == ["terminal_job_sensor"]


RUN = """
from definitions import build_defs
print(build_defs().resolve_job_def("outcome_scan").execute_in_process(raise_on_error=False).success, flush=True)
"""


def test_one_of_two_processes_leads_and_another_takes_over(endings: Endings, operator: dict[str, str]) -> None:
    """R171, R204: while one scans, another skips; when that is killed amid a mail, only this is sent again, all others once."""
    jobs = [endings.flyer(ago=400 - number) for number in range(3)]
    endings.sink.order(HANGING)
    own = {"SCRIBE_SMTP_URL": endings.sink.url, "ALERT_EMAIL": RECIPIENT, "PRESERVE_FAILURE_NOTIFY_ENABLED": "true"}
    process = subprocess.Popen([sys.executable, "-c", RUN], cwd=ROOT, env=operator | own, stderr=subprocess.DEVNULL)
    wait_until(lambda: endings.mails, "the first mail")
    assert tick(endings, "outcome_scan") == ({"skipped": "another scan is under way"}, [])
    assert unrecorded(endings) == 2
    process.kill()
    process.wait()
    wait_until(lambda: "skipped" not in counts(execute(endings, "outcome_scan")), "the end of the killed one's lead")
    assert [endings.notice(job) for job in jobs] == [("sending", 1), ("sent", 1), ("sent", 1)]
    endings.pass_time(901)
    assert tick(endings, "outcome_scan")[0] == {"recorded": 0, "problems": 0, "notice sent": 1}
    assert tick(endings, "outcome_scan")[0] == {"recorded": 0, "problems": 0}
    subjects = [mail.message["Subject"] for mail in endings.mails]
    assert [sum(str(job) in subject for subject in subjects) for job in jobs] == [2, 1, 1]


def test_with_the_switch_off_flyers_are_not_read(endings: Endings) -> None:
    """R205: no job of the house's reads or records them, nobody is told; outcomes of transcriptions are recorded."""
    endings.house.execute("TRUNCATE outcome_activations")
    flyer, job = endings.flyer(ago=3600), endings.failed_job(ago=3600)
    off = {"preserve_failure_notify_enabled": False, "failure_notify_enabled": False}
    with reads(endings) as statements:
        asked(endings, dg.DagsterInstance.ephemeral(), **off)
        assert tick(endings, "outcome_scan", **off)[0]["recorded"] == 1
        assert tick(endings, "send_digest", **off)[0] == {"failures": 0, "problems": 0}
        assert execute(endings, "standing_checks", **off).success
    assert [statement for statement in statements if "flyer" in statement] == []
    assert any("transcription_jobs" in statement for statement in statements)
    assert (endings.outcome(flyer).outcome_class, endings.notice(job, JOBS)) == (None, ("none", 0))
    assert endings.house.rows("SELECT family FROM outcome_activations") == [("transcription_jobs",)]
    assert (endings.sink.sessions, endings.mails) == (0, [])


def test_a_database_without_the_columns_is_one_error_a_tick(endings: Endings) -> None:
    """R219: the run ends well and logs one error; the other family, the sensor, the other jobs and all checks are as they were."""
    flyer, job = endings.flyer(), endings.failed_job()
    with not_migrated(endings, "flyer_tagging_jobs"):
        told, errors = tick(endings, "outcome_scan")
        assert (told["recorded"], told["problems"]) == (1, 1)
        assert len(errors) == 1 and "flyer_tagging_jobs: outcomes cannot be recorded before the database is migrated" in errors[0]
        assert endings.notice(job, JOBS) == ("sent", 1)
        assert asked(endings, dg.DagsterInstance.ephemeral()).startswith("Seconds that a job has waited for its outcome: 0,")
        assert list(heartbeat_ages(endings.house.engine)) == ["terminal_job_sensor"]
        checks = execute(endings, "standing_checks")
        assert checks.success and len(checks.get_asset_check_evaluations()) == 7
        (summary,) = [made for made in checks.get_asset_materialization_events() if made.asset_key.path == ["outcome_summary"]]
        told = {name: value.value for name, value in summary.materialization.metadata.items()}
        assert "run scribe db upgrade" in str(told["tagging jobs"]) and told["transcription jobs: recorded"] == 1
    with not_migrated(endings, "flyer_tagging_jobs", "transcription_jobs"):
        _, errors = tick(endings, "outcome_scan", preserve_failure_notify_enabled=False)
        assert len(errors) == 1 and "transcription_jobs: outcomes cannot be recorded" in errors[0]
    assert tick(endings, "outcome_scan")[0]["recorded"] == 1
    assert endings.notice(flyer) == ("sent", 1)


@pytest.mark.parametrize("job", ["outcome_scan", "send_digest"])
def test_a_database_that_does_not_answer_is_red(endings: Endings, job: str) -> None:
    """R30, R219: a run that could look at nothing is no good run."""
    away = connect("postgresql://nobody@127.0.0.1:1/nothing")
    defs = build_defs(settings=configured(endings), database=away)
    result = defs.resolve_job_def(job).execute_in_process(instance=dg.DagsterInstance.ephemeral(), raise_on_error=False)
    away.dispose()
    assert "DatabaseError" in failure(result)


def test_nobody_to_be_told_is_one_error_a_tick(endings: Endings) -> None:
    """R198: five failures without a recipient are one line in the log; the run ends well."""
    endings.flyers(5)
    told, errors = tick(endings, "outcome_scan", alert_email=None)
    assert (told["notice unconfigured"], told["problems"]) == (5, 1)
    assert len(errors) == 1 and "set PRESERVE_FAILURE_NOTIFY_TO (or ALERT_EMAIL) and SCRIBE_SMTP_URL" in errors[0]
    assert tick(endings, "outcome_scan") == ({"recorded": 0, "problems": 0}, [])


def test_a_mail_server_that_refuses_is_logged(endings: Endings) -> None:
    """R181, R193: runs end well and say what the server said; what was not told is told by the next ones."""
    endings.flyers(2)
    cap = {"preserve_failure_notify_max_per_hour": 1}
    endings.sink.order(451, at=CONNECT, times=None)
    for job in ("outcome_scan", "send_digest"):
        _, errors = tick(endings, job, **cap)
        assert len(errors) == 1 and "the primary mail server" in errors[0]
    assert endings.notices() == {"pending": 1, "digest": 1}
    endings.sink.clear()
    assert tick(endings, "outcome_scan", **cap) == ({"recorded": 0, "problems": 0, "notice sent": 1}, [])
    assert tick(endings, "send_digest", **cap)[0]["failures"] == 1


@pytest.mark.parametrize(
    ("wrong", "variable"),
    [
        ({"preserve_failure_notify_to": "nobody"}, "PRESERVE_FAILURE_NOTIFY_TO"),
        ({"smtp_url": "http://127.0.0.1"}, "SCRIBE_SMTP_URL"),
    ],
)
def test_a_configuration_that_cannot_be_is_red(endings: Endings, wrong: dict[str, str], variable: str) -> None:
    """R206: it is told by its variable before anything is recorded, so that no failure goes by untold."""
    endings.flyer()
    for job in ("outcome_scan", "send_digest"):
        assert f"{variable} is not valid" in failure(execute(endings, job, **wrong))
    assert unrecorded(endings) == 1


def test_jobs_that_are_not_recorded_are_told(endings: Endings) -> None:
    """R169: ten minutes after a job has ended, the check is an error and names it; not for a family that is not scanned."""

    def said(**more: Any) -> dg.AssetCheckEvaluation:
        result = execute(endings, "standing_checks", **more)
        assert result.success
        (found,) = [one for one in result.get_asset_check_evaluations() if one.check_name == "unrecorded_outcomes"]
        return found

    assert said().passed
    endings.failed_job(ago=570)
    assert said().passed
    flyer = endings.flyer(ago=630)
    late = said()
    assert (late.passed, late.severity, late.metadata["job"].value) == (False, dg.AssetCheckSeverity.ERROR, str(flyer))
    assert 510 <= float(str(late.metadata["waits (s)"].value)) < 570
    assert said(preserve_failure_notify_enabled=False).passed
    tick(endings, "outcome_scan")
    assert said().passed


def test_a_wrong_address_is_told_by_the_sensor(endings: Endings) -> None:
    """R206: the sensor is red as well."""
    with pytest.raises(ScribeError) as raised:
        asked(endings, dg.DagsterInstance.ephemeral(), alert_email="nobody")
    assert raised.value.category is Category.INVALID_ARGUMENT


def test_a_burst_of_failures_spends_no_attempts(endings: Endings) -> None:
    """R181, R182: a run that the sensor has asked for records, and leaves what is to be sent again to the schedule's runs."""
    first = endings.flyer()
    endings.sink.order(451, times=None)
    execute(endings, "outcome_scan")
    assert endings.notice(first) == ("pending", 1)
    second = endings.flyer()
    resources = {"settings": configured(endings), "database": endings.house.engine}
    with dg.build_sensor_context(instance=dg.DagsterInstance.ephemeral(), resources=resources) as context:
        (request,) = build_defs().resolve_sensor_def("terminal_job_sensor").evaluate_tick(context).run_requests
    job = build_defs(**resources).resolve_job_def("outcome_scan")
    assert job.execute_in_process(run_config=request.run_config, instance=dg.DagsterInstance.ephemeral()).success
    assert (endings.notice(first), endings.notice(second)) == (("pending", 1), ("pending", 1))
    execute(endings, "outcome_scan")
    assert (endings.notice(first), endings.notice(second)) == (("pending", 2), ("pending", 2))
