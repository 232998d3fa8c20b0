"""What a tick of the outcome scan costs, and how that stands to the number of jobs whose outcome has been recorded before.

Everything runs on a durable embedded server of its own, in one run of this script; no mail is sent. Figures hold for one machine;
ratios travel.

    python benchmarks/outcome_scan.py [--most JOBS]      default: histories up to a million jobs
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scribe_pipeline.database import EmbeddedServer, connect, upgrade
from scribe_pipeline.outcomes import FAMILIES, Mailer, Policy, scan_outcomes, send_digests
from tests.endings import FLYERS
from tests.history import add_history
from tests.houses import House

HISTORIES = (10_000, 100_000, 1_000_000)
TICKS, ROWS_A_TICK = 40, 25
# With no room for notices all failures wait for the digest, and with nobody to tell it is not sent.
POLICIES = dict.fromkeys(FAMILIES.values(), Policy(enabled=True, recipient="admin@example.org", lookback_hours=24, max_per_hour=0))
NOBODY = Mailer(None, None, "scribe@example.org")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=HISTORIES[-1], help="the longest history")
    most = parser.parse_args().most
    with tempfile.TemporaryDirectory(prefix="scribe-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        server = EmbeddedServer(home / "postgres")
        server.start()
        try:
            tick_cost(server, home, [size for size in HISTORIES if size <= most])
        finally:
            server.stop()


def tick_cost(server: EmbeddedServer, home: Path, histories: Sequence[int]) -> None:
    """Print what ticks cost after each history, each in a database of its own and measured in turns, and the ratios.

    An idle tick finds nothing, a full one records 25 failures; all that these leave to the digest is claimed for one and released.
    """
    houses = {history: a_house(server, home, history) for history in histories}
    works: dict[str, Callable[[House], Any]] = {
        "idle tick": lambda house: scan_outcomes(house.engine, POLICIES, NOBODY),
        "tick of 25 failures": lambda house: scan_outcomes(house.engine, POLICIES, NOBODY),
        "digest": lambda house: send_digests(house.engine, POLICIES, NOBODY),
    }
    for name, work in works.items():
        samples: dict[int, list[float]] = {history: [] for history in histories}
        for _ in range(TICKS):
            for history, house in houses.items():
                if name.endswith("failures"):
                    fail(house)
                samples[history].append(timed(partial(work, house)))
        cost = {history: statistics.median(times) for history, times in samples.items()}
        for history in histories:
            ratio = cost[history] / cost[histories[0]]
            print(f"{name:<20} after {history:>9,} jobs {cost[history] * 1000:8.2f} ms median of {TICKS}: {ratio:.2f}")
    for house in houses.values():
        house.engine.dispose()


def a_house(server: EmbeddedServer, home: Path, history: int) -> House:
    """A migrated database with so many jobs that are recorded, half of either family, both scanned for a long time."""
    name = f"history_{history}"
    server.ensure_database(name)
    house = House(connect(server.url(name)), home / "blobs")
    upgrade(house.engine)
    for family in FAMILIES.values():
        add_history(house, family, history // 2)
        house.execute("INSERT INTO outcome_activations VALUES (:family, clock_timestamp() - interval '9 days')", family=family.name)
    return house


def fail(house: House) -> None:
    """Let as many tagging jobs as a tick records have failed, each of a file that has had others."""
    house.execute(
        f"""INSERT INTO {FLYERS.name} (file_id, status, error, created_at, updated_at)
            SELECT md5(n::text)::uuid, 'failed', 'worker lost', clock_timestamp() - interval '1 hour',
                   clock_timestamp() - interval '5 minutes'
            FROM generate_series(1, :count) AS n""",
        count=ROWS_A_TICK,
    )


def timed(work: Callable[[], Any]) -> float:
    """Return how many seconds the work took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
