"""The page assets and how one comes of the other. Specs only describe; ops record what they made."""

import dagster as dg

INGESTED_IMAGES = "ingested_images"
SEGMENTED_PAGES = "segmented_pages"
TRANSCRIBED_PAGES = "transcribed_pages"
PAGE_EXPORTS = "page_exports"

page_asset_specs = [
    dg.AssetSpec(INGESTED_IMAGES, description="Scans that were checked and stored.", group_name="pages", kinds={"postgres"}),
    dg.AssetSpec(
        SEGMENTED_PAGES,
        deps=[INGESTED_IMAGES],
        description="Page revision 1: the lines of each scan, with polygon and baseline, without text.",
        group_name="pages",
        kinds={"pytorch", "postgres"},
    ),
    dg.AssetSpec(
        TRANSCRIBED_PAGES,
        deps=[SEGMENTED_PAGES],
        description="Drafts: the page revision that a transcription job wrote.",
        group_name="pages",
        kinds={"postgres"},
    ),
    dg.AssetSpec(
        PAGE_EXPORTS,
        deps=[TRANSCRIBED_PAGES],
        description="ALTO, PAGE, hOCR, text and AnnotationPage of drafts, each made from one committed revision.",
        group_name="pages",
        kinds={"xml", "postgres"},
    ),
]
