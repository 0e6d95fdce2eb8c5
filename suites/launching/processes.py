"""The processes of a launch: known by their descent and by a mark in their environment, and ended with it."""

import contextlib
import os
import signal

import psutil

from dlbench.hardware_probe.telemetry import descends_from_this_process

MARK = "DLBENCH_LAUNCH"
"""The variable by which a launch's processes are known, whatever session they made themselves."""


def of_a_launch(pid: int) -> bool | None:
    """Tell whether a process belongs to a launch; None where no such process can be seen.

    One that left its launch's tree still carries the mark. There is one launch at a time on a machine.
    """
    descends = descends_from_this_process(pid)
    if descends is not False:
        return descends
    try:
        return MARK in psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return False


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a launch's process group, which may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def end_tree(root: int) -> None:
    """Kill all descendants of a process, those first that it started last."""
    with contextlib.suppress(psutil.Error):
        for process in reversed(psutil.Process(root).children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                process.kill()


def end_strays(mark: str) -> None:
    """Kill what a launch left behind in sessions of its own: it would disturb every later measurement."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                process.kill()
