"""How much does each tool know after a minute? The same training step by dlbench and by other
tools, on one machine.

    python -m venv /tmp/rivals && /tmp/rivals/bin/pip install torch pytest-benchmark pyperf asv
    sudo apt-get install hyperfine
    .venv/bin/python tests/benchmarks/precision_per_minute.py --python /tmp/rivals/bin/python --csv found.csv \\
        --minutes 1,3,10 --repeats 5
    .venv/bin/python tests/benchmarks/precision_per_minute.py --csv found.csv        the table alone

The step is plain PyTorch on one thread (four layers of 1024 units, mini-batch 64, SGD). The
candidate does +0, +2 or +5 % more multiplications. Each tool has the same time and is used in its
usual way, as far as that fits: dlbench's gate in turns and with launches one after the other; two
sessions of pytest-benchmark; pyperf's processes and `compare_to`; asv's `compare` of two commits in
an existing environment; hyperfine over a script of a hundred steps, import included. All call a
candidate slower beyond 2.5 %, pyperf and asv only where their own test finds it significant.

Tools and effects are measured in turn, in an order drawn anew for each repeat, so that none has the
quiet hours. The table has the root of the mean square of the ratio's error (of the natural
logarithm, in per cent) and how often the candidate was called slower. The true ratio of +2 and +5 %
is the median that the whole table has for it. Nothing else should run.
"""

import csv
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

THRESHOLD = 1.025
WORK = '''"""A training step of plain PyTorch; EXTRA is the share of multiplications that it does beside."""

import torch

torch.set_num_threads(1)
BATCH, UNITS, LAYERS = 64, 1024, 4


def make_step(extra):
    torch.manual_seed(1)
    parts = []
    for _ in range(LAYERS):
        parts += [torch.nn.Linear(UNITS, UNITS), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(BATCH, UNITS), torch.randn(BATCH, UNITS)
    # A step multiplies 6 * BATCH * LAYERS * UNITS ** 2 times, a product of these rows 2 * rows * UNITS ** 2.
    rows = round(3 * extra * BATCH * LAYERS)
    beside, weights = torch.randn(max(rows, 1), UNITS), torch.randn(UNITS, UNITS)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        if rows:
            beside @ weights

    return step
'''
DLBENCH_STEP = """# The {name}: files of the same content would not be compared.
import sys

sys.path.insert(0, {folder!r})
from work import make_step

BATCH_SIZE = 64


def prepare(cell):
    return make_step({extra})
"""
PYTEST = """import os

from work import make_step


def test_step(benchmark):
    benchmark(make_step(float(os.environ["EXTRA"])))
"""
PYPERF = """import os

import pyperf
from work import make_step

runner = pyperf.Runner()
runner.bench_func("step", make_step(float(os.environ["EXTRA"])))
"""
ASV = """import os
import sys

sys.path.insert(0, os.environ["WORK"])
from work import make_step


class Step:
    def setup(self):
        self.step = make_step(float(os.environ["EXTRA"]))

    def time_step(self):
        self.step()
"""
HYPERFINE = """import sys

from work import make_step

step = make_step(float(sys.argv[1]))
for _ in range(100):
    step()
"""
FIELDS = ("tool", "minutes", "extra", "repeat", "ratio", "slower", "seconds")


class Answer(NamedTuple):
    """A tool's answer: the ratio candidate / baseline, and whether it calls the candidate
    slower."""

    ratio: float
    slower: bool


class Bench:
    """A folder with the step in every tool's form, and the interpreter that has PyTorch and the
    tools."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python, self.folder = python, folder
        for name, text in (
            ("work.py", WORK),
            ("test_step.py", PYTEST),
            ("perf.py", PYPERF),
            ("hundred.py", HYPERFINE),
        ):
            (folder / name).write_text(text)

    def run(
        self, *words: object, extra: float = 0.0, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in the folder; the step has this much extra work."""
        variables = {**os.environ, "EXTRA": str(extra), "WORK": str(self.folder)}
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"{words[0]} failed: {done.stderr[-500:]}")
        return done


def dlbench(bench: Bench, seconds: float, extra: float, order: str) -> Answer:
    """Ask a gate, which ends sooner where it is sure."""
    program = shutil.which("dlbench", path=str(Path(sys.executable).parent)) or "dlbench"
    for name, share in (("baseline", 0.0), ("candidate", extra)):
        (bench.folder / f"{name}.py").write_text(
            DLBENCH_STEP.format(name=name, folder=str(bench.folder), extra=share)
        )
    with tempfile.TemporaryDirectory() as stores:
        done = bench.run(
            *(
                program,
                "gate",
                "quick",
                "--step",
                "baseline.py",
                "--candidate-step",
                "candidate.py",
                "--threads",
                "1",
            ),
            *(
                "--affinity",
                "oversubscribed",
                "--python",
                bench.python,
                "--order",
                order,
                "--allow-different",
            ),
            *("--budget", f"{seconds:.0f}s", "--store", Path(stores) / "store.sqlite", "--json"),
            check=False,
        )
    if not done.stdout.strip():
        raise RuntimeError(f"the gate said nothing but: {done.stderr[-1000:]}")
    (cell,) = json.loads(done.stdout)["cells"]
    return Answer(cell["ratio"] or math.nan, done.returncode == 1)


def pytest_benchmark(bench: Bench, seconds: float, extra: float) -> Answer:
    """Compare the medians of two sessions."""
    medians = []
    for share in (0.0, extra):
        bench.run(
            *(
                bench.python,
                "-m",
                "pytest",
                "-q",
                "test_step.py",
                "--benchmark-json",
                "session.json",
            ),
            *(f"--benchmark-max-time={max(1.0, seconds / 2 - 4):.0f}", "--benchmark-min-rounds=5"),
            extra=share,
        )
        (benchmark,) = json.loads((bench.folder / "session.json").read_text())["benchmarks"]
        medians.append(benchmark["stats"]["median"])
    ratio = medians[1] / medians[0]
    return Answer(ratio, ratio > THRESHOLD)


def pyperf(bench: Bench, seconds: float, extra: float) -> Answer:
    """Compare the means of as many processes as fit; a process takes about 6 s."""
    processes = max(3, round(seconds / 2 / 6))
    for name, share in (("before", 0.0), ("after", extra)):
        (bench.folder / f"{name}.json").unlink(missing_ok=True)
        bench.run(
            *(bench.python, "perf.py", "-q", "-p", processes, "--inherit-environ", "EXTRA,WORK"),
            *("-o", f"{name}.json"),
            extra=share,
        )
    means = []
    for name in ("before", "after"):
        runs = json.loads((bench.folder / f"{name}.json").read_text())["benchmarks"][0]["runs"]
        values = [value for run in runs for value in run.get("values", [])]
        means.append(sum(values) / len(values))
    output = bench.run(
        bench.python, "-m", "pyperf", "compare_to", "before.json", "after.json", check=False
    ).stdout
    ratio = means[1] / means[0]
    return Answer(
        ratio,
        ratio > THRESHOLD and "Not significant" not in output and "not significant" not in output,
    )


def asv(bench: Bench, seconds: float, extra: float) -> Answer:
    """Run both commits in an existing environment, and compare the results."""
    project = bench.folder / "asv"
    shutil.rmtree(project, ignore_errors=True)
    (project / "benchmarks").mkdir(parents=True)
    (project / "benchmarks" / "__init__.py").write_text("")
    (project / "benchmarks" / "step.py").write_text(ASV)
    (project / "asv.conf.json").write_text(
        json.dumps(
            {
                "version": 1,
                "project": "step",
                "repo": ".",
                "branches": ["main"],
                "environment_type": "existing",
            }
        )
    )
    git = ("git", "-C", project, "-c", "user.name=bench", "-c", "user.email=bench@localhost")
    bench.run("git", "init", "-q", "-b", "main", project)
    commits = []
    for name in ("before", "after"):
        (project / "side").write_text(name)
        bench.run(*git, "add", "-A")
        bench.run(*git, "commit", "-q", "-m", name)
        commits.append(bench.run(*git, "rev-parse", "HEAD").stdout.strip())
    program, config = (bench.python, "-m", "asv"), ("--config", project / "asv.conf.json")
    bench.run(*program, "machine", "--yes", *config)
    # Two rounds of processes, each with samples for a quarter of the time but its start.
    longest = max(2.0, seconds / 4 - 3)
    attributes = ("-a", "rounds=2", "-a", "sample_time=0.1", "-a", f"repeat=(5,1000,{longest:.0f})")
    for commit, share in zip(commits, (0.0, extra), strict=True):
        bench.run(
            *(*program, "run", "-E", f"existing:{bench.python}"),
            *("--set-commit-hash", commit, *attributes, *config),
            extra=share,
        )
    output = bench.run(*program, "compare", "-f", THRESHOLD, *commits, *config, check=False).stdout
    lines = [line for line in output.splitlines() if "time_step" in line]
    parts = [part.strip() for part in lines[0].split("|")] if lines else []
    numbers = [
        float(part.strip("~")) for part in parts if part.strip("~").replace(".", "", 1).isdigit()
    ]
    return Answer(
        numbers[-1] if numbers else math.nan, bool(lines) and lines[0].lstrip("| ").startswith("+")
    )


def hyperfine(bench: Bench, seconds: float, extra: float) -> Answer:
    """Compare the mean times of whole commands; one takes about 6 s."""
    commands = [f"{bench.python} hundred.py {share}" for share in (0.0, extra)]
    runs = max(2, round(seconds / 2 / 6))
    bench.run("hyperfine", "-N", "--runs", runs, "--export-json", "runs.json", *commands)
    before, after = (
        result["mean"] for result in json.loads((bench.folder / "runs.json").read_text())["results"]
    )
    return Answer(after / before, after / before > THRESHOLD)


TOOLS: dict[str, Callable[[Bench, float, float], Answer]] = {
    "dlbench, in turns": lambda bench, seconds, extra: dlbench(bench, seconds, extra, "turns"),
    "dlbench, sequential": lambda bench, seconds, extra: dlbench(
        bench, seconds, extra, "sequential"
    ),
    "pytest-benchmark": pytest_benchmark,
    "pyperf": pyperf,
    "asv": asv,
    "hyperfine": hyperfine,
}


def measure(
    python: Path,
    file: Path,
    minutes: list[float],
    extras: list[float],
    repeats: int,
    tools: list[str],
) -> None:
    """Measure every tool with every time and effect, and add each answer to the file."""
    rows = [] if not file.exists() else list(csv.DictReader(file.open()))
    done = {
        (row["tool"], float(row["minutes"]), float(row["extra"]), int(row["repeat"]))
        for row in rows
    }
    with file.open("a", newline="") as stream, tempfile.TemporaryDirectory() as folder:
        writer = csv.DictWriter(stream, FIELDS)
        if stream.tell() == 0:
            writer.writeheader()
        bench = Bench(python, Path(folder))
        for repeat in range(repeats):
            cases = [
                (tool, time_of, extra) for tool in tools for time_of in minutes for extra in extras
            ]
            random.Random(repeat).shuffle(cases)
            for tool, time_of, extra in cases:
                if (tool, time_of, extra, repeat) in done:
                    continue
                begun = time.monotonic()
                answer = TOOLS[tool](bench, 60 * time_of, extra)
                spent = time.monotonic() - begun
                values = (
                    tool,
                    time_of,
                    extra,
                    repeat,
                    answer.ratio,
                    int(answer.slower),
                    round(spent, 1),
                )
                writer.writerow(dict(zip(FIELDS, values, strict=True)))
                stream.flush()
                print(*values, flush=True)


def table(file: Path) -> Table:
    """Return the table of what the file has."""
    with file.open() as stream:
        rows = list(csv.DictReader(stream))
    result = Table(
        "tool",
        "minutes",
        "extra",
        "n",
        "error of the ratio, %",
        "called slower",
        "seconds",
        box=None,
    )
    extras = sorted({float(row["extra"]) for row in rows})
    matching_rows = [row for row in rows if not math.isnan(float(row["ratio"]))]
    truth = {0.0: 1.0}
    for extra in extras:
        truth.setdefault(
            extra,
            median(float(row["ratio"]) for row in matching_rows if float(row["extra"]) == extra),
        )
    for tool in TOOLS:
        for minutes in sorted({float(row["minutes"]) for row in rows}):
            for extra in extras:
                cases = [
                    row
                    for row in rows
                    if (row["tool"], float(row["minutes"]), float(row["extra"]))
                    == (tool, minutes, extra)
                ]
                if not cases:
                    continue
                errors = [
                    math.log(float(row["ratio"]) / truth[extra])
                    for row in cases
                    if not math.isnan(float(row["ratio"]))
                ]
                error = (
                    100 * math.sqrt(sum(error**2 for error in errors) / len(errors))
                    if errors
                    else math.nan
                )
                slower = sum(int(row["slower"]) for row in cases)
                seconds = median(float(row["seconds"]) for row in cases)
                words = (f"{error:.1f}", f"{slower} of {len(cases)}", f"{seconds:.0f}")
                result.add_row(
                    tool, f"{minutes:g}", f"+{100 * extra:.0f} %", str(len(cases)), *words
                )
    return result


def main(
    file: Annotated[
        Path, typer.Option("--csv", help="The file of answers; a measurement adds to it.")
    ],
    python: Annotated[
        Path | None, typer.Option(help="An interpreter with PyTorch and the tools.")
    ] = None,
    minutes: Annotated[str, typer.Option(help="Minutes that each tool has.")] = "1",
    extras: Annotated[str, typer.Option(help="Shares of extra work.")] = "0,0.05",
    repeats: Annotated[int, typer.Option(help="Answers of each tool to each question.")] = 5,
    tools: Annotated[str, typer.Option(help="Names of tools, with semicolons.")] = ";".join(TOOLS),
) -> None:
    """Measure, and print the table."""
    if python is not None:
        times, shares = ([float(word) for word in text.split(",")] for text in (minutes, extras))
        measure(python.absolute(), file.absolute(), times, shares, repeats, tools.split(";"))
    Console(width=110).print(table(file))


if __name__ == "__main__":
    typer.run(main)
