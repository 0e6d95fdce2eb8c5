"""Is a training step as fast launched as `dlbench tune` says as under PyTorch's own launcher for
CPUs?

    .venv/bin/dlbench tune --step train_step.py --python PYTHON --write tuned.env
    .venv/bin/python tests/benchmarks/beside_run_cpu.py train_step.py --python PYTHON --tuned tuned.env --pairs 12

`python -m torch.backends.xeon.run_cpu` binds the process to the physical cores, takes as many
threads, and preloads tcmalloc (else jemalloc) and Intel's OpenMP where it finds them; it is run
with its defaults, or with `--options`. Both sides time the same file by
tests/benchmarks/plain/step_file.py, with the same interpreter, and alternate in random order within
a pair. Printed: the geometric mean of the pairs' ratios of medians (dlbench / run_cpu) with
Student's 95 % interval. Goal: at most 1.02. Nothing else should run.
"""

import json
import shlex
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from plain_ratio import compared

from dlbench.suites.run.launcher import guest_environment

TIMER = Path(__file__).with_name("plain") / "step_file.py"
RUN_CPU = ("-m", "torch.backends.xeon.run_cpu")


def read_variables(file: Path) -> dict[str, str]:
    """Return the variables of an env file."""
    lines = file.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def samples(
    command: list[str], variables: dict[str, str], step: Path, batch_size: int, steps: int
) -> list[int]:
    """Return the nanoseconds of each step of one launch."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "samples.json"
        words = [
            *command,
            str(TIMER),
            str(step.resolve()),
            str(batch_size),
            str(steps),
            str(answer),
        ]
        done = subprocess.run(
            words, env=guest_environment(variables), cwd=folder, capture_output=True, text=True
        )
        if not answer.exists():
            sys.exit(
                f"{shlex.join(words)} gave no answer: {done.stderr.strip() or done.stdout.strip()}"
            )
        content: list[int] = json.loads(answer.read_text())
        return content


def main(
    step: Path,
    python: Annotated[Path, typer.Option(help="An interpreter with PyTorch.")],
    tuned: Annotated[Path, typer.Option(help="What `dlbench tune --write FILE.env` wrote.")],
    pairs: int = 12,
    steps: int = 50,
    batch_size: int = 64,
    options: Annotated[str, typer.Option(help="Of run_cpu, such as --enable-jemalloc.")] = "",
) -> None:
    """Measure so many pairs of launches and print their ratio."""
    # Where run_cpu looks for libraries that pip installed.
    beside = {"VIRTUAL_ENV": str(python.absolute().parent.parent)}
    timed = partial(samples, step=step, batch_size=batch_size, steps=steps)
    ours = partial(timed, [str(python)], {**beside, **read_variables(tuned)})
    theirs = partial(timed, [str(python), *RUN_CPU, *shlex.split(options)], beside)
    ratio, interval, count, verdict = compared(ours, theirs, pairs, 0.5)
    print(
        f"{step.name}: dlbench's choice takes {ratio} ({interval}) times as long as run_cpu, "
        f"{count} pairs: {verdict}"
    )


if __name__ == "__main__":
    typer.run(main)
