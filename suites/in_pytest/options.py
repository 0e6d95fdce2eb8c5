"""The plugin's options; every name begins with dlbench."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..planning.axes import AXIS_OPTIONS, LIMITS

ENOUGH_PROCESSES = 5
"""Processes that texts recommend.

Three give a verdict, five show a slowdown of 10 % on a quiet machine."""
OF_THE_SUITE: dict[str, dict[str, Any]] = {
    "launches": {
        "metavar": "N|N-M",
        "help": (
            "launches (fresh processes) of each cell: 5, or 5-20: as many as its interval needs"
        ),
    },
    "interval": {
        "metavar": "SHARE",
        "help": "half-width of a cell's interval at which launches end: 1%%",
    },
    "steps": {"metavar": "N", "type": int, "help": "maximum number of timed steps per launch"},
    "cell-budget": {"metavar": "TIME", "help": "time limit of each launch: 60s, 10m"},
    "budget": {"metavar": "TIME", "help": "time budget for all launches"},
    "seed": {"metavar": "N", "type": int, "help": "seed for the order of launches"},
    "store": {"metavar": "FILE", "help": "also keep the records in this store"},
    "no-wait-for-quiet": {
        "action": "store_true",
        "help": "do not wait for a quiet machine or repeat disturbed launches",
    },
    "yes": {"action": "store_true", "help": "allow more than 10,000 cells"},
    "python": {
        "metavar": "NAME=PATH",
        "action": "append",
        "help": "your own interpreter, torch=/path/to/python. Repeatable",
    },
    "step": {
        "metavar": "FILE",
        "action": "append",
        "help": (
            "your own training step instead of the networks: --dlbench-step=train_step.py, as "
            "`dlbench new step` writes it. Repeatable"
        ),
    },
    "env": {
        "metavar": "NAME[=VALUE]",
        "action": "append",
        "help": (
            "an environment variable for all launches; NAME alone passes on the shell's. Repeatable"
        ),
    },
    "loss-tolerance": {
        "metavar": "SHARE",
        "help": "how much the step's first losses may differ between launches",
    },
    "adapter": {
        "metavar": "NAME=FOLDER",
        "action": "append",
        "help": "your own adapter, my_framework=path/to/folder. Repeatable",
    },
}
"""Options that need --dlbench-suite, besides the axes."""


def add_options(parser: pytest.Parser) -> None:
    """Add the options and the settings of an ini file."""
    group = parser.getgroup("dlbench", "dlbench: deep-learning frameworks side by side")
    group.addoption(
        "--dlbench-suite",
        metavar="SUITE",
        help=(
            "Measure this suite (a name, or a file ending in .toml) and run its cells as "
            "benchmarks."
        ),
    )
    for axis in (*AXIS_OPTIONS, *LIMITS):
        group.addoption(
            f"--dlbench-{axis.option[2:]}",
            metavar=axis.metavar,
            help=f"With --dlbench-suite: {axis.help}".replace("%", "%%"),
        )
    for key, about in OF_THE_SUITE.items():
        group.addoption(
            f"--dlbench-{key}", **{**about, "help": f"With --dlbench-suite: {about['help']}."}
        )
    group.addoption(
        "--dlbench-processes",
        metavar="N",
        help=(
            "Measure the benchmarks of this session in N fresh processes of pytest after the "
            "tests, and judge or save those. 1, the default: this session is the only process, too "
            "few for a verdict."
        ),
    )
    group.addoption(
        "--dlbench-save",
        metavar="FILE",
        help=(
            "Save the benchmarks of all processes in one pytest-benchmark JSON, for "
            "--dlbench-baseline of a later session. Needs --dlbench-processes."
        ),
    )
    group.addoption(
        "--dlbench-baseline",
        metavar="FILE",
        action="append",
        help=(
            "Judge every benchmark against this file of --dlbench-save, pytest-benchmark JSON (or "
            "a folder of them) or dlbench store; only a regression fails the session. Repeatable: "
            "a JSON of one session is one process."
        ),
    )
    group.addoption(
        "--dlbench-baseline-checkout",
        metavar="FOLDER",
        help=(
            "The baseline is the code in this folder, such as a git worktree: with "
            "--dlbench-processes, processes that run there take turns with those that run here. "
            "Finds smaller changes than a saved baseline does."
        ),
    )
    group.addoption(
        "--dlbench-baseline-python",
        metavar="PATH",
        help=(
            "With --dlbench-baseline-checkout: the Python in which that code is installed, if not "
            "this one."
        ),
    )
    group.addoption(
        "--dlbench-no-profile",
        action="store_true",
        help=(
            "With --dlbench-baseline-checkout: do not profile the benchmarks that got slower to "
            "name the operators that account for it."
        ),
    )
    group.addoption(
        "--dlbench-judge",
        metavar="NAMES",
        help=(
            "Quantities to judge, time if not given: time, memory, first_step, import, faults, or "
            "start of a suite's cells, as in time,memory=5%%. Needs --dlbench-processes or "
            "--dlbench-suite."
        ),
    )
    group.addoption(
        "--dlbench-undecided",
        choices=("pass", "fail"),
        default="pass",
        help="Whether a session without enough evidence fails, with exit code 6.",
    )
    group.addoption("--dlbench-process", metavar="FILE", help=argparse.SUPPRESS)
    parser.addini(
        "dlbench_verdict",
        "judge the benchmarks that --benchmark-compare finds by dlbench's rule; only a regression "
        "fails the session",
        type="bool",
        default=False,
    )
    parser.addini(
        "dlbench_processes",
        "--dlbench-processes of sessions that judge or save benchmarks",
        default="1",
    )


@dataclass(frozen=True)
class Asked:
    """The measurements and judgements that the options of a session ask for."""

    suite: bool
    judges: bool
    """Whether there is, or may be, a baseline."""
    processes: int
    """Fresh processes to measure in; 0: this session is the only one."""
    save: Path | None
    checkout: Path | None
    """Folder of the baseline's code."""


def asked_for(config: pytest.Config) -> Asked:
    """Read the options; raises UsageError for options that do not fit each other."""
    suite = bool(config.getoption("dlbench_suite"))
    if not suite:
        _refuse_options_of_the_suite(config)
    checkout = _checkout(config)
    baseline = config.getoption("dlbench_baseline")
    judges = bool(baseline or config.getini("dlbench_verdict") or checkout)
    if config.getoption("dlbench_undecided") == "fail" and not judges:
        raise pytest.UsageError(
            "dlbench: --dlbench-undecided goes with --dlbench-baseline or the ini option "
            "dlbench_verdict. Add one, or leave it out."
        )
    _check_quantities(config, suite, judges)
    save = config.getoption("dlbench_save")
    compares = config.getini("dlbench_verdict") and config.getoption("benchmark_compare", None)
    used = bool(baseline or checkout or compares or save)
    processes = _processes(config, suite, used)
    if checkout is not None and processes == 0:
        raise pytest.UsageError(
            "dlbench: --dlbench-baseline-checkout goes with --dlbench-processes "
            f"{ENOUGH_PROCESSES}. Add it."
        )
    if config.getoption("dlbench_judge") and not suite and processes == 0:
        raise pytest.UsageError(
            "dlbench: --dlbench-judge judges fresh processes or a suite's cells: add "
            f"--dlbench-processes {ENOUGH_PROCESSES}."
        )
    file = None if save is None else _save(config, save, suite, processes)
    return Asked(suite, judges, processes, file, checkout)


def _check_quantities(config: pytest.Config, suite: bool, judges: bool) -> None:
    """Refuse --dlbench-judge where nothing is judged, and a quantity that no test has."""
    names = config.getoption("dlbench_judge")
    if not names:
        return
    if not judges:
        raise pytest.UsageError(
            "dlbench: --dlbench-judge needs a baseline: add --dlbench-baseline=FILE or "
            "--dlbench-baseline-checkout=FOLDER."
        )
    if not suite and "start" in names.replace("=", ",").split(","):
        raise pytest.UsageError(
            "dlbench: 'start' of --dlbench-judge is a quantity of a suite's cells. A test has "
            "import and first_step."
        )


def measures_nothing(config: pytest.Config) -> bool:
    """Tell whether this session only shows something, such as --collect-only."""
    option = config.option
    names = (
        "help",
        "collectonly",
        "setupplan",
        "setuponly",
        "showfixtures",
        "show_fixtures_per_test",
        "markers",
    )
    return any(getattr(option, name, False) for name in names)


def _refuse_options_of_the_suite(config: pytest.Config) -> None:
    axes = [axis.option[2:] for axis in (*AXIS_OPTIONS, *LIMITS)]
    for name in (*axes, *OF_THE_SUITE):
        if config.getoption(f"dlbench_{name.replace('-', '_')}"):
            raise pytest.UsageError(
                f"dlbench: --dlbench-{name} goes with --dlbench-suite. Add the suite, or leave it "
                "out."
            )


def _processes(config: pytest.Config, suite: bool, used: bool) -> int:
    """Return the number of fresh processes; 0 where this session is the only one."""
    given = config.getoption("dlbench_processes")
    text = given
    where = "--dlbench-processes"
    if given is None:
        text = config.getini("dlbench_processes")
        where = "the ini option dlbench_processes"
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise pytest.UsageError(
            f"dlbench: {where} is {text!r}; it takes a number, such as {ENOUGH_PROCESSES}."
        )
    if given is not None and suite:
        raise pytest.UsageError(
            "dlbench: with --dlbench-suite every launch is a process of its own: write "
            "--dlbench-launches instead of --dlbench-processes."
        )
    if given is not None and count > 1 and not used:
        raise pytest.UsageError(
            "dlbench: --dlbench-processes needs a baseline or a file to save: add "
            "--dlbench-baseline=FILE, --dlbench-baseline-checkout=FOLDER or --dlbench-save=FILE."
        )
    return 0 if suite or not used or count == 1 else count


def _checkout(config: pytest.Config) -> Path | None:
    """Return the folder of the baseline's code; raises UsageError where it is of no use."""
    option = "--dlbench-baseline-checkout"
    name = config.getoption("dlbench_baseline_checkout")
    python = config.getoption("dlbench_baseline_python")
    if name is None:
        if python:
            raise pytest.UsageError(
                f"dlbench: --dlbench-baseline-python goes with {option}=FOLDER. Add it."
            )
        if config.getoption("dlbench_no_profile"):
            raise pytest.UsageError(
                f"dlbench: --dlbench-no-profile goes with {option}=FOLDER. Leave it out: without "
                "the baseline's code nothing is profiled."
            )
        return None
    if option in config.invocation_params.args:
        raise pytest.UsageError(
            f"dlbench: write {option}={name}, with an equals sign: pytest takes a folder in a word "
            "of its own for one of tests."
        )
    if config.getoption("dlbench_baseline"):
        raise pytest.UsageError(
            f"dlbench: --dlbench-baseline and {option} are two baselines. Choose one."
        )
    if python and shutil.which(python) is None:
        raise pytest.UsageError(
            f"dlbench: --dlbench-baseline-python={python} is no program. Name a Python."
        )
    path = Path(config.invocation_params.dir, name).resolve()
    if not path.is_dir():
        raise pytest.UsageError(f"dlbench: {option}={name}: there is no such folder.")
    if path == config.invocation_params.dir.resolve():
        raise pytest.UsageError(f"dlbench: {option}={name} is this folder. Name another checkout.")
    return path


def _save(config: pytest.Config, name: str, suite: bool, processes: int) -> Path:
    """Return the file to write; raises UsageError where that cannot work."""
    if suite:
        raise pytest.UsageError(
            "dlbench: with --dlbench-suite the launches are saved by --benchmark-json or "
            "--dlbench-store, not by --dlbench-save."
        )
    if processes == 0:
        raise pytest.UsageError(
            "dlbench: --dlbench-save keeps several processes: add --dlbench-processes "
            f"{ENOUGH_PROCESSES}."
        )
    path = Path(config.invocation_params.dir, name)
    if path.is_dir():
        raise pytest.UsageError(f"dlbench: --dlbench-save {name} is a folder. Name a file in it.")
    if not path.parent.is_dir():
        raise pytest.UsageError(
            f"dlbench: --dlbench-save {name}: there is no folder {path.parent}. Create it first."
        )
    return path
