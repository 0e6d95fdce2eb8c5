"""`dlbench.run`: measure a suite from Python, for notebooks and scripts.

For example:

    import dlbench

    cells = dlbench.run(
        "quick", networks="fcn5", frameworks=["torch", "jax"], threads=[1, 2], budget="5m"
    )
    cells.pivot_table("seconds", ["framework", "mode"], "threads")
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dlbench.reports.frames import cells
from dlbench.reports.results.storage import delivery

from .commands.options import DEFAULT_STORE
from .errors import NOTHING_MEASURED, DlbenchError

if TYPE_CHECKING:
    import pandas as pd

_REPEATED = ("python", "adapter", "step", "env")
"""Options of `dlbench run` that are repeated for several values.

The others take a list with commas.
"""
_PREFIX = "dlbench: "


def run(
    suite: str | os.PathLike[str] = "quick",
    store: str | os.PathLike[str] | None = None,
    **options: Any,
) -> "pd.DataFrame":
    """Measure a suite on this machine as the command `dlbench run` does, and return its cells.

    Options are those of the command with underscores: ``batch_sizes=[16, 64]``, ``budget="10m"``,
    ``step="train_step.py"``, ``env={"OMP_WAIT_POLICY": "passive"}``. True adds a flag:
    ``resume=True``. Progress goes to ``sys.stderr``. The command runs in a process of its own, so
    that nothing in this one is measured.

    Returns the rows of `dlbench.cells` for this run. A cell without a number has a row with the
    reason. Stores the launches in ``store``, by default in ``$DLBENCH_STORE`` or dlbench.sqlite.
    Raises DlbenchError with the last line of the command's errors.
    """
    target = os.fspath(store or os.environ.get("DLBENCH_STORE") or DEFAULT_STORE)
    words = ["run", os.fspath(suite), "--store", target, "--json", *_words(options)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        code, last_line = _call([sys.executable, "-m", "dlbench", *words], output)
        if code not in (0, NOTHING_MEASURED):
            raise DlbenchError(
                last_line.removeprefix(_PREFIX) or f"`dlbench run` ended with exit code {code}."
            )
        output.seek(0)
        identifier = _run_measured(output.read())
    return cells(delivery.local_or(target), run=identifier)


def _words(options: Mapping[str, Any]) -> list[str]:
    """Return the words of the command line for these options."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
            continue
        values = _values(value)
        if name in _REPEATED:
            words += [word for text in values for word in (option, text)]
        else:
            words += [option, ",".join(values)]
    return words


def _values(value: Any) -> list[str]:
    """Return the words of an option's value, or of several."""
    if isinstance(value, Mapping):
        return [f"{name}={text}" for name, text in value.items()]
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [str(item) for item in value]
    return [str(value)]


def _call(command: list[str], output: Any) -> tuple[int, str]:
    """Run a command with its standard output in a file.

    Returns its exit code and the last line of its errors. Ctrl-C in a notebook reaches this process
    alone, and is passed on.
    """
    last_line = ""
    with subprocess.Popen(
        command, stdout=output, stderr=subprocess.PIPE, encoding="utf-8", errors="replace"
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                sys.stderr.write(line)
                last_line = line.strip() or last_line
            code = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            for line in process.stderr:
                sys.stderr.write(line)
            process.wait()
            raise
    return code, last_line


def _run_measured(text: str) -> str:
    """Return the run of a matrix in JSON. Raises DlbenchError if the matrix is empty."""
    matrix = json.loads(text)
    if not matrix:
        raise DlbenchError("No launch was measured. Give the run a larger budget.")
    identifier: str = matrix[0]["run"]
    return identifier
