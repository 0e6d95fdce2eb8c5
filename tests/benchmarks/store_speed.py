"""How long reports over a large store take, after opening it.

    python tests/benchmarks/store_speed.py                          1,000,000 records in a temporary folder
    python tests/benchmarks/store_speed.py --folder /big --keep     keeps the store, and takes one that is there
    python tests/benchmarks/store_speed.py --nights 20              a smaller one, to try it out
    python tests/benchmarks/store_speed.py --url postgresql+psycopg://me@host/empty     beside it a copy on a server

The store is what 500 nights of a suite of 200 cells at 10 launches each leave. Every record's
content is that of a real launch of a framework (those of the goldens, with their software, parity
and thread evidence) with other numbers; 2 % of the launches are contended. Each report runs once,
which pays for imports too, and then five times, of which the medians are printed, in a process of
its own. "waiting" is for a CPU that others had: on a quiet machine it is
0. The file is warm in the page cache; MB is the peak of the process's memory.
"""

import math
import multiprocessing
import random
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from dlbench.reports.formats import terminal
from dlbench.reports.matrix import matrix_page
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.record import Record, Run
from dlbench.reports.results.results import Results
from dlbench.reports.results.storage import delivery
from dlbench.reports.results.storage.store import Store

REAL = Path(__file__).parent.parent / "goldens" / "stores" / "cpu.sqlite.xz"
NETWORKS = ("fcn5", "fcn8", "alexnet", "resnet50", "lstm32")
THREADS = (1, 2, 4, 8, 16)
BATCH_SIZES = (16, 64)
REPETITIONS = 5
GOAL_SECONDS = 2.0
FIRST_NIGHT = datetime(2025, 1, 1, 2, 0, tzinfo=UTC)


def build(path: Path, nights: int, launches: int) -> None:
    """Fill a new store."""
    with Store.open(REAL, create=False) as store:
        usable = [
            record
            for record in store.records()
            if record.outcome.threads and record.outcome.contention
        ]
        machines = store.machines()
        runs = {run.id: run for run in store.runs()}
    one_each = {
        (record.cell.framework, record.cell.mode): record for record in usable if record.run in runs
    }
    templates = [
        replace(
            record, cell=record.cell._replace(network=network, batch_size=batch, threads=threads)
        )
        for record in list(one_each.values())[:4]
        for network in NETWORKS
        for batch in BATCH_SIZES
        for threads in THREADS
    ]
    run = replace(
        runs[templates[0].run],
        suite="nightly",
        plan=tuple(template.cell for template in templates),
        launches=launches,
    )
    with Store.open(path) as store:
        store.add_machine(run.machine, machines[run.machine])
        for night in range(nights):
            start = FIRST_NIGHT + timedelta(days=night)
            named = f"{start:%Y%m%dT%H%M%S}-{night:06x}"
            of_night = replace(run, id=named, started=start, finished=start + timedelta(hours=3))
            store.append_runs([(of_night, records_of(of_night, templates, night))])


def records_of(run: Run, templates: list[Record], night: int) -> Iterator[Record]:
    """Yield launches like the templates with other numbers."""
    lot = random.Random(night)
    level, place = math.exp(lot.gauss(0.0, 0.01)), 0
    for launch in range(run.launches):
        for record in lot.sample(templates, len(templates)):
            threads, contended, place = record.cell.threads, lot.random() < 0.02, place + 1
            typical = statistics.median(record.outcome.step_seconds()) / threads**0.5
            seconds = typical * level * math.exp(lot.gauss(0.0, 0.01)) * (1.3 if contended else 1.0)
            samples = [
                int(seconds * math.exp(lot.gauss(0.0, 0.02)) * 1e9)
                for _ in record.outcome.samples_ns
            ]
            wall = sum(samples) * 1e-9
            evidence = record.outcome.threads._replace(
                requested=threads, framework_says=threads, wall_seconds=wall, cpu_seconds=wall * threads,
                cpu_seconds_by_thread=[wall] * threads,
            )  # fmt: skip
            contention = record.outcome.contention._replace(
                run_queue_seconds=0.0, steal_seconds=0.5 * wall if contended else 0.0, pressure_seconds=0.0,
                throttled_seconds=0.0, others_cpu_seconds=0.0,
            )  # fmt: skip
            rate = 1e11 * threads**0.5 * (1 + lot.random() * 0.05)
            outcome = record.outcome._replace(
                samples_ns=samples,
                threads=evidence,
                contention=contention,
                gemm_flops_per_second=rate,
            )
            started = run.started + timedelta(seconds=place)
            yield replace(
                record, run=run.id, suite="nightly", launch=launch, started=started, outcome=outcome
            )


REPORTS: dict[str, Callable[[Store], object]] = {
    "report matrix": lambda store: terminal.page_to_terminal(
        matrix_page(build_matrix(Results.newest([store])))
    ),
    "compare (records of two runs)": lambda store: [
        store.records(run=run.id) for run in store.runs()[-2:]
    ],
    "history (every night of every cell)": lambda store: store.nights(),
    "report runs": lambda store: (store.runs(), store.record_counts()),
}


def _waited_for_a_cpu() -> float:
    return int(Path("/proc/self/schedstat").read_text().split()[1]) * 1e-9


def measure(path: str, name: str, answer: Any) -> None:
    """Time one report in this process.

    For each repetition: seconds of the wall, on a CPU, and waiting for a CPU that others had; then
    the peak memory.
    """
    times = []
    with Store.open(path, create=False) as store:
        for _ in range(REPETITIONS + 1):
            start = time.perf_counter(), time.process_time(), _waited_for_a_cpu()
            REPORTS[name](store)
            end = time.perf_counter(), time.process_time(), _waited_for_a_cpu()
            times.append([after - before for before, after in zip(start, end, strict=True)])
    answer.put((times, _peak_megabytes()))


def _peak_megabytes() -> float:
    # Not ru_maxrss, which a child inherits from the process that started it.
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match[1]) / 1024 if match else math.nan


def copied(path: Path, url: str) -> None:
    """Copy the store to an empty database, as `dlbench store copy` does, and let the server look at
    its tables."""
    wall, cpu = time.perf_counter(), time.process_time()
    with Store.open(path, create=False) as source, Store.open(url) as target:
        _, records = delivery.copy(source, target)
        with target.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(
                "VACUUM ANALYZE"
            )
    print(
        f"{records:,} records copied in {time.perf_counter() - wall:.0f} s, "
        f"{time.process_time() - cpu:.0f} CPU s"
    )


def table_of(path: Path | str) -> Table:
    """Measure every report, each in a process of its own."""
    goal = f"<= {GOAL_SECONDS:g} s"
    table = Table(
        "report",
        "first time",
        "wall s",
        "CPU s",
        "waiting s",
        "wall - waiting",
        goal,
        "MB",
        box=None,
    )
    fresh = multiprocessing.get_context("spawn")
    for name in REPORTS:
        answer = fresh.SimpleQueue()
        child = fresh.Process(target=measure, args=(str(path), name, answer))
        child.start()
        times, memory = answer.get()
        child.join()
        own = [wall - waited for wall, _, waited in times]
        middle = [statistics.median(column) for column in zip(*times[1:], strict=True)]
        ours = statistics.median(own[1:])
        seconds = [own[0], *middle, ours]
        met = "yes" if max(own[0], ours) <= GOAL_SECONDS else "NO"
        table.add_row(name, *(f"{duration:.2f}" for duration in seconds), met, f"{memory:.0f}")
    return table


def main(
    nights: int = 500,
    launches: int = 10,
    folder: Path | None = None,
    url: str = "",
    keep: bool = False,
) -> None:
    """Measure a store of so many nights in this folder (about 4.5 kB a record), and its copy in an
    empty database."""
    chosen_folder, folder = folder, folder or Path(tempfile.mkdtemp(prefix="store-speed-"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"nights-{nights}-launches-{launches}.sqlite"
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        if not path.exists():
            build(path, nights, launches)
            print(
                f"built in {time.perf_counter() - wall:.0f} s, {time.process_time() - cpu:.0f} CPU "
                "s"
            )
        count = sum(Store.open(path, create=False).record_counts().values())
        size = path.stat().st_size
        print(f"{count:,} records, {size / 1e9:.2f} GB, {size / count:.0f} bytes a record")
        Console(width=120).print(table_of(path))
        if url:
            copied(path, url)
            Console(width=120).print(table_of(url))
    finally:
        if not keep:
            path.unlink(missing_ok=True)
            if chosen_folder is None:
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    typer.run(main)
