"""Tests, by what they need: nothing (unit), PostgreSQL (store), killed processes (faults), Dagster (face), everything (e2e)."""
