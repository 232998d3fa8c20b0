"""A person's save: refused on any revision but the one that was seen, and never overwritten by a worker."""

import json
import threading

import pytest
from sqlalchemy import text

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.jobs import TranscriptionSource, drain
from scribe_pipeline.pages import correction_distance, load_head, load_revision, plain_text, read_lines, save_page
from tests.houses import FakeEngines, House, InlinePool


def test_a_save_is_one_revision_more(house: House) -> None:
    """R91: a save on the right revision is the next one, by a person, with the index, one event and its deliveries."""
    image = house.page()
    house.subscribe()
    assert house.save(image.id, 1, "Dear Madam") == 2
    row = house.rows("SELECT author_kind, author, job_id FROM annotation_page_revisions WHERE revision = 2")[0]
    assert row == ("human", "reader", None)
    assert house.value("SELECT count(*) FROM annotations WHERE search @@ plainto_tsquery('simple', 'madam')") == 1
    (event,) = house.rows("SELECT event_type, body::jsonb -> 'data' AS data FROM event_outbox")
    assert (event.event_type, event.data["revision"]) == ("dev.scribe.annotations.saved", 2)
    assert house.value("SELECT count(*) FROM webhook_deliveries") == 1


def test_a_stale_save_changes_nothing(house: House) -> None:
    """R91: a save on another revision than the head is refused: page, index, metric and events stay as they were."""
    image = house.page()
    house.job(image)
    house.complete(house.claim(), "text")
    house.save(image.id, 2)
    before = house.everything()
    for stale in (1, 2, 4):
        with pytest.raises(ScribeError, match="is at revision 3") as caught:
            house.save(image.id, stale)
        assert caught.value.category is Category.PAGE_CHANGED
    assert house.everything() == before


def test_two_who_save_at_once(house: House) -> None:
    """R91: of two saves on the same revision one is taken and the other refused, however they meet."""
    image = house.page()
    results: list[object] = []

    def save() -> None:
        try:
            results.append(house.save(image.id, 1))
        except ScribeError as error:
            results.append(error.category)

    with house.engine.connect() as blocker:
        blocker.execute(text("SELECT FROM item_images FOR UPDATE"))
        threads = [threading.Thread(target=save) for _ in range(2)]
        for thread in threads:
            thread.start()
        blocker.rollback()
    for thread in threads:
        thread.join(30)
    assert sorted(map(str, results)) == ["2", "page_changed"]


def test_a_save_while_a_worker_reads_survives(house: House, engines: FakeEngines) -> None:
    """R98: the person's revision stays the head, the late attempt fails, and the job says that the page has changed."""
    image = house.page()
    house.job(image)

    def answer(number: int) -> str:
        if number == 2:
            house.save(image.id, 1, "by hand")
        return "by machine"

    engines.answer = answer
    drain([TranscriptionSource(house.engine, house.store_url, 60, lambda _: None)], InlinePool(), 60, 60)
    with house.engine.connect() as connection:
        head = load_head(connection, image.id)
    assert head is not None
    assert (head.revision, plain_text(head.payload)) == (2, "by hand\n")
    assert house.rows("SELECT status, error_category, retry_after FROM transcription_jobs") == [("failed", "page_changed", None)]
    assert house.value("SELECT outcome FROM transcription_job_attempts") == "failed"


def test_a_correction_is_measured(house: House) -> None:
    """R91: the baseline says how far the saved page is from it; what the engines said stays as it is."""
    image = house.page()
    house.job(image)
    house.complete(house.claim(), "The quick fox")
    said = house.value("SELECT original_text FROM ocr_runs")
    house.save(image.id, 2, "the QUICK  box")
    row = house.rows("SELECT canonical_revision, levenshtein_distance, original_text FROM ocr_runs")[0]
    assert row == (3, 1, said)


@pytest.mark.parametrize(
    ("baseline", "corrected", "distance"),
    [("  CAFÉ\n世界  ", "cafe 世界", 1), ("", "", 0), ("", "abc", 3), ("a\n\nb", "A b", 0), ("𝔄b", "ab", 1)],
)
def test_correction_distance(baseline: str, corrected: str, distance: int) -> None:
    """R91: distance in code points, without regard to case and white space; composed and decomposed letters differ."""
    assert correction_distance(baseline, corrected) == distance


@pytest.mark.parametrize(
    "payload",
    ["", "{", "[]", '{"type": "AnnotationPage"}', '"text"', '{"a": 1e999}', '{"a": NaN}', "[" * 100_000, '"\\ud800"'],
)
def test_what_is_no_page_is_refused(house: House, payload: str) -> None:
    """R91: a file that is no page of this image is refused in one sentence, and nothing is written."""
    image = house.page()
    before = house.everything()
    with pytest.raises(ScribeError) as caught:
        save_page(house.engine, image.id, 1, payload, "reader")
    assert caught.value.category is Category.INVALID_ARGUMENT
    assert house.everything() == before


@pytest.mark.parametrize("confidence", ["high", True, -0.1, 1.5, 10**400, None])
def test_a_confidence_is_a_number_from_0_to_1(house: House, confidence: object) -> None:
    """R91: what exports and reports reckon with is a number."""
    image = house.page()
    with house.engine.connect() as connection:
        page = json.loads(load_revision(connection, image.id).payload)
    page["items"][0]["body"]["confidence"] = confidence
    with pytest.raises(ScribeError, match="annotation 1: its confidence"):
        save_page(house.engine, image.id, 1, json.dumps(page), "reader")


@pytest.mark.parametrize("annotation_id", ["http://a/\x00b", "http://a\x01/b", "urn:a", 7])
def test_an_id_is_an_address(house: House, annotation_id: object) -> None:
    """R91: an annotation's id is an absolute HTTP address that a database can hold."""
    image = house.page()
    with house.engine.connect() as connection:
        page = json.loads(load_revision(connection, image.id).payload)
    page["items"][1]["id"] = annotation_id
    with pytest.raises(ScribeError, match="annotation 2: its id"):
        save_page(house.engine, image.id, 1, json.dumps(page), "reader")


def test_a_drawing_out_of_this_world_is_kept_and_does_no_harm(house: House) -> None:
    """R91: points that are no numbers of this world are stored as they came; the line's box stands in for them."""
    image = house.page()
    with house.engine.connect() as connection:
        page = json.loads(load_revision(connection, image.id).payload)
    page["items"][0]["target"]["selector"][1]["value"] = '<svg><polygon points="9e999,1 2,3 4,5"/></svg>'
    assert save_page(house.engine, image.id, 1, json.dumps(page), "reader") == 2
    with house.engine.connect() as connection:
        assert len(read_lines(load_revision(connection, image.id).payload)) == 3


def test_the_same_save_again_is_the_same_revision(house: House) -> None:
    """R91: who saves again because the answer was lost gets the revision that is there; another's text is refused."""
    image = house.page()
    with house.engine.connect() as connection:
        page = json.loads(load_revision(connection, image.id).payload)
    page["items"][0]["body"]["value"] = "once"
    for _ in range(2):
        assert save_page(house.engine, image.id, 1, json.dumps(page), "reader") == 2
    with pytest.raises(ScribeError, match="is at revision 2"):
        save_page(house.engine, image.id, 1, json.dumps(page), "another reader")
    assert house.value("SELECT count(*) FROM event_outbox") == 1


def test_another_pages_payload_is_refused(house: House) -> None:
    """R91: a page cannot be saved over another one."""
    image, other = house.page(), house.page()
    with house.engine.connect() as connection:
        payload = load_revision(connection, other.id).payload
    with pytest.raises(ScribeError, match="its id is not the page's"):
        save_page(house.engine, image.id, 1, payload, "reader")


def test_what_nobody_knows_is_kept(house: House) -> None:
    """R91, R165: properties that nobody knows and any script are stored as they came, in one form of white space."""
    image = house.page()
    with house.engine.connect() as connection:
        page = json.loads(load_revision(connection, image.id).payload)
    page["items"][0]["body"]["value"] = "שלום 𝔄 é"
    page["x:note"] = {"b": [1, 2.50], "a": None}
    save_page(house.engine, image.id, 1, json.dumps(page, indent=3), "reader")
    with house.engine.connect() as connection:
        stored = load_revision(connection, image.id, 2).payload
        assert load_revision(connection, image.id, 1).payload != stored
    assert json.loads(stored) == page
    assert '"x:note":{"b":[1,2.5],"a":null}' in stored and "שלום 𝔄 é" in stored


def test_a_page_too_large_is_refused(house: House) -> None:
    """R91: a page has at most ten thousand annotations and eight megabytes."""
    image = house.page()
    with house.engine.connect() as connection:
        page = json.loads(load_revision(connection, image.id).payload)
    line = page["items"][0]
    page["items"] = [line | {"id": f"{line['id']}-{number}"} for number in range(10_001)]
    with pytest.raises(ScribeError, match="more than 10,000 annotations"):
        save_page(house.engine, image.id, 1, json.dumps(page), "reader")
