"""Slowdowns that people reported of public releases: does one command find the release, and the
operator?

    .venv/bin/python tests/benchmarks/documented_regressions.py --store /tmp/documented.sqlite
    .venv/bin/python tests/benchmarks/documented_regressions.py --only jax --budget 5m

Each report is a step of `documented/`, written anew from its thread. A bisection between a release
before and one after the reported change must name the documented release. The two controls, and
reports that do not hold on this machine, must give none. Prints a line for each with the minutes of
measuring, and the table.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).with_name("documented")


class Reported(NamedTuple):
    """A public report of a slowdown, and the releases between which it is searched."""

    issue: str
    row: str
    good: str
    bad: str
    claimed: str
    release: str
    """That the thread names; empty: none must be found."""
    operator: str = ""
    """That the thread names, as a profiler may call it; empty: none."""


REPORTED = {
    "onnxruntime_27153": Reported(
        "onnxruntime#27153", "onnx", "1.19.2", "1.22.1", "1.7 to 2.4", "1.21.0", "MatMul"
    ),
    "onnxruntime_27076": Reported(
        "onnxruntime#27076", "onnx", "1.20.0", "1.22.1", "1.39", "1.21.0", "ReduceMean"
    ),
    "jax_25190": Reported("jax#25190", "jax", "0.4.30", "0.4.35", "20", "0.4.33"),
    "jax_36799": Reported("jax#36799", "jax", "0.4.30", "0.4.33", "10", "0.4.33"),
    "jax_26145": Reported("jax#26145", "jax", "0.4.30", "0.4.35", "5 to 10", "0.4.33"),
    "jax_31282": Reported("jax#31282", "jax", "0.6.2", "0.7.1", "30", "0.7.1"),
    "jax_37465": Reported("jax#37465", "jax", "0.7.1", "0.8.1", "1.4", "0.8.0"),
    "jax_39959": Reported("jax#39959", "jax", "0.9.1", "0.10.0", "5", "0.9.2"),
    "tensorflow_61363": Reported(
        "tensorflow#61363", "tensorflow", "2.12.1", "2.14.1", "4", "2.13.0"
    ),
    # These do not hold on two virtual CPUs of an AMD EPYC. Launches of 27115 were in two states, and
    # one run gave 1.09.
    "onnxruntime_27093": Reported("onnxruntime#27093", "onnx", "1.19.2", "1.22.1", "1.25", ""),
    "onnxruntime_27115": Reported(
        "onnxruntime#27115", "onnx", "1.19.2", "1.22.1", "1.23 to 1.26", ""
    ),
    "onnxruntime_27154": Reported("onnxruntime#27154", "onnx", "1.21.1", "1.23.2", "1.14", ""),
    "onnxruntime_27074": Reported("onnxruntime#27074", "onnx", "1.19.2", "1.22.1", "2.03", ""),
    "onnxruntime_27152": Reported(
        "onnxruntime#27152", "onnx", "1.19.2", "1.22.1", "1.21 to 2.49", ""
    ),
    "onnxruntime_26979": Reported("onnxruntime#26979", "onnx", "1.20.1", "1.22.1", "1.41", ""),
    "control_onnxruntime": Reported("control", "onnx", "1.19.2", "1.22.1", "1", ""),
    "control_jax": Reported("control", "jax", "0.7.1", "0.8.1", "1", ""),
}


def bisected(name: str, reported: Reported, store: Path, budget: str) -> dict[str, Any]:
    """Return what the bisection says."""
    ends = ["--good", reported.good, "--bad", reported.bad]
    step = ["--step", str(FOLDER / f"{name}.py"), "--threads", "1"]
    session = ["--store", str(store), "--budget", budget, "--json"]
    command = [
        sys.executable,
        "-m",
        "dlbench.suites",
        "bisect",
        reported.row,
        *step,
        *ends,
        *session,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    result: dict[str, Any] = (
        json.loads(done.stdout) if done.stdout else {"outcome": "refused", "suspects": []}
    )
    return result


def main(
    store: Annotated[Path, typer.Option(help="Keeps the launches of all.")] = Path(
        "documented.sqlite"
    ),
    only: Annotated[str, typer.Option(help="Names that begin so.")] = "",
    budget: Annotated[str, typer.Option(help="Of each bisection.")] = "6m",
) -> None:
    """Bisect all, and print the table."""
    table = Table("issue", "claimed", "measured", "release", "named", "operator", "min")
    right = 0
    chosen = {name: reported for name, reported in REPORTED.items() if name.startswith(only)}
    for name, reported in chosen.items():
        began = time.monotonic()
        bisection = bisected(name, reported, store, budget)
        minutes = (time.monotonic() - began) / 60
        suspects = (
            [suspect.rpartition("-")[2] for suspect in bisection["suspects"]]
            if bisection["outcome"] == "found"
            else []
        )
        right += suspects == ([reported.release] if reported.release else [])
        slowdown, operators = bisection.get("slowdown"), bisection.get("operators")
        ends = bisection.get("ends", {})
        ratio = slowdown["ratio"] if slowdown else ends.get("ratio")
        measured = "-" if ratio is None else f"{ratio:.2f}"
        named = ", ".join(operators["named"][:2]) if operators else ""
        words = ", ".join(suspects) or bisection["outcome"]
        table.add_row(
            reported.issue,
            reported.claimed,
            measured,
            reported.release or "none",
            words,
            named,
            f"{minutes:.1f}",
        )
        print(
            f"{name}: {bisection.get('sentence', 'refused')} "
            f"{operators['sentence'] if operators else ''}",
            flush=True,
        )
    Console(width=150).print(table)
    print(f"{right} of {len(chosen)} as documented.")


if __name__ == "__main__":
    typer.run(main)
