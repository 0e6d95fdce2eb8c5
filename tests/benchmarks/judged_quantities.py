"""Real changes of memory, first step and import: how often does a gate find them, and how often
nothing?

    .venv/bin/python tests/benchmarks/judged_quantities.py --times 20

Each gate compares two files of a step of the user's own in NumPy, one thread, with `--judge
time,memory,first_step, import`. The candidate keeps an array more (5 % of the memory), takes 20 %
longer for its first step (as for compiling), imports a module that takes 20 % of the import longer,
has all three changes, or is the same. Prints a line for each gate and the counts.

    .venv/bin/python tests/benchmarks/judged_quantities.py --times 20 --only same,all
    .venv/bin/python tests/benchmarks/judged_quantities.py --times 10 --by pytest

By pytest, the step is a test of two checkouts, and five processes of each take turns.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

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
BENCHMARK = """
import numpy as np
import time

time.sleep(IMPORT)


def test_step(benchmark):
    numbers = np.linspace(0.0, 1.0, 8_000_000)
    kept = np.ones(KEPT)
    state = {"first": True}

    def step():
        if state["first"]:
            time.sleep(FIRST)
            state["first"] = False
        return float(numbers[:400_000] @ numbers[:400_000])

    benchmark.pedantic(step, rounds=300)
"""
JUDGED = "time,memory,first_step,import"
WORDS = {
    "peak memory": "memory",
    "time for the first step": "first_step",
    "time to import": "import",
}
"""The names of quantities in sentences."""
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


class Answer(NamedTuple):
    """What is said of a candidate."""

    outcome: str
    failing: list[str]
    """The quantities with a regression, in order."""
    details: str


def replaced(text: str, places: dict[str, str]) -> str:
    """Return a text with these words in place of its names."""
    for place, words in places.items():
        text = text.replace(place, words)
    return text


def by_gate(change: dict[str, str]) -> Answer:
    """Return what a gate says of a candidate with this change."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, places in (("before", USUAL), ("after", USUAL | change)):
            text = f"{STEP}# {name}\n"  # a gate refuses two files of one content
            (folder / f"{name}.py").write_text(replaced(text, places))
        words = ["--step", str(folder / "after.py"), "--baseline-step", str(folder / "before.py")]
        words += ["--python", sys.executable, "--threads", "1", "--affinity", "bound"]
        words += ["--judge", JUDGED, "--store", str(folder / "gate.sqlite"), "--json"]
        command = [sys.executable, "-m", "dlbench.suites", "gate", "threads", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    failing = []
    details = []
    for cell in answer["cells"]:
        details.append(f"{cell['quantity']} {cell['ratio']:.3f}")
        if cell["finding"] == "REGRESSION":
            failing.append(cell["quantity"])
    return Answer(answer["gate"]["outcome"], sorted(failing), ", ".join(details))


def by_pytest(change: dict[str, str]) -> Answer:
    """Return what a session of pytest says of a candidate with this change."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, places in (("before", USUAL), ("after", USUAL | change)):
            folder = Path(scratch, name)
            folder.mkdir()
            (folder / "test_step.py").write_text(replaced(BENCHMARK, places))
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--benchmark-only"]
        command += ["--dlbench-processes", "5", "--dlbench-baseline-checkout=../before"]
        command += ["--dlbench-judge", JUDGED, "--dlbench-no-profile"]
        done = subprocess.run(
            command, cwd=Path(scratch, "after"), capture_output=True, text=True, check=False
        )
    (outcome,) = re.findall(r"^(?:verdict|no verdict:) (\w+)", done.stdout, re.MULTILINE) or [""]
    if not outcome:
        sys.exit(done.stdout + done.stderr)
    lines = re.findall(
        r"^([A-Z_]+) +test_step\.py[^,:]*(?:::\w+)?(?:, ([a-z ]+))?: (.*)",
        done.stdout,
        re.MULTILINE,
    )
    failing = []
    details = []
    for verdict, words, sentence in lines:
        quantity = WORDS.get(words, "time")
        details.append(f"{quantity} {sentence}")
        if verdict == "REGRESSION":
            failing.append(quantity)
    return Answer(outcome, sorted(failing), ", ".join(details))


def main(
    times: Annotated[int, typer.Option(help="Gates of each change.")] = 20,
    only: Annotated[str, typer.Option(help="Changes, separated by commas (default: all).")] = "",
    by: Annotated[str, typer.Option(help="gate or pytest.")] = "gate",
) -> None:
    """Judge the changes, and print the answers."""
    judge = {"gate": by_gate, "pytest": by_pytest}[by]
    chosen = only.split(",") if only else list(CHANGES)
    counts: dict[str, Counter[str]] = {name: Counter() for name in chosen}
    for number in range(times):
        for name in chosen:
            change, expected = CHANGES[name]
            began = time.monotonic()
            answer = judge(change)
            counts[name][answer.outcome] += 1
            counts[name]["as expected"] += answer.failing == expected
            counts[name].update(f"{quantity} failed" for quantity in answer.failing)
            seconds = time.monotonic() - began
            words = f"{answer.outcome} by {answer.failing or 'nothing'} in {seconds:.0f} s"
            print(f"{number + 1} {name}: {words} ({answer.details})", flush=True)
    for name, count in counts.items():
        print(f"{name}: {dict(count)} of {times}")


if __name__ == "__main__":
    typer.run(main)
