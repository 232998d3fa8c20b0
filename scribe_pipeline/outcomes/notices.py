"""What the mails say: a failure's own notice, and the digest of those for which the hour had no room. Text and HTML of the same."""

import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from scribe_pipeline.outcomes.classes import OutcomeClass, classify, is_refundable
from scribe_pipeline.outcomes.facts import strings
from scribe_pipeline.outcomes.families import Family
from scribe_pipeline.outcomes.mail import Mail
from scribe_pipeline.outcomes.records import MAX_SENDS, NoticeClaim, Policy
from scribe_pipeline.outcomes.redaction import truncate

_MEANINGS: Mapping[OutcomeClass, str] = {
    OutcomeClass.COMPLIANCE_ONLY: "the result is whole, and lacks in compliance alone",
    OutcomeClass.FIDELITY: "the result differs from its source, or may",
    OutcomeClass.NOT_TAGGABLE: "nothing could be done with such a file",
    OutcomeClass.PIPELINE_ERROR: "the job came to no result",
}
_LINK = "link"
_COVERED = "SELECT * FROM {family} WHERE failure_notified_at = '{stamp}'"
_MAX_FAILURES, _MAX_TEXT, _MAX_STRINGS = 100, 10_000, 15
_DIGITS = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class _Section:
    """A heading and its rows: a name and what is said of it; a name may be empty."""

    heading: str
    rows: Sequence[tuple[str, str]]


def failure_mail(claim: NoticeClaim, policy: Policy) -> Mail:
    """Return the notice of one failure. The job's own words stand in it as they are in the row."""
    family, row, outcome = claim.family, claim.row, claim.outcome
    said = [("error", row.error)] if row.error else []
    said += [("failure", failure) for failure in strings(row.failures)[:_MAX_FAILURES]]
    look = [("command", family.how_to_look(row))]
    if policy.link_template:
        look.append((_LINK, family.link(policy.link_template, row)))
    verdict = [("class", f"{outcome.value}: {_MEANINGS[outcome]}"), ("job", str(row.id))]
    verdict += [("ended", f"{row.updated_at:%Y-%m-%d %H:%M:%S %Z}"), ("this mail", f"attempt {claim.attempt} of {MAX_SENDS}")]
    if row.status not in family.terminal or classify(family.verdict(row)) is not outcome:
        verdict.append(("since then", f"the job has changed; it is {row.status}"))
    if family.charged:
        verdict.append(("charge", "to be refunded" if is_refundable(family.verdict(row)) else "kept"))
    hidden = ("failures", "error", "notice", "notice_attempts", "notice_claimed_at")
    facts = [(name, str(value)) for name, value in claim.facts.items() if value is not None and name not in hidden]
    sections = [
        _Section("What became of it", verdict),
        _Section("Why", [(name, truncate(text, _MAX_TEXT)) for name, text in said] or [("", "no reason was given")]),
        _Section("What kind of file", facts),
        _Section("How to look", look),
    ]
    return _mail(policy, f"A {family.kind} job ended as {outcome.value} ({row.id})", sections, claim.key)


def digest_mail(family: Family, rows: Sequence[Row[Any]], stamp: datetime, policy: Policy) -> Mail:
    """Return the summary of failures that had no notice of their own. It tells what their facts tell."""
    facts: list[Mapping[str, Any]] = [row.outcome_facts for row in rows]
    # jobs are counted, as the summary queries do: ten pages of one that differ alike are one
    said = Counter(text for fact in facts for text in _said(fact))
    ended = [row.updated_at for row in rows]
    covered = [
        ("", f"jobs that ended from {min(ended):%Y-%m-%d %H:%M} to {max(ended):%Y-%m-%d %H:%M %Z}"),
        ("", f"they had no mail of their own: no more than {policy.max_per_hour} an hour are sent"),
    ]
    sections = [
        _Section("What this is about", covered),
        _counts("By class", Counter(row.outcome_class for row in rows)),
        _counts("Top failures and errors", said),
    ]
    for heading, (name, names) in family.digest_counts.items():
        sections.append(_counts(heading, Counter(_named(fact.get(name), names) for fact in facts)))
    sections.append(
        _Section("How to look", [("command", 'scribe db psql -x -c "' + _COVERED.format(family=family.name, stamp=stamp) + '"')])
    )
    title = f"{len(rows)} {family.kind} job{'' if len(rows) == 1 else 's'} failed"
    return _mail(policy, title, sections, f"{family.kind}-digest-{stamp:%Y%m%dT%H%M%S%f}")


def _said(fact: Mapping[str, Any]) -> Iterable[str]:
    """What a job said of itself, each thing once, whatever numbers were in it."""
    texts = (*fact["failures"], fact.get("error"))
    return dict.fromkeys(_DIGITS.sub("N", text) for text in texts if isinstance(text, str) and text)


def _named(value: object, names: Mapping[str, str]) -> str:
    text = str(value).lower() if isinstance(value, bool) else "(unknown)" if value is None else str(value)
    return names.get(text, text)


def _counts(heading: str, counts: Counter[str]) -> _Section:
    rows = [(str(number), name) for name, number in counts.most_common(_MAX_STRINGS)]
    if len(counts) > _MAX_STRINGS:
        rows.append(("", f"and {len(counts) - _MAX_STRINGS} others"))
    return _Section(heading, rows or [("", "none")])


def _mail(policy: Policy, title: str, sections: Iterable[_Section], key: str) -> Mail:
    sections = list(sections)
    text = "\n\n".join(
        "\n".join([section.heading, *(f"  {name}{': ' if name else ''}{_indented(value)}" for name, value in section.rows)])
        for section in sections
    )
    tables = "".join(
        f"<h3>{html.escape(section.heading)}</h3><table>"
        + "".join(
            f'<tr><td>{html.escape(name)}</td><td style="white-space: pre-wrap">{_html(name, value)}</td></tr>'
            for name, value in section.rows
        )
        + "</table>"
        for section in sections
    )
    assert policy.recipient is not None
    return Mail(policy.recipient, f"[Scribe] {title}", f"{title}\n\n{text}\n", f"<h2>{html.escape(title)}</h2>{tables}", key)


def _indented(value: str) -> str:
    # no line of a row's own text may look like a heading of ours
    return "\n    ".join(value.splitlines())


def _html(name: str, value: str) -> str:
    escaped = html.escape(value)
    return f'<a href="{escaped}">{escaped}</a>' if name == _LINK else escaped
