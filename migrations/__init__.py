"""Alembic's folder: forward only, one head. The schema's constraints and triggers are stated here and nowhere else."""
