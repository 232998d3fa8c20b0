"""What the pipeline makes: assets and asset specs, the ops and jobs that make them, and the standing checks."""

from assets.checks import check_standing, standing_checks
from assets.export_job import derive_exports
from assets.ingest_job import process_ingest_batch, run_config, run_tags
from assets.outcome_jobs import outcome_scan, send_digest
from assets.outcome_summary import outcome_summary
from assets.queue_jobs import drain_transcription_queue, maintenance
from assets.recipe_evaluation import evaluate_recipe_job, recipe_evaluation
from assets.retention import retention
from assets.specs import page_asset_specs
from assets.storage_jobs import upload_cleanup
from assets.storage_report import storage_report

__all__ = [
    "check_standing",
    "derive_exports",
    "drain_transcription_queue",
    "evaluate_recipe_job",
    "maintenance",
    "outcome_scan",
    "outcome_summary",
    "page_asset_specs",
    "process_ingest_batch",
    "recipe_evaluation",
    "retention",
    "run_config",
    "run_tags",
    "send_digest",
    "standing_checks",
    "storage_report",
    "upload_cleanup",
]
