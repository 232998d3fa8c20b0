"""What the mails say of failures, and that no text of a row can make them say anything else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from scribe_pipeline.outcomes import FAMILIES, Family, Mail, Policy, classify
from scribe_pipeline.outcomes.notices import digest_mail, failure_mail
from scribe_pipeline.outcomes.records import NoticeClaim

FLYERS, JOBS = FAMILIES["flyer_tagging_jobs"], FAMILIES["transcription_jobs"]
POLICY = Policy(True, "admin@example.org", 24, 12, "https://admin.example.org/{jobId}?file={fileId}&user={userId}")
JOB, FILE, USER = (UUID(int=number) for number in (1, 2, 3))
STATE = {"notice": "sending", "notice_attempts": 1, "notice_claimed_at": None, "failures": ["redacted"], "error": "redacted"}
STAMP = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
ENDED = datetime(2026, 3, 1, 11, 5, 9, tzinfo=UTC)


def claim(family: Family = FLYERS, attempt: int = 1, facts: dict[str, Any] | None = None, **columns: Any) -> NoticeClaim:
    values = {"id": JOB, "file_id": FILE, "user_id": USER, "item_image_id": FILE, "status": "failed", "passed": None}
    row: Any = SimpleNamespace(**values | {"failures": [], "error": None, "updated_at": ENDED} | columns)
    outcome = classify(family.verdict(row))
    return NoticeClaim(family, row, outcome, STATE | (facts or {}), attempt)


def sections(mail: Mail) -> dict[str, list[str]]:
    """The text by its headings."""
    title, *blocks = mail.text.rstrip("\n").split("\n\n")
    assert mail.subject == f"[Scribe] {title}"
    return {heading: rows for heading, *rows in (block.split("\n") for block in blocks)}


class Page(HTMLParser):
    """The tags, the link targets, all other attributes and the text of a mail's HTML."""

    def __init__(self, mail: Mail) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.targets: list[str | None] = []
        self.others: set[tuple[str, str | None]] = set()
        self.text: list[str] = []
        self.feed(mail.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.targets += [value for name, value in attrs if name == "href"]
        self.others |= {attribute for attribute in attrs if attribute[0] != "href"}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_notice_says_all_there_is_to_know() -> None:
    """R175, R215: class, when, reason in the row's own words, what kind of file, which attempt, how to look, a link."""
    mail = failure_mail(
        claim(
            attempt=2,
            facts={"pages": 4, "scanned": False, "producer": "Word", "mode": None},
            status="done",
            passed=False,
            failures=["pixel diff 0.12 on page 3", "no title in jane.pdf"],
            error="see /home/jane/log",
        ),
        POLICY,
    )
    assert (mail.recipient, mail.key) == ("admin@example.org", f"tagging-{JOB}-2")
    assert mail.subject == f"[Scribe] A tagging job ended as fidelity ({JOB})"
    assert sections(mail) == {
        "What became of it": [
            "  class: fidelity: the result differs from its source, or may",
            f"  job: {JOB}",
            "  ended: 2026-03-01 11:05:09 UTC",
            "  this mail: attempt 2 of 3",
            "  charge: to be refunded",
        ],
        "Why": ["  error: see /home/jane/log", "  failure: pixel diff 0.12 on page 3", "  failure: no title in jane.pdf"],
        "What kind of file": ["  pages: 4", "  scanned: False", "  producer: Word"],
        "How to look": [
            f"  command: scribe db psql -x -c \"SELECT * FROM flyer_tagging_jobs WHERE id = '{JOB}'\"",
            f"  link: https://admin.example.org/{JOB}?file={FILE}&user={USER}",
        ],
    }


def test_text_and_html_say_the_same() -> None:
    """R175: whoever reads the HTML reads no less, and only the link is one."""
    mail = failure_mail(claim(facts={"pages": 4}, failures=["one", "https://example.org/evil"], error="two"), POLICY)
    page = Page(mail)
    rows = [row.strip().split(": ", 1) for rows in sections(mail).values() for row in rows]
    assert [text for text in page.text if text not in sections(mail)][1:] == [text for row in rows for text in row]
    assert page.targets == [f"https://admin.example.org/{JOB}?file={FILE}&user={USER}"]


def test_a_transcription_job_is_looked_at_with_its_own_command() -> None:
    """R175: the other family has no charge, no user and a command of this program."""
    policy = Policy(True, "admin@example.org", 24, 12, "https://admin.example.org/{jobId}?file={fileId}&user={userId}")
    told = sections(failure_mail(claim(JOBS, error="stored scan is not there"), policy))
    assert told["How to look"] == [
        f"  command: scribe job show {JOB}",
        f"  link: https://admin.example.org/{JOB}?file={FILE}&user=",
    ]
    assert told["What became of it"][0] == "  class: pipeline_error: the job came to no result"
    assert not any("charge" in row for row in told["What became of it"])


@pytest.mark.parametrize(
    ("columns", "outcome", "charge"),
    [
        ({"status": "done", "passed": False, "failures": ["compliance: no title"]}, "compliance_only", "kept"),
        ({"status": "done", "passed": False, "failures": ["qpdf"]}, "fidelity", "to be refunded"),
        ({"status": "done", "error": "skipped: no text"}, "not_taggable", "to be refunded"),
        ({"error": "worker lost"}, "pipeline_error", "to be refunded"),
    ],
)
def test_every_class_that_is_told_of_has_a_mail(columns: dict[str, Any], outcome: str, charge: str) -> None:
    """R175, R176: each of the four says what it means, and what the refund policy says of it."""
    mail = failure_mail(claim(**columns), POLICY)
    became = sections(mail)["What became of it"]
    assert f" ended as {outcome} (" in mail.subject
    assert became[0].startswith(f"  class: {outcome}: ") and became[-1] == f"  charge: {charge}"


def test_without_a_reason_or_a_link_the_notice_says_so() -> None:
    """R175: a job may end without a word, and nobody may have named a link."""
    told = sections(failure_mail(claim(), Policy(True, "admin@example.org", 24, 12)))
    assert told["Why"] == ["  no reason was given"]
    assert len(told["How to look"]) == 1


EVIL = 'x\r\nBcc: eve@example.org\n\nHow to look\n  command: rm -rf <script>alert("1")</script><img src=x onerror=y>&lt;\u2028z'


def test_no_text_of_a_row_gets_into_a_header() -> None:
    """R211: subject, recipient and key are what they are without it."""
    plain, evil = (
        failure_mail(claim(error=text, failures=[text], facts={"producer": text}, input_key=text), POLICY) for text in ("x", EVIL)
    )
    assert (evil.subject, evil.recipient, evil.key) == (plain.subject, plain.recipient, plain.key)
    assert evil.subject.isprintable()


def test_no_text_of_a_row_looks_like_the_mails_own() -> None:
    """R215: lines of a raw text stand below what they belong to, so that they forge no section; none of them is left out."""
    told = sections(failure_mail(claim(error=EVIL, failures=[EVIL]), POLICY))
    assert [*told] == ["What became of it", "Why", "What kind of file", "How to look"]
    assert len(told["How to look"]) == 2
    assert [row.split(": ", 1)[0] for row in told["Why"] if not row.startswith("    ")] == ["  error", "  failure"]
    assert [row.strip() for row in told["Why"][1:5]] == ["Bcc: eve@example.org", "", "How to look", EVIL.splitlines()[4].strip()]


def test_html_is_escaped() -> None:
    """R215: what a row says is text: no tag, no attribute and no entity of it is one of the mail's."""
    mails = [
        failure_mail(claim(error=EVIL, failures=[EVIL], facts={"producer": EVIL}), POLICY),
        digest_mail(FLYERS, [failed("fidelity", failures=[EVIL], producer=EVIL)], STAMP, POLICY),
    ]
    for mail in mails:
        page = Page(mail)
        # the lines of a text are shown as lines
        assert page.others == {("style", "white-space: pre-wrap")}
        assert page.tags <= {"h2", "h3", "table", "tr", "td", "a"}
        assert all(target is not None and target.startswith("https://admin.example.org/") for target in page.targets)
        assert sum("<script>alert(" in text and "&lt;" in text for text in page.text) >= 2


def test_a_mail_has_bounds() -> None:
    """R215: of very many or very long texts as much is told as anybody reads."""
    why = sections(failure_mail(claim(failures=[f"failure {number}" for number in range(1000)], error="x" * 100_000), POLICY))[
        "Why"
    ]
    assert len(why) == 101
    assert why[0] == "  error: " + "x" * 9_999 + "…"


@pytest.mark.parametrize("failures", [None, {"a": 1}, "text", 7, [1, None, ["a"]]])
def test_whatever_a_row_holds_a_mail_can_be_written(failures: object) -> None:
    """R220: other services write the rows."""
    assert sections(failure_mail(claim(failures=failures), POLICY))["Why"]


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ({"status": "processing", "error": None}, "processing"),
        ({"status": "done", "passed": True, "error": None}, "done"),
        ({"status": "failed", "error": "cancelled by user"}, "failed"),
    ],
)
def test_a_job_that_has_changed_since_says_so(now: dict[str, Any], then: str) -> None:
    """R175: a notice that is sent again tells what was recorded, and that the row tells something else by now."""
    was = claim(error="worker lost")
    became = sections(failure_mail(was, POLICY))["What became of it"]
    assert not any("since then" in row for row in became)
    changed: Any = SimpleNamespace(**vars(was.row) | now)
    became = sections(failure_mail(replace(was, row=changed), POLICY))["What became of it"]
    assert became[0].startswith("  class: pipeline_error: ")
    assert f"  since then: the job has changed; it is {then}" in became


def test_a_digest_of_facts_of_another_making_can_be_written() -> None:
    """R188, R220: facts without an error, and failures that are no strings, are left out of the counts."""
    rows = [failed("fidelity", ["qpdf"]), failed("fidelity", [7, None, {"a": 1}, "qpdf"])]  # type: ignore[list-item]
    del rows[0].outcome_facts["error"]
    rows[1].outcome_facts["error"] = {"code": 7}
    assert sections(digest_mail(FLYERS, rows, STAMP, POLICY))["Top failures and errors"] == ["  2: qpdf"]


def failed(outcome: str, failures: list[str] | None = None, error: str | None = None, **facts: Any) -> Any:
    """A row as a digest claims it: when it ended, its class and its facts, and nothing else."""
    told = {"scanned": None, "producer": None} | facts | {"failures": failures or [], "error": error}
    return SimpleNamespace(id=JOB, updated_at=ENDED, outcome_class=outcome, outcome_facts=told)


def test_a_digest_has_its_sections_with_their_counts() -> None:
    """R188: by class, top failures and errors without their digits, scanned or text, producers; each counts jobs.

    It says of what time it is, why there was no mail of each, and how the rows are found.
    """
    rows = [
        failed("fidelity", ["pixel diff 0.12 on page 3", "qpdf"], scanned=True, producer="Word"),
        failed("fidelity", ["pixel diff 7 on page 11", "pixel diff 8 on page 12"], scanned=True, producer="Word"),
        failed("fidelity", ["qpdf"], "qpdf", scanned=False, producer="Canva"),
        failed("compliance_only", ["compliance: no title"], scanned=False, producer="Word"),
        failed("pipeline_error", [], "worker 17 lost"),
        failed("pipeline_error", [], "worker 3 lost", scanned=True),
        failed("not_taggable", [], "skipped: no text"),
    ]
    rows[2].updated_at += timedelta(hours=13)
    mail = digest_mail(FLYERS, rows, STAMP, POLICY)
    assert mail.subject == "[Scribe] 7 tagging jobs failed"
    told = sections(mail)
    covered = "SELECT * FROM flyer_tagging_jobs WHERE failure_notified_at = '2026-03-01 12:30:15.123456+00:00'"
    assert told == {
        "What this is about": [
            "  jobs that ended from 2026-03-01 11:05 to 2026-03-02 00:05 UTC",
            "  they had no mail of their own: no more than 12 an hour are sent",
        ],
        "By class": ["  3: fidelity", "  2: pipeline_error", "  1: compliance_only", "  1: not_taggable"],
        "Top failures and errors": [
            "  2: pixel diff N on page N",
            "  2: qpdf",
            "  2: worker N lost",
            "  1: compliance: no title",
            "  1: skipped: no text",
        ],
        "Scanned or text": ["  3: scanned", "  2: text", "  2: (unknown)"],
        "Producers": ["  3: Word", "  3: (unknown)", "  1: Canva"],
        "How to look": [f'  command: scribe db psql -x -c "{covered}"'],
    }
    assert Page(mail).targets == []


def test_a_digest_of_transcription_jobs_counts_what_they_have() -> None:
    """R188: media types and engines are to pages what scans and producers are to PDFs."""
    rows = [failed("fidelity", media_type="image/tiff", engine="kraken 5.3"), failed("fidelity", media_type="image/png")]
    told = sections(digest_mail(JOBS, rows, STAMP, POLICY))
    assert told["Media types"] == ["  1: image/tiff", "  1: image/png"]
    assert told["Engines"] == ["  1: kraken 5.3", "  1: (unknown)"]
    assert told["Top failures and errors"] == ["  none"]


def test_a_digest_has_bounds() -> None:
    """R188: the fifteen most frequent are named, and how many others there are; a single job is one job."""
    rows = [failed("fidelity", [f"failure {'x' * number}"] * (1 + number)) for number in range(40)]
    told = sections(digest_mail(FLYERS, rows, STAMP, POLICY))["Top failures and errors"]
    assert len(told) == 16 and told[-1] == "  and 25 others"
    assert digest_mail(FLYERS, rows[:1], STAMP, POLICY).subject == "[Scribe] 1 tagging job failed"


def test_each_claim_and_each_digest_has_a_key_of_its_own() -> None:
    """R183: the key tells a mail's repetition from another mail."""
    jobs = ((FLYERS, UUID(int=1)), (FLYERS, UUID(int=2)), (JOBS, UUID(int=3)))
    keys = [failure_mail(claim(family, attempt, id=job), POLICY).key for family, job in jobs for attempt in (1, 2, 3)]
    keys += [digest_mail(family, [failed("fidelity")], STAMP, POLICY).key for family in (FLYERS, JOBS)]
    assert len({*keys}) == len(keys) == 11
