"""Is an adapter's step as fast as a plain hand-written script of the same network in the same framework?

    .venv/bin/python tests/benchmarks/plain_ratio.py --frameworks torch --networks fcn5,lstm32 --rounds 5

For each cell, launches of the adapter and of tests/plain/<folder>.py alternate in random order within a pair, with the
same interpreter and environment variables. Printed: the geometric mean of the pairs' ratios of medians (adapter /
plain) with Student's 95 % interval over the pairs. Goal: at most 1.02. Nothing else should run meanwhile. Where the
machine has neighbours, a launch of short steps may fall into a slow time as a whole: `--quantile 0.1` compares the
samples that a tenth of a launch's are faster than, instead of the medians.

`--suite rnn2017 --networks rnn-r100-t20-i2-o2-relu` is of a network of that suite; the scripts of networks over
sequences lie in tests/plain/sequences, which knows one of each family.

On a GPU, where PyTorch alone has a plain script: `--frameworks torch:eager,torch:compile --device cuda:0`, with
DLBENCH_PYTHON_TORCH naming a build that drives it.
"""

import argparse
import json
import os
import random
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from dlbench.adapters.networks import Network, to_data
from dlbench.adapters.protocol import Cell, Launch, Protocol
from dlbench.suites.environments import environment, folders
from dlbench.suites.launching.launcher import Order, ProcessLauncher, guest_environment
from dlbench.suites.planning import suite
from dlbench.suites.planning import values as axes
from dlbench.suites.planning.framework import Framework, find, modes_meant, offered

PLAIN = Path(__file__).resolve().parent.parent / "plain"
OF_THE_PAPER = ("fcn5", "fcn8", "alexnet", "resnet50", "lstm32", "lstm64")
GOAL = 1.02


def adapter_samples(framework: Framework, cell: Cell, network: Network, interpreter: Path, steps: int) -> list[int]:
    """Return the nanoseconds of each step of a launch of the adapter."""
    cache = folders.cache_directory(framework)
    cache.mkdir(parents=True, exist_ok=True)
    settings = framework.launch_settings(cell.mode)
    launch = Launch(cell, Protocol(3, steps, steps, 0.0), settings, None, str(cache), network=to_data(network))
    variables = framework.launch_variables(cell.mode, cell.threads, interpreter.parent.parent)
    outcome = ProcessLauncher().launch(Order(launch, interpreter, variables, 900.0)).outcome
    if not outcome.samples_ns:
        raise SystemExit(f"{cell}: {outcome.status.value}: {outcome.reason}")
    return outcome.samples_ns


def plain_samples(framework: Framework, cell: Cell, network: Network, interpreter: Path, steps: int) -> list[int]:
    """Return the nanoseconds of each step of a launch of the plain script."""
    folder_of_scripts = PLAIN if network.name in OF_THE_PAPER else PLAIN / "sequences"
    script = folder_of_scripts / f"{framework.folder}.py"
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "samples.json"
        words = [cell.network, cell.batch_size, cell.threads, cell.mode, steps, answer]
        words += [] if cell.on_cpu else [cell.device]
        subprocess.run(
            [interpreter, "-I", script, *map(str, words)],
            env=guest_environment(framework.launch_variables(cell.mode, cell.threads, interpreter.parent.parent)),
            cwd=folder,
            check=True,
            capture_output=True,
        )
        samples: list[int] = json.loads(answer.read_text())["samples_ns"]
        return samples


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
    table = Table(title="adapter / plain script", box=None, pad_edge=False)
    for name in ("network", "framework", "mode", "ratio", "95 % interval", "pairs", "verdict"):
        table.add_column(name)
    for word in axes.words(arguments.frameworks):
        name, _, mode_wanted = word.partition(":")
        framework = find(name)
        given = os.environ.get(f"DLBENCH_PYTHON_{name.upper()}")
        interpreter = Path(given) if given else environment.locate(framework).interpreter
        if interpreter is None or (name not in offered() and not given):
            raise SystemExit(f"{name}: {environment.locate(framework).reason}")
        for mode in modes_meant(framework, mode_wanted):
            for network in axes.words(arguments.networks):
                chosen = known[network]
                batch = arguments.batch_size or chosen.batch_size
                cell = Cell(name, framework.folder, mode, network, arguments.device, arguments.threads, batch)
                logs = []
                for _ in range(arguments.rounds):
                    measures = [("adapter", adapter_samples), ("plain", plain_samples)]
                    random.shuffle(measures)
                    seconds = {
                        who: np.quantile(
                            measure(framework, cell, chosen, interpreter, arguments.steps), arguments.quantile
                        )
                        for who, measure in measures
                    }
                    logs.append(np.log(seconds["adapter"] / seconds["plain"]))
                ratio = float(np.exp(np.mean(logs)))
                half = float(stats.sem(logs) * stats.t.ppf(0.975, len(logs) - 1)) if len(logs) > 1 else float("nan")
                low, high = ratio * np.exp(-half), ratio * np.exp(half)
                verdict = "ok" if ratio <= GOAL else ("undecided" if low <= GOAL else "SLOWER")
                row = (network, name, mode, f"{ratio:.3f}", f"{low:.3f} - {high:.3f}", str(len(logs)), verdict)
                print(*row, flush=True)
                table.add_row(*row)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
