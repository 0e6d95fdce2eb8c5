"""The float64 reference of each network and mini-batch: shipped with dlbench, or computed once and kept.

A mini-batch that repeats a smaller one k times has its mean loss, gradients and batch statistics. So the reference of
the smaller one proves a large mini-batch too, whose own would take hours and more memory than there is. With labels of
their own in equal parts, one for each worker, it proves that workers average, batch normalisation or not.
"""

import hashlib
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dlbench.adapters.launch import reference_files
from dlbench.adapters.networks import NETWORKS, Residual

from ..environments import environment
from ..environments.environment import Report

# Largest float64 intermediates a host should hold for a reference; beyond it the cell's parity stays unchecked.
_MOST_EXAMPLES = {"resnet50": 128, "alexnet": 512}
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


def parts(network: str, batch_size: int, world_size: int) -> int:
    """Return how many equal parts of a mini-batch its reference must have, where workers deal it out among them.

    Workers average what they compute of their parts: that is the whole mini-batch's, but for batch normalisation, whose
    means and variances are those of a part. Only of equal parts they are those of the whole.
    """
    shared = isinstance(NETWORKS[network].family, Residual)
    return world_size if shared and batch_size % world_size == 0 else 1


def fitting(
    network: str, batch_size: int, on_cpu: bool, report: Report, threads: int = 1, equal_parts: int = 1
) -> Reference | None:
    """Return the reference for cells of this network and mini-batch, computing one where that is worth its while.

    Mini-batches of GPUs are large: there a smaller one's that is at hand is repeated before one is computed. One of so
    many ``equal_parts`` repeats a smaller one anyway, with labels of their own in each part. None, with a report, where
    there is none of either: parity is then unchecked for these cells, and shown so.
    """
    if equal_parts > 1:
        part = batch_size // equal_parts
        at_hand = _largest(network, _divisors(part), equal_parts)
        if at_hand is not None:
            return Reference(at_hand.path, at_hand.size, equal_parts)
        # A step is as right with few examples, and there may be any number of workers.
        size = min((each for each in _divisors(part) if each >= _FEW_EXAMPLES), default=part)
        made = ensure(network, size, report, threads, equal_parts)
        return None if made is None else Reference(made, size, equal_parts)
    found = find(network, batch_size)
    smaller = None
    if found is None and (not on_cpu or not _computable(network, batch_size)):
        smaller = _largest_within(network, batch_size)
    if smaller is not None:
        times = batch_size // smaller.size
        report(f"parity of {network} at mini-batch {batch_size}: that of {smaller.size}, repeated {times} times")
        return Reference(smaller.path, smaller.size)
    path = found or ensure(network, batch_size, report, threads)
    return None if path is None else Reference(path)


@dataclass(frozen=True)
class _Smaller:
    size: int
    path: Path


def _largest_within(network: str, batch_size: int) -> _Smaller | None:
    """Return the reference at hand of the largest mini-batch that fills this one when repeated."""
    return _largest(network, _divisors(batch_size) - {batch_size})


def _divisors(number: int) -> set[int]:
    low = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return {*low, *(number // size for size in low)}


def _largest(network: str, sizes: Iterable[int], label_sets: int = 1) -> _Smaller | None:
    """Return the reference at hand of the largest mini-batch of these sizes."""
    for size in sorted(sizes, reverse=True):
        path = find(network, size, label_sets)
        if path is not None:
            return _Smaller(size, path)
    return None


def _computable(network: str, batch_size: int) -> bool:
    return batch_size <= _MOST_EXAMPLES.get(network, 4096)


def find(network: str, batch_size: int, label_sets: int = 1) -> Path | None:
    """Return the reference of this network and mini-batch, shipped or made here before; None where there is none."""
    shipped = reference_files.shipped(network, batch_size, label_sets)
    if shipped is not None:
        return Path(shipped)
    own = _own(network, batch_size, label_sets)
    return own if own.exists() else None


def _own(network: str, batch_size: int, label_sets: int) -> Path:
    # A changed recipe or specification is another reference, so its digest is part of the name.
    digest = hashlib.sha256(repr(NETWORKS[network]).encode()).hexdigest()[:8]
    return environment.home() / "references" / f"{reference_files.stem(network, batch_size, label_sets)}-{digest}.npz"


def ensure(network: str, batch_size: int, report: Report, threads: int = 1, label_sets: int = 1) -> Path | None:
    """Return the reference, computing it by a launch of the reference adapter where there is none yet.

    None, with a report, when it could not be computed: parity is then unchecked for these cells, and shown so.
    """
    found = find(network, batch_size, label_sets)
    if found is not None:
        return found
    if not _computable(network, batch_size):
        report(f"no reference for {network} at mini-batch {batch_size}: it would need too much memory")
        return None
    path = _own(network, batch_size, label_sets)
    environment.make_folder(path.parent)
    sets = f" with {label_sets} sets of labels" if label_sets > 1 else ""
    report(f"computing the float64 reference of {network} at mini-batch {batch_size}{sets}, once")
    try:
        reference_files.generate(network, batch_size, str(path), sys.executable, threads, 1800.0, label_sets)
    except reference_files.ReferenceNotMadeError as error:
        report(f"no reference: {error}")
        return None
    return path
