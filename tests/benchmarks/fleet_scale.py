"""What a fleet of many nodes asks of one PostgreSQL server: simulated with as many records of the null framework.

    python tests/benchmarks/fleet_scale.py --url postgresql+psycopg://me@host/empty            1,000 nodes, 1,000 cells
    python tests/benchmarks/fleet_scale.py --url postgresql+psycopg://me@host/empty --nodes 50 --cells 200

First so many connections at once append records one by one, as jobs do, each for a node of its own; then the rest is
brought as `dlbench store deliver` brings it, a run in one transaction. At the end it asks what `fleet status`, `report
fleet` and `report matrix` ask. Server and writers share this machine: on one of its own the server has more to give.
"""

import argparse
import math
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from dlbench.adapters.protocol import Cell
from dlbench.reports.catalogue import reports
from dlbench.reports.report import ReportOptions, Source
from dlbench.reports.storage.hosts import Node
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.servers import fleets
from dlbench.reports.storage.servers.fleets import Fleet, Job
from dlbench.reports.storage.store import Store

REAL = Path(__file__).parents[2] / "reports/examples/2026-11-23-two-nodes-of-a-cluster/store.sqlite.xz"
FLEET = "fleet"
START = datetime(2026, 11, 1, tzinfo=UTC)
NETWORKS = ("fcn5", "fcn8", "alexnet", "resnet50", "lstm32")


def cells_of(count: int) -> list[Cell]:
    """Return so many cells of the null framework."""
    sizes = math.ceil(count / (len(NETWORKS) * 8))
    found = [
        Cell("null", "null", "spin", network, "cpu", threads, 16 + batch)
        for network in NETWORKS
        for batch in range(sizes)
        for threads in range(1, 9)
    ]
    return found[:count]


@cache
def pattern() -> tuple[Run, Record, dict[str, object]]:
    """Return a real launch of the null framework, its run, and the machine that it ran on."""
    with Store.open(REAL, create=False) as store:
        record = next(each for each in store.records() if each.cell.framework == "null" and each.outcome.samples_ns)
        run, machine = store.run(record.run), store.machine(record.machine)
    assert run is not None
    assert machine is not None
    return run, record, machine


def run_of(number: int, cells: list[Cell]) -> Run:
    """Return the run of a node."""
    node = Node(FLEET, f"n{number:04}")
    like, _, _ = pattern()
    return replace(
        like, id=f"run-{number:04}", suite="fleet", plan=tuple(cells), started=START, finished=None, node=node
    )


def records_of(run: Run, cells: list[Cell]) -> Iterator[Record]:
    """Give the records of a node: one launch of each cell, one node in a hundred 5 % slower than the others."""
    _, like, _ = pattern()
    assert run.node is not None
    generator = random.Random(run.id)
    slow = 1.05 if run.node.name.endswith("42") else 1.0
    for place, cell in enumerate(cells):
        of_launch = slow * math.exp(generator.gauss(0.0, 0.01))
        samples = [int(sample * of_launch) for sample in like.outcome.samples_ns]
        yield replace(
            like,
            run=run.id,
            suite=run.suite,
            cell=cell,
            launch=0,
            outcome=like.outcome._replace(samples_ns=samples),
            started=START + timedelta(seconds=15 * place),
            node=run.node,
        )


def append_one_by_one(url: str, number: int, count: int, seconds: float) -> list[float]:
    """Append a node's records as its job does; return how long each took."""
    cells = cells_of(count)
    run = run_of(number, cells)
    took: list[float] = []
    with Store.open(url) as store:
        store.begin_run(run)
        begun = time.monotonic()
        for record in records_of(run, cells):
            before = time.monotonic()
            if before - begun > seconds:
                break
            store.append(record)
            took.append(time.monotonic() - before)
    return took


def deliver(url: str, numbers: range, count: int) -> None:
    """Bring the runs of these nodes, each in one transaction."""
    cells = cells_of(count)
    with Store.open(url) as store:
        for number in numbers:
            run = replace(run_of(number, cells), finished=START + timedelta(hours=5))
            store.append_runs([(run, records_of(run, cells))])


def timed(what: Callable[[], object], times: int = 3) -> float:
    """Return the median seconds of a call."""
    took = []
    for _ in range(times):
        before = time.monotonic()
        what()
        took.append(time.monotonic() - before)
    return statistics.median(took)


def ask_status(store: Store) -> None:
    """Ask what `fleet status` asks of the store."""
    runs = [job.run for job in fleets.jobs(store, FLEET) if job.run]
    fleets.launches(store, runs)
    fleets.finished(store, runs)


def ask_report(url: str, name: str) -> str:
    """Make a report as its command does."""
    with Store.open(url, create=False) as store:
        counts = store.record_counts()
        source = Source(
            lambda: Results.newest([store]),
            lambda: [(run, counts.get(run.id, 0)) for run in store.runs()],
            of_run=lambda run: Results.of([store], run),
            sentinels=store.sentinels,
        )
        report = reports()[name]
        found = report.analyse(source)
    return str(report.page(found, ReportOptions()))


def main() -> None:
    """Simulate, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="an empty database")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--connections", default="1,8,32", help="writers at once (1,8,32)")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each number of writers appends")
    parser.add_argument("--reports", default="fleet,matrix", help="which reports are made at the end")
    given = parser.parse_args()
    _, record, machine = pattern()
    shown = Table(title=f"{given.nodes} nodes, {given.cells} cells each", title_justify="left", box=None)
    for name in ("what", "figure"):
        shown.add_column(name)
    with Store.open(given.url) as store:
        store.add_machine(record.machine, machine)
        fleets.begin(store, Fleet(FLEET, "fleet", (), "script", "", "", START))
        for number in range(given.nodes):
            fleets.add_job(store, FLEET, Job(number + 1, f"n{number:04}"))
            fleets.note(store, FLEET, number + 1, run=f"run-{number:04}")
        beat = timed(lambda: fleets.beat(store, FLEET, 1), 101)
    shown.add_row("a heartbeat", f"{beat * 1e3:.1f} ms")
    used = 0
    for writers in map(int, given.connections.split(",")):
        with multiprocessing.get_context("spawn").Pool(writers) as pool:
            wanted = [(given.url, used + each, given.cells, given.seconds) for each in range(writers)]
            of_each = pool.starmap(append_one_by_one, wanted)
        used += writers
        rate = sum(len(took) / sum(took) for took in of_each)
        median = statistics.median(each for took in of_each for each in took)
        figure = f"{rate:.0f} records/s, {median * 1e3:.1f} ms each"
        shown.add_row(f"one record at a time, {writers} at once", figure)
    begun = time.monotonic()
    deliver(given.url, range(used, given.nodes), given.cells)
    rate = (given.nodes - used) * given.cells / (time.monotonic() - begun)
    shown.add_row("runs delivered whole, by one writer", f"{rate:.0f} records/s")
    with Store.open(given.url, create=False) as store:
        with store.engine.connect() as connection:
            size = connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one()
            count = connection.execute(sa.text("SELECT count(*) FROM records")).scalar_one()
        shown.add_row("database", f"{size / 1e9:.2f} GB, {count:,} records, {size / count:.0f} bytes each")
        shown.add_row("fleet status", f"{timed(partial(ask_status, store)):.2f} s")
    for name in given.reports.split(","):
        shown.add_row(f"report {name}", f"{timed(partial(ask_report, given.url, name), 1):.1f} s")
    Console().print(shown)


if __name__ == "__main__":
    main()
