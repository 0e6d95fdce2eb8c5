"""Files that launches map: large weights, and the mini-batches that steps take one after another.

Drawing a hundred million numbers in each launch takes memory and up to a second. A run makes the
files that it needs, checks each number of existing ones, and rewrites truncated or changed files. A
launch whose weights are missing or truncated draws the same numbers itself.
"""

import contextlib
import itertools
import math
import os
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import filelock
import numpy as np

from dlbench.adapters.launch.batches import CHECKED, TIMED, in_file, weight, weight_file
from dlbench.adapters.launch.feeds import Feed, path_of
from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import FED, Cell
from dlbench.hardware_probe import Machine

from ..environments import folders
from ..environments.environment import Say
from ..planning.plan import Plan, too_large
from .preparation import network_digest

Parts = Callable[[], Iterable[bytes]]
Key = TypeVar("Key")
Made = TypeVar("Made")


class FeedFiles(NamedTuple):
    """The files of a network's mini-batches of one size."""

    folder: Path
    described: dict[str, Any]
    """The description that a record keeps."""


def folder() -> Path:
    """Return the folder of all networks' files."""
    return folders.home() / "weights"


def megabytes() -> int:
    """Return the disk space that they take."""
    kept = (*folder().rglob("*.f4"), *folder().rglob("*.feed"))
    return sum(path.stat().st_size for path in kept) // folders.MEGABYTE


def remove() -> None:
    """Remove all of them. A launch that has opened one keeps it."""
    with folders.written(folder()), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder())


def prepare_weights(plan: Plan, machine: Machine, report: Say) -> Callable[[Cell], Path | None]:
    """Make or check the files of large weights, and return a look-up of each cell's folder."""

    def make(network: Network) -> Path | None:
        return checked_weights(network, report)

    return _prepare_each(plan, machine, plan.network_of, make)


def prepare_feeds(plan: Plan, machine: Machine, report: Say) -> Callable[[Cell], FeedFiles | None]:
    """Make or check the files of mini-batches, and return a look-up of each cell's."""

    def key(cell: Cell) -> tuple[Network, int] | None:
        network = plan.network_of(cell)
        if cell.placement in FED and network.family.specified and network.family.trains:
            return network, cell.known_batch_size
        return None

    def make(wanted: tuple[Network, int]) -> FeedFiles | None:
        network, batch_size = wanted
        return checked_feeds(network, batch_size, report)

    return _prepare_each(plan, machine, key, make)


def _prepare_each(
    plan: Plan,
    machine: Machine,
    key: Callable[[Cell], Key | None],
    make: Callable[[Key], Made | None],
) -> Callable[[Cell], Made | None]:
    """Make the files for each key once, for the cells that compute and fit into memory.

    Return a look-up of the files of a cell.
    """
    made: dict[Key, Made | None] = {}
    for cell in plan.cells:
        wanted = key(cell)
        if wanted is None or wanted in made:
            continue
        if plan.row_of(cell).build.framework.computes and not too_large(plan, cell, machine):
            made[wanted] = make(wanted)

    def files_of(cell: Cell) -> Made | None:
        wanted = key(cell)
        if wanted is None:
            return None
        return made.get(wanted)

    return files_of


def checked_weights(network: Network, report: Say) -> Path | None:
    """Return the folder of a network's large weights with the right numbers in its files.

    None if it has no large weight.
    """
    large = [parameter for parameter in network.family.parameters() if in_file(parameter)]
    if not large:
        return None

    def files(folder: Path) -> Iterable[tuple[Path, Parts]]:
        for parameter, purpose in itertools.product(large, (TIMED, CHECKED)):
            drawn = weight(network, parameter, purpose).astype("<f4", copy=False)
            yield Path(weight_file(str(folder), parameter, purpose)), partial(_parts, drawn)

    size = 2 * 4 * sum(math.prod(parameter.shape) for parameter in large)
    return _check_files(network, "large weights", size, files, "each launch draws them", report)


def _parts(array: np.ndarray) -> Iterable[bytes]:
    return (part.tobytes() for part in np.array_split(array.ravel(), 64))


def checked_feeds(network: Network, batch_size: int, report: Say) -> FeedFiles | None:
    """Return the files with the right mini-batches in them.

    None, with a report, if they cannot be written.
    """
    feeds = {purpose: Feed(network, batch_size, purpose) for purpose in (TIMED, CHECKED)}

    def files(folder: Path) -> Iterable[tuple[Path, Parts]]:
        for purpose, feed in feeds.items():
            yield Path(path_of(str(folder), batch_size, purpose)), feed.drawn

    size = sum(feed.count * feed.record_bytes for feed in feeds.values())
    otherwise = "launches draw them, and those that load them from a file are left out"
    directory = _check_files(network, "mini-batches", size, files, otherwise, report)
    if directory is None:
        return None
    digest = folders.file_digest(Path(path_of(str(directory), batch_size, TIMED)))
    timed = feeds[TIMED]
    described = {
        "digest": digest[:16],
        "mini_batches": timed.count,
        "mini_batch_bytes": timed.record_bytes,
    }
    return FeedFiles(directory, described)


def _check_files(
    network: Network,
    noun: str,
    size: int,
    files: Callable[[Path], Iterable[tuple[Path, Parts]]],
    otherwise: str,
    report: Say,
) -> Path | None:
    """Return the folder of a network's files with these parts, which are made or checked.

    None, with a report, if they cannot be written.
    """
    directory = folder() / f"{network.name}-{network_digest(network)}"
    drawing = False
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(directory.with_name(f"{directory.name}.lock")):
            for path, parts in files(directory):
                if path.exists():
                    if _holds(path, parts):
                        continue
                    report(f"{path} was truncated or changed; rewriting it")
                elif not drawing:
                    drawing = True
                    report(
                        f"drawing {noun} of {network.name}, once: {size / folders.MEGABYTE:.1f} MB "
                        f"in {directory}"
                    )
                _write(path, parts)
    except OSError as error:
        reason = error.strerror or error
        report(f"{noun} of {network.name} cannot be stored in {directory} ({reason}): {otherwise}")
        return None
    return directory


def _holds(path: Path, parts: Parts) -> bool:
    with path.open("rb") as file:
        return all(file.read(len(part)) == part for part in parts()) and not file.read(1)


def _write(path: Path, parts: Parts) -> None:
    """Write a file for launches to read, whole or not at all."""
    begun = path.with_suffix(".part")
    try:
        with begun.open("wb") as file:
            file.writelines(parts())
            file.flush()
            os.fsync(file.fileno())  # so that nothing is written back while a launch is timed
        begun.chmod(0o444)
        begun.replace(path)
    finally:
        begun.unlink(missing_ok=True)
