"""From a plan to a runner that is ready: machine, ceilings, environments, references, and the run's own record."""

import contextlib
import importlib.metadata
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

import filelock

from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import CeilingError, Ceilings, Machine, measure
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.store import Store

from ..environments import contents, environment, row_interpreters
from ..environments.adapter_digest import DIGEST, adapter_digest
from ..environments.environment import Report
from ..environments.row_interpreters import Source
from ..errors import UsageError
from ..planning.choices import Choices
from ..planning.framework import catalogue, offered
from ..planning.plan import Plan
from ..planning.values import Build, Capacity, rows
from . import default_threads, references, resuming
from .launcher import Launcher
from .references import Reference


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


def begin(
    plan: Plan, store: Store, machine: Machine, purpose: str = "suite", sides: Mapping[str, str] = MappingProxyType({})
) -> Run:
    """Store and return a new run of this plan; of a comparison with its purpose and what its sides are, in words."""
    run = new_run(plan, machine, purpose, sides)
    store.begin_run(run)
    return run


def new_run(
    plan: Plan, machine: Machine, purpose: str = "suite", sides: Mapping[str, str] = MappingProxyType({})
) -> Run:
    """Return a new run of this plan, in no store yet."""
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
    )


def unfinished(store: Store, plan: Plan, machine: Machine, purpose: str, bare: bool) -> Run:
    """Return the newest unfinished run of this plan on this machine that was begun for this purpose.

    Raises UsageError where there is none, and where there are others only: see `resuming`.
    """
    runs = _unfinished(store, plan, machine, purpose)
    found = resuming.same(plan, runs, bare)
    if found is None:
        raise resuming.refusal(plan, runs[-1], bare)
    return found


def _unfinished(store: Store, plan: Plan, machine: Machine, purpose: str) -> list[Run]:
    """Return the unfinished runs of a plan's suite, oldest first; raises UsageError where there is none."""
    of_these = plan.suite, machine.fingerprint, purpose
    runs = [each for each in store.runs() if (each.suite, each.machine, each.purpose) == of_these]
    runs = [each for each in runs if each.finished is None]
    if not runs:
        what = "run" if purpose == "suite" else purpose
        raise UsageError(
            f"This store has no unfinished {what} of {plan.suite} on this machine. Leave --resume out to start one."
        )
    return runs


def resume(plan: Plan, store: Store, machine: Machine, chosen: Choices) -> tuple[Plan, Run]:
    """Return the unfinished run that this plan goes on with (see `resuming`), and its own plan.

    Cells, protocol, launches and order are the unfinished run's. Raises UsageError when there is nothing to resume,
    when a build or an adapter it used was not given again, when an adapter named now has no row in it, and when it is
    not what is asked for.
    """
    runs = _unfinished(store, plan, machine, "suite")
    run = resuming.same(plan, runs, bare=not chosen.narrows)
    wanted = list(dict.fromkeys(f"{cell.framework}:{cell.mode}" for cell in (run or runs[-1]).plan))
    try:
        planned_rows = rows(wanted, list(chosen.builds))
    except UsageError as error:
        option = _option_wanting(runs[-1], chosen.builds)
        raise UsageError(
            f"The unfinished run needs a build that is not here: {error} Give its {option} again."
        ) from error
    for name in chosen.joining:
        if name not in {row.build.framework.name for row in planned_rows}:
            raise UsageError(
                f"The unfinished run has no row of {name}, and a resumed run takes none on. Leave --adapter {name}=... "
                "out, or leave out --resume to start a run of its own."
            )
    if run is None:
        raise resuming.refusal(plan, runs[-1], bare=not chosen.narrows)
    # The rest is the same, or it would not be this run.
    return replace(plan, cells=run.plan, rows=planned_rows, seed=run.seed, left_out=()), run


def _option_wanting(run: Run, builds: tuple[Build, ...]) -> str:
    """Return the option that the run's first row which is not here came by."""
    here = {*offered(), *(build.name for build in builds)}
    adapters = {framework.folder for framework in catalogue().values()}
    came_by = (cell.adapter for cell in run.plan if cell.framework not in here)
    return "--python" if next(came_by, "") in {*adapters, ""} else "--adapter"


def ensure_ceilings(plan: Plan, store: Store, machine: Machine, report: Report) -> None:
    """Measure this machine's ceilings at those of the plan's thread counts that the store has none for yet."""
    on_cpu = {cell.all_threads for cell in plan.cells if cell.on_cpu}
    if not on_cpu or not any(row.build.framework.computes for row in plan.rows):
        return
    kept = store.ceilings(machine.fingerprint)
    known = Ceilings.from_dict(kept).measured if kept else ()
    effective = machine.cpu.effective_cpus
    # More threads than CPUs cannot raise a ceiling, and the ceiling at p is the highest at any p' <= p.
    wanted = {min(threads, effective) for threads in on_cpu} | {1}
    missing = wanted - {each.threads for each in known}
    if not missing:
        return
    counts = ", ".join(map(str, sorted(missing)))
    report(f"measuring this machine's peak speed with {counts} thread{'' if counts == '1' else 's'}")
    try:
        new = measure(missing)
    except CeilingError as error:
        report(f"no peak speed: {error}")
        return
    for each in new.measured:
        if each.doubt:
            with_threads = f"{each.threads} thread{'' if each.threads == 1 else 's'}"
            report(f"no peak speed with {with_threads}: {each.doubt}")
    sound = [each for each in new.measured if not each.doubt]
    merged = sorted((*known, *sound), key=lambda each: each.threads)
    if not merged:
        return
    store.save_ceilings(machine.fingerprint, Ceilings(tuple(merged)).to_dict())


def prepare_sources(plan: Plan, report: Report, build_missing: bool) -> dict[str, Source]:
    """Return every row's interpreter, building environments that are not there yet."""
    return row_interpreters.prepare((row.build for row in plan.rows), report, build_missing)


def check_same_builds(plan: Plan, records: Iterable[Record]) -> None:
    """Refuse to go on with other builds or adapters than the run's records were made with; raises UsageError."""
    # A launch that was left out or crashed tells nothing of the adapter.
    told = sorted((record for record in records if record.environment), key=lambda r: DIGEST in r.outcome.software)
    made = {record.cell.framework: record for record in told}
    for build in {row.build.name: row.build for row in plan.rows}.values():
        record = made.get(build.name)
        if record is None:
            continue
        _check_same_adapter(build, record)
        _check_same_environment(build, record)


def _check_same_environment(build: Build, record: Record) -> None:
    interpreter = build.interpreter or environment.locate(build.framework).interpreter
    here = row_interpreters.look_into(build, interpreter) if interpreter else None
    digest = contents.digest_of(here) if here else ""
    if digest == record.environment:
        return
    if here and here.digest_of_versions == record.environment:
        raise UsageError(
            f"The unfinished run began with an earlier dlbench, which knew the build of {build.name} by its versions "
            "alone. Whether its files are the same now cannot be told. Leave out --resume to start a new run."
        )
    now = f"{here.name}, environment {digest}" if here else "not built"
    raise UsageError(
        f"The unfinished run measured {build.name} with {record.interpreter}, environment {record.environment}; here "
        f"it is {now}. Give that interpreter (--python {build.name}=...), or leave out --resume to start a new run."
    )


def _check_same_adapter(build: Build, record: Record) -> None:
    then = record.outcome.software.get(DIGEST)
    if build.framework.outside is not None and then not in (None, adapter_digest(build.framework)):
        raise UsageError(
            f"The unfinished run measured {build.name} with another adapter than {build.framework.outside} is now: its "
            "code has changed. Put it back, or leave out --resume to start a run of its own."
        )


def check_brought(builds: Iterable[Build]) -> None:
    """Look into every interpreter the user brought; raises FrameworkEnvironmentError for the first that will not do."""
    for build in builds:
        row_interpreters.brought(build)


def prepare_defaults(
    plan: Plan, prepared: dict[str, Source], machine: Machine, launcher: Launcher, report: Report
) -> dict[tuple[str, str], int]:
    """Return the thread count each row takes when nobody asks for one; see ``defaults``.

    Left out are rows without a cell on the CPU: their threads only start what a GPU computes.
    """
    used = {(cell.framework, cell.mode) for cell in plan.cells if cell.on_cpu}
    plan = replace(plan, rows=tuple(row for row in plan.rows if (row.build.name, row.mode) in used))
    where = f"{machine.fingerprint}:{machine.cpu.capacity_cpus:g}"
    return default_threads.threads_by_default(plan, prepared, where, launcher, report)


@contextlib.contextmanager
def exclusive(run: Run) -> Iterator[None]:
    """Hold a run, so that no second process of this user resumes it meanwhile; raises UsageError where one does."""
    folder = environment.make_folder(environment.home() / "runs")
    lock = filelock.FileLock(folder / f"{run.id}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise UsageError(f"Run {run.id} is being carried out by another dlbench. Wait for it, or end it.") from error
    try:
        yield
    finally:
        lock.release()
        (folder / f"{run.id}.lock").unlink(missing_ok=True)


def prepare_references(plan: Plan, machine: Machine, report: Report) -> Callable[[Cell], Reference | None]:
    """Return a look-up of each cell's parity reference, computing what is not there yet."""
    computing = {row.build.name for row in plan.rows if row.build.framework.computes}
    wanted = dict.fromkeys(_of_reference(plan, cell) for cell in plan.cells if cell.framework in computing)
    # Those of the CPU first: what is computed for it then serves the GPU too.
    found = {
        key: references.fitting(*key[:3], report, capacity(machine).cores, key[3])
        for key in sorted(wanted, key=lambda key: not key[2])
    }
    return lambda cell: found.get(_of_reference(plan, cell))


def _of_reference(plan: Plan, cell: Cell) -> tuple[Network, int, bool, int]:
    """Return what cells share that are compared with one reference."""
    network = plan.network_of(cell)
    return network, cell.batch_size, cell.on_cpu, references.parts(network, cell.batch_size, cell.world_size)
