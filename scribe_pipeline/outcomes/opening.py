"""What a configuration says of notices: which families are scanned, who is told of their failures, and by which servers."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.outcomes.families import FAMILIES, Family
from scribe_pipeline.outcomes.mail import Mailer, check_address, check_smtp_url
from scribe_pipeline.outcomes.records import Policy


def notice_policies(settings: Settings) -> Mapping[Family, Policy]:
    """Return the families to be scanned with whom to tell.

    Tagging jobs are scanned only if their notices are on. The outcomes of transcription jobs are recorded at any rate. Without a
    mail server there is no recipient. Raises ScribeError (invalid_argument) for an address or a link that is none, of notices that
    are on.
    """
    policies = {
        "transcription_jobs": Policy(
            enabled=settings.failure_notify_enabled,
            recipient=settings.failure_notify_to,
            lookback_hours=settings.failure_notify_lookback_hours,
            max_per_hour=settings.failure_notify_max_per_hour,
            link_template=settings.failure_admin_url_template,
        ),
        "flyer_tagging_jobs": Policy(
            enabled=settings.preserve_failure_notify_enabled,
            recipient=settings.preserve_failure_notify_to,
            lookback_hours=settings.preserve_failure_notify_lookback_hours,
            max_per_hour=settings.preserve_failure_notify_max_per_hour,
            link_template=settings.preserve_failure_admin_url_template,
        ),
    }
    families = {FAMILIES[name]: policy for name, policy in policies.items()}
    return {
        family: _completed(family, policy, settings) if policy.enabled else policy
        for family, policy in families.items()
        if policy.enabled or family.always_recorded
    }


def _completed(family: Family, policy: Policy, settings: Settings) -> Policy:
    """Return the policy with whom to tell, if anybody can be told."""
    own = _checked(f"{family.variables}_NOTIFY_TO", check_address, policy.recipient)
    recipient = own or _checked("ALERT_EMAIL", check_address, settings.alert_email)
    _checked(f"{family.variables}_ADMIN_URL_TEMPLATE", _check_link, policy.link_template)
    reachable = settings.smtp_url is not None or settings.smtp_failover_url is not None
    return replace(policy, recipient=recipient if reachable else None)


def _check_link(template: str) -> str:
    if not re.fullmatch(r"https?://[^\s{}]*(?:\{(?:jobId|fileId|userId)\}[^\s{}]*)*", template):
        raise ValueError("it is a link that begins with http(s):// and may have {jobId}, {fileId} and {userId} in it")
    return template


def open_mailer(settings: Settings) -> Mailer:
    """Return what sends mail; nothing is connected yet. Raises ScribeError (invalid_argument) for a URL or sender that is none."""
    urls = {"SCRIBE_SMTP_URL": settings.smtp_url, "SCRIBE_SMTP_FAILOVER_URL": settings.smtp_failover_url}
    primary, failover = (
        _checked(variable, check_smtp_url, None if url is None else url.get_secret_value()) for variable, url in urls.items()
    )
    try:
        return Mailer(primary, failover, settings.smtp_from)
    except ValueError as error:
        raise ScribeError(Category.INVALID_ARGUMENT, f"SCRIBE_SMTP_FROM is not valid: {error}") from None


def _checked(variable: str, check: Callable[[str], str], value: str | None) -> str | None:
    try:
        return None if value is None else check(value)
    except ValueError as error:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{variable} is not valid: {error}") from None
