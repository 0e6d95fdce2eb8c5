"""How long reports over a large store take, after opening it.

    python tests/benchmarks/store_speed.py                          1,000,000 records in a temporary folder
    python tests/benchmarks/store_speed.py --folder /big --keep     keeps the store, and takes one that is there
    python tests/benchmarks/store_speed.py --nights 20              a smaller one, to try it out
    python tests/benchmarks/store_speed.py --url postgresql+psycopg://me@host/empty     beside it a copy on a server

The store is what 500 nights of a suite of 200 cells at 10 launches each leave. Every record's content is that of a
real launch of a framework (those of the goldens, with their software, parity and thread evidence) with other
numbers; 2 % of the launches are contended. Each report runs once, which pays for imports too, and then five times, of
which the medians are printed, in a process of its own. "waiting" is for a CPU that others had: on a quiet machine it is
0. The file is warm in the page cache; MB is the peak of the process's memory.
"""

import argparse
import json
import math
import multiprocessing
import random
import re
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dlbench.adapters.protocol import to_dict
from dlbench.reports.cells import build_matrix
from dlbench.reports.formats import terminal
from dlbench.reports.matrix import matrix_page
from dlbench.reports.storage import delivery, schema
from dlbench.reports.storage.hosts import read_host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.store import Store, to_row

REAL = Path(__file__).parent.parent / "goldens" / "stores" / "cpu.sqlite.xz"
NETWORKS = ("fcn5", "fcn8", "alexnet", "resnet50", "lstm32")
THREADS = (1, 2, 4, 8, 16)
BATCH_SIZES = (16, 64)
REPETITIONS = 5
GOAL_SECONDS = 2.0
FIRST_NIGHT = datetime(2025, 1, 1, 2, 0, tzinfo=UTC)


def build(path: Path, nights: int, launches: int) -> None:
    """Fill a new store; the light columns are checked against what `derived` makes of a sample of the contents."""
    with Store.open(REAL, create=False) as store:
        every = [record for record in store.records() if record.outcome.threads and record.outcome.contention]
        machines = store.machines()
        known = {run.id: run for run in store.runs()}
    one_each = {(record.cell.framework, record.cell.mode): record for record in every if record.run in known}
    real = list(one_each.values())[:4]
    run = known[real[0].run]
    machine = real[0].machine
    kinds = [(record, network, batch) for record in real for network in NETWORKS for batch in BATCH_SIZES]
    templates = [
        (cell, record, record.outcome.step_seconds())
        for record, network, batch in kinds
        for cell in (record.cell._replace(network=network, batch_size=batch, threads=p) for p in THREADS)
    ]
    plan = tuple(cell for cell, _, _ in templates)
    with Store.open(path) as store:
        store.add_machine(machine, machines[machine])
        for night in range(nights):
            start = FIRST_NIGHT + timedelta(days=night)
            store.begin_run(
                replace(run, id=f"{start:%Y%m%dT%H%M%S}-{night:06x}", suite="nightly", plan=plan, launches=launches,
                        started=start, finished=start + timedelta(hours=3))
            )  # fmt: skip
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA cache_size=-500000")
    names = [column.name for column in schema.records.columns if column.name != "id"]
    marks = ", ".join(f":{name}" for name in names)
    for night in range(nights):
        rows = _night(templates, machine, night, launches)
        connection.executemany(f"INSERT INTO records ({', '.join(names)}) VALUES ({marks})", rows)
        connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    check(path)


def _night(templates: list[Any], machine: str, night: int, launches: int) -> Iterator[dict[str, Any]]:
    generator = random.Random(night)
    start = FIRST_NIGHT + timedelta(days=night)
    of_night = math.exp(generator.gauss(0.0, 0.01))
    second = 0.0
    prepared = [
        (cell, record, record.to_dict(), to_dict(cell), statistics.median(seconds) / cell.threads**0.5)
        for cell, record, seconds in templates
    ]
    keys = {cell: schema.cell_key(machine, cell) for cell, _, _ in templates}
    for launch in range(launches):
        generator.shuffle(prepared)
        for cell, record, content, of_cell, typical in prepared:
            second += 1.0
            contended = generator.random() < 0.02
            of_launch = typical * of_night * math.exp(generator.gauss(0.0, 0.01)) * (1.3 if contended else 1.0)
            samples = [int(of_launch * math.exp(generator.gauss(0.0, 0.02)) * 1e9) for _ in record.outcome.samples_ns]
            wall = sum(samples) * 1e-9
            threads, started = cell.threads, (start + timedelta(seconds=second)).isoformat(timespec="microseconds")
            outcome = content["outcome"]
            outcome["samples_ns"] = samples
            outcome["threads"].update(
                requested=threads, framework_says=threads, wall_seconds=wall, cpu_seconds=wall * threads,
                cpu_seconds_by_thread=[wall] * threads,
            )  # fmt: skip
            outcome["contention"].update(run_queue_seconds=0.0, steal_seconds=0.5 * wall if contended else 0.0)
            outcome["contention"].update(pressure_seconds=0.0, throttled_seconds=0.0, others_cpu_seconds=0.0)
            outcome["gemm_flops_per_second"] = rate = 1e11 * threads**0.5 * (1 + generator.random() * 0.05)
            content.update(
                run=f"{start:%Y%m%dT%H%M%S}-{night:06x}",
                suite="nightly",
                launch=launch,
                cell=of_cell,
                started=started,
                machine=machine,
            )
            yield {
                "run": content["run"],
                "suite": "nightly",
                "machine": machine,
                "launch": launch,
                "status": "ok",
                "environment": record.environment,
                "started": started,
                "wall_seconds": record.wall_seconds,
                "content": json.dumps(content, separators=(",", ":")),
                "attempt": 0,
                "side": "",
                "stage": "",
                "cell": keys[cell],
                "seconds": statistics.median([sample * 1e-9 for sample in samples]),
                "contended": int(contended) if wall >= 0.2 else None,
                "product_rate": rate,
            }


def check(path: Path) -> None:
    """Compare the columns of a sample with what the store would have derived from the contents."""
    with Store.open(path, create=False) as store:
        hosts = {name: read_host(name, described) for name, described in store.machines().items()}
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    (most,) = connection.execute("SELECT MAX(id) FROM records").fetchone()
    for number in random.Random(0).sample(range(1, most + 1), 300):
        row = dict(connection.execute("SELECT * FROM records WHERE id = ?", (number,)).fetchone())
        record = Record.from_dict(json.loads(row["content"]))
        for name, value in to_row(record, hosts.get(record.machine)).items():
            if name == "content":
                continue
            same = math.isclose(row[name], value) if isinstance(value, float) else row[name] == value
            assert same, (number, name, row[name], value)
    connection.close()


def report_matrix(store: Store, _: list[str]) -> str:
    return terminal.page_to_terminal(matrix_page(build_matrix(Results.newest([store]))))


def report_compare(store: Store, runs: list[str]) -> int:
    return sum(len(store.records(run=run)) for run in runs[-2:])


def report_history(store: Store, _: list[str]) -> int:
    return len(store.nights())


def report_runs(store: Store, _: list[str]) -> int:
    counts = store.record_counts()
    return sum(counts.get(run.id, 0) for run in store.runs())


REPORTS: dict[str, Callable[[Store, list[str]], object]] = {
    "report matrix": report_matrix,
    "compare (records of two runs)": report_compare,
    "history (every night of every cell)": report_history,
    "report runs": report_runs,
}


def _waited_for_a_cpu() -> float:
    return int(Path("/proc/self/schedstat").read_text().split()[1]) * 1e-9


def measure(path: str, name: str, answer: Any) -> None:
    """Time one report in this process.

    For each repetition: seconds of the wall, on a CPU, and waiting for a CPU that others had; then the peak memory.
    """
    times = []
    with Store.open(path, create=False) as store:
        runs = [run.id for run in store.runs()]
        for _ in range(REPETITIONS + 1):
            start = time.perf_counter(), time.process_time(), _waited_for_a_cpu()
            REPORTS[name](store, runs)
            end = time.perf_counter(), time.process_time(), _waited_for_a_cpu()
            times.append([after - before for before, after in zip(start, end, strict=True)])
    answer.put((times, _peak_megabytes()))


def _peak_megabytes() -> float:
    # Not ru_maxrss, which a child inherits from the process that started it.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else math.nan


def copied(path: Path, url: str) -> None:
    """Copy the store to an empty database, as `dlbench store copy` does, and let the server look at its tables."""
    wall, cpu = time.perf_counter(), time.process_time()
    with Store.open(path, create=False) as source, Store.open(url) as target:
        added = delivery.copy(source, target)
        with target.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE")
    print(
        f"{added.records:,} records copied in {time.perf_counter() - wall:.0f} s, {time.process_time() - cpu:.0f} CPU s"
    )


def table_of(path: Path | str) -> Table:
    """Measure every report, each in a process of its own."""
    goal = f"<= {GOAL_SECONDS:g} s"
    table = Table("report", "first time", "wall s", "CPU s", "waiting s", "wall - waiting", goal, "MB", box=None)
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
        table.add_row(name, *(f"{each:.2f}" for each in seconds), met, f"{memory:.0f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=500)
    parser.add_argument("--launches", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="where the store goes: about 4.5 kB a record")
    parser.add_argument("--url", help="measure a copy in this empty database too")
    parser.add_argument("--keep", action="store_true", help="leave the store there")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="store-speed-"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"nights-{asked.nights}-launches-{asked.launches}.sqlite"
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        if not path.exists():
            build(path, asked.nights, asked.launches)
            print(f"built in {time.perf_counter() - wall:.0f} s, {time.process_time() - cpu:.0f} CPU s")
        count = sum(Store.open(path, create=False).record_counts().values())
        size = path.stat().st_size
        print(f"{count:,} records, {size / 1e9:.2f} GB, {size / count:.0f} bytes a record")
        Console(width=120).print(table_of(path))
        if asked.url:
            copied(path, asked.url)
            Console(width=120).print(table_of(asked.url))
    finally:
        if not asked.keep:
            path.unlink(missing_ok=True)
            if asked.folder is None:
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
