"""Is an adapter's step as fast as a plain hand-written script of the same network in the same
framework?

    .venv/bin/python tests/benchmarks/plain_ratio.py --frameworks torch --networks fcn5,lstm32 --rounds 5

For each cell, launches of the adapter and of the script of its name in tests/benchmarks/plain
alternate in random order within a pair, with the same interpreter and environment variables: the
adapter tuned, the script as a good author writes it. On the CPU both are bound to as many CPUs as
threads. Printed: the geometric mean of the pairs' ratios of medians (adapter / plain) with
Student's 95 % interval over the pairs, or why there is none. Goal: at most 1.02. Nothing else
should run. Where the machine has neighbours, a launch of short steps may fall into a slow time as a
whole: `--quantile 0.1` compares the samples that a tenth of a launch's are faster than, instead of
the medians.

The scripts train fcn5, fcn8, lstm32 and lstm64, PyTorch's alexnet and resnet50 too, and PyTorch's
and JAX's sample: `--suite sampling --networks bm-d1024-bipartite,bm-d256-sequential --frameworks
torch,jax`. PyTorch's also trains spiking networks, loads mini-batches, and trains two workers that
exchange rarely (`--frameworks torch:eager`):

    --suite spiking --networks lif-r100-t50-i100-o10
    --suite feed --networks pictures --axes placement=loader,loader_workers=1
    --suite sync --networks mlp --axes world_size=2,sync=local:4        and sync=async

On a GPU, where PyTorch alone has a plain script: `--frameworks torch:eager,torch:compile --device
cuda:0`, with DLBENCH_PYTHON_TORCH naming a build that drives it.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from scipy import stats

from dlbench.adapters.networks import Network, to_data
from dlbench.adapters.protocol import BOUND, FED, OVERSUBSCRIBED, Cell, Launch, Protocol
from dlbench.adapters.tuning import in_force
from dlbench.hardware_probe.cpu import bound_mask, probe_cpu
from dlbench.suites.environments import environment, folders
from dlbench.suites.planning import values
from dlbench.suites.planning.framework import Framework, find, modes_meant, offered
from dlbench.suites.planning.suite import load
from dlbench.suites.run import launch_files
from dlbench.suites.run.launcher import LaunchRequest, guest_environment, launch_process

YARDSTICK = Path(__file__).resolve().parent / "plain" / "yardstick.py"
GOAL = 1.02


class NoSamplesError(Exception):
    """One side timed nothing; the text is the reason."""


def order_of(framework: Framework, cell: Cell, network: Network, steps: int) -> LaunchRequest:
    """Return a launch of the cell with the settings and variables that its tuning chooses, on its
    CPUs."""
    interpreter_of_variable = os.environ.get(f"DLBENCH_PYTHON_{framework.name.upper()}")
    interpreter = (
        Path(interpreter_of_variable)
        if interpreter_of_variable
        else environment.locate(framework).interpreter
    )
    if interpreter is None or (framework.name not in offered() and not interpreter_of_variable):
        raise NoSamplesError(environment.locate(framework).reason)
    chosen = in_force(cell.tuning, framework.tunable(cell.mode, cell.device, network.family.name))
    cpus = bound_mask(probe_cpu(), cell.all_threads) if cell.affinity == BOUND else None
    if cell.affinity == BOUND and cpus is None:
        raise NoSamplesError(f"{cell.all_threads} threads cannot be bound to as many CPUs here")
    settings = framework.launch_settings(cell.mode, chosen)
    cache = str(folders.make_folder(folders.cache_directory(framework)))
    on = None if cpus is None else list(cpus)
    launch = Launch(
        cell, Protocol(3, steps, steps, 0.0), settings, cache, cpus=on, network=to_data(network)
    )
    if cell.placement in FED:
        files = launch_files.checked_feeds(network, cell.batch_size, print)
        launch = launch._replace(feed=str(files.folder) if files else None)
    variables = framework.launch_variables(
        cell.mode, cell.threads, interpreter.parent.parent, chosen
    )
    return LaunchRequest(launch, interpreter, variables, 900.0)


def adapter_samples(order: LaunchRequest) -> list[float]:
    """Return the nanoseconds of a step in each sample of a launch of the adapter."""
    outcome = launch_process(order).outcome()
    if not outcome.samples_ns:
        raise NoSamplesError(f"adapter: {outcome.status.value}: {outcome.reason}")
    return [sample / outcome.steps_per_sample for sample in outcome.samples_ns]


def plain_samples(order: LaunchRequest, compiled: Path) -> list[float]:
    """Return the nanoseconds of a step in each sample of the plain script, which keeps there what
    it compiles."""
    cell, cpus = order.launch.cell, order.launch.cpus
    if not YARDSTICK.with_name(f"{cell.adapter}.py").exists():
        raise NoSamplesError(f"plain script: there is none of {cell.adapter}")
    # Kernels of other compilers, and the user's own, are in neither folder.
    cache_folders = {"TMPDIR": str(compiled), "XDG_CACHE_HOME": str(compiled)}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "samples.json"
        further = cell.device, cell.loader_workers, cell.sync
        words = [
            cell.adapter,
            cell.network,
            cell.batch_size,
            cell.threads,
            cell.mode,
            order.launch.protocol.steps,
        ]
        done = subprocess.run(
            [order.interpreter, "-I", YARDSTICK, *map(str, (*words, answer, *further))],
            env=guest_environment({**order.variables, **cache_folders}),
            cwd=folder,
            capture_output=True,
            text=True,
            preexec_fn=partial(os.sched_setaffinity, 0, cpus) if cpus else None,
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr, flush=True)
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise NoSamplesError(f"plain script: {last}")
        samples: list[float] = json.loads(answer.read_text())["samples_ns"]
        return samples


def compared(
    adapter: Callable[[], Sequence[float]],
    plain: Callable[[], Sequence[float]],
    rounds: int,
    quantile: float,
) -> tuple[str, str, str, str]:
    """Return ratio, interval, number of pairs and verdict of so many pairs of launches; each is
    printed to stderr."""
    logs = []
    for pair in range(1, rounds + 1):
        seconds = {
            measure: np.quantile(measure(), quantile)
            for measure in random.sample((adapter, plain), 2)
        }
        logs.append(np.log(seconds[adapter] / seconds[plain]))
        print(f"pair {pair} of {rounds}: {np.exp(logs[-1]):.3f}", file=sys.stderr, flush=True)
    ratio = float(np.exp(np.mean(logs)))
    half = float("nan")
    if len(logs) > 1:
        half = float(stats.sem(logs) * stats.t.ppf(0.975, len(logs) - 1))
    low, high = ratio * np.exp(-half), ratio * np.exp(half)
    if ratio <= GOAL:
        verdict = "ok"
    elif low <= GOAL:
        verdict = "undecided"
    else:
        verdict = "SLOWER"
    return f"{ratio:.3f}", f"{low:.3f} - {high:.3f}", str(len(logs)), verdict


def main(
    frameworks: str = "torch:*,tensorflow,mxnet,onnxruntime",
    networks: str = "fcn5,alexnet,lstm32,resnet50",
    suite: str = "table4",
    threads: int = 1,
    rounds: int = 5,
    steps: int = 10,
    quantile: float = 0.5,
    device: str = "cpu",
    batch_size: int | None = None,
    axes: str = "",
) -> None:
    """Measure so many pairs of launches of so many samples pair by pair and print one row per cell.

    The suite is the one whose networks these are, the batch size by default the paper's; ``axes``
    are further fields of the cells, "world_size=2,sync=local:4".
    """
    words = [word.partition("=") for word in axes.split(",") if word]
    further = {name: type(Cell._field_defaults[name])(value) for name, _, value in words}
    networks_by_name = load(suite).known
    affinity = BOUND if device == "cpu" and threads else OVERSUBSCRIBED
    table = Table(
        *("network", "framework", "mode", "ratio", "95 % interval", "pairs", "verdict"),
        title="adapter / plain script",
        box=None,
    )
    combinations = []
    for word in values.words(frameworks):
        name, _, modes = word.partition(":")
        framework = find(name)
        for mode in modes_meant(framework, modes):
            for network in values.words(networks):
                combinations.append((framework, mode, network))
    try:
        with tempfile.TemporaryDirectory() as compiled:
            for framework, mode, network in combinations:
                batch = batch_size or networks_by_name[network].batch_size
                named = (framework.name, framework.folder, mode, network, device, threads, batch)
                try:
                    order = order_of(
                        framework,
                        Cell(*named, affinity=affinity, **further),
                        networks_by_name[network],
                        steps,
                    )
                    cache_folder = folders.make_folder(Path(compiled) / framework.name)
                    sides = (
                        partial(adapter_samples, order),
                        partial(plain_samples, order, cache_folder),
                    )
                    result = compared(*sides, rounds, quantile)
                except NoSamplesError as error:
                    result = ("-", "-", "0", str(error))
                row = (network, framework.name, mode, *result)
                print(*row, flush=True)
                table.add_row(*row)
    finally:
        Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
