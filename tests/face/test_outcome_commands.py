"""`scribe outcomes` and what `scribe ready` says of mail: what is printed, what is sent, and why not."""

import json
import re
import shlex
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner, Result

from commands.main import app
from tests.commands import scribe, scribe_json
from tests.endings import JOBS, RECIPIENT, Endings
from tests.houses import House

SENDER = "scribe@example.org"
NOTHING = {"recorded": {}, "notices": {}, "problems": []}
NOT_SCANNED = "flyer_tagging_jobs: not scanned while PRESERVE_FAILURE_NOTIFY_ENABLED is off\n"


@pytest.fixture
def telling(operator: dict[str, str], endings: Endings) -> dict[str, str]:
    """The environment of commands that tell somebody of failures of tagging jobs."""
    return operator | {
        "PRESERVE_FAILURE_NOTIFY_ENABLED": "true",
        "PRESERVE_FAILURE_NOTIFY_TO": RECIPIENT,
        "SCRIBE_SMTP_URL": endings.sink.url,
        "SCRIBE_SMTP_FROM": SENDER,
    }


def outcomes(environment: dict[str, str], *arguments: str) -> Result:
    """Run one of the commands in this process, which spares the time that its libraries take to load."""
    return CliRunner().invoke(app, ["outcomes", *arguments], env=environment)


def asked(environment: dict[str, str], *arguments: str) -> Any:
    """Run one that succeeds, and return the JSON document that it prints."""
    done = outcomes(environment, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_many_failures_are_told_of_in_few_mails(endings: Endings, telling: dict[str, str]) -> None:
    """R168, R185, R186, R187: 130 failures, six scans and a digest give twelve notices and one mail about the other 118.

    The command that each names shows the rows that it is about.
    """
    endings.flyers(130)
    scans = [asked(telling, "scan") for _ in range(6)]
    assert [scan["recorded"] for scan in scans] == [{"pipeline_error": 25}] * 5 + [{"pipeline_error": 5}]
    assert [scan["notices"] for scan in scans] == [{"sent": 12, "digest": 13}] + [{"digest": 25}] * 4 + [{"digest": 5}]
    assert len(endings.mails) == 12
    digest = asked(telling, "digest")
    assert digest["covered"] == {"flyer_tagging_jobs": 118}
    *notices, summary = endings.mails
    assert len(notices) == 12 and summary.message["Subject"] == "[Scribe] 118 tagging jobs failed"
    assert {(mail.sender, *mail.recipients) for mail in endings.mails} == {(SENDER, RECIPIENT)}
    assert endings.notices() == {"sent": 12, "digest": 118}
    for mail, rows in ((notices[0], 1), (summary, 118)):
        (command,) = re.findall("^  command: scribe (.+)$", mail.text, re.MULTILINE)
        assert scribe(telling, *shlex.split(command)).stdout.count("-[ RECORD ") == rows


def test_a_digest_says_why_there_is_none(endings: Endings, telling: dict[str, str]) -> None:
    """R187, R193, R205: nothing waits, the hour is not over, notices are off, nobody is to be told, or it was not taken."""

    def said(**environment: str) -> str:
        return outcomes(telling | environment, "digest").stdout.splitlines()[0]

    assert said() == "flyer_tagging_jobs: nothing waits"
    none = telling | {"PRESERVE_FAILURE_NOTIFY_MAX_PER_HOUR": "0"}
    endings.flyer()
    assert outcomes(none, "scan").stdout == "recorded: pipeline_error 1\nnotices: digest 1\n"
    assert said(PRESERVE_FAILURE_NOTIFY_ENABLED="false") == "flyer_tagging_jobs: nothing is sent, as notices are off"
    assert said(PRESERVE_FAILURE_NOTIFY_TO="") == "flyer_tagging_jobs: nothing is sent, as nobody is to be told"
    endings.sink.order(550)
    refused = outcomes(telling, "digest")
    assert (refused.exit_code, refused.stdout.splitlines()[0]) == (1, "flyer_tagging_jobs: no digest was sent")
    assert refused.stderr == "scribe: flyer_tagging_jobs: the primary mail server refused the message (550)\n"
    assert outcomes(telling, "digest").stdout.splitlines() == [
        "flyer_tagging_jobs: failures covered: 1", "transcription_jobs: nothing is sent, as notices are off"
    ]  # fmt: skip
    endings.flyer()
    outcomes(none, "scan")
    waits = "failures that wait: 1; the last digest is less than an hour old"
    assert asked(telling, "digest") == {
        "covered": {},
        "nothing": {"flyer_tagging_jobs": waits, "transcription_jobs": "nothing is sent, as notices are off"},
        "problems": [],
    }
    endings.pass_time(3601)
    assert said() == "flyer_tagging_jobs: failures covered: 1"
    assert len(endings.mails) == 2


def test_without_a_word_of_configuration_only_transcriptions_are_recorded(endings: Endings, operator: dict[str, str]) -> None:
    """R169, R205: nothing is sent, and of the other services' jobs nothing is written, until a variable says so."""
    flyer, job = endings.flyer(), endings.failed_job()
    done = scribe(operator, "outcomes", "scan")
    assert (done.returncode, done.stdout, done.stderr) == (0, "recorded: pipeline_error 1\nnotices: none 1\n", "")
    assert endings.outcome(flyer).outcome_recorded_at is None
    assert endings.notice(job, JOBS) == ("none", 0)
    on = scribe(operator | {"PRESERVE_FAILURE_NOTIFY_ENABLED": "1"}, "outcomes", "scan")
    told = "nobody is told of failures: set PRESERVE_FAILURE_NOTIFY_TO (or ALERT_EMAIL) and SCRIBE_SMTP_URL"
    assert (on.returncode, on.stdout) == (1, "recorded: pipeline_error 1\nnotices: unconfigured 1\n")
    assert on.stderr == f"scribe: flyer_tagging_jobs: {told}\n"
    assert endings.mails == []
    assert scribe(operator, "outcomes", "scan").stdout == f"recorded: none\nnotices: none\n{NOT_SCANNED}"


def test_a_scan_says_what_it_has_left(endings: Endings, operator: dict[str, str], telling: dict[str, str]) -> None:
    """R172, R205: families that are off and jobs that ended just now, if nothing was recorded; at any rate whether more wait."""
    endings.failed_job(ago=0)
    endings.flyers(2, ago=60)
    recent = ": ended less than two minutes ago, and left to a later scan: "
    nothing = f"recorded: none\nnotices: none\n{{}}transcription_jobs{recent}1\n"
    assert outcomes(operator, "scan").stdout == nothing.format(NOT_SCANNED)
    assert outcomes(telling, "scan").stdout == nothing.format(f"flyer_tagging_jobs{recent}2\n")
    assert asked(telling, "scan") == NOTHING
    endings.flyers(26, "success")
    more = "recorded: success 25\nnotices: none 25\nflyer_tagging_jobs: more wait for the next scan\n"
    assert outcomes(telling, "scan").stdout == more
    assert outcomes(telling, "scan").stdout == "recorded: success 1\nnotices: none 1\n"


def test_a_mail_server_that_is_away_is_a_problem_and_no_failure(endings: Endings, telling: dict[str, str]) -> None:
    """R181, R210: the scan goes on, says so on standard error, and exits with 1; the notice waits."""
    job = endings.flyer()
    endings.sink.stop()
    scan = scribe(telling, "outcomes", "scan", "--json")
    problem = "flyer_tagging_jobs: the primary mail server cannot be reached"
    assert (scan.returncode, scan.stderr) == (1, f"scribe: {problem}\n")
    assert json.loads(scan.stdout) == {"recorded": {"pipeline_error": 1}, "notices": {"pending": 1}, "problems": [problem]}
    ready = json.loads(scribe(telling, "ready", "--json").stdout)
    assert ready["mail"] == problem.partition(": ")[2]
    endings.sink.start()
    assert json.loads(scribe(telling, "ready", "--json").stdout)["mail"] == "ready"
    assert scribe(telling, "outcomes", "scan").stdout == "recorded: none\nnotices: sent 1\n"
    assert endings.notice(job) == ("sent", 2)


def test_ready_asks_for_mail_only_where_there_is_to_be_some(operator: dict[str, str]) -> None:
    """R210: and a URL that is none is told there, without what it says."""
    assert {"mail", "notices of failures"}.isdisjoint(json.loads(scribe(operator, "ready", "--json").stdout))
    wrong = json.loads(scribe(operator | {"SCRIBE_SMTP_FAILOVER_URL": "mail.example.org:s3cret"}, "ready", "--json").stdout)
    assert wrong["mail"].startswith("SCRIBE_SMTP_FAILOVER_URL is not valid: ") and "s3cret" not in str(wrong)


def test_ready_says_whether_somebody_is_told(endings: Endings, operator: dict[str, str]) -> None:
    """R198, R205, R206: where notices are on and nobody or no server is named, it says what to set; so for a bad address."""

    def said(**environment: str) -> str:
        done = CliRunner().invoke(app, ["ready", "--json"], env=operator | {"SCRIBE_FAILURE_NOTIFY_ENABLED": "true"} | environment)
        state = json.loads(done.stdout)["notices of failures"]
        assert state == "ready" or done.exit_code == 1
        return str(state)

    unset = "nobody is told of transcription jobs: set SCRIBE_FAILURE_NOTIFY_TO (or ALERT_EMAIL) and SCRIBE_SMTP_URL"
    assert said() == said(ALERT_EMAIL=RECIPIENT) == said(SCRIBE_SMTP_URL=endings.sink.url) == unset
    assert said(ALERT_EMAIL=RECIPIENT, SCRIBE_SMTP_URL=endings.sink.url) == "ready"
    assert said(ALERT_EMAIL="nobody", SCRIBE_SMTP_URL=endings.sink.url).startswith("ALERT_EMAIL is not valid: ")


def test_a_job_shows_its_outcome(endings: Endings, operator: dict[str, str], telling: dict[str, str]) -> None:
    """R169, R196: once it is recorded, its class and what became of its notice; before, nothing."""
    job = str(endings.failed_job())
    assert "outcome        " not in scribe(operator, "job", "show", job).stdout
    outcomes(telling, "scan")
    assert "\noutcome        pipeline_error, notice none\n" in scribe(operator, "job", "show", job).stdout
    document = scribe_json(operator, "job", "show", job)
    assert (document["outcome_class"], document["notice"]) == ("pipeline_error", "none")


def test_one_scan_at_a_time(house: House, endings: Endings, telling: dict[str, str]) -> None:
    """R171: another says that there is one, and has done nothing."""
    job = endings.flyer()
    with house.engine.connect() as leader:
        leader.execute(text("SELECT pg_advisory_xact_lock(7274503)"))
        plain, document = scribe(telling, "outcomes", "scan"), scribe(telling, "outcomes", "scan", "--json")
    assert (plain.returncode, plain.stdout, plain.stderr) == (0, "", "another scan is under way\n")
    assert (document.returncode, json.loads(document.stdout), document.stderr) == (0, NOTHING, plain.stderr)
    assert endings.outcome(job).outcome_recorded_at is None
    assert scribe_json(telling, "outcomes", "scan")["recorded"] == {"pipeline_error": 1}


def test_questions_are_answered(house: House, endings: Endings, telling: dict[str, str]) -> None:
    """R170, R218: as tables and as JSON, about either family, of which the first is asked unless another is named."""
    for scanned, shape in ((True, "fidelity"), (True, "success"), (False, "success")):
        endings.flyer(shape, preflight={"mode": "ocr" if scanned else "text", "signals": {"producer": "Canva", "page_count": 3}})
    endings.failed_job()
    outcomes(telling, "scan")

    def ask(*arguments: str) -> Any:
        return asked(telling, "query", *arguments)

    mix = [{"outcome_class": "success", "count": 2, "pct": 66.7}, {"outcome_class": "fidelity", "count": 1, "pct": 33.3}]
    assert (
        ask("outcome_mix")
        == ask("outcome_mix", "--family", "flyer_tagging_jobs")
        == ask("outcome_mix", "--family", "flyers")
        == mix
    )
    failed = [{"outcome_class": "pipeline_error", "count": 1, "pct": 100.0}]
    assert ask("outcome_mix", "--family", "transcription_jobs") == ask("outcome_mix", "--family", "transcriptions") == failed
    assert ask("top_failures") == [{"failure": "pixel diff N on page N", "jobs": 1}]
    assert ask("failure_rate", "--by", "pages") == [{"pages": "2-4", "jobs": 3, "ok": 2, "fail_pct": 33.3}]
    table = outcomes(telling, "query", "failure_rate").stdout.splitlines()
    assert [line.split() for line in table] == [
        ["scanned", "jobs", "ok", "fail_pct"], ["true", "2", "1", "50.0"], ["false", "1", "1", "0.0"]
    ]  # fmt: skip
    nothing = outcomes(telling, "query", "top_failures", "--family", "transcriptions")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert nothing.stderr == "nothing of that kind is recorded of transcription_jobs\n"
    unknown = outcomes(telling, "query", "failure_rate", "--by", "tree_state").stdout.splitlines()
    assert [line.split() for line in unknown][1:] == [["?", "3", "2", "33.3"]]
    printed = outcomes(telling, "query", "failure_rate", "--by", "bytes", "--family", "transcriptions", "--sql").stdout
    assert {tuple(row) for row in house.rows(printed.replace("::", r"\:\:"))} == {("<250KB", 1, 0, 100)}

    summary = asked(telling, "summary")
    assert summary == {
        "flyer_tagging_jobs": {"outcome_mix": mix, "notices_not_delivered": []},
        "transcription_jobs": {"outcome_mix": failed, "notices_not_delivered": []},
    }
    endings.unguarded(
        """UPDATE flyer_tagging_jobs SET failure_notified_at = NULL, outcome_facts = outcome_facts || '{"notice": "failed"}'
           WHERE outcome_class = 'fidelity'"""
    )
    lines = [line.split() for line in outcomes(telling, "summary", "--family", "flyers").stdout.splitlines()]
    assert lines[0] == ["flyer_tagging_jobs"]
    assert lines[2:] == [
        ["success", "2", "66.7"],
        ["fidelity", "1", "33.3"],
        ["notices", "not", "delivered"],
        ["notice", "count"],
        ["failed", "1"],
    ]


def test_a_fact_that_there_is_not_is_refused(endings: Endings, telling: dict[str, str]) -> None:
    """R170, R218: with those that the family's recorded jobs have; while none is recorded, nothing is known of them."""
    arguments = ("query", "failure_rate", "--by", "media_type", "--family")
    assert outcomes(telling, *arguments, "flyers").stderr == "nothing of that kind is recorded of flyer_tagging_jobs\n"
    endings.flyer("success")
    endings.failed_job()
    outcomes(telling, "scan")
    refused = scribe(telling, "outcomes", *arguments, "flyers")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    told = refused.stderr.removeprefix("scribe: flyer_tagging_jobs have no fact 'media_type'; they have: ").rstrip().split(", ")
    assert told == sorted(endings.house.value("SELECT array_agg(key) FROM (SELECT jsonb_object_keys(outcome_facts) AS key "
                                              "FROM flyer_tagging_jobs) AS keys"))  # fmt: skip
    assert outcomes(telling, *arguments, "transcriptions").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["query", "everything"], "there is no query 'everything'; there are: outcome_mix, "),
        (["query", "outcome_mix", "--by", "pages"], "outcome_mix cannot be told by 'pages'"),
        (["query", "outcome_mix", "--family", "jobs"], "there is no family 'jobs': it is flyer_tagging_jobs or transcription_jobs"),
        (["summary", "--family", "files"], "there is no family 'files'"),
    ],
)
def test_bad_requests_get_one_line(operator: dict[str, str], arguments: list[str], words: str) -> None:
    """R218: a name that there is not is told, with those that there are."""
    done = scribe(operator, "outcomes", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"scribe: {words}")


@pytest.mark.parametrize(
    ("command", "variable", "value"),
    [
        ("scan", "PRESERVE_FAILURE_NOTIFY_MAX_PER_HOUR", "-1"),
        ("scan", "ALERT_EMAIL", "nobody"),
        ("scan", "SCRIBE_SMTP_URL", "localhost:25"),
        ("digest", "PRESERVE_FAILURE_NOTIFY_TO", "nobody"),
        ("digest", "SCRIBE_SMTP_FROM", "nobody"),
    ],
)
def test_a_bad_configuration_is_told_by_its_variable(telling: dict[str, str], command: str, variable: str, value: str) -> None:
    """R206, R208, R210: in one line, and nothing is recorded or sent."""
    done = scribe(telling | {"PRESERVE_FAILURE_NOTIFY_TO": "", variable: value}, "outcomes", command)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"scribe: {variable} is not valid: ")
