"""Files of large weights, which launches map: to draw a hundred million numbers anew takes memory and up to a second.

A run makes those that it needs, and checks each number of those that are there; a launch whose file is gone or cut
draws the same numbers.
"""

import contextlib
import itertools
import math
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from dlbench.adapters.families.family import Parameter
from dlbench.adapters.launch import batches
from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Machine

from ..environments import folders
from ..environments.environment import Report
from ..planning.plan import Plan, too_large
from .preparation import network_digest


def folder() -> Path:
    """Return the folder of all networks' weights, and of their mini-batches (`feeds`)."""
    return folders.home() / "weights"


def megabytes() -> int:
    """Return how much room they take."""
    kept = (*folder().rglob("*.f4"), *folder().rglob("*.feed"))
    return sum(path.stat().st_size for path in kept) // folders.MEGABYTE


def remove() -> None:
    """Remove all of them; a launch that has opened one keeps it."""
    with folders.written(folder()), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder())


def prepare(plan: Plan, machine: Machine, report: Report) -> Callable[[Cell], Path | None]:
    """Return a look-up of the folder of each cell's large weights, after making or checking its files."""
    found: dict[Network, Path | None] = {}
    for cell in plan.cells:
        network = plan.network_of(cell)
        if network not in found and plan.row_of(cell).build.framework.computes and not too_large(plan, cell, machine):
            found[network] = checked(network, report)
    return lambda cell: found.get(plan.network_of(cell))


def checked(network: Network, report: Report) -> Path | None:
    """Return the folder of a network's weights with the right numbers in its files; None without a large weight."""
    large = [each for each in network.family.parameters() if batches.in_file(each)]
    if not large:
        return None
    place = folder() / f"{network.name}-{network_digest(network)}"
    room = 2 * 4 * sum(math.prod(each.shape) for each in large) // folders.MEGABYTE
    if not place.exists():
        report(f"drawing the large weights of {network.name}, once: {room} MB in {place}")
    try:
        place.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(place.with_name(f"{place.name}.lock")):
            for parameter, purpose in itertools.product(large, (batches.TIMED, batches.CHECKED)):
                _check(network, parameter, purpose, place)
    except OSError as error:
        report(f"weights cannot be kept in {place} ({error.strerror or error}): each launch draws them anew")
        return None
    return place


def _check(network: Network, parameter: Parameter, purpose: str, place: Path) -> None:
    """Write a weight's file unless it already holds the numbers that would be drawn."""
    path = Path(batches.weight_file(str(place), parameter, purpose))
    right = batches.weight(network, parameter, purpose)
    whole = path.exists() and path.stat().st_size == right.nbytes
    if whole and np.array_equal(np.memmap(path, "<f4", "r", shape=right.shape), right):
        return
    write(path, [right.astype("<f4", copy=False)])


def write(path: Path, parts: Iterable[Any]) -> None:
    """Write a file for launches to read, whole or not at all."""
    partial = path.with_suffix(".part")
    try:
        with partial.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())  # lest it is written while a launch is timed
        partial.chmod(0o444)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
