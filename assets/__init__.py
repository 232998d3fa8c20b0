"""What the pipeline makes: asset specs with their lineage, and the ops and jobs that make them."""

from assets.ingest_job import process_ingest_batch, run_config, run_tags
from assets.specs import page_asset_specs

__all__ = ["page_asset_specs", "process_ingest_batch", "run_config", "run_tags"]
