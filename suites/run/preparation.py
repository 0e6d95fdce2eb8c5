"""What a run needs before its first launch: ceilings, interpreters, references, and the run's own record."""

import contextlib
import importlib.metadata
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import filelock

from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Ceilings, Machine, ProbeError, measure
from dlbench.hardware_probe.doctor import faults, gather_facts
from dlbench.reports.compare.verdict import Rule, chosen
from dlbench.reports.storage.hosts import Node
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.store import Store

from ..display.screen import counted
from ..environments import environment, folders
from ..environments.environment import Report
from ..errors import UsageError
from ..planning.plan import Plan, too_large
from ..planning.values import Build, Capacity
from . import references, texts
from .launcher import guest_environment
from .references import Reference
from .texts import Text, read_corpus


def version() -> str:
    """Return dlbench's own version."""
    return importlib.metadata.version("dlbench")


def capacity(machine: Machine) -> Capacity:
    """Return the physical cores and effective CPUs that thread counts are given in, and the GPUs."""
    effective = machine.cpu.effective_cpus
    cores = max(1, min(machine.cpu.usable_physical_cores, effective))
    return Capacity(cores, effective, machine.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))


def new_seed() -> int:
    """Return a seed for the launching order; it is kept with the run."""
    return secrets.randbelow(2**31)


def begin(plan: Plan, store: Store, machine: Machine, *described: Any) -> Run:
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
    rule: Rule | None = None,
) -> Run:
    """Return a new run of this plan, in no store yet; ``sides`` describe those of a comparison, by ``rule``."""
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
        doctor=faults(gather_facts(variables=os.environ, passed_on=guest_environment({}))),
    )


def ensure_ceilings(plan: Plan, store: Store, machine: Machine, report: Report) -> None:
    """Measure this machine's ceilings at those of the plan's thread counts that the store has none for yet."""
    on_cpu = {cell.all_threads for cell in plan.cells if cell.on_cpu}
    if not on_cpu or not plan.computes:
        return
    kept = store.ceilings(machine.fingerprint)
    known = Ceilings.from_dict(kept).measured if kept else ()
    # More threads than CPUs cannot raise a ceiling, and the ceiling at p is the highest at any p' <= p.
    wanted = {min(threads, machine.cpu.effective_cpus) for threads in on_cpu} | {1}
    missing = wanted - {each.threads for each in known}
    if not missing:
        return
    counts = ", ".join(map(str, sorted(missing)))
    report(f"measuring this machine's peak speed with {counts} thread{'' if missing == {1} else 's'}")
    try:
        new = measure(missing).measured
    except ProbeError as error:
        report(f"no peak speed: {error}")
        return
    for each in new:
        if each.doubt:
            report(f"no peak speed with {counted(each.threads, 'thread')}: {each.doubt}")
    merged = sorted((*known, *(each for each in new if not each.doubt)), key=lambda each: each.threads)
    if merged:
        store.save_ceilings(machine.fingerprint, Ceilings(tuple(merged)).to_dict())


def text_of(plan: Plan, corpus: Path | None) -> Text | None:
    """Return the text that a plan trains on, generated or from a file; None where it trains on none.

    Raises UsageError for an unsuitable file, and for one that the suite does not use.
    """
    if not plan.protocol.curve_steps:
        if corpus is not None:
            raise UsageError(f"--corpus: {plan.suite} trains on no text. Use a suite with curve_steps, such as char.")
        return None
    return texts.generated_text() if corpus is None else read_corpus(corpus)


def check_interpreters(builds: Iterable[Build]) -> None:
    """Inspect every interpreter that the user named; raises FrameworkEnvironmentError for the first unsuitable one."""
    for build in builds:
        environment.external_source(build)


@contextlib.contextmanager
def exclusive(run: Run) -> Iterator[None]:
    """Hold a run, so that no second process of this user resumes it meanwhile; raises UsageError where one does."""
    folder = folders.make_folder(folders.home() / "runs")
    lock = filelock.FileLock(folder / f"{run.id}.lock")
    try:
        with folders.written(folder):
            lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise UsageError(f"Run {run.id} is being carried out by another dlbench. Wait for it, or end it.") from error
    try:
        yield
    finally:
        lock.release()
        (folder / f"{run.id}.lock").unlink(missing_ok=True)


def prepare_references(plan: Plan, machine: Machine, report: Report) -> Callable[[Cell], Reference | None]:
    """Return a look-up of each cell's parity reference, computing those that are missing."""

    def key(cell: Cell) -> tuple[Network, int, bool, int]:
        network = plan.network_of(cell)
        return network, cell.batch_size, cell.on_cpu, references.parts(network, cell.batch_size, cell.world_size)

    wanted = dict.fromkeys(
        key(cell)
        for cell in plan.cells
        if plan.row_of(cell).build.framework.computes and plan.network_of(cell).family.specified
        if not too_large(plan, cell, machine)
    )
    cores = capacity(machine).cores
    # Those of the CPU first: what is computed for it then serves the GPU too.
    in_order = sorted(wanted, key=lambda key: not key[2])
    found = {each: references.fitting(*each[:3], report, cores, each[3]) for each in in_order}
    return lambda cell: found.get(key(cell))
