"""The float64 reference of each network and mini-batch: shipped with dlbench, or computed once and kept.

A mini-batch that repeats a smaller one k times has its mean loss, gradients and batch statistics. So the reference of
the smaller one proves a large mini-batch too, whose own would take hours and more memory than there is. With labels of
their own in equal parts, one for each worker, it proves that workers average, batch normalisation or not.
"""

import math
import sys
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
    """The reference of a cell's launches.

    Where it was computed for a smaller mini-batch, ``repeated_batch``, that is repeated to fill the cell's, with labels
    of their own in each of ``label_sets`` equal parts.
    """

    path: Path
    repeated_batch: int | None = None
    label_sets: int = 1


def parts(network: Network, batch_size: int, world_size: int) -> int:
    """Return how many equal parts of a mini-batch its reference must have, where workers deal it out among them.

    Workers average over their parts: that is the whole mini-batch's result, but for batch normalisation, whose means
    and variances are those of a part. Only of equal parts they are those of the whole.
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
    exact = find(network, batch_size) if equal_parts == 1 else None
    affordable = _computable(network, batch_size)
    if exact is not None or (equal_parts == 1 and on_cpu and affordable):
        path = exact or ensure(network, batch_size, report, threads)
        return None if path is None else Reference(path)
    sizes = sorted(_divisors(batch_size // equal_parts))
    for size in reversed(sizes):
        path = find(network, size, equal_parts)
        if path is not None:
            return _repeated(network, batch_size, Reference(path, size, equal_parts), report)
    if equal_parts > 1 or not affordable:
        # A step is as right with few examples, and there may be any number of workers.
        enough = [size for size in sizes if size >= _FEW_EXAMPLES and _computable(network, size)]
        size = min(enough, default=sizes[-1])
        if path := ensure(network, size, report, threads, equal_parts):
            return _repeated(network, batch_size, Reference(path, size, equal_parts), report)
        return None
    path = ensure(network, batch_size, report, threads)
    return None if path is None else Reference(path)


def _repeated(network: Network, batch_size: int, reference: Reference, report: Report) -> Reference:
    size = reference.repeated_batch or batch_size
    if reference.label_sets == 1:
        what = f"parity of {network.name} at mini-batch {batch_size}"
        report(f"{what} uses the reference of mini-batch {size}, repeated {batch_size // size} times")
    return reference


def _divisors(number: int) -> set[int]:
    low = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return {*low, *(number // size for size in low)}


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
