"""The whole for Dagster: assets with their checks, jobs, sensors, schedules and the resources they work with."""

import dagster as dg

import assets
import sensors
from resources import resource_defs


def build_defs(**overrides: object) -> dg.Definitions:
    """Return the definitions; `overrides` replace resources by name."""
    return dg.Definitions(
        assets=[*assets.page_asset_specs, assets.outcome_summary, assets.recipe_evaluation, assets.storage_report],
        asset_checks=assets.standing_checks,
        jobs=[
            assets.process_ingest_batch,
            assets.drain_transcription_queue,
            assets.derive_exports,
            assets.outcome_scan,
            assets.send_digest,
            assets.maintenance,
            assets.upload_cleanup,
            assets.retention,
            assets.check_standing,
            assets.evaluate_recipe_job,
        ],
        sensors=[sensors.ingest_batch_sensor, sensors.transcription_queue_sensor, sensors.terminal_job_sensor],
        schedules=[
            sensors.outcome_scan_schedule,
            sensors.digest_schedule,
            sensors.maintenance_schedule,
            sensors.standing_checks_schedule,
            sensors.upload_cleanup_schedule,
            sensors.retention_schedule,
        ],
        resources=resource_defs() | overrides,
        # what one materializes by hand in the UI, too
        executor=dg.in_process_executor,
    )


defs = build_defs()
