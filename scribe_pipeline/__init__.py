"""Scribe's core: everything that decides what may be written. It knows nothing of Dagster.

Each package is a room with one purpose; other rooms reach it only through what its `__init__` exports.
"""
