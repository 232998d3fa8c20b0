"""What became of each job that has ended, and what kind of file it was: the outcome record, failure notices, the digest.

Two families of jobs are served by one engine. Jobs are only read here, but for the four columns of their outcome.
"""

from scribe_pipeline.outcomes.classes import OutcomeClass, Verdict, classify, is_refundable
from scribe_pipeline.outcomes.digest import Digests, send_digests
from scribe_pipeline.outcomes.families import FAMILIES, Family
from scribe_pipeline.outcomes.mail import Mail, Mailer
from scribe_pipeline.outcomes.opening import notice_policies, open_mailer
from scribe_pipeline.outcomes.queries import QUERIES, Answer, ask, dimensions, query_text, recorded_facts
from scribe_pipeline.outcomes.records import UNMIGRATED, Policy, is_recordable, settling
from scribe_pipeline.outcomes.report import Waiting, longest_waiting, outcomes_by_day
from scribe_pipeline.outcomes.scan import Scan, scan_outcomes

__all__ = [
    "FAMILIES",
    "QUERIES",
    "UNMIGRATED",
    "Answer",
    "Digests",
    "Family",
    "Mail",
    "Mailer",
    "OutcomeClass",
    "Policy",
    "Scan",
    "Verdict",
    "Waiting",
    "ask",
    "classify",
    "dimensions",
    "is_recordable",
    "is_refundable",
    "longest_waiting",
    "notice_policies",
    "open_mailer",
    "outcomes_by_day",
    "query_text",
    "recorded_facts",
    "scan_outcomes",
    "send_digests",
    "settling",
]
