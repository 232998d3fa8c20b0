"""The files of ../shared/badimages through validation: each is a page or a sentence, and nothing else is left of it."""

from dataclasses import replace

import pytest

from scribe_pipeline.config import Settings
from scribe_pipeline.ingest import collect, report_batch, request_batch
from tests.bad_images import FOLDER, RIGHT, needed
from tests.houses import House
from tests.store.test_frames import unowned
from tests.work import Work


@pytest.mark.filterwarnings("ignore")
def test_each_file_is_a_page_or_a_sentence(house: House) -> None:
    """R87: the right answer for each, within the limits of a new installation; all that is stored has an owner."""
    needed()
    assert {path.name for path in FOLDER.iterdir()} == set(RIGHT)
    settings = Settings()
    limits = replace(
        house.settings.limits,
        max_bytes=settings.max_image_bytes,
        max_pixels=settings.max_image_pixels,
        max_side=settings.max_image_side,
    )
    house.settings = replace(house.settings, limits=limits)
    collection = collect([FOLDER / name for name in RIGHT])
    batch = request_batch(house.engine, collection, workspace="default", context=None, max_attempts=3, reservation_seconds=3600)
    Work(house, batch).validate()
    sizes = {
        (row.sequence, row.frame): (row.width, row.height)
        for row in house.rows("SELECT sequence, frame, width, height FROM item_images")
    }
    with house.engine.connect() as connection:
        report = report_batch(connection, batch.id)
    said: dict[str, list[object]] = {}
    for page in report:
        place = list(RIGHT).index(page.file) + 1, page.frame
        said.setdefault(page.file, []).append(sizes.get(place) or page.error_category)
        if page.item_image_id is None:
            assert page.message is not None and page.message.startswith(page.file) and "\n" not in page.message
    assert said == {name: [right.value] if isinstance(right, str) else list(right) for name, right in RIGHT.items()}
    assert unowned(house) == set()
