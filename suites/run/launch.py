"""The carrier: carries out one launch of a cell, with its attempts, and makes a Record of each; it stores nothing.

    carrier = LaunchRunner(plan, run, launcher, sources, reference, machine=machine, gate=gate)
    for record in carrier.attempts(planned, plan.protocol, most=3):
        store.append(record)

``attempts`` yields each record when its launch has ended, so that a caller can store it before the next attempt
begins. A launch that others disturbed is attempted again, at most ``most`` times in all; before each repetition the
gate waits until the machine is quiet, and where it is not, there is none. ``reports/evidence/attempts.py`` tells which
attempt of a launch counts.

Two sides of a comparison are two carriers over one run: each with its own ``side``, ``sources`` (other interpreters),
``variables`` (over the framework's own) and ``guest`` folder (another version of the adapters).
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from dlbench.adapters.networks import specification, to_data
from dlbench.adapters.protocol import BOUND, Cell, Launch, Outcome, Protocol, Status
from dlbench.adapters.tuning import TUNABLE, in_force
from dlbench.hardware_probe import Machine, probe_gpus
from dlbench.hardware_probe import gpu as chosen_nvml
from dlbench.hardware_probe.cpu import bound_mask
from dlbench.hardware_probe.telemetry import Sampler
from dlbench.reports.flags import disturbed
from dlbench.reports.storage.hosts import Host, Node, host_of
from dlbench.reports.storage.record import Record, Run

from ..environments import folders
from ..environments.digests import DIGEST, adapter_digest
from ..environments.environment import Source
from ..errors import UsageError
from ..planning import devices
from ..planning.devices import Located, Locator
from ..planning.plan import Plan, PlannedLaunch, too_large
from .judge import FirstLosses, judged
from .launcher import Launched, Launcher, LaunchRequest, Tick, no_tick, of_a_launch
from .plausibility import Limits, limits_of
from .privacy import private_anywhere
from .quiet_machine import BlockGate
from .references import Reference
from .texts import Text

MOST_ATTEMPTS = 3
"""A launch that others disturbed is repeated until it was attempted this often."""

References = Callable[[Cell], Reference | None]


@dataclass(frozen=True)
class _Launched:
    """What a launch gave, and what the record says besides."""

    launched: Launched
    told: dict[str, Any] = field(default_factory=dict)
    """By the host, of the launch: part of the record's software."""
    telemetry: dict[str, Any] | None = None


@dataclass(frozen=True)
class LaunchRunner:
    """Carries out launches of one run's cells, data in and data out."""

    plan: Plan
    run: Run
    launcher: Launcher
    sources: Mapping[str, Source]
    reference: References
    _: KW_ONLY
    machine: Machine | None = None
    """The one probed when the run began: it tells which CPUs a bound cell gets, which quota the records note, which GPU
    a name in a cell means, and whether others disturbed a launch; without it no launch counts as disturbed."""
    gate: BlockGate | None = None
    """None: nothing is waited for."""
    default_threads: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """By framework, mode and tuning."""
    side: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    guest: Path | None = None
    text: Text | None = None
    """What launches train on, where the protocol has steps for it; without a text none does."""
    first_losses: FirstLosses = field(default_factory=FirstLosses)
    """Of steps of the user's own; both sides of a comparison have one of these."""
    ceilings: dict[str, Any] | None = None
    """The machine's, as a store keeps them; without them the limits are those of the CPU's instructions."""
    node: Callable[[], Node | None] = lambda: None
    """Of a fleet, as it is now: asked before each launch."""
    nvml: Any = field(default_factory=chosen_nvml.in_use)
    """Asked about GPUs: before each launch on one, and now and then while it lasts."""

    @cached_property
    def host(self) -> Host | None:
        """The machine as records know it."""
        return None if self.machine is None else host_of(self.machine)

    @cached_property
    def _limits(self) -> Limits | None:
        return None if self.machine is None else limits_of(self.machine, self.ceilings)

    def _too_large(self, cell: Cell) -> str:
        return "" if self.machine is None else too_large(self.plan, cell, self.machine)

    @cached_property
    def _locator(self) -> Locator:
        return Locator(
            None if self.machine is None else self.machine.gpus,
            lambda: probe_gpus(self.nvml),
            tuple(dict.fromkeys(cell.device for cell in self.plan.cells if not cell.on_cpu)),
            os.environ.get("CUDA_VISIBLE_DEVICES"),
        )

    def attempts(
        self,
        planned: PlannedLaunch,
        protocol: Protocol,
        *,
        stage: str = "",
        most: int = 1,
        skip: str = "",
        tick: Tick = no_tick,
    ) -> Iterator[Record]:
        """Yield a record for each attempt, until one was not disturbed or ``most`` were made.

        A row without interpreter, a reason to ``skip``, or a GPU that does not answer gives one record of status
        SKIPPED and starts nothing.
        Raises FrameworkEnvironmentError where a launch cannot write its folder, and KeyboardInterrupt as it comes.
        """
        for attempt in range(most):
            if attempt and self.gate is not None and not self.gate.before_repeat():
                return
            record = self._attempt(planned, protocol, attempt, stage, skip, tick)
            yield record
            if not disturbed(record, self.host):
                return

    def _attempt(
        self, planned: PlannedLaunch, protocol: Protocol, attempt: int, stage: str, skip: str, tick: Tick
    ) -> Record:
        cell = planned.cell
        node = self.node()
        started = datetime.now(UTC)
        source = self.sources[cell.framework]
        why_not = self._too_large(cell) or (skip if source.interpreter else source.reason)
        if source.interpreter is None or why_not:
            carried = _skipped(why_not)
        else:
            carried = self._launch(cell, protocol, source.interpreter, source.folder, tick)
        outcome = carried.launched.outcome
        self.first_losses.note(cell, outcome, self.plan.network_of(cell).family)
        told: dict[str, Any] = {}
        default = self.default_threads.get((cell.framework, cell.mode, cell.tuning))
        if default is not None and cell.on_cpu:
            told["default_threads"] = default
        if outcome.software:  # a launch that could not answer measured nothing
            told |= carried.told
            told[TUNABLE] = list(self._tunable(cell))
            # dlbench's own adapters come with its version.
            if source.build.framework.brought:
                told[DIGEST] = adapter_digest(source.build.framework)
        return Record(
            run=self.run.id,
            suite=self.run.suite,
            launch=planned.block,
            cell=cell,
            outcome=private_anywhere(outcome._replace(software={**outcome.software, **told})),
            machine=self.run.machine,
            environment=source.digest,
            interpreter=source.name,
            protocol=protocol,
            started=started,
            wall_seconds=carried.launched.wall_seconds,
            version=self.run.version,
            attempt=attempt,
            side=self.side,
            stage=stage,
            quota_cpus=None if self.machine is None else self.machine.cpu.quota_cpus,
            telemetry=carried.telemetry,
            network=specification(self.plan.network_of(cell).family),
            node=node,
        )

    def _launch(self, cell: Cell, protocol: Protocol, interpreter: Path, folder: Path | None, tick: Tick) -> _Launched:
        """Carry out a launch on the cell's device."""
        located = Located() if cell.on_cpu else self._locator.find(cell.device, cell.world_size)
        if located.reason:
            return _skipped(located.reason)
        order = self._order(cell, protocol, interpreter, folder, located.uuids)
        repeated, label_sets = order.launch.repeated_batch, order.launch.label_sets
        told: dict[str, Any] = {} if repeated is None else {"repeated_batch": repeated}
        if label_sets > 1:
            told["label_sets"] = label_sets
        if order.launch.text is not None and self.text is not None:
            told["text"] = self.text.described()
        first = located.devices[0] if located.devices else None
        if first is None or first.uuid is None:
            return _Launched(judged(order, self.launcher.launch(order, tick), self._limits), told)
        # Of several GPUs, which do the same, the first is watched.
        sampler = Sampler(first.uuid, self.nvml, own=of_a_launch)
        sampler.start()
        try:
            launched = self.launcher.launch(order, tick)
        finally:
            telemetry = sampler.stop()
        launched = judged(order, launched, self._limits, telemetry)
        identities = [device.identity(located.driver) for device in located.devices]
        several = {"gpus": identities} if len(identities) > 1 else {}
        return _Launched(launched, {**told, "gpu": identities[0], **several}, telemetry)

    def _tunable(self, cell: Cell) -> tuple[str, ...]:
        """Return the settings of which the cell's tuning chooses."""
        framework = self.sources[cell.framework].build.framework
        return framework.tunable(cell.mode, cell.device, self.plan.network_of(cell).family.name)

    def _order(
        self, cell: Cell, protocol: Protocol, interpreter: Path, folder: Path | None, gpu: str | None
    ) -> LaunchRequest:
        framework = self.sources[cell.framework].build.framework  # of a comparison, this side's
        chosen = in_force(cell.tuning, self._tunable(cell))
        settings = {**framework.launch_settings(cell.mode, chosen), **self.plan.settings.get(framework.name, {})}
        reference = self.reference(cell)
        cache = folders.make_folder(folders.cache_directory(framework))
        launch = Launch(
            cell,
            protocol,
            settings,
            None,
            str(cache),
            cpus=self._cpus(cell),
            adapter_directory=framework.outside,
            gpu=gpu,
            repeated_batch=None if reference is None else reference.repeated_batch,
            label_sets=1 if reference is None else reference.label_sets,
            network=to_data(self.plan.network_of(cell)),
            text=str(self.text.file()) if self.text is not None and protocol.curve_steps else None,
        )
        variables = {
            **framework.launch_variables(cell.mode, cell.threads, folder, chosen),
            # What the driver compiles for a GPU is kept apart from the user's own.
            **({} if gpu is None else {"CUDA_CACHE_PATH": str(cache / "cuda")}),
            **self.variables,
            **devices.variables(gpu),
        }
        return LaunchRequest(
            launch,
            interpreter,
            variables,
            self.plan.cell_seconds,
            self.guest,
            None if reference is None else reference.path,
            framework.computes,
            self.first_losses.told_of(framework.name, cell),
        )

    def _cpus(self, cell: Cell) -> list[int] | None:
        """Return the CPUs that a bound cell may use; raises UsageError where there are too few of them."""
        if cell.affinity != BOUND:
            return None
        mask = None if self.machine is None else bound_mask(self.machine.cpu, cell.all_threads, cell.world_size)
        if mask is None:
            raise UsageError(
                f"{cell.all_threads} threads cannot be bound to as many CPUs here: this process may use fewer."
            )
        return list(mask)


def _skipped(reason: str) -> _Launched:
    return _Launched(Launched(Outcome(Status.SKIPPED, reason), 0.0))
