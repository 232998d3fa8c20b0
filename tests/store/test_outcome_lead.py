"""The lead of a scan: it ends with its session, and a database that is away is said to be."""

from typing import Any

import pytest

from scribe_pipeline.database import DatabaseError, connect
from scribe_pipeline.errors import Category
from scribe_pipeline.outcomes import Scan, scan_outcomes
from scribe_pipeline.outcomes.mail import Delivery, Mail, Mailer
from tests.endings import FLYERS, Endings
from tests.houses import House
from tests.mail_sink import MailSink


class Ending(Mailer):
    """Ends the sessions that hold an advisory lock while a mail is sent, as a server does that is restarted."""

    house: House
    ended = 0

    def send(self, mail: Mail) -> Delivery:
        """Send it, without the lead."""
        self.ended += self.house.value(
            """SELECT count(pg_terminate_backend(pid)) FROM pg_locks
               WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
        )
        return super().send(mail)


def test_a_lead_that_is_lost_does_not_break_the_scan(house: House) -> None:
    """R171, R204: what is recorded and told without the lead is guarded row by row; the next scan leads again."""
    with MailSink() as sink:
        endings = Endings(house, sink)
        endings.active()
        jobs = [endings.flyer() for _ in range(2)]
        endings.mailer = mailer = Ending(sink.url, None, "scribe@example.org")
        mailer.house = house
        assert endings.scan().notices == {"sent": 2}
        assert mailer.ended == 1
        assert [endings.notice(job) for job in jobs] == [("sent", 1)] * 2
        assert endings.scan() == Scan()
        assert len(endings.mails) == 2


def test_a_database_that_is_away_is_an_error_of_ours() -> None:
    """R30: not the driver's, which says more than it should."""
    away = connect("postgresql://nobody:secret@127.0.0.1:1/nothing")
    none: Any = None
    with pytest.raises(DatabaseError) as raised:
        scan_outcomes(away, {FLYERS: none}, Mailer(None, None, "scribe@example.org"))
    assert raised.value.category is Category.UNAVAILABLE
    assert raised.value.__cause__ is None and raised.value.__suppress_context__
