"""Real changes of memory, first step and import: how often does a gate find them, and how often
nothing?

    .venv/bin/python tests/benchmarks/judged_quantities.py --times 20

Each gate compares two files of a step of the user's own in NumPy, one thread, with `--judge
time,memory,first_step, import`. The candidate keeps an array more (5 % of the memory), takes 20 %
longer for its first step (as for compiling), imports a module that takes 20 % of the import longer,
has all three changes, or is the same. Prints a line for each gate and the counts.

    .venv/bin/python tests/benchmarks/judged_quantities.py --times 20 --only same,all
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

STEP = """
import numpy as np
import time

time.sleep(IMPORT)
BATCH_SIZE = 1


def prepare(cell):
    numbers = np.linspace(0.0, 1.0, 8_000_000)
    kept = np.ones(KEPT)
    state = {"first": True}

    def step():
        if state["first"]:
            time.sleep(FIRST)
            state["first"] = False
        state["found"] = float(numbers[:400_000] @ numbers[:400_000])

    return step, lambda: state["found"]
"""
USUAL = {"IMPORT": "0.2", "KEPT": "1", "FIRST": "0.5"}
CHANGES = {
    "same": ({}, []),
    "memory": ({"KEPT": "640_000"}, ["memory"]),
    "first step": ({"FIRST": "0.6"}, ["first_step"]),
    "import": ({"IMPORT": "0.28"}, ["import"]),
    "all": (
        {"KEPT": "640_000", "FIRST": "0.6", "IMPORT": "0.28"},
        ["first_step", "import", "memory"],
    ),
}
"""What the candidate has instead, and the quantities that must fail."""


def gate(change: dict[str, str]) -> dict[str, Any]:
    """Return what a gate says of a candidate with this change."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, places in (("before", USUAL), ("after", USUAL | change)):
            text = f"{STEP}# {name}\n"  # a gate refuses two files of one content
            for place, words in places.items():
                text = text.replace(place, words)
            (folder / f"{name}.py").write_text(text)
        words = ["--step", str(folder / "after.py"), "--baseline-step", str(folder / "before.py")]
        words += ["--python", sys.executable, "--threads", "1", "--affinity", "bound"]
        words += [
            "--judge",
            "time,memory,first_step,import",
            "--store",
            str(folder / "gate.sqlite"),
            "--json",
        ]
        command = [sys.executable, "-m", "dlbench.suites", "gate", "threads", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main(
    times: Annotated[int, typer.Option(help="Gates of each change.")] = 20,
    only: Annotated[str, typer.Option(help="Changes, separated by commas (default: all).")] = "",
) -> None:
    """Run the gates, and print their answers."""
    chosen = only.split(",") if only else list(CHANGES)
    counts: dict[str, Counter[str]] = {name: Counter() for name in chosen}
    for number in range(times):
        for name in chosen:
            change, expected = CHANGES[name]
            began = time.monotonic()
            answer = gate(change)
            failing = sorted(
                cell["quantity"] for cell in answer["cells"] if cell["finding"] == "REGRESSION"
            )
            counts[name][answer["gate"]["outcome"]] += 1
            counts[name]["as expected"] += failing == expected
            counts[name].update(f"{quantity} failed" for quantity in failing)
            ratios = ", ".join(
                f"{cell['quantity']} {cell['ratio']:.3f}" for cell in answer["cells"]
            )
            words = f"{answer['gate']['outcome']} by {failing or 'nothing'}"
            print(
                f"{number + 1} {name}: {words} in {time.monotonic() - began:.0f} s ({ratios})",
                flush=True,
            )
    for name, count in counts.items():
        print(f"{name}: {dict(count)} of {times}")


if __name__ == "__main__":
    typer.run(main)
