"""The float64 reference of each network and mini-batch: shipped with dlbench, or computed once and kept.

A mini-batch that repeats a smaller one k times has its mean loss, gradients and batch statistics. So the reference of
the smaller one proves a large mini-batch too, whose own would take hours and more memory than there is. With labels of
their own in equal parts, one for each worker, it proves that workers average, batch normalisation or not.
"""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dlbench.adapters.networks import Network, digest, specification
from dlbench.adapters.reference import files as reference_files

from ..environments import folders
from ..environments.environment import Report
from ..planning import networks

# Of a mini-batch whose float64 intermediates a host should hold: 129 examples of resnet50, 440 of alexnet.
_MOST_MULTIPLY_ADDS = 5e11
_MOST_EXAMPLES = 4096
# For the statistics of batch normalisation there should be no fewer.
_FEW_EXAMPLES = 8


@dataclass(frozen=True)
class Reference:
    """What a cell's launches are compared with."""

    path: Path
    repeated_batch: int | None = None
    """The mini-batch that it was computed for, where that is repeated to fill the cell's; None: it is the cell's."""
    label_sets: int = 1
    """So many equal parts of the cell's mini-batch have labels of their own."""


def parts(network: Network, batch_size: int, world_size: int) -> int:
    """Return how many equal parts of a mini-batch its reference must have, where workers deal it out among them.

    Workers average what they compute of their parts: that is the whole mini-batch's, but for batch normalisation, whose
    means and variances are those of a part. Only of equal parts they are those of the whole.
    """
    return world_size if network.family.normalises and batch_size % world_size == 0 else 1


def fitting(
    network: Network, batch_size: int, on_cpu: bool, report: Report, threads: int = 1, equal_parts: int = 1
) -> Reference | None:
    """Return the reference for cells of this network and mini-batch, computing one where that is worth its while.

    Mini-batches of GPUs are large: there a smaller one's that is at hand is repeated before one is computed. One of so
    many ``equal_parts`` repeats a smaller one anyway, with labels of their own in each part. None, with a report, where
    there is neither: parity is then unchecked for these cells, and shown so.
    """
    if equal_parts > 1:
        part = batch_size // equal_parts
        at_hand = _largest(network, _divisors(part), equal_parts)
        if at_hand is not None:
            return at_hand
        # A step is as right with few examples, and there may be any number of workers.
        size = min((each for each in _divisors(part) if each >= _FEW_EXAMPLES), default=part)
        made = ensure(network, size, report, threads, equal_parts)
        return None if made is None else Reference(made, size, equal_parts)
    found = find(network, batch_size)
    smaller = None
    if found is None and (not on_cpu or not _computable(network, batch_size)):
        at_hand = _largest(network, _divisors(batch_size) - {batch_size})
        smaller = at_hand or _largest_computed(network, batch_size, report, threads)
    if smaller is not None and smaller.repeated_batch is not None:
        size = smaller.repeated_batch
        what = f"parity of {network.name} at mini-batch {batch_size}"
        report(f"{what} uses the reference of mini-batch {size}, repeated {batch_size // size} times")
        return smaller
    path = found or ensure(network, batch_size, report, threads)
    return None if path is None else Reference(path)


def _largest_computed(network: Network, batch_size: int, report: Report, threads: int) -> Reference | None:
    """Compute and return the reference of a mini-batch that fills this one, which is too large for one of its own."""
    if _computable(network, batch_size):
        return None
    some = [size for size in _divisors(batch_size) if size >= _FEW_EXAMPLES and _computable(network, size)]
    size = min(some, default=0)
    path = ensure(network, size, report, threads) if size else None
    return None if path is None else Reference(path, size)


def _divisors(number: int) -> set[int]:
    low = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return {*low, *(number // size for size in low)}


def _largest(network: Network, sizes: Iterable[int], label_sets: int = 1) -> Reference | None:
    """Return the reference at hand of the largest mini-batch of these sizes, to be repeated."""
    for size in sorted(sizes, reverse=True):
        path = find(network, size, label_sets)
        if path is not None:
            return Reference(path, size, label_sets)
    return None


def _computable(network: Network, batch_size: int) -> bool:
    work = batch_size * sum(network.family.multiply_adds())
    return batch_size <= _MOST_EXAMPLES and work <= _MOST_MULTIPLY_ADDS


def find(network: Network, batch_size: int, label_sets: int = 1) -> Path | None:
    """Return the reference of this network and mini-batch, shipped or made here before; None where there is none."""
    ours = networks.shipped().get(network.name)
    if ours is not None and _digest(ours) == _digest(network):
        shipped = reference_files.shipped(network.name, batch_size, label_sets)
        if shipped is not None:
            return Path(shipped)
    own = _own(network, batch_size, label_sets)
    return own if own.exists() else None


def _digest(network: Network) -> str:
    """Return what a reference depends on besides name and mini-batch: the numbers and the recipe's steps."""
    steps = {"steps": network.parity.steps, "learning_rate": network.parity.learning_rate}
    return digest({**specification(network.family), **steps, "drawn": reference_files.DRAWN})


def _own(network: Network, batch_size: int, label_sets: int) -> Path:
    stem = reference_files.stem(network.name, batch_size, label_sets)
    return folders.home() / "references" / f"{stem}-{_digest(network)}.npz"


def ensure(network: Network, batch_size: int, report: Report, threads: int = 1, label_sets: int = 1) -> Path | None:
    """Return the reference, computing it by a launch of the reference adapter where there is none yet.

    None, with a report, when it could not be computed: parity is then unchecked for these cells, and shown so.
    """
    found = find(network, batch_size, label_sets)
    if found is not None:
        return found
    if not _computable(network, batch_size):
        report(f"no reference for {network.name} at mini-batch {batch_size}: it would need too much memory")
        return None
    path = _own(network, batch_size, label_sets)
    folders.make_folder(path.parent)
    sets = f" with {label_sets} sets of labels" if label_sets > 1 else ""
    report(f"computing the float64 reference of {network.name} at mini-batch {batch_size}{sets}, once")
    try:
        reference_files.generate(network, batch_size, str(path), sys.executable, threads, 1800.0, label_sets)
    except (reference_files.ReferenceNotMadeError, OSError) as error:
        report(f"no reference: {error}")
        return None
    return path
