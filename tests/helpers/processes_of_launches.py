"""Launches of the null framework with several workers, and their processes."""

import sys
import time
from pathlib import Path
from typing import Any

import psutil
from known_networks import data_of

from dlbench.adapters.protocol import Cell, Launch, Outcome, Protocol
from dlbench.suites.measuring.launcher import Order, ProcessLauncher

BRIEF = Protocol(warmup_steps=2, steps=4, minimum_steps=2, seconds=0.2)
PATIENCE = 120.0


def launch_null(cache: Path, settings: dict[str, Any], **of_cell: Any) -> Outcome:
    """Carry out a launch of the null framework; ``cache`` is also what `workers_of` knows it by."""
    cell = Cell("null", "null", "null", "fcn5", "cpu", 1, 64)._replace(**of_cell)
    launch = Launch(cell, BRIEF, settings, None, str(cache), network=data_of("fcn5"))
    variables = {"DLBENCH_TEST_LAUNCH": str(cache)}
    return ProcessLauncher().launch(Order(launch, Path(sys.executable), variables, PATIENCE)).outcome


def workers_of(cache: Path) -> list[psutil.Process]:
    """Wait for the further workers of a launch to be there, and return them."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = [process for process in psutil.process_iter() if _is_worker(process, str(cache))]
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"no worker within {PATIENCE:g} s")


def _is_worker(process: psutil.Process, cache: str) -> bool:
    try:
        return "--worker" in process.cmdline() and process.environ().get("DLBENCH_TEST_LAUNCH") == cache
    except psutil.Error:
        return False
