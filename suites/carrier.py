"""The carrier: carries out one launch of a cell, with its attempts, and makes a Record of each; it stores nothing.

    carrier = Carrier(plan, run, launcher, sources, reference, machine=machine, before_repeat=gate.wait)
    for record in carrier.attempts(planned, plan.protocol, attempts=3):
        store.append(record)

``attempts`` yields each record when its launch has ended, so that a caller can store it before the next attempt
begins; ``carry_out`` returns them all as a list. A launch that others disturbed is attempted again, at most
``attempts`` times in all; ``before_repeat`` is called before each repetition, to wait until the machine is quiet, and
where it returns False there is none. ``reports.attempts.effective`` tells which attempt of a launch counts.

Two sides of a comparison are two carriers over one run: each with its own ``sources`` (other interpreters),
``variables`` (over the framework's own) and ``guest`` folder (another version of the adapters); ``side`` and ``stage``
go into the records.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from dlbench.adapters.protocol import BOUND, Cell, Launch, Outcome, Protocol, Status
from dlbench.hardware_probe import Machine
from dlbench.hardware_probe.cpu import bound_mask
from dlbench.reports.attempts import disturbed
from dlbench.reports.hosts import host_of
from dlbench.reports.record import Record, Run

from . import environment
from .adapter_digest import DIGEST, adapter_digest
from .errors import UsageError
from .launcher import Launched, Launcher, Order, Tick, no_tick
from .plan import Plan, PlannedLaunch
from .sources import Source

MOST_ATTEMPTS = 3
"""A launch that others disturbed is repeated until it was attempted this often."""

Reference = Callable[[Cell], Path | None]


def _do_nothing() -> None:
    """Repeat at once."""


class Carrier:
    """Carries out launches of one run's cells, data in and data out.

    ``machine`` is the one probed when the run began: it tells which CPUs a bound cell gets, which quota the records
    note, and whether others were in a launch's way; without it no launch counts as disturbed.
    """

    def __init__(
        self,
        plan: Plan,
        run: Run,
        launcher: Launcher,
        sources: Mapping[str, Source],
        reference: Reference,
        *,
        machine: Machine | None = None,
        default_threads: Mapping[tuple[str, str], int] = MappingProxyType({}),
        variables: Mapping[str, str] = MappingProxyType({}),
        guest: Path | None = None,
        before_repeat: Callable[[], object] = _do_nothing,
    ) -> None:
        self._plan = plan
        self._run = run
        self._launcher = launcher
        self._sources = sources
        self._reference = reference
        self._machine = machine
        self._host = None if machine is None else host_of(machine)
        self._default_threads = default_threads
        self._variables = variables
        self._guest = guest
        self._before_repeat = before_repeat

    def carry_out(
        self,
        planned: PlannedLaunch,
        protocol: Protocol,
        *,
        side: str = "",
        stage: str = "",
        attempts: int = 1,
        skip: str = "",
        tick: Tick = no_tick,
    ) -> list[Record]:
        """Return the records of one launch, one for each attempt, in order; see ``attempts``."""
        return list(self.attempts(planned, protocol, side=side, stage=stage, attempts=attempts, skip=skip, tick=tick))

    def attempts(
        self,
        planned: PlannedLaunch,
        protocol: Protocol,
        *,
        side: str = "",
        stage: str = "",
        attempts: int = 1,
        skip: str = "",
        tick: Tick = no_tick,
    ) -> Iterator[Record]:
        """Yield a record for each attempt, until one was left alone or ``attempts`` were made.

        A row without interpreter, or a reason to ``skip``, gives one record of status SKIPPED and starts nothing.
        Raises FrameworkEnvironmentError where a launch cannot write its folder, and KeyboardInterrupt as it comes.
        """
        for attempt in range(max(1, attempts)):
            if attempt and self._before_repeat() is False:
                return
            record = self._attempt(planned, protocol, attempt, side, stage, skip, tick)
            yield record
            if not disturbed(record, self._host):
                return

    def _attempt(
        self, planned: PlannedLaunch, protocol: Protocol, attempt: int, side: str, stage: str, skip: str, tick: Tick
    ) -> Record:
        cell = planned.cell
        started = datetime.now(UTC)
        source = self._sources[cell.framework]
        if source.interpreter is None or skip:
            launched = Launched(Outcome(Status.SKIPPED, skip if source.interpreter else source.reason), 0.0)
        else:
            launched = self._launcher.launch(self._order(cell, protocol, source.interpreter, source.folder), tick)
        outcome = launched.outcome
        default = self._default_threads.get((cell.framework, cell.mode))
        if default is not None:
            outcome = outcome._replace(software={**outcome.software, "default_threads": default})
        # dlbench's own adapters come with its version. A launch that could not answer measured nothing.
        if source.build.framework.outside is not None and launched.outcome.software:
            told = {DIGEST: adapter_digest(source.build.framework)}
            outcome = outcome._replace(software={**outcome.software, **told})
        return Record(
            run=self._run.id,
            suite=self._run.suite,
            launch=planned.block,
            cell=cell,
            outcome=outcome,
            machine=self._run.machine,
            environment=source.digest,
            interpreter=source.name,
            protocol=protocol,
            started=started,
            wall_seconds=launched.wall_seconds,
            version=self._run.version,
            attempt=attempt,
            side=side,
            stage=stage,
            quota_cpus=None if self._machine is None else self._machine.cpu.quota_cpus,
        )

    def _order(self, cell: Cell, protocol: Protocol, interpreter: Path, folder: Path | None) -> Order:
        row = self._plan.row_of(cell)
        framework = row.build.framework
        settings = {**framework.modes[row.mode].settings, **self._plan.settings.get(framework.name, {})}
        reference = self._reference(cell)
        cache = environment.make_folder(environment.cache_directory(framework))
        launch = Launch(
            cell,
            protocol,
            settings,
            None if reference is None else str(reference),
            str(cache),
            cpus=self._cpus(cell),
            adapter_directory=framework.outside,
        )
        variables = {**framework.launch_variables(row.mode, cell.threads, folder), **self._variables}
        return Order(launch, interpreter, variables, self._plan.cell_seconds, self._guest)

    def _cpus(self, cell: Cell) -> list[int] | None:
        """Return the CPUs that a bound cell may use; raises UsageError where there are too few of them."""
        if cell.affinity != BOUND:
            return None
        mask = None if self._machine is None else bound_mask(self._machine.cpu, cell.threads)
        if mask is None:
            raise UsageError(
                f"{cell.threads} threads cannot be bound to as many CPUs here: this process may use fewer."
            )
        return list(mask)
