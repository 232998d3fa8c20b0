"""Which families a configuration has scanned, who is told of their failures, by which servers, and with which link."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from pydantic import SecretStr

from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.outcomes import FAMILIES, OutcomeClass, Policy, notice_policies, open_mailer
from scribe_pipeline.outcomes.notices import failure_mail
from scribe_pipeline.outcomes.records import NoticeClaim

FLYERS, JOBS = FAMILIES["flyer_tagging_jobs"], FAMILIES["transcription_jobs"]
SERVER = SecretStr("smtp://mail.example.org")
ADMIN, ALERT = "admin@example.org", "alert@example.org"
JOB, FILE, USER = (UUID(f"01900000-0000-7000-8000-00000000000{number}") for number in (1, 2, 3))
TEMPLATE = "https://desk.example.org/jobs/{jobId}?file={fileId}&user={userId}"

ON = {"failure_notify_enabled": True, "preserve_failure_notify_enabled": True}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALERT_EMAIL", *(f"PRESERVE_FAILURE_NOTIFY_{part}" for part in ("ENABLED", "TO"))):
        monkeypatch.delenv(name, raising=False)


def policies(**given: Any) -> dict[str, Policy]:
    """What these settings say of each family that is scanned."""
    return {family.name: policy for family, policy in notice_policies(Settings(**given)).items()}


def test_by_default_nobody_is_told_and_nothing_of_others_is_scanned() -> None:
    """R205: the switch is off in the code; the outcomes of the pages that this program transcribes are recorded at any rate."""
    assert policies() == {"transcription_jobs": Policy(enabled=False, recipient=None, lookback_hours=24, max_per_hour=12)}


def test_each_family_has_its_own_variables() -> None:
    """R205, R206, R207, R208, R209: and neither has the other's."""
    flyers = {"notify_enabled": True, "notify_to": ADMIN, "notify_lookback_hours": 48.0, "notify_max_per_hour": 2}
    given = {f"preserve_failure_{name}": value for name, value in flyers.items()} | {"smtp_url": SERVER}
    said = policies(
        **given, preserve_failure_admin_url_template="https://f/{fileId}", failure_admin_url_template="https://j/{jobId}"
    )
    assert said == {
        "flyer_tagging_jobs": Policy(True, ADMIN, 48, 2, "https://f/{fileId}"),
        "transcription_jobs": Policy(False, None, 24, 12, "https://j/{jobId}"),
    }
    other = {name.replace("preserve_", ""): value for name, value in given.items()}
    assert policies(**other) == {"transcription_jobs": Policy(True, ADMIN, 48, 2)}


@pytest.mark.parametrize(
    ("to", "alert", "told"), [(None, None, None), (ADMIN, None, ADMIN), (None, ALERT, ALERT), (ADMIN, ALERT, ADMIN)]
)
@pytest.mark.parametrize("family", ["flyer_tagging_jobs", "transcription_jobs"])
@pytest.mark.parametrize("server", ["smtp_url", "smtp_failover_url"])
def test_who_is_told(family: str, to: str | None, alert: str | None, told: str | None, server: str) -> None:
    """R206: the family's own recipient, else that of all alerts; one server is enough."""
    own = {"flyer_tagging_jobs": "preserve_failure_notify_to", "transcription_jobs": "failure_notify_to"}[family]
    given = {own: to, "alert_email": alert, server: SERVER, "preserve_failure_notify_enabled": True, "failure_notify_enabled": True}
    assert policies(**given)[family].recipient == told


def test_without_a_server_nobody_is_told() -> None:
    """R198, R206: whoever is named."""
    given = policies(alert_email=ALERT, preserve_failure_notify_to=ADMIN, preserve_failure_notify_enabled=True)
    assert [policy.recipient for policy in given.values()] == [None, None]
    with pytest.raises(ScribeError, match="no mail server is configured"):
        open_mailer(Settings()).check()


@pytest.mark.parametrize(
    ("variable", "field"),
    [
        ("PRESERVE_FAILURE_NOTIFY_TO", "preserve_failure_notify_to"),
        ("SCRIBE_FAILURE_NOTIFY_TO", "failure_notify_to"),
        ("ALERT_EMAIL", "alert_email"),
    ],
)
@pytest.mark.parametrize("address", ["nobody", "a@b@c", "Admin <admin@example.org>", "a@example.org, b@example.org", "a@b\nBcc: c"])
def test_an_address_that_is_none_is_told_by_its_variable(variable: str, field: str, address: str) -> None:
    """R206: without repeating what may be somebody's name."""
    with pytest.raises(ScribeError, match=rf"^{variable} is not valid: .+$") as refused:
        policies(smtp_url=SERVER, **ON, **{field: address})
    assert refused.value.category is Category.INVALID_ARGUMENT and address not in refused.value.message


@pytest.mark.parametrize("prefix", ["PRESERVE", "SCRIBE"])
@pytest.mark.parametrize(
    "template", ["desk.example.org/{jobId}", "ftp://desk.example.org/{jobId}", "javascript:x", "https://d.example.org/{other}",
                 "https://d.example.org/{}", "https://d.example.org/{jobId", "https://d.example.org/a b", ""],
)  # fmt: skip
def test_a_link_that_is_none_is_told_by_its_variable(prefix: str, template: str) -> None:
    """R209: a link is http or https, and has no other names in it than those that are filled in."""
    variable = f"{prefix}_FAILURE_ADMIN_URL_TEMPLATE"
    with pytest.raises(
        ScribeError, match=rf"^{variable} is not valid: .+\{{jobId\}}, \{{fileId\}} and \{{userId\}} in it$"
    ) as refused:
        policies(**ON, **{variable.removeprefix("SCRIBE_").lower(): template})
    assert refused.value.category is Category.INVALID_ARGUMENT


def test_what_is_set_for_notices_that_are_off_is_not_looked_at() -> None:
    """R205, R206, R209: a mistake in it stops no scan; the address of all alerts is looked at only where it is used."""
    wrong = {"notify_to": "nobody", "admin_url_template": "nowhere"}
    given = {f"{prefix}failure_{name}": value for prefix in ("", "preserve_") for name, value in wrong.items()}
    assert [*policies(alert_email="nobody", smtp_url=SERVER, **given)] == [JOBS.name]
    told = policies(alert_email="nobody", failure_notify_enabled=True, failure_notify_to=ADMIN, smtp_url=SERVER)
    assert told[JOBS.name].recipient == ADMIN


@pytest.mark.parametrize(
    "url", ["mail.example.org", "http://mail.example.org", "smtp://user:s3cret@", "smtp://mail.example.org:99999"]
)
@pytest.mark.parametrize("field", ["smtp_url", "smtp_failover_url"])
def test_a_server_that_is_none_is_told_by_its_variable(field: str, url: str) -> None:
    """R210: without repeating what may be a password."""
    with pytest.raises(ScribeError, match=rf"^SCRIBE_{field.upper()} is not valid: .+$") as refused:
        open_mailer(Settings(**{field: SecretStr(url)}))
    assert refused.value.category is Category.INVALID_ARGUMENT and url not in refused.value.message


def test_a_sender_that_is_none_is_told_by_its_variable() -> None:
    """R210: whoever opens the mailer hears of it, and no job does."""
    with pytest.raises(ScribeError, match=r"^SCRIBE_SMTP_FROM is not valid: .+$"):
        open_mailer(Settings(smtp_url=SERVER, smtp_from="nobody"))
    open_mailer(Settings(smtp_url=SERVER, smtp_from="Scribe <scribe@example.org>"))


def notice(template: str | None, family: Any = FLYERS, **columns: Any) -> str:
    """The text of the notice of a failed job with these columns."""
    row = {"id": JOB, "status": "failed", "passed": None, "failures": [], "error": "worker lost"} | columns
    row |= {"updated_at": datetime(2026, 3, 1, tzinfo=UTC)}
    claim = NoticeClaim(family, cast(Any, SimpleNamespace(**row)), OutcomeClass.PIPELINE_ERROR, {}, 1)
    mail = failure_mail(claim, Policy(True, ADMIN, 24, 12, template))
    assert ("link: " in mail.text) == (template is not None)
    return mail.text.partition("link: ")[2].partition("\n")[0]


@pytest.mark.parametrize(
    ("template", "file", "user", "link"),
    [
        (TEMPLATE, FILE, USER, f"https://desk.example.org/jobs/{JOB}?file={FILE}&user={USER}"),
        (TEMPLATE, None, None, f"https://desk.example.org/jobs/{JOB}?file=&user="),
        ("https://desk.example.org/{jobId}/{jobId}", FILE, USER, f"https://desk.example.org/{JOB}/{JOB}"),
        (None, FILE, USER, ""),
    ],
)
def test_the_link_of_a_notice(template: str | None, file: UUID | None, user: UUID | None, link: str) -> None:
    """R209: job, file and user stand where the template wants them, nothing where there is none; without a template, no link."""
    assert notice(template, file_id=file, user_id=user) == link


def test_the_link_of_a_transcription() -> None:
    """R209: the image stands for the file, and there is no user."""
    assert notice(TEMPLATE, JOBS, item_image_id=FILE) == f"https://desk.example.org/jobs/{JOB}?file={FILE}&user="
