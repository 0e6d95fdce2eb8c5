"""Files that launches map: large weights, and the mini-batches that steps take one after another.

Drawing a hundred million numbers in each launch takes memory and up to a second. A run makes the
files that it needs, checks each number of existing ones, and rewrites truncated or changed files. A
launch whose weights are missing or truncated draws the same numbers.
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
from ..environments.environment import Report
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
    """Remove all of them; a launch that has opened one keeps it."""
    with folders.written(folder()), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder())


def prepare_weights(plan: Plan, machine: Machine, report: Report) -> Callable[[Cell], Path | None]:
    """Return a look-up of the folder of each cell's large weights, after making or checking its
    files.
    """
    return _prepared(
        plan, machine, plan.network_of, lambda network: checked_weights(network, report)
    )


def prepare_feeds(
    plan: Plan, machine: Machine, report: Report
) -> Callable[[Cell], FeedFiles | None]:
    """Return a look-up of the files of each cell whose steps take mini-batches, after making or
    checking them.
    """

    def key(cell: Cell) -> tuple[Network, int] | None:
        network = plan.network_of(cell)
        used = cell.placement in FED and network.family.specified and network.family.trains
        return (network, cell.known_batch_size) if used else None

    return _prepared(plan, machine, key, lambda wanted: checked_feeds(*wanted, report))


def _prepared(
    plan: Plan,
    machine: Machine,
    key: Callable[[Cell], Key | None],
    make: Callable[[Key], Made | None],
) -> Callable[[Cell], Made | None]:
    """Return a look-up of what is made, once for each key, for the cells that compute and fit into
    memory.
    """
    found: dict[Key | None, Made | None] = {None: None}
    for cell in plan.cells:
        wanted, computes = key(cell), plan.row_of(cell).build.framework.computes
        if (
            wanted is not None
            and wanted not in found
            and computes
            and not too_large(plan, cell, machine)
        ):
            found[wanted] = make(wanted)
    return lambda cell: found.get(key(cell))


def checked_weights(network: Network, report: Report) -> Path | None:
    """Return the folder of a network's weights with the right numbers in its files; None without a
    large weight.
    """
    large = [each for each in network.family.parameters() if in_file(each)]

    def files(place: Path) -> Iterable[tuple[Path, Parts]]:
        for parameter, purpose in itertools.product(large, (TIMED, CHECKED)):
            drawn = weight(network, parameter, purpose).astype("<f4", copy=False)
            yield Path(weight_file(str(place), parameter, purpose)), partial(_parts, drawn)

    size = 2 * 4 * sum(math.prod(each.shape) for each in large)
    return (
        _checked(network, "large weights", size, files, "each launch draws them", report)
        if large
        else None
    )


def _parts(array: np.ndarray) -> Iterable[bytes]:
    return (part.tobytes() for part in np.array_split(array.ravel(), 64))


def checked_feeds(network: Network, batch_size: int, report: Report) -> FeedFiles | None:
    """Return the files with the right mini-batches in them; None, with a report, where they cannot
    be written.
    """
    feeds = {purpose: Feed(network, batch_size, purpose) for purpose in (TIMED, CHECKED)}

    def files(place: Path) -> Iterable[tuple[Path, Parts]]:
        return [
            (Path(path_of(str(place), batch_size, purpose)), feed.drawn)
            for purpose, feed in feeds.items()
        ]

    size = sum(feed.count * feed.record_bytes for feed in feeds.values())
    otherwise = "launches draw them, and those that load them from a file are left out"
    place = _checked(network, "mini-batches", size, files, otherwise, report)
    if place is None:
        return None
    digest, timed = folders.file_digest(Path(path_of(str(place), batch_size, TIMED))), feeds[TIMED]
    described = {
        "digest": digest[:16],
        "mini_batches": timed.count,
        "mini_batch_bytes": timed.record_bytes,
    }
    return FeedFiles(place, described)


def _checked(
    network: Network,
    what: str,
    size: int,
    files: Callable[[Path], Iterable[tuple[Path, Parts]]],
    otherwise: str,
    report: Report,
) -> Path | None:
    """Return the folder of a network's files with these parts; None, with a report, if they cannot
    be written.
    """
    place, drawing = folder() / f"{network.name}-{network_digest(network)}", False
    try:
        place.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(place.with_name(f"{place.name}.lock")):
            for path, parts in files(place):
                if path.exists():
                    if _holds(path, parts):
                        continue
                    report(f"{path} was truncated or changed; rewriting it")
                elif not drawing:
                    drawing = True
                    report(
                        f"drawing {what} of {network.name}, once: {size / folders.MEGABYTE:.1f} MB "
                        f"in {place}"
                    )
                _write(path, parts)
    except OSError as error:
        report(
            f"{what} of {network.name} cannot be stored in {place} ({error.strerror or error}): "
            f"{otherwise}"
        )
        return None
    return place


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
