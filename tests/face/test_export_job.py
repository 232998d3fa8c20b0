"""Dagster's view of exports: a run makes what is missing, tells of it once, and no page stops another."""

from pathlib import Path
from uuid import uuid4

import dagster as dg

from definitions import build_defs
from scribe_pipeline.config import Settings
from scribe_pipeline.exports.document import MAX_WORDS
from scribe_pipeline.storage import LocalBlobStore
from tests.houses import House


def execute(house: House, instance: dg.DagsterInstance | None = None, **config: object) -> dg.ExecuteInProcessResult:
    """Execute the job."""
    settings = Settings(home=house.folder, blob_url=house.store_url)
    job = build_defs(settings=settings, database=house.engine).resolve_job_def("derive_exports")
    return job.execute_in_process(
        instance=instance or dg.DagsterInstance.ephemeral(),
        run_config={"ops": {"export_drafts": {"config": config}}},
        raise_on_error=False,
    )


def told(result: dg.ExecuteInProcessResult) -> list[dict[str, object]]:
    """What the run's materializations say."""
    assert result.success
    made = [event.step_materialization_data.materialization for event in result.all_events if event.is_step_materialization]
    assert all(entry.asset_key.to_user_string() == "page_exports" for entry in made)
    return [{name: value.value for name, value in entry.metadata.items()} for entry in made]


def drafts(house: House, number: int) -> None:
    """Pages that were read."""
    for _ in range(number):
        house.job()
        house.complete(house.claim())


def test_a_run_makes_what_is_missing(house: House) -> None:
    """R86, R92: the exports of all drafts, told once with counts, however many there are; another run finds nothing to do."""
    instance = dg.DagsterInstance.ephemeral()
    events = {}
    for number in (2, 20):
        drafts(house, number)
        result = execute(house, instance)
        (said,) = told(result)
        assert (said["pages"], said["refused"]) == (number, 0)
        assert {said[name] for name in ("alto", "page", "hocr", "txt", "json")} == {number}
        assert said["bytes"] == house.value(
            "SELECT sum(size_bytes) FROM (SELECT size_bytes FROM page_exports ORDER BY created_at DESC LIMIT :rows) AS made",
            rows=5 * number,
        )
        assert str(said["exports"]).count("alto, page, hocr, txt, json") == number
        events[number] = len(instance.all_logs(result.run_id))
    assert house.value("SELECT count(*) FROM page_exports") == 110
    assert events[2] == events[20]
    assert told(execute(house, instance)) == []


def test_a_run_is_bounded(house: House) -> None:
    """R92: by a number of pages, by time, or to one batch; what is left is for the next run."""
    batch, _ = house.ingested(1)
    house.complete(house.claim())
    drafts(house, 3)
    assert told(execute(house, claim_seconds=1e-9)) == []
    assert [said["pages"] for said in told(execute(house, batch_id=str(batch)))] == [1]
    assert told(execute(house, batch_id=str(uuid4()))) == []
    assert [said["pages"] for said in told(execute(house, limit=2))] == [2]
    assert [said["pages"] for said in told(execute(house))] == [1]


def excessive_draft(house: House) -> None:
    """A page that has too many words to be exported."""
    image = house.page()
    house.job(image)
    house.complete(house.claim(), "a " * (MAX_WORDS // 3 + 1))


def test_one_page_stops_no_other(house: House) -> None:
    """R92: a page that cannot be exported is named, run for run, and the others are exported."""
    excessive_draft(house)
    drafts(house, 2)
    for pages in (2, 0):
        (said,) = told(execute(house))
        assert (said["pages"], said["refused"]) == (pages, 1)
        assert "100,000 words" in str(said["refusals"])


def test_a_page_that_is_refused_counts_for_nothing(house: House) -> None:
    """R92: however often a run of one page comes upon it, it makes the exports of another."""
    excessive_draft(house)
    drafts(house, 2)
    for pages in (1, 1, 0):
        (said,) = told(execute(house, limit=1))
        assert (said["pages"], said["refused"]) == (pages, 1)


def test_the_store_is_the_resource(house: House, tmp_path: Path) -> None:
    """R92: exports are written to the store that the definitions were built with."""
    drafts(house, 1)
    settings = Settings(home=house.folder, blob_url=house.store_url)
    defs = build_defs(settings=settings, database=house.engine, store=LocalBlobStore(tmp_path / "elsewhere"))
    result = defs.resolve_job_def("derive_exports").execute_in_process(instance=dg.DagsterInstance.ephemeral())
    assert [said["pages"] for said in told(result)] == [1]
    assert len(list((tmp_path / "elsewhere").iterdir())) == 5


def test_a_store_that_cannot_be_written_to_is_red(house: House, tmp_path: Path) -> None:
    """R30: the run fails and says why; nothing is kept, and what was staged stays so until its hour is over."""
    drafts(house, 1)
    (tmp_path / "file").write_text("")
    house.store_url = str(tmp_path / "file")
    result = execute(house)
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "cannot be written to" in str(failure.step_failure_data.error)
    assert house.value("SELECT count(*) FROM page_exports") == 0
    assert house.rows("SELECT DISTINCT status FROM resource_cleanup_outbox") == [("staged",)]
