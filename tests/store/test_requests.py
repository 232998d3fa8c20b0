"""Asking for jobs, replacing and canceling them: what the request does to the job that is active, and what it leaves behind."""

from dataclasses import replace

import pytest

from scribe_pipeline.contexts import find_context
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import report_batch
from scribe_pipeline.jobs import JobRequest, cancel_job, claim_jobs, create_job, end_attempt, load_job, request_job
from scribe_pipeline.pages import Image
from tests.houses import House

OPERATOR = Operator("anna@archive", "the model was wrong")


def request(house: House, image: Image, context: str | None = None) -> JobRequest:
    """Ask for the image's page as an operator."""
    return request_job(house.engine, image.id, context, 3, OPERATOR)


def status(house: House, job_id: object) -> str:
    """The status of a job."""
    return str(house.value("SELECT status FROM transcription_jobs WHERE id = :id", id=job_id))


@pytest.mark.parametrize("claimed", [False, True], ids=["pending", "running"])
def test_another_context_supersedes(house: House, claimed: bool) -> None:
    """R22, R38: the replaced job and its running attempt are superseded, neither failed nor canceled; the new one is pending."""
    image = house.page()
    old = house.job(image)
    claim = house.claim() if claimed else None
    new = request(house, image, "newspaper")
    assert (new.created, new.superseded) == (True, old)
    assert (status(house, old), status(house, new.job_id)) == ("superseded", "pending")
    assert house.rows("SELECT outcome FROM transcription_job_attempts") == ([("superseded",)] if claimed else [])
    assert (
        house.value("SELECT error FROM transcription_jobs WHERE id = :id", id=old) == "superseded by a newer transcription request"
    )
    if claim is not None:
        with pytest.raises(ScribeError) as caught:
            house.complete(claim)
        assert caught.value.category is Category.LEASE_LOST


def test_a_stale_job_is_superseded_by_the_same_request(house: House) -> None:
    """R31: while the worker lives the same request is the same job; once its lease has run out, a new job supersedes it."""
    image = house.page()
    old = house.job(image)
    assert request(house, image) == JobRequest(old, created=False)
    house.claim()
    assert request(house, image) == JobRequest(old, created=False)
    house.expire_lease()
    new = request(house, image)
    assert new.superseded == old
    assert (status(house, old), status(house, new.job_id)) == ("superseded", "pending")


def test_what_was_superseded_stays_to_be_read(house: House) -> None:
    """R32: when the new job has completed, the old one and its attempts are still there, with their outcomes."""
    image = house.page()
    old = house.job(image)
    end_attempt(house.engine, house.claim(), Category.UPSTREAM)
    house.execute("UPDATE transcription_jobs SET retry_after = NULL")
    house.claim()
    new = request(house, image, "manuscript").job_id
    house.complete(house.claim())
    with house.engine.connect() as connection:
        before, after = load_job(connection, old), load_job(connection, new)
    assert [attempt.outcome for attempt in before.attempts] == ["retryable_failed", "superseded"]
    assert (before.job.status, before.superseded_by, after.supersedes) == ("superseded", new, old)
    assert (after.job.status, after.verdict) == ("completed", "match")
    told = house.value("SELECT body::jsonb -> 'data' ->> 'supersedes' FROM event_outbox WHERE event_type LIKE '%completed'")
    assert told == str(old)


def test_a_page_that_was_saved_since_is_another_request(house: House) -> None:
    """R22, R94: a job for an older revision does not serve a request for the page as it is now."""
    image = house.page()
    old = house.job(image)
    house.save(image.id, 1)
    assert request(house, image).superseded == old
    assert house.value("SELECT input_revision FROM transcription_jobs WHERE status = 'pending'") == 2


def test_a_successor_stays_in_its_batch(house: House) -> None:
    """R22: a job that replaces one of a batch belongs to that batch too, so that a cancel of the batch reaches it."""
    batch, (image,) = house.ingested(1)
    new = request(house, image, "newspaper").job_id
    assert house.value("SELECT batch_id FROM transcription_jobs WHERE id = :id", id=new) == batch


def test_without_a_name_the_context_is_the_last_one(house: House) -> None:
    """R31: an operator who asks again gets the page read as before, by that context as it is configured now."""
    image = house.page()
    house.job(image, context="newspaper")
    end_attempt(house.engine, house.claim(), Category.AUTHENTICATION)
    house.execute("UPDATE contexts SET transcription_model = 'mended' WHERE name = 'newspaper'")
    request(house, image)
    snapshot = house.claim().context_snapshot
    assert '"name":"newspaper"' in snapshot and '"transcription_model":"mended"' in snapshot


def test_a_draft_stays_one_in_the_batchs_report(house: House) -> None:
    """R32: a page that has its draft is told as completed, whatever becomes of a later request."""
    batch, (image,) = house.ingested(1)
    house.complete(house.claim())
    cancel_job(house.engine, request(house, image).job_id, OPERATOR)
    with house.engine.connect() as connection:
        (page,) = report_batch(connection, batch)
    assert (page.status, page.revision) == ("completed", 2)


def test_interventions_are_audited(house: House) -> None:
    """R34: who asked for replacement work, or canceled, when, on which job and why, is written down; a repetition is not."""
    image = house.page()
    job = request(house, image).job_id
    request(house, image)
    assert cancel_job(house.engine, job, OPERATOR)
    assert not cancel_job(house.engine, job, OPERATOR)
    rows = house.rows("SELECT actor, action, subject, reason, created_at FROM operator_audit ORDER BY created_at")
    assert [tuple(row)[:4] for row in rows] == [
        ("anna@archive", action, f"job {job}", "the model was wrong") for action in ("job create", "job cancel")
    ]
    with house.engine.connect() as connection:
        assert [entry.action for entry in load_job(connection, job).audit] == ["job create", "job cancel"]


def test_the_audit_stands_or_falls_with_the_job(house: House) -> None:
    """R34: no intervention without its record."""
    image = house.page()
    house.execute("ALTER TABLE operator_audit ADD CONSTRAINT stop_it CHECK (false)")
    with pytest.raises(ScribeError):
        request(house, image)
    assert house.rows("SELECT id FROM transcription_jobs") == []


def test_canceling_what_is_over(house: House) -> None:
    """R24: a canceled job may be canceled again, to no effect; one that has ended otherwise may not."""
    job = house.job()
    assert cancel_job(house.engine, job, OPERATOR)
    assert not cancel_job(house.engine, job, OPERATOR)
    done = house.job()
    house.complete(house.claim())
    with pytest.raises(ScribeError) as caught:
        cancel_job(house.engine, done, OPERATOR)
    assert caught.value.category is Category.FAILED_PRECONDITION
    assert house.value("SELECT count(*) FROM event_outbox WHERE event_type LIKE '%canceled'") == 1


def test_a_full_queue_takes_no_more(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """R94: a workspace has a limit of active jobs; replacing one of them is still possible."""
    monkeypatch.setattr("scribe_pipeline.jobs.requests.MAX_ACTIVE_JOBS", 2)
    images = [house.page() for _ in range(3)]
    for image in images[:2]:
        request(house, image)
    with pytest.raises(ScribeError, match="active jobs"):
        request(house, images[2])
    assert request(house, images[0], "newspaper").created
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'second')")
    assert request(house, house.page(workspace="second")).created


def test_unknown_things_are_named(house: House) -> None:
    """R3: an image that is not there, one without a page, a context that nobody knows: one sentence each, and no job."""
    image = house.image()
    for wrong, context, words in (
        (replace(image, id=image.item_id), None, "there is no image"),
        (image, None, "no canonical page"),
        (image, "diary", "there is no context 'diary'"),
    ):
        with pytest.raises(ScribeError, match=words):
            request(house, wrong, context)
    assert house.rows("SELECT id FROM transcription_jobs") == []
    assert house.rows("SELECT id FROM operator_audit") == []


def test_a_request_wakes_who_waits(house: House) -> None:
    """R107: a worker that waits hears of a new job without polling for it."""
    from scribe_pipeline.events import Channel, Listener

    listener = Listener(house.engine.url.set(drivername="postgresql").render_as_string(hide_password=False), Channel.JOBS)
    assert listener.wait(0), "it does not know what was sent before"
    assert not listener.wait(0.01)
    request(house, house.page())
    assert listener.wait(30)
    listener.close()


def test_creation_in_a_transaction_of_ones_own(house: House) -> None:
    """R94: made twice in one transaction, the same job comes back."""
    image = house.page()
    with house.engine.begin() as connection:
        snapshot = find_context(connection, image.workspace_id)
        first = create_job(connection, image, snapshot, 3)
        assert create_job(connection, image, snapshot, 3) == JobRequest(first.job_id, created=False)
    assert len(claim_jobs(house.engine, 60, limit=5)) == 1
