"""Collect launches of cheap cells of real frameworks: identical ones, and ones with 2, 5 and 10 % real extra work.

    python tests/benchmarks/collect_corpus.py corpus.jsonl --minutes 60

Appends one line of JSON for each launch, so that it can be ended at any time and gone on with. A block holds, shuffled,
for each framework one launch each of `a` and `b` (the same code) and of `plus5`; every third block of `plus2` and
`plus10` too. The extra work is a fixed number of products, settled once by calibration and kept in the first line.
"""

import argparse
import json
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from dlbench.adapters.networks import to_data
from dlbench.adapters.protocol import Cell, Launch, Outcome, Protocol, Status, to_dict
from dlbench.suites.environments import environment, folders
from dlbench.suites.planning import framework
from dlbench.suites.planning.networks import shipped
from dlbench.suites.run.launcher import Launched, LaunchRequest, ProcessLauncher

NETWORK, BATCH, THREADS = "lstm32", 4, 1
ORDER = 128
PROTOCOL = Protocol(warmup_steps=4, steps=15, minimum_steps=15, seconds=10.0)
KEPT = ("status", "import_seconds", "prepare_seconds", "first_step_seconds", "warmup_ns", "samples_ns", "threads")


def launch(name: str, products: int) -> Launched:
    """Launch the cheap cell of a framework with so many extra products a step."""
    found = framework.find(name)
    mode = next(iter(found.modes))
    interpreter = environment.locate(found).interpreter
    if interpreter is None:
        raise SystemExit(f"{name}: build its environment first")
    cell = Cell(name, found.folder, mode, NETWORK, "cpu", THREADS, BATCH)
    cache = folders.make_folder(folders.cache_directory(found))
    variables = found.launch_variables(mode, THREADS)
    if products:
        variables["DLBENCH_EXTRA_PRODUCTS"] = f"{products}x{ORDER}"
    order = LaunchRequest(
        Launch(cell, PROTOCOL, found.launch_settings(mode), str(cache), network=to_data(shipped()[cell.network])),
        interpreter,
        variables,
        120,
    )
    return ProcessLauncher().launch(order)


def step(outcome: Outcome) -> float:
    """Return the median step in seconds."""
    if outcome.status is not Status.OK:
        raise SystemExit(f"a launch failed: {outcome.reason}")
    return median(outcome.samples_ns) * 1e-9


def calibrate(name: str) -> dict[str, int]:
    """Return how many products make a step 2, 5 and 10 % longer, from three launches of each kind."""
    plain = median(step(launch(name, 0).outcome) for _ in range(3))
    heavy = median(step(launch(name, 100).outcome) for _ in range(3))
    each = (heavy - plain) / 100
    return {f"plus{percent}": max(1, round(percent / 100 * plain / each)) for percent in (2, 5, 10)}


def main() -> None:
    """Collect until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--frameworks", default="torch,onnxruntime,mxnet,tensorflow")
    arguments = parser.parse_args()
    names = arguments.frameworks.split(",")
    if arguments.file.exists():
        lines = arguments.file.read_text().splitlines()
        products = json.loads(lines[0])["products"]
        block = json.loads(lines[-1]).get("block", -1) + 1
    else:
        products = {name: calibrate(name) for name in names}
        what = {"network": NETWORK, "batch_size": BATCH, "threads": THREADS, "order": ORDER, "products": products}
        arguments.file.write_text(json.dumps(what) + "\n")
        block = 0
    end = time.monotonic() + 60 * arguments.minutes
    while time.monotonic() < end:
        labels = ["a", "b", "plus5"] + (["plus2", "plus10"] if block % 3 == 0 else [])
        order = [(name, label) for name in names for label in labels]
        random.Random(block).shuffle(order)
        for name, label in order:
            started = datetime.now(UTC).isoformat(timespec="milliseconds")
            done = launch(name, products[name].get(label, 0))
            outcome = to_dict(done.outcome)
            line = {"framework": name, "label": label, "block": block, "started": started}
            line["wall_seconds"] = round(done.wall_seconds, 3)
            line.update({key: outcome[key] for key in KEPT}, contention=outcome["contention"])
            with arguments.file.open("a") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
        block += 1


if __name__ == "__main__":
    main()
