"""The whole for Dagster: assets, jobs, sensors and the resources they work with."""

import dagster as dg

from assets import page_asset_specs, process_ingest_batch
from resources import resource_defs
from sensors import ingest_batch_sensor


def build_defs(**overrides: object) -> dg.Definitions:
    """Return the definitions; `overrides` replace resources by name."""
    return dg.Definitions(
        assets=page_asset_specs,
        jobs=[process_ingest_batch],
        sensors=[ingest_batch_sensor],
        resources=resource_defs() | overrides,
    )


defs = build_defs()
