"""`dlbench new`: files to start from."""

import shlex
from importlib import resources
from pathlib import Path

from dlbench.adapters.protocol import TASKS

from ..display.help import CommandLine
from ..display.screen import program, say
from ..errors import UsageError, unknown_name
from ..planning import own, values
from ..planning.framework import offered, row_of_package
from . import options
from .options import Given, option, takes

new_app = CommandLine(no_args_is_help=True, help="Create a starter file.")
_DEFINITIONS = resources.files("dlbench.suites") / "definitions"
_FOLDERS = dict(zip(TASKS, ("steps", "calls"), strict=True))
"""Of the examples, by task."""


@new_app.callback()
def _of_files() -> None:
    """Keep `step` a subcommand although it is the only one."""


@new_app.command("step")
@takes(
    {
        "file": options.argument("FILE", "The new file, such as train_step.py."),
        "framework": option(
            "--with",
            "Framework of the example: numpy, torch, jax or tensorflow.",
            str,
            "numpy",
            metavar="NAME",
        ),
        "task": option(
            "--task",
            "`training`: a training step; `inference`: a call that returns outputs.",
            str,
            TASKS[0],
            metavar="NAME",
        ),
    }
)
def step_command(given: Given) -> None:
    """Write a training step that runs as it is: replace the example's network with your own.

    Examples:

    - `dlbench new step train_step.py --with torch`
    - `dlbench new step answer.py --with torch --task inference`
    - `dlbench run threads --step train_step.py --python ~/venv/bin/python`
    """
    file, framework, task = given.file, given.framework, given.task
    values.one_of(task, "task", TASKS)
    folder = _DEFINITIONS / _FOLDERS[task]
    known = sorted(
        Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".py")
    )
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
    interpreter = "" if framework == "numpy" else f" --python PATH (of a Python with {framework})"
    of_task = "" if task == TASKS[0] else f" --task {task}"
    say(
        f"{file} is written. Next: {shlex.quote(program())} try "
        f"{shlex.quote(file)}{of_task}{interpreter}"
    )
