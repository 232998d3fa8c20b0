"""The queue against a model of it: thousands of random operations in a row, each of them on real PostgreSQL."""

import multiprocessing
import random
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import create_engine, text

from scribe_pipeline.database import EmbeddedServer, sqlalchemy_url
from tests.conftest import fresh_database
from tests.houses import House
from tests.proofs import seeded, size_of, tell
from tests.queue_machine import QueueMachine
from tests.queue_walk import WORKSPACES

STEPS_A_WALK = 50
PROCESSES = 2
WALKS = settings(
    stateful_step_count=STEPS_A_WALK,
    phases=(Phase.generate,),  # to shrink what fails would take minutes; it is no longer than a walk
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.proof
def test_the_queue_does_what_its_model_does(server: EmbeddedServer) -> None:
    """R1-R6, R10, R13, R27, R94-R96: every operation answers as the model does, and after each all rows are as in the model."""
    numbers = seeded("model_steps")
    steps = size_of("model_steps") // PROCESSES
    done: Counter[str] = Counter()
    with ExitStack() as stack:
        urls = [stack.enter_context(fresh_database(server)) for _ in range(PROCESSES)]
        pool = stack.enter_context(ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")))
        for part in [pool.submit(walk, url, numbers.randrange(2**32), steps) for url in urls]:
            done += part.result()
    assert done["steps"] >= steps * PROCESSES
    tell(f"model_steps: {done.pop('steps'):,} steps; " + ", ".join(f"{count:,} {what}" for what, count in done.most_common()))


def walk(url: str, number: int, steps: int) -> Counter[str]:
    """Go random ways until so many steps are done, each from an empty queue; return how often what was done."""
    done: Counter[str] = Counter()
    engine = create_engine(sqlalchemy_url(url), hide_parameters=True)
    with tempfile.TemporaryDirectory() as blobs, psycopg.connect(url, autocommit=True) as watch:
        house = House(engine, Path(blobs))
        with engine.begin() as connection:
            for place, name in enumerate(WORKSPACES[1:], 1):  # the same turns whenever the seed is the same
                values = {"id": UUID(int=place), "name": name}
                connection.execute(text("INSERT INTO workspaces (id, name) VALUES (:id, :name)"), values)
        numbers = random.Random(number)
        while done["steps"] < steps:
            # a way that leads to where nothing can be done ends there, so that more of them may be needed
            ways = settings(max_examples=-(-(steps - done["steps"]) // STEPS_A_WALK), parent=WALKS)
            run_state_machine_as_test(seed(numbers.randrange(2**32))(partial(QueueMachine, house, watch, done)), settings=ways)
    engine.dispose()
    return done
