"""Is an adapter's step as fast as a plain script's, measured in turns?

    .venv/bin/python tests/benchmarks/plain_turns.py --frameworks torch,tensorflow --networks fcn5,lstm32
    .venv/bin/python tests/benchmarks/plain_turns.py --task inference --frameworks torch,tensorflow,onnx,openvino \
        --networks fcn5 --batch-sizes 1,16

As `plain_ratio`, but both sides are a user's own step (tests/benchmarks/plain/as_step.py and
adapter_as_step.py) in the framework's environment, compared by `dlbench compare --now`: the
launches of a pair take turns, so that a busy machine's noise is the same for both. The adapter is
tuned (`--tuning installed`: without settings), the script as a good author writes it, and both have
the variables of the tuned row. Pairs are added until the interval is ±1 %. A ratio above 1 means
that the adapter takes longer. Nothing else should run. Goal: 0.98 to 1.02.
"""

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from dlbench.adapters.networks import to_data
from dlbench.adapters.protocol import TUNED
from dlbench.adapters.tuning import in_force
from dlbench.suites.environments import environment
from dlbench.suites.planning import values
from dlbench.suites.planning.framework import find, modes_meant
from dlbench.suites.planning.suite import load

STEPS = Path(__file__).resolve().parent / "plain"
DLBENCH = Path(sys.executable).with_name("dlbench")


def compare(
    interpreter: Path, launch: dict[str, Any], variables: dict[str, str], words: list[str]
) -> dict[str, Any]:
    """Return what a comparison of the plain script with the adapter says, as JSON."""
    environment_variables = {**variables, "DLBENCH_PLAIN": json.dumps(launch)}
    with tempfile.TemporaryDirectory() as folder:
        sides = ["--step", STEPS / "as_step.py", "--candidate-step", STEPS / "adapter_as_step.py"]
        command = [DLBENCH, "compare", "--now", "--suite", "quick", *sides]
        command += ["--python", interpreter, "--json", *words]
        command += ["--store", Path(folder) / "store.sqlite"]
        for name, value in environment_variables.items():
            command += ["--env", f"{name}={value}"]
        done = subprocess.run(
            list(map(str, command)), stdout=subprocess.PIPE, text=True, check=False
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main(
    frameworks: str = "torch,tensorflow,jax,mxnet,onnxruntime",
    networks: str = "fcn5,lstm32",
    task: str = "training",
    batch_sizes: str = "",
    threads: int = 1,
    tuning: str = TUNED,
    interval: str = "1%",
    pairs: str = "6-20",
    budget: str = "5m",
) -> None:
    """Compare each framework's default mode on each network, by default at its own mini-batch;
    print a row for each."""
    networks_by_name = load("table4").known
    sizes = values.words(batch_sizes) if batch_sizes else [""]
    table = Table(
        "network", "batch", "framework", "verdict", "adapter / plain", "interval", "pairs", box=None
    )
    for word in values.words(frameworks):
        framework = find(word)
        mode = modes_meant(framework, "")[0]
        interpreter = environment.locate(framework).interpreter
        if interpreter is None:
            print(f"{word}: {environment.locate(framework).reason}", file=sys.stderr)
            continue
        for network, size in itertools.product(values.words(networks), sizes):
            batch_size = int(size) if size else networks_by_name[network].batch_size
            family = networks_by_name[network].family.name
            tunable = framework.tunable(mode, "cpu", family, task)
            variables = framework.launch_variables(
                mode, threads, interpreter.parent.parent, in_force(TUNED, tunable)
            )
            launch = {
                "framework": framework.name,
                "adapter": framework.folder,
                "script": framework.folder,
                "mode": mode,
                "task": task,
                "network": network,
                "batch_size": batch_size,
                "settings": framework.launch_settings(mode, in_force(tuning, tunable)),
                "data": to_data(networks_by_name[network]),
            }
            words = [
                "--threads",
                str(threads),
                "--interval",
                interval,
                "--pairs",
                pairs,
                "--budget",
                budget,
            ]
            answer = compare(interpreter, launch, variables, [*words, "--tuning", "installed"])
            for cell in answer["cells"]:
                row = [network, str(batch_size), framework.name, cell["verdict"]]
                if cell["ratio"] is not None and cell["low"] is not None:
                    row += [f"{cell['ratio']:.3f}", f"{cell['low']:.3f} - {cell['high']:.3f}"]
                    row += [str(cell["launches_used"]["baseline"])]
                print(*row, flush=True)
                table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
