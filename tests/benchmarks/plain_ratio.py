"""Is an adapter's step as fast as a plain hand-written script of the same network in the same framework?

    .venv/bin/python tests/benchmarks/plain_ratio.py --frameworks torch --networks fcn5,lstm32 --rounds 5

For each cell, launches of the adapter and of the script of its name in tests/benchmarks/plain alternate in random
order within a pair, with the same interpreter and environment variables: the adapter tuned, the script as a good
author writes it. On the CPU both are bound to as many CPUs as threads. Printed: the geometric mean of the pairs'
ratios of medians (adapter / plain) with Student's 95 % interval over the pairs, or why there is none. Goal: at most
1.02. Nothing else should run. Where the machine has neighbours, a launch of short steps may fall into a slow time as
a whole:
`--quantile 0.1`
compares the samples that a tenth of a launch's are faster than, instead of the medians.

The scripts train fcn5, fcn8, lstm32 and lstm64, PyTorch's alexnet and resnet50 too.

On a GPU, where PyTorch alone has a plain script: `--frameworks torch:eager,torch:compile --device cuda:0`, with
DLBENCH_PYTHON_TORCH naming a build that drives it.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from dlbench.adapters.networks import Network, to_data
from dlbench.adapters.protocol import BOUND, OVERSUBSCRIBED, Cell, Launch, Protocol
from dlbench.adapters.tuning import in_force
from dlbench.hardware_probe.cpu import bound_mask, probe_cpu
from dlbench.suites.environments import environment, folders
from dlbench.suites.planning import suite, values
from dlbench.suites.planning.framework import Framework, find, modes_meant, offered
from dlbench.suites.run.launcher import LaunchRequest, guest_environment, launch_process

PLAIN = Path(__file__).resolve().parent / "plain"
GOAL = 1.02


class NoSamplesError(Exception):
    """One side timed nothing; the text is the reason."""


class Trained(NamedTuple):
    """What both sides train, and with what."""

    cell: Cell
    network: Network
    interpreter: Path
    settings: dict[str, Any]
    variables: dict[str, str]
    cpus: list[int] | None
    cache: Path  # the adapter's
    compiled: Path  # where the plain scripts' frameworks keep what they compile
    steps: int


def trained(framework: Framework, cell: Cell, network: Network, compiled: Path, steps: int) -> Trained:
    """Return the cell with the settings and variables that its tuning chooses, and its CPUs."""
    given = os.environ.get(f"DLBENCH_PYTHON_{framework.name.upper()}")
    interpreter = Path(given) if given else environment.locate(framework).interpreter
    if interpreter is None or (framework.name not in offered() and not given):
        raise NoSamplesError(environment.locate(framework).reason)
    chosen = in_force(cell.tuning, framework.tunable(cell.mode, cell.device, network.family.name))
    cpus = bound_mask(probe_cpu(), cell.threads) if cell.affinity == BOUND else None
    if cell.affinity == BOUND and cpus is None:
        raise NoSamplesError(f"{cell.threads} threads cannot be bound to as many CPUs here")
    return Trained(
        cell,
        network,
        interpreter,
        framework.launch_settings(cell.mode, chosen),
        framework.launch_variables(cell.mode, cell.threads, interpreter.parent.parent, chosen),
        None if cpus is None else list(cpus),
        folders.make_folder(folders.cache_directory(framework)),
        folders.make_folder(compiled / framework.name),
        steps,
    )


def adapter_samples(what: Trained) -> list[int]:
    """Return the nanoseconds of each step of a launch of the adapter."""
    protocol = Protocol(3, what.steps, what.steps, 0.0)
    network = to_data(what.network)
    launch = Launch(what.cell, protocol, what.settings, str(what.cache), cpus=what.cpus, network=network)
    outcome = launch_process(LaunchRequest(launch, what.interpreter, what.variables, 900.0)).outcome
    if not outcome.samples_ns:
        raise NoSamplesError(f"adapter: {outcome.status.value}: {outcome.reason}")
    return outcome.samples_ns


def plain_samples(what: Trained) -> list[int]:
    """Return the nanoseconds of each step of a launch of the plain script."""
    cell = what.cell
    script = PLAIN / f"{cell.adapter}.py"
    if not script.exists():
        raise NoSamplesError(f"plain script: there is none of {cell.adapter}")
    # Kernels of other compilers, and the user's own, are in neither folder.
    kept = {"TMPDIR": str(what.compiled), "XDG_CACHE_HOME": str(what.compiled)}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "samples.json"
        words = [cell.network, cell.batch_size, cell.threads, cell.mode, what.steps, answer]
        words += [] if cell.on_cpu else [cell.device]
        with bound(what.cpus):
            done = subprocess.run(
                [what.interpreter, "-I", script, *map(str, words)],
                env=guest_environment({**what.variables, **kept}),
                cwd=folder,
                capture_output=True,
                text=True,
            )
        if done.returncode:
            print(done.stderr, file=sys.stderr, flush=True)
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise NoSamplesError(f"plain script: {last}")
        samples: list[int] = json.loads(answer.read_text())["samples_ns"]
        return samples


@contextlib.contextmanager
def bound(cpus: list[int] | None) -> Iterator[None]:
    """Bind this thread, and so what it starts, to these CPUs meanwhile; None: to no others than before."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if cpus is None else cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def compared(what: Trained, rounds: int, quantile: float) -> tuple[str, str, str, str]:
    """Return ratio, interval, number of pairs and verdict of so many pairs of launches."""
    logs = []
    for _ in range(rounds):
        measures = [("adapter", adapter_samples), ("plain", plain_samples)]
        random.shuffle(measures)
        seconds = {who: np.quantile(measure(what), quantile) for who, measure in measures}
        logs.append(np.log(seconds["adapter"] / seconds["plain"]))
    ratio = float(np.exp(np.mean(logs)))
    half = float(stats.sem(logs) * stats.t.ppf(0.975, len(logs) - 1)) if len(logs) > 1 else float("nan")
    low, high = ratio * np.exp(-half), ratio * np.exp(half)
    verdict = "ok" if ratio <= GOAL else ("undecided" if low <= GOAL else "SLOWER")
    return f"{ratio:.3f}", f"{low:.3f} - {high:.3f}", str(len(logs)), verdict


def cells(arguments: argparse.Namespace) -> Iterator[tuple[Framework, str, str]]:
    """Yield framework, mode and network of each cell."""
    for word in values.words(arguments.frameworks):
        name, _, mode_wanted = word.partition(":")
        framework = find(name)
        for mode in modes_meant(framework, mode_wanted):
            for network in values.words(arguments.networks):
                yield framework, mode, network


def main() -> None:
    """Measure pair by pair and print one row per cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", default="torch:*,tensorflow:*,mxnet,onnxruntime")
    parser.add_argument("--networks", default="fcn5,alexnet,lstm32,resnet50")
    parser.add_argument("--suite", default="table4", help="the suite whose networks these are")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5, help="pairs per cell")
    parser.add_argument("--steps", type=int, default=10, help="timed steps per launch")
    parser.add_argument("--quantile", type=float, default=0.5, help="of a launch's steps, which is compared")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--batch-size", type=int, help="examples per mini-batch (default: the paper's)")
    arguments = parser.parse_args()
    known = suite.load(arguments.suite).known
    affinity = BOUND if arguments.device == "cpu" and arguments.threads else OVERSUBSCRIBED
    table = Table(title="adapter / plain script", box=None, pad_edge=False)
    for name in ("network", "framework", "mode", "ratio", "95 % interval", "pairs", "verdict"):
        table.add_column(name)
    try:
        with tempfile.TemporaryDirectory() as compiled:
            for framework, mode, network in cells(arguments):
                batch = arguments.batch_size or known[network].batch_size
                named = (framework.name, framework.folder, mode, network, arguments.device, arguments.threads, batch)
                cell = Cell(*named, affinity=affinity)
                try:
                    what = trained(framework, cell, known[network], Path(compiled), arguments.steps)
                    found = compared(what, arguments.rounds, arguments.quantile)
                except NoSamplesError as error:
                    found = ("-", "-", "0", str(error))
                row = (network, framework.name, mode, *found)
                print(*row, flush=True)
                table.add_row(*row)
    finally:
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
