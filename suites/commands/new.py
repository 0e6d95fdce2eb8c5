"""`dlbench new`: files to start from."""

import shlex
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

from dlbench.adapters.protocol import TASKS

from ..display.help import CommandLine
from ..display.screen import program, say
from ..errors import UsageError, unknown_name
from ..planning import own, values
from ..planning.framework import offered, row_of_package
from . import options
from .options import argument, option, takes

new_app = CommandLine(no_args_is_help=True, help="Create a starter file.")
_DEFINITIONS = resources.files("dlbench.suites") / "definitions"
_FOLDERS = {"training": "steps", "inference": "calls"}
"""The folder of the examples for each task."""


@new_app.callback()
def _keep_subcommand() -> None:
    """Keep `step` a subcommand although it is the only one."""


@dataclass(frozen=True, kw_only=True)
class NewStepOptions:
    """The options of `dlbench new step`."""

    file: Annotated[str, argument("FILE", "The new file, such as train_step.py.")]
    framework: Annotated[
        str,
        option(
            "--with", "Framework of the example: numpy, torch, jax or tensorflow.", metavar="NAME"
        ),
    ] = "numpy"
    task: Annotated[
        str,
        option(
            "--task",
            "`training`: a training step; `inference`: a call that returns outputs.",
            metavar="NAME",
        ),
    ] = TASKS[0]


@new_app.command("step")
@takes(NewStepOptions)
def step_command(given: NewStepOptions) -> None:
    """Write a training step that runs as it is: replace the example's network with your own.

    Examples:

    - `dlbench new step train_step.py --with torch`
    - `dlbench new step answer.py --with torch --task inference`
    - `dlbench run threads --step train_step.py --python ~/venv/bin/python`
    """
    file = given.file
    framework = given.framework
    task = given.task
    values.one_of(task, "task", TASKS)
    folder = _DEFINITIONS / _FOLDERS[task]
    files = [entry.name for entry in folder.iterdir() if entry.name.endswith(".py")]
    known = sorted(Path(name).stem for name in files)
    if framework in offered() and framework not in known:
        other = row_of_package(framework)
        releases = ""
        if other is not None:
            command = f"dlbench bisect {other.name} --step FILE"
            releases = (
                f" Releases of the package {framework} are in the row {other.name}: `{command}`."
            )
        raise UsageError(
            f"There is no example for {framework}. There are: {', '.join(known)}. A step may use "
            f"any package of its interpreter: start from the one for numpy.{releases}"
        )
    if framework not in known:
        raise unknown_name("framework with an example", framework, known)
    own.name_of(file, "FILE")
    path = Path(file)
    if path.exists():
        raise UsageError(f"{file} exists already. Name a new file, or remove it first.")
    options.write_file(path, (folder / f"{framework}.py").read_text(encoding="utf-8"), "The file")
    command = f"{shlex.quote(program())} try {shlex.quote(file)}"
    if task != TASKS[0]:
        command += f" --task {task}"
    if framework != "numpy":
        command += f" --python PATH (of a Python with {framework})"
    say(f"{file} is written. Next: {command}")
