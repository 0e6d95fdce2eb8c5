"""Preparation of a run: its ceilings, interpreters, parity references and its own record.

A mini-batch that repeats a smaller one k times has the same mean loss, gradients and batch
statistics. So the smaller one's reference also checks a large mini-batch, whose own reference would
take hours and more memory than there is. With different labels in equal parts, one for each worker,
it checks that workers average, with or without batch normalisation.
"""

import contextlib
import importlib.metadata
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import filelock

from dlbench.adapters.launch.batches import CHECKED_EXAMPLES
from dlbench.adapters.networks import Network, digest, specification
from dlbench.adapters.protocol import ASYNC, FED, Cell
from dlbench.hardware_probe import Ceilings, Machine, ProbeError, measure
from dlbench.hardware_probe.doctor import faults, gather_facts
from dlbench.reports.results.hosts import Node
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import Run

from ..environments import environment, folders
from ..environments.environment import Say
from ..errors import UsageError
from ..planning import networks
from ..planning.plan import Plan, too_large
from ..planning.values import Build, Capacity
from . import references
from .launcher import guest_environment
from .privacy import recorded
from .texts import Text, generated_text, read_corpus

if TYPE_CHECKING:  # they import SQLAlchemy and SciPy, which `dlbench plan` does not need
    from dlbench.reports.results.storage.store import Store
    from dlbench.reports.results.verdict import Rule


def version() -> str:
    """Return dlbench's own version."""
    return importlib.metadata.version("dlbench")


def capacity(machine: Machine) -> Capacity:
    """Return the cores and effective CPUs in which thread counts are given, and the GPUs."""
    effective = machine.cpu.effective_cpus
    cores = max(1, min(machine.cpu.usable_physical_cores, effective))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return Capacity(cores, effective, machine.gpus, visible, len(machine.cpu.affinity))


def new_seed() -> int:
    """Return a seed for the launching order. It is kept with the run."""
    return secrets.randbelow(2**31)


def new_run(
    plan: Plan,
    machine: Machine,
    purpose: str = "suite",
    sides: Mapping[str, str] = MappingProxyType({}),
    node: Node | None = None,
    rule: "Rule | None" = None,
) -> Run:
    """Return a new run of this plan, in no store yet.

    ``sides`` describe those of a comparison, which is judged by ``rule``.
    """
    from dlbench.reports.results.verdict import chosen

    rule_values = {}
    if rule is not None:
        rule_values = chosen(rule)
    now = datetime.now(UTC)
    facts = gather_facts(variables=os.environ, passed_on=guest_environment(plan.variables))
    return Run(
        id=f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}",
        suite=plan.suite,
        protocol=plan.protocol,
        launches=plan.launches,
        launches_most=plan.launches_most,
        precision=plan.interval,
        plan=plan.cells,
        machine=machine.fingerprint,
        started=now,
        version=version(),
        finished=None,
        seed=plan.seed,
        purpose=purpose,
        sides=dict(sides),
        rule=rule_values,
        node=node,
        variables=recorded(plan.variables),
        doctor=faults(facts),
    )


def ensure_ceilings(plan: Plan, store: "Store", machine: Machine, report: Say) -> None:
    """Measure this machine's ceilings for the plan's thread counts that the store lacks."""
    cpus = machine.cpu.effective_cpus
    on_cpu = {cell.all_threads or cpus for cell in plan.cells if cell.on_cpu}
    if not on_cpu or not plan.computes:
        return
    # More threads than CPUs cannot raise a ceiling, and the ceiling at p is the highest at any p'
    # <= p.
    missing = {1, *(min(threads, cpus) for threads in on_cpu)}
    kept = []
    stored = store.ceilings(machine.fingerprint)
    if stored:
        kept = list(Ceilings.from_dict(stored).measured)
    for ceiling in kept:
        missing.discard(ceiling.threads)
    if not missing:
        return
    counts = ", ".join(map(str, sorted(missing)))
    noun = "thread" if missing == {1} else "threads"
    report(f"measuring this machine's peak speed with {counts} {noun}")
    try:
        measured = measure(missing).measured
    except ProbeError as error:
        report(f"no peak speed: {error}")
        return
    for ceiling in measured:
        if ceiling.doubt:
            report(f"no peak speed with {counted(ceiling.threads, 'thread')}: {ceiling.doubt}")
        else:
            kept.append(ceiling)
    if kept:
        kept.sort(key=lambda ceiling: ceiling.threads)
        store.save_ceilings(machine.fingerprint, Ceilings(tuple(kept)).to_dict())


def text_of(plan: Plan, corpus: Path | None) -> Text | None:
    """Return the text that a plan trains on, generated or from a file, or None.

    Raises UsageError for an unsuitable file, and for one that the suite does not use.
    """
    if not plan.protocol.curve_steps:
        if corpus is not None:
            raise UsageError(
                f"--corpus: {plan.suite} trains on no text. Use a suite with curve_steps, such as "
                "char."
            )
        return None
    return generated_text() if corpus is None else read_corpus(corpus)


def check_interpreters(builds: Iterable[Build]) -> None:
    """Inspect every interpreter that the user named.

    Raises FrameworkEnvironmentError for the first unsuitable one.
    """
    for build in builds:
        environment.external_source(build)


@contextlib.contextmanager
def exclusive(run: Run) -> Iterator[None]:
    """Lock a run, so that no second process of this user can resume it.

    Raises UsageError if one holds it.
    """
    folder = folders.make_folder(folders.home() / "runs")
    lock = filelock.FileLock(folder / f"{run.id}.lock")
    try:
        with folders.written(folder):
            lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise UsageError(
            f"Run {run.id} is in progress in another dlbench process. Wait for it, or end it."
        ) from error
    try:
        yield
    finally:
        lock.release()
        (folder / f"{run.id}.lock").unlink(missing_ok=True)


# Of a mini-batch whose float64 intermediates a host should hold: 129 examples of resnet50, 440 of
# alexnet.
_MOST_MULTIPLY_ADDS = 5e11
_MOST_EXAMPLES = 4096
# For the statistics of batch normalisation, and to tell chains apart, there should be no fewer.
_FEW_EXAMPLES = 8
# Multiply-adds of a step of a sampling machine, whose random numbers each launch settles by such
# steps in NumPy.
_MOST_TO_SETTLE = 3e6


@dataclass(frozen=True)
class Reference:
    """The reference of a cell's launches.

    Where it was computed for a smaller mini-batch, ``repeated_batch``, that is repeated to fill the
    cell's, with labels of their own in each of ``label_sets`` equal parts.
    """

    path: Path
    repeated_batch: int | None = None
    label_sets: int = 1


class ReferenceKey(NamedTuple):
    """The steps for which a reference is computed."""

    network: Network
    batch_size: int
    parts: int = 1  # equal ones, with labels of their own; with local steps each is a worker's
    local_steps: int = 0
    inference: bool = False  # of outputs; its mini-batch is one for all sizes, unless it is fed
    fed: bool = False  # each step has a mini-batch of its own


def reference_key(network: Network, cell: Cell) -> ReferenceKey:
    """Return the steps for which a cell's reference is computed."""
    batch_size = cell.known_batch_size
    workers = cell.world_size
    fed = network.family.trains and cell.placement in FED
    if cell.infers:
        examples = batch_size if fed else CHECKED_EXAMPLES
        return ReferenceKey(network, examples, inference=True, fed=fed)
    equal_parts = workers
    if not cell.local_steps:
        equal_parts = parts(network, batch_size, workers)
    return ReferenceKey(network, batch_size, equal_parts, cell.local_steps, fed=fed)


def parts(network: Network, batch_size: int, world_size: int) -> int:
    """Return the number of equal parts in the reference of a mini-batch that workers share.

    Workers average over their parts, which gives the whole mini-batch's result except with batch
    normalisation, whose means and variances are those of a part. They match the whole only if the
    parts are equal.
    """
    if network.family.normalises and batch_size % world_size == 0:
        return world_size
    return 1


def fitting(wanted: ReferenceKey, on_cpu: bool, report: Say, threads: int = 1) -> Reference | None:
    """Return the reference for cells with these steps, computing one if that is worthwhile.

    GPUs have large mini-batches: for them, an existing reference of a smaller mini-batch is
    repeated before one is computed. A reference with several equal parts repeats a smaller one
    anyway, with different labels in each part. None is repeated for local steps, or if each step
    has its own mini-batch. Returns None, with a report, if there is no reference: parity is then
    unchecked for these cells, and shown so.
    """
    network, batch_size, equal_parts, local_steps, inference, fed = wanted
    if local_steps or inference or fed:
        path = ensure(wanted, report, threads)
        if path is None:
            return None
        return Reference(path)
    size = _size_to_compute(wanted, on_cpu)
    path = ensure(wanted._replace(batch_size=size), report, threads)
    if path is None:
        return None
    if equal_parts > 1:
        return Reference(path, size, equal_parts)
    if size == batch_size:
        return Reference(path)
    report(
        f"parity of {network.name} at mini-batch {batch_size} uses the reference of mini-batch "
        f"{size}, repeated {batch_size // size} times"
    )
    return Reference(path, size)


def _size_to_compute(wanted: ReferenceKey, on_cpu: bool) -> int:
    """Return the mini-batch whose reference serves a wanted one: its own, or one to repeat."""
    network = wanted.network
    affordable = _computable(network, wanted.batch_size)
    work = wanted.batch_size * sum(network.family.multiply_adds())
    if not network.family.trains and work > _MOST_TO_SETTLE:
        affordable = False
    if wanted.parts == 1 and (find(wanted) or (on_cpu and affordable)):
        return wanted.batch_size
    part = wanted.batch_size // wanted.parts
    sizes = [size for size in range(1, part + 1) if part % size == 0]
    few = 1 if network.family.trains else _FEW_EXAMPLES
    for size in reversed(sizes):
        if size >= few and find(wanted._replace(batch_size=size)):
            return size
    if wanted.parts == 1 and affordable:
        return wanted.batch_size
    # A step is as right with few examples, and there may be any number of workers.
    for size in sizes:
        if size >= _FEW_EXAMPLES and _computable(network, size):
            return size
    return part


def _computable(network: Network, batch_size: int) -> bool:
    work = batch_size * sum(network.family.multiply_adds())
    return batch_size <= _MOST_EXAMPLES and work <= _MOST_MULTIPLY_ADDS


def find(wanted: ReferenceKey) -> Path | None:
    """Return the reference for these steps if dlbench ships it or made it earlier, else None."""
    network = wanted.network
    ours = networks.shipped().get(network.name)
    if ours is not None and not wanted.fed and network_digest(ours) == network_digest(network):
        shipped = references.shipped(stem_of(wanted))
        if shipped is not None:
            return shipped
    path = _made_path(wanted)
    return path if path.exists() else None


def network_digest(network: Network) -> str:
    """Return the digest of a reference's network: its numbers and the recipe's steps.

    A reference depends on it, on the network's name and on the mini-batch.
    """
    steps = {"steps": network.parity.steps, "learning_rate": network.parity.learning_rate}
    return digest({**specification(network.family), **steps, "drawn": references.DRAWN})


def _made_path(wanted: ReferenceKey) -> Path:
    """Return the path of a reference that dlbench does not ship."""
    return folders.home() / "references" / f"{stem_of(wanted)}-{network_digest(wanted.network)}.npz"


def stem_of(wanted: ReferenceKey) -> str:
    """Return the stem of a reference's file, such as "fcn5-b64"."""
    network, batch_size, equal_parts, local_steps, inference, fed = wanted
    stem = f"{network.name}-b{batch_size}"
    if inference:
        stem += "-inference"
    elif local_steps:
        stem += f"-w{equal_parts}-h{local_steps}"
    elif equal_parts > 1:
        stem += f"-l{equal_parts}"
    if fed:
        stem += "-fed"
    return stem


def ensure(wanted: ReferenceKey, report: Say, threads: int = 1) -> Path | None:
    """Return the reference, computing it by a launch of the adapter `reference` if it is missing.

    None, with a report, when it could not be computed: parity is then unchecked for these cells,
    and shown so.
    """
    existing = find(wanted)
    if existing is not None:
        return existing
    network, batch_size, parts, local_steps, inference, fed = wanted
    steps = f"{network.name} at mini-batch {batch_size}"
    if not _computable(network, batch_size):
        report(f"no reference for {steps}: it would need too much memory")
        return None
    path = _made_path(wanted)
    folders.make_folder(path.parent)
    details = ""
    if local_steps:
        details = f" with {parts} workers and {local_steps} local steps"
    elif parts > 1:
        details = f" with {parts} sets of labels"
    elif fed:
        details = ", a new one at each step"
    if inference:
        details += ", of inference"
    report(f"computing the float64 reference of {steps}{details}, once")
    problem = references.compute(
        network,
        batch_size,
        path,
        threads,
        parts=parts,
        local_steps=local_steps,
        inference=inference,
        fed=fed,
    )
    if problem:
        report(f"no reference for {steps}: {problem}")
        return None
    return path


def prepare_references(
    plan: Plan, machine: Machine, report: Say
) -> Callable[[Cell], Reference | None]:
    """Return a look-up of each cell's parity reference, computing those that are missing.

    Asynchronous workers have none, since their updates come in any order.
    """

    def has_reference(cell: Cell) -> bool:
        return cell.sync != ASYNC and plan.network_of(cell).family.specified

    cells = []
    for cell in plan.cells:
        if not has_reference(cell) or not plan.row_of(cell).build.framework.computes:
            continue
        if not too_large(plan, cell, machine):
            cells.append(cell)
    cores = capacity(machine).cores
    prepared: dict[tuple[ReferenceKey, bool], Reference | None] = {}
    # The cells on the CPU come first: references computed for them then serve the GPU too.
    for cell in sorted(cells, key=lambda cell: cell.on_cpu, reverse=True):
        key = reference_key(plan.network_of(cell), cell)
        if (key, cell.on_cpu) not in prepared:
            prepared[key, cell.on_cpu] = fitting(key, cell.on_cpu, report, cores)

    def reference_of(cell: Cell) -> Reference | None:
        if not has_reference(cell):
            return None
        return prepared.get((reference_key(plan.network_of(cell), cell), cell.on_cpu))

    return reference_of
