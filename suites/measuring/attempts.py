"""The carrier: carries out one launch of a cell, with its attempts, and makes a Record of each; it stores nothing.

    carrier = Carrier(plan, run, launcher, sources, reference, machine=machine, before_repeat=gate.wait)
    for record in carrier.attempts(planned, plan.protocol, attempts=3):
        store.append(record)

``attempts`` yields each record when its launch has ended, so that a caller can store it before the next attempt
begins; ``carry_out`` returns them all as a list. A launch that others disturbed is attempted again, at most
``attempts`` times in all; ``before_repeat`` is called before each repetition, to wait until the machine is quiet, and
where it returns False there is none. ``reports/evidence/attempts.py`` tells which attempt of a launch counts.

Two sides of a comparison are two carriers over one run: each with its own ``sources`` (other interpreters),
``variables`` (over the framework's own) and ``guest`` folder (another version of the adapters); ``side`` and ``stage``
go into the records.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dlbench.adapters.networks import specification, to_data
from dlbench.adapters.protocol import BOUND, Cell, Launch, Outcome, Protocol, Status
from dlbench.hardware_probe import Machine, probe_gpus
from dlbench.hardware_probe.cpu import bound_mask
from dlbench.hardware_probe.gpu import nvml as chosen_nvml
from dlbench.reports.evidence.attempts import disturbed
from dlbench.reports.storage.hosts import host_of
from dlbench.reports.storage.record import Record, Run

from ..environments import environment
from ..environments.adapter_digest import DIGEST, adapter_digest
from ..environments.row_interpreters import Source
from ..errors import UsageError
from ..planning import devices
from ..planning.devices import Located, Locator
from ..planning.plan import Plan, PlannedLaunch
from .launcher import Launched, Launcher, Order, Tick, no_tick
from .references import Reference
from .telemetry_of_launch import while_sampled

MOST_ATTEMPTS = 3
"""A launch that others disturbed is repeated until it was attempted this often."""

References = Callable[[Cell], Reference | None]


def _do_nothing() -> None:
    """Repeat at once."""


@dataclass(frozen=True)
class _Carried:
    """What a launch gave, and what the record says besides."""

    launched: Launched
    told: dict[str, Any] = field(default_factory=dict)
    """By the host, of the launch: part of the record's software."""
    telemetry: dict[str, Any] | None = None


class Carrier:
    """Carries out launches of one run's cells, data in and data out.

    ``machine`` is the one probed when the run began: it tells which CPUs a bound cell gets, which quota the records
    note, which GPU a name in a cell means, and whether others were in a launch's way; without it no launch counts as
    disturbed. ``nvml`` is asked about GPUs: before each launch on one, and now and then while it lasts.
    """

    def __init__(
        self,
        plan: Plan,
        run: Run,
        launcher: Launcher,
        sources: Mapping[str, Source],
        reference: References,
        *,
        machine: Machine | None = None,
        default_threads: Mapping[tuple[str, str], int] = MappingProxyType({}),
        variables: Mapping[str, str] = MappingProxyType({}),
        guest: Path | None = None,
        before_repeat: Callable[[], object] = _do_nothing,
        nvml: Any = None,
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
        self._nvml = chosen_nvml.in_use() if nvml is None else nvml
        self._locator = Locator(
            None if machine is None else machine.gpus,
            lambda: probe_gpus(self._nvml),
            tuple(dict.fromkeys(cell.device for cell in plan.cells if not cell.on_cpu)),
            os.environ.get("CUDA_VISIBLE_DEVICES"),
        )

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

        A row without interpreter, a reason to ``skip``, or a GPU that does not answer gives one record of status
        SKIPPED and starts nothing.
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
            carried = _skipped(skip if source.interpreter else source.reason)
        else:
            carried = self._launch(cell, protocol, source.interpreter, source.folder, tick)
        outcome = carried.launched.outcome
        told: dict[str, Any] = {}
        default = self._default_threads.get((cell.framework, cell.mode))
        if default is not None and cell.on_cpu:
            told["default_threads"] = default
        if outcome.software:  # a launch that could not answer measured nothing
            told |= carried.told
            # dlbench's own adapters come with its version.
            if source.build.framework.outside is not None:
                told[DIGEST] = adapter_digest(source.build.framework)
        return Record(
            run=self._run.id,
            suite=self._run.suite,
            launch=planned.block,
            cell=cell,
            outcome=outcome._replace(software={**outcome.software, **told}),
            machine=self._run.machine,
            environment=source.digest,
            interpreter=source.name,
            protocol=protocol,
            started=started,
            wall_seconds=carried.launched.wall_seconds,
            version=self._run.version,
            attempt=attempt,
            side=side,
            stage=stage,
            quota_cpus=None if self._machine is None else self._machine.cpu.quota_cpus,
            telemetry=carried.telemetry,
            network=specification(self._plan.network_of(cell).family),
        )

    def _launch(self, cell: Cell, protocol: Protocol, interpreter: Path, folder: Path | None, tick: Tick) -> _Carried:
        """Carry out a launch on the cell's device."""
        located = Located() if cell.on_cpu else self._locator.find(cell.device, cell.world_size)
        if located.reason:
            return _skipped(located.reason)
        order = self._order(cell, protocol, interpreter, folder, located.uuids)
        repeated, label_sets = order.launch.repeated_batch, order.launch.label_sets
        told: dict[str, Any] = {} if repeated is None else {"repeated_batch": repeated}
        if label_sets > 1:
            told["label_sets"] = label_sets
        first = located.devices[0] if located.devices else None
        if first is None or first.uuid is None:
            return _Carried(self._launcher.launch(order, tick), told)
        # Of several GPUs, which do the same, the first is watched.
        launched, telemetry = while_sampled(first.uuid, self._nvml, lambda: self._launcher.launch(order, tick))
        identities = [device.identity(located.driver) for device in located.devices]
        several = {"gpus": identities} if len(identities) > 1 else {}
        return _Carried(launched, {**told, "gpu": identities[0], **several}, telemetry)

    def _order(self, cell: Cell, protocol: Protocol, interpreter: Path, folder: Path | None, gpu: str | None) -> Order:
        row = self._plan.row_of(cell)
        framework = row.build.framework
        settings = {**framework.modes[row.mode].settings, **self._plan.settings.get(framework.name, {})}
        reference = self._reference(cell)
        cache = environment.make_folder(environment.cache_directory(framework))
        launch = Launch(
            cell,
            protocol,
            settings,
            None if reference is None else str(reference.path),
            str(cache),
            cpus=self._cpus(cell),
            adapter_directory=framework.outside,
            gpu=gpu,
            repeated_batch=None if reference is None else reference.repeated_batch,
            label_sets=1 if reference is None else reference.label_sets,
            network=to_data(self._plan.network_of(cell)),
        )
        variables = {
            **framework.launch_variables(row.mode, cell.threads, folder),
            # What the driver compiles for a GPU is kept apart from the user's own.
            **({} if gpu is None else {"CUDA_CACHE_PATH": str(cache / "cuda")}),
            **self._variables,
            **devices.variables(gpu),
        }
        return Order(launch, interpreter, variables, self._plan.cell_seconds, self._guest)

    def _cpus(self, cell: Cell) -> list[int] | None:
        """Return the CPUs that a bound cell may use; raises UsageError where there are too few of them."""
        if cell.affinity != BOUND:
            return None
        mask = None if self._machine is None else bound_mask(self._machine.cpu, cell.all_threads, cell.world_size)
        if mask is None:
            raise UsageError(
                f"{cell.all_threads} threads cannot be bound to as many CPUs here: this process may use fewer."
            )
        return list(mask)


def _skipped(reason: str) -> _Carried:
    return _Carried(Launched(Outcome(Status.SKIPPED, reason), 0.0))
