"""Jobs that have ended, and a scan of them with a mail server of one's own: where tests of outcomes begin."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import text

from scribe_pipeline.errors import Category
from scribe_pipeline.jobs import end_attempt
from scribe_pipeline.outcomes import FAMILIES, Digests, Family, Mailer, Policy, Scan, scan_outcomes, send_digests
from tests.houses import House
from tests.mail_sink import MailSink, Taken
from tests.proofs import wait_until

FLYERS, JOBS = FAMILIES["flyer_tagging_jobs"], FAMILIES["transcription_jobs"]
RECIPIENT = "admin@example.org"
# The columns of a flyer's job in which the shapes of the classes differ.
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "success": {"status": "done", "passed": True},
    "compliance_only": {"status": "done", "passed": False, "failures": ["compliance: no title"]},
    "fidelity": {"status": "done", "passed": False, "failures": ["pixel diff 0.12 on page 3"]},
    "not_taggable": {"status": "done", "error": "skipped: no text"},
    "pipeline_error": {"status": "failed", "error": "worker lost"},
    "cancelled": {"status": "failed", "error": "cancelled by user"},
}
# What a notice is about, by its Message-ID: a job and the number of the claim.
_NOTICE = re.compile(r"<(\w+)-([0-9a-f-]{36})-([1-3])@")
# Each returns the rows that break it, of one family.
_BROKEN: Mapping[str, str] = {
    "I13 more notices claimed within an hour than are allowed": """SELECT * FROM (
        SELECT id, count(*) OVER (ORDER BY (outcome_facts ->> 'notice_claimed_at')::timestamptz
                                  RANGE BETWEEN '3599.999 seconds' PRECEDING AND CURRENT ROW) AS within
        FROM {family} WHERE outcome_facts ->> 'notice_claimed_at' IS NOT NULL) AS claimed WHERE within > :most""",
    "I13 more than one digest within an hour": """SELECT * FROM (
        SELECT at, at - lag(at) OVER (ORDER BY at) AS since
        FROM (SELECT DISTINCT failure_notified_at AS at FROM {family}
              WHERE outcome_facts ->> 'notice' = 'digest' AND failure_notified_at IS NOT NULL) AS stamps) AS digests
        WHERE since < '1 hour'""",
    "I14 recorded sooner than two minutes after the end": """SELECT id, updated_at, outcome_recorded_at FROM {family}
        WHERE outcome_recorded_at < updated_at + interval '2 minutes'""",
}


class Endings:
    """A house with a mail server, whose jobs end when a test says so, and a clock that it moves."""

    def __init__(self, house: House, sink: MailSink, max_per_hour: int = 12) -> None:
        self.house = house
        self.sink = sink
        self.mailer = Mailer(sink.url, None, "scribe@example.org", patience=10)
        self.policy = Policy(enabled=True, recipient=RECIPIENT, lookback_hours=24, max_per_hour=max_per_hour)
        self._most = max_per_hour

    def flyer(self, shape: str = "pipeline_error", ago: float = 300, **columns: Any) -> UUID:
        """A tagging job of that shape that ended so many seconds ago, as the services that write them leave it."""
        values = {"id": uuid_utils.uuid7()} | dict(SHAPES[shape]) | columns
        names = ", ".join(values)
        given = ", ".join(
            f"CAST(:{name} AS {'jsonb' if isinstance(value, (dict, list)) else self._type(name)})" for name, value in values.items()
        )
        times = "clock_timestamp() - make_interval(secs => :ago + 60), clock_timestamp() - make_interval(secs => :ago)"
        dumped = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in values.items()}
        statement = f"INSERT INTO flyer_tagging_jobs ({names}, created_at, updated_at) VALUES ({given}, {times})"
        self.house.execute(statement, ago=ago, **dumped)
        return UUID(str(values["id"]))

    def flyers(self, count: int, shape: str = "pipeline_error", ago: float = 300) -> None:
        """Many jobs of one shape at once."""
        columns = dict(SHAPES[shape])
        self.house.execute(
            """INSERT INTO flyer_tagging_jobs (status, passed, failures, error, created_at, updated_at)
               SELECT :status, :passed, CAST(:failures AS jsonb), :error, clock_timestamp() - make_interval(secs => :ago + 60),
                      clock_timestamp() - make_interval(secs => :ago)
               FROM generate_series(1, :count)""",
            status=columns["status"],
            passed=columns.get("passed"),
            failures=json.dumps(columns.get("failures", [])),
            error=columns.get("error"),
            ago=ago,
            count=count,
        )

    def _type(self, name: str) -> str:
        return str(FLYERS.table.c[name].type.compile(self.house.engine.dialect))

    def failed_job(self, ago: float = 300) -> UUID:
        """A transcription job that failed so many seconds ago."""
        job_id = self.house.job()
        end_attempt(self.house.engine, self.house.claim(), Category.AUTHENTICATION)
        self.pass_time(ago)
        return job_id

    def failed(self, family: Family, ago: float = 300) -> UUID:
        """A job of that family that failed so many seconds ago."""
        return self.flyer(ago=ago) if family is FLYERS else self.failed_job(ago)

    def pass_time(self, seconds: float) -> None:
        """Let all that was written be so many seconds older, as if that time had passed."""
        claimed = """to_char(((outcome_facts ->> 'notice_claimed_at')::timestamptz - make_interval(secs => :s)) AT TIME ZONE 'UTC',
                             'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
        older = ", ".join(
            f"{name} = {name} - make_interval(secs => :s)"
            for name in ("created_at", "updated_at", "outcome_recorded_at", "failure_notified_at")
        )
        for family in FAMILIES.values():
            finished = ", finished_at = finished_at - make_interval(secs => :s)" if family is JOBS else ""
            self.unguarded(
                f"""UPDATE {family.name} SET {older}{finished},
                       outcome_facts = CASE WHEN outcome_facts ->> 'notice_claimed_at' IS NULL THEN outcome_facts
                                            ELSE outcome_facts || jsonb_build_object('notice_claimed_at', {claimed}) END""",
                s=seconds,
            )
        self.unguarded("UPDATE outcome_activations SET activated_at = activated_at - make_interval(secs => :s)", s=seconds)

    def stop_clock(self) -> None:
        """Let the database's clock stand still, so that it can be told what happens at the very end of a span of time."""
        now = self.house.value("SELECT clock_timestamp()").isoformat()
        self.house.execute("CREATE SCHEMA still")
        function = "CREATE FUNCTION still.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE"
        self.house.execute(f"{function} AS $$ SELECT timestamptz '{now}' $$")
        path = "ALTER DATABASE %I SET search_path = still, pg_catalog, public"
        self.house.execute(f"DO $$ BEGIN EXECUTE format('{path}', current_database()); END $$")
        self.house.engine.dispose()

    def unguarded(self, statement: str, **values: Any) -> None:
        """Run a statement past the triggers, as nobody but a test may."""
        with self.house.engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            connection.execute(text(statement), values)

    def active(self) -> None:
        """Let both families have been scanned for a long time."""
        for family in FAMILIES:
            self.house.execute(
                "INSERT INTO outcome_activations (family, activated_at) VALUES (:family, clock_timestamp() - interval '30 days')",
                family=family,
            )

    def scan(self, policy: Policy | None = None, families: tuple[Family, ...] = (FLYERS, JOBS)) -> Scan:
        """One tick, once the session of a scan that was stopped is over."""
        self._most = max(self._most, (policy or self.policy).max_per_hour)
        came: list[Scan] = []

        def led() -> bool:
            done = scan_outcomes(self.house.engine, dict.fromkeys(families, policy or self.policy), self.mailer)
            came.extend([] if done is None else [done])
            return done is not None

        wait_until(led, "the end of another scan")
        return came[0]

    def digest(self, policy: Policy | None = None) -> Digests:
        """The digests that are due."""
        return send_digests(
            self.house.engine, dict.fromkeys((FLYERS, JOBS), policy or self.policy), self.mailer, sleep=lambda _: None
        )

    def drain(self, policy: Policy | None = None) -> Counter[str]:
        """Ticks until there is nothing to record, and how many rows of each class they have recorded."""
        recorded: Counter[str] = Counter()
        while new := self.scan(policy).recorded:
            recorded += new
        return recorded

    def outcome(self, job_id: UUID, family: Family = FLYERS) -> Any:
        """The row of a job."""
        return self.house.rows(f"SELECT * FROM {family.name} WHERE id = :id", id=job_id)[0]

    def notice(self, job_id: UUID, family: Family = FLYERS) -> tuple[str, int]:
        """The state of a job's notice and the number of its claims."""
        facts = self.outcome(job_id, family).outcome_facts
        return facts["notice"], facts["notice_attempts"]

    def notices(self, family: Family = FLYERS) -> dict[str, int]:
        """How many notices are in each state."""
        counted = f"SELECT outcome_facts ->> 'notice', count(*) FROM {family.name} WHERE outcome_facts IS NOT NULL GROUP BY 1"
        return dict(tuple(row) for row in self.house.rows(counted))

    @property
    def mails(self) -> list[Taken]:
        """What the mail server has taken."""
        return self.sink.messages

    def told(self, family: Family = FLYERS) -> list[tuple[str, int]]:
        """The jobs that somebody was told of in a mail of its own, each with the number of the claim."""
        found = [_NOTICE.match(self._id(mail)) for mail in self.mails]
        return [(notice[2], int(notice[3])) for notice in found if notice and notice[1] == family.kind]

    def summaries(self, family: Family = FLYERS) -> list[int]:
        """How many failures each digest says that it is about."""
        mails = [mail for mail in self.mails if self._id(mail).startswith(f"<{family.kind}-digest-")]
        return [int(str(mail.message["Subject"]).split()[1]) for mail in mails]

    @staticmethod
    def _id(mail: Taken) -> str:
        return str(mail.message["Message-ID"]).strip()

    def check(self) -> None:
        """I13, I14: nobody was told more often than is allowed, or of one job in two ways, and nothing was recorded too soon."""
        for family in FAMILIES.values():
            for what, query in _BROKEN.items():
                assert not self.house.rows(
                    query.format(family=family.name), **({"most": self._most} if ":most" in query else {})
                ), what
            sends = Counter(job_id for job_id, _ in self.told(family))
            assert all(times <= 3 for times in sends.values()), "I13 a notice sent more than three times"
            digest = "SELECT id::text FROM {} WHERE outcome_facts ->> 'notice' = 'digest' AND failure_notified_at IS NOT NULL"
            stamped = {row.id for row in self.house.rows(digest.format(family.name))}
            assert sum(self.summaries(family)) <= len(stamped), "I13 a row in two digests"
