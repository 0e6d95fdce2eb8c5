"""How long the report page of a large store takes to make, and how large it is.

    python tests/benchmarks/page_speed.py                            4 machines x 2,000 cells, one launch each
    python tests/benchmarks/page_speed.py --cells 288 --launches 3   a whole table4
    python tests/benchmarks/page_speed.py --out page.html            keeps the page, to try it in a browser

Every record is a real launch of the committed examples, as another network's.
"""

import argparse
import random
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dlbench.reports.page.document import Document
from dlbench.reports.page.render import page_to_file_text
from dlbench.reports.storage.results import Results

EXAMPLE = Path(__file__).parents[2] / "reports" / "examples" / "2026-11-23-what-tuning-is-worth" / "store.sqlite.xz"
THREADS = (1, 2, 4, 8)


def results(machines: int, cells: int, launches: int) -> Results:
    """Return so many launches of so many cells of so many machines, with numbers that differ."""
    real = Results.read([EXAMPLE])
    ((_, host),) = real.hosts.items()
    one_each = {record.cell: record for record in real.records if record.outcome.samples_ns}
    numbers = random.Random(0)
    records = []
    for machine in range(machines):
        for number in range(cells):
            record = list(one_each.values())[number % len(one_each)]
            round_, threads = divmod(number // len(one_each), len(THREADS))
            cell = record.cell._replace(threads=THREADS[threads], batch_size=16 * 2**round_)
            for launch in range(launches):
                factor = numbers.lognormvariate(0, 0.2)
                outcome = record.outcome._replace(samples_ns=[round(ns * factor) for ns in record.outcome.samples_ns])
                records.append(replace(record, machine=f"m{machine}", cell=cell, outcome=outcome, launch=launch))
    hosts = {f"m{each}": replace(host, fingerprint=f"m{each}", name=f"Machine {each}") for each in range(machines)}
    return Results(tuple(records), hosts)


def main() -> None:
    """Make a page and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--launches", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = results(given.machines, given.cells, given.launches)
    started = time.perf_counter()
    text = page_to_file_text(Document("A large store", found, datetime.now(UTC), "0"))
    seconds = time.perf_counter() - started
    print(f"{len(found.records)} launches: {seconds:.1f} s, {len(text.encode()) / 1e6:.2f} MB")
    if given.out:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
