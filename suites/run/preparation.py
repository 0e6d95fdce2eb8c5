"""What a run needs before its first launch: ceilings, interpreters, parity references, and the
run's own record.

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
from typing import TYPE_CHECKING, Any, NamedTuple

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
from ..environments.environment import Report
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
    """Return the physical cores and effective CPUs that thread counts are given in, and the
    GPUs.
    """
    effective = machine.cpu.effective_cpus
    cores = max(1, min(machine.cpu.usable_physical_cores, effective))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return Capacity(cores, effective, machine.gpus, visible, len(machine.cpu.affinity))


def new_seed() -> int:
    """Return a seed for the launching order; it is kept with the run."""
    return secrets.randbelow(2**31)


def begin(plan: Plan, store: "Store", machine: Machine, *described: Any) -> Run:
    """Store and return a new run of this plan; ``described`` as for `new_run`."""
    run = new_run(plan, machine, *described)
    store.begin_run(run)
    return run


def new_run(
    plan: Plan,
    machine: Machine,
    purpose: str = "suite",
    sides: Mapping[str, str] = MappingProxyType({}),
    node: Node | None = None,
    rule: "Rule | None" = None,
) -> Run:
    """Return a new run of this plan, in no store yet; ``sides`` describe those of a comparison, by
    ``rule``.
    """
    from dlbench.reports.results.verdict import chosen

    now = datetime.now(UTC)
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
        rule={} if rule is None else chosen(rule),
        node=node,
        variables=recorded(plan.variables),
        doctor=faults(
            gather_facts(variables=os.environ, passed_on=guest_environment(plan.variables))
        ),
    )


def ensure_ceilings(plan: Plan, store: "Store", machine: Machine, report: Report) -> None:
    """Measure this machine's ceilings at those of the plan's thread counts that the store has none
    for yet.
    """
    cpus = machine.cpu.effective_cpus
    on_cpu = {cell.all_threads or cpus for cell in plan.cells if cell.on_cpu}
    if not on_cpu or not plan.computes:
        return
    kept = store.ceilings(machine.fingerprint)
    known = Ceilings.from_dict(kept).measured if kept else ()
    # More threads than CPUs cannot raise a ceiling, and the ceiling at p is the highest at any p'
    # <= p.
    wanted = {min(threads, cpus) for threads in on_cpu} | {1}
    missing = wanted - {each.threads for each in known}
    if not missing:
        return
    counts = ", ".join(map(str, sorted(missing)))
    report(
        f"measuring this machine's peak speed with {counts} thread{'' if missing == {1} else 's'}"
    )
    try:
        new = measure(missing).measured
    except ProbeError as error:
        report(f"no peak speed: {error}")
        return
    for each in new:
        if each.doubt:
            report(f"no peak speed with {counted(each.threads, 'thread')}: {each.doubt}")
    merged = sorted(
        (*known, *(each for each in new if not each.doubt)), key=lambda each: each.threads
    )
    if merged:
        store.save_ceilings(machine.fingerprint, Ceilings(tuple(merged)).to_dict())


def text_of(plan: Plan, corpus: Path | None) -> Text | None:
    """Return the text that a plan trains on, generated or from a file; None where it trains on
    none.

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
    """Inspect every interpreter that the user named; raises FrameworkEnvironmentError for the first
    unsuitable one.
    """
    for build in builds:
        environment.external_source(build)


@contextlib.contextmanager
def exclusive(run: Run) -> Iterator[None]:
    """Lock a run, so that no second process of this user can resume it; raises UsageError if one
    holds it.
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
    """The steps that a reference is of."""

    network: Network
    batch_size: int
    parts: int = 1  # equal ones, with labels of their own; with local steps each is a worker's
    local_steps: int = 0
    inference: bool = False  # of outputs; its mini-batch is one for all sizes, unless it is fed
    fed: bool = False  # each step has a mini-batch of its own


def reference_key(network: Network, cell: Cell) -> ReferenceKey:
    """Return the steps that the reference of a cell is of."""
    batch_size, workers = cell.known_batch_size, cell.world_size
    fed = network.family.trains and cell.placement in FED
    if cell.infers:
        return ReferenceKey(
            network, batch_size if fed else CHECKED_EXAMPLES, inference=True, fed=fed
        )
    equal_parts = workers if cell.local_steps else parts(network, batch_size, workers)
    return ReferenceKey(network, batch_size, equal_parts, cell.local_steps, fed=fed)


def parts(network: Network, batch_size: int, world_size: int) -> int:
    """Return the number of equal parts in the reference of a mini-batch that workers share.

    Workers average over their parts, which gives the whole mini-batch's result except with batch
    normalisation, whose means and variances are those of a part. They match the whole only if the
    parts are equal.
    """
    return world_size if network.family.normalises and batch_size % world_size == 0 else 1


def fitting(
    wanted: ReferenceKey, on_cpu: bool, report: Report, threads: int = 1
) -> Reference | None:
    """Return the reference for cells with these steps, computing one if that is worthwhile.

    GPUs have large mini-batches: for them, an existing reference of a smaller mini-batch is
    repeated before one is computed. A reference with several equal parts repeats a smaller one
    anyway, with different labels in each part. None is repeated for local steps, or if each step
    has its own mini-batch. Returns None, with a report, if there is no reference: parity is then
    unchecked for these cells, and shown so.
    """
    network, batch_size, equal_parts, local_steps, inference, fed = wanted
    if local_steps or inference or fed:
        own = ensure(wanted, report, threads)
        return None if own is None else Reference(own)
    affordable, size = _computable(network, batch_size), batch_size
    if (
        not network.family.trains
        and batch_size * sum(network.family.multiply_adds()) > _MOST_TO_SETTLE
    ):
        affordable = False
    if equal_parts > 1 or not (find(wanted) or (on_cpu and affordable)):
        part = batch_size // equal_parts
        sizes = [each for each in range(1, part + 1) if part % each == 0]
        few = 1 if network.family.trains else _FEW_EXAMPLES
        at_hand = [each for each in sizes if each >= few and find(wanted._replace(batch_size=each))]
        # A step is as right with few examples, and there may be any number of workers.
        enough = [each for each in sizes if each >= _FEW_EXAMPLES and _computable(network, each)]
        if at_hand:
            size = at_hand[-1]
        elif equal_parts > 1 or not affordable:
            size = min(enough, default=part)
    path = ensure(wanted._replace(batch_size=size), report, threads)
    if path is None or (size == batch_size and equal_parts == 1):
        return None if path is None else Reference(path)
    if equal_parts == 1:
        what = f"parity of {network.name} at mini-batch {batch_size}"
        report(
            f"{what} uses the reference of mini-batch {size}, repeated {batch_size // size} times"
        )
    return Reference(path, size, equal_parts)


def _computable(network: Network, batch_size: int) -> bool:
    work = batch_size * sum(network.family.multiply_adds())
    return batch_size <= _MOST_EXAMPLES and work <= _MOST_MULTIPLY_ADDS


def find(wanted: ReferenceKey) -> Path | None:
    """Return the reference for these steps if dlbench ships it or it was made earlier, else
    None.
    """
    network = wanted.network
    ours = networks.shipped().get(network.name)
    if ours is not None and not wanted.fed and network_digest(ours) == network_digest(network):
        shipped = references.shipped(stem_of(wanted))
        if shipped is not None:
            return shipped
    own = _own(wanted)
    return own if own.exists() else None


def network_digest(network: Network) -> str:
    """Return what a reference depends on besides name and mini-batch: the numbers and the recipe's
    steps.
    """
    steps = {"steps": network.parity.steps, "learning_rate": network.parity.learning_rate}
    return digest({**specification(network.family), **steps, "drawn": references.DRAWN})


def _own(wanted: ReferenceKey) -> Path:
    return folders.home() / "references" / f"{stem_of(wanted)}-{network_digest(wanted.network)}.npz"


def stem_of(wanted: ReferenceKey) -> str:
    """Return the stem of a reference's file, such as "fcn5-b64"."""
    network, batch_size, equal_parts, local_steps, inference, fed = wanted
    if inference:
        kind = "-inference"
    elif local_steps:
        kind = f"-w{equal_parts}-h{local_steps}"
    else:
        kind = f"-l{equal_parts}" if equal_parts > 1 else ""
    return f"{network.name}-b{batch_size}{kind}" + ("-fed" if fed else "")


def ensure(wanted: ReferenceKey, report: Report, threads: int = 1) -> Path | None:
    """Return the reference, computing it by a launch of the reference adapter where there is none
    yet.

    None, with a report, when it could not be computed: parity is then unchecked for these cells,
    and shown so.
    """
    found = find(wanted)
    if found is not None:
        return found
    network, batch_size, parts, local_steps, inference, fed = wanted
    if not _computable(network, batch_size):
        report(
            f"no reference for {network.name} at mini-batch {batch_size}: it would need too much "
            "memory"
        )
        return None
    path = _own(wanted)
    folders.make_folder(path.parent)
    of = f" with {parts} sets of labels" if parts > 1 else ", a new one at each step" if fed else ""
    of = f" with {parts} workers and {local_steps} local steps" if local_steps else of
    of += ", of inference" if inference else ""
    report(
        f"computing the float64 reference of {network.name} at mini-batch {batch_size}{of}, once"
    )
    why = references.compute(
        network,
        batch_size,
        path,
        threads,
        parts=parts,
        local_steps=local_steps,
        inference=inference,
        fed=fed,
    )
    if why:
        report(f"no reference for {network.name} at mini-batch {batch_size}: {why}")
    return None if why else path


def prepare_references(
    plan: Plan, machine: Machine, report: Report
) -> Callable[[Cell], Reference | None]:
    """Return a look-up of each cell's parity reference, computing those that are missing.

    Asynchronous workers have none, since their updates come in any order.
    """

    def key(cell: Cell) -> tuple[ReferenceKey, bool]:
        return reference_key(plan.network_of(cell), cell), cell.on_cpu

    wanted = dict.fromkeys(
        key(cell)
        for cell in plan.cells
        if plan.row_of(cell).build.framework.computes and plan.network_of(cell).family.specified
        if not too_large(plan, cell, machine) and cell.sync != ASYNC
    )
    cores = capacity(machine).cores
    # Those of the CPU first: what is computed for it then serves the GPU too.
    in_order = sorted(wanted, key=lambda key: not key[1])
    found = {each: fitting(*each, report, cores) for each in in_order}

    def reference_of(cell: Cell) -> Reference | None:
        has_one = cell.sync != ASYNC and plan.network_of(cell).family.specified
        return found.get(key(cell)) if has_one else None

    return reference_of
