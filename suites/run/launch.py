"""Runs one launch of a cell, with its attempts, and makes a Record of each; stores nothing.

    runner = LaunchRunner(plan, run, launcher, sources, reference, machine=machine, gate=gate)
    for record in runner.run_launch(planned, plan.protocol, most=3):
        store.append(record)

Each record is yielded when its launch has ended, so that a caller can store it before the next attempt begins. A
disturbed launch is attempted again, at most ``most`` times in all; before each repetition the gate waits until the
machine is quiet, and where it is not, there is none. `reports.storage.record.last_attempts` decides which one counts.

The two sides of a comparison are two of these over one run: each with its own ``sources`` (other interpreters),
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
from .quiet_machine import QuietGate
from .references import Reference
from .texts import Text

_SUSPENDED_REPEATS = 3
"""Launches at most where this process was stopped (SIGSTOP) during each."""

References = Callable[[Cell], Reference | None]


@dataclass(frozen=True)
class _Measured:
    """A launch's outcome and its host-side metadata."""

    launched: Launched
    software: dict[str, Any] = field(default_factory=dict)
    """What the host adds to the record's software."""
    telemetry: dict[str, Any] | None = None


@dataclass(frozen=True)
class LaunchRunner:
    """Runs launches of one run's cells, data in and data out."""

    plan: Plan
    run: Run
    launcher: Launcher
    sources: Mapping[str, Source]
    reference: References
    _: KW_ONLY
    machine: Machine | None = None
    """As probed when the run began: the CPUs of a bound cell, the quota, the GPUs, and whether a launch was disturbed
    follow from it; without it no launch counts as disturbed."""
    gate: QuietGate | None = None
    default_threads: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """By framework, mode and tuning."""
    variables: Mapping[str, str] = field(default_factory=dict)
    guest: Path | None = None
    text: Text | None = None
    """What launches train on, where the protocol has steps for it."""
    first_losses: FirstLosses = field(default_factory=FirstLosses)
    """Of the user's own steps; shared by both sides of a comparison."""
    ceilings: dict[str, Any] | None = None
    """The machine's, as a store keeps them; without them the limits are those of the CPU's instructions."""
    node: Callable[[], Node | None] = lambda: None
    """The node of a fleet as it is now: asked before each launch."""
    nvml: Any = field(default_factory=chosen_nvml.in_use)

    @cached_property
    def host(self) -> Host | None:
        """The machine as records know it."""
        return None if self.machine is None else host_of(self.machine)

    @cached_property
    def _limits(self) -> Limits | None:
        return None if self.machine is None else limits_of(self.machine, self.ceilings)

    @cached_property
    def _locator(self) -> Locator:
        return Locator(
            None if self.machine is None else self.machine.gpus,
            lambda: probe_gpus(self.nvml),
            tuple(dict.fromkeys(cell.device for cell in self.plan.cells if not cell.on_cpu)),
            os.environ.get("CUDA_VISIBLE_DEVICES"),
        )

    def run_launch(
        self, planned: PlannedLaunch, protocol: Protocol, *, most: int = 1, skip: str = "", tick: Tick = no_tick
    ) -> Iterator[Record]:
        """Yield a record for each attempt, until one was not disturbed or ``most`` were made.

        A row without interpreter, a reason to ``skip``, or a GPU that does not answer gives one record of status
        SKIPPED and starts nothing.
        Raises FrameworkEnvironmentError where a launch cannot write its folder, and KeyboardInterrupt as it comes.
        """
        for attempt in range(most):
            if attempt and self.gate is not None and not self.gate.before_repeat():
                return
            record = self._attempt(planned, protocol, attempt, skip, tick)
            yield record
            if not disturbed(record, self.host):
                return

    def _attempt(self, planned: PlannedLaunch, protocol: Protocol, attempt: int, skip: str, tick: Tick) -> Record:
        cell = planned.cell
        node = self.node()
        source = self.sources[cell.framework]
        unfit = "" if self.machine is None else too_large(self.plan, cell, self.machine)
        started = datetime.now(UTC)
        reason = unfit or (skip if source.interpreter else source.reason)
        if source.interpreter is None or reason:
            measured = _skipped(reason)
        else:
            measured = self._measure(cell, protocol, source.interpreter, source.folder, tick)
        outcome = measured.launched.outcome
        self.first_losses.note(cell, outcome, self.plan.network_of(cell).family)
        added: dict[str, Any] = {}
        default = self.default_threads.get((cell.framework, cell.mode, cell.tuning))
        if default is not None and cell.on_cpu:
            added["default_threads"] = default
        if outcome.software:  # a launch that could not answer measured nothing
            added |= measured.software
            added[TUNABLE] = list(self._tunable(cell))
            # dlbench's own adapters come with its version.
            if source.build.framework.external:
                added[DIGEST] = adapter_digest(source.build.framework)
        return Record(
            run=self.run.id,
            suite=self.run.suite,
            launch=planned.block,
            cell=cell,
            outcome=private_anywhere(outcome._replace(software={**outcome.software, **added})),
            machine=self.run.machine,
            environment=source.digest,
            interpreter=source.name,
            protocol=protocol,
            started=started,
            wall_seconds=measured.launched.wall_seconds,
            version=self.run.version,
            attempt=attempt,
            side=planned.side,
            stage=planned.stage,
            quota_cpus=None if self.machine is None else self.machine.cpu.quota_cpus,
            telemetry=measured.telemetry,
            network=specification(self.plan.network_of(cell).family),
            node=node,
        )

    def _measure(self, cell: Cell, protocol: Protocol, interpreter: Path, folder: Path | None, tick: Tick) -> _Measured:
        """Launch a cell on its device and judge the outcome; repeat it where this process was stopped meanwhile."""
        located = Located() if cell.on_cpu else self._locator.find(cell.device, cell.world_size)
        if located.reason:
            return _skipped(located.reason)
        request = self._request(cell, protocol, interpreter, folder, located.uuids)
        software = self._described(request)
        first = located.devices[0] if located.devices else None
        if first is not None and first.uuid is not None:
            identities = [device.identity(located.driver) for device in located.devices]
            software["gpu"] = identities[0]
            if len(identities) > 1:
                software["gpus"] = identities
        for _ in range(_SUSPENDED_REPEATS):
            # Of several GPUs, which do the same, the first is watched.
            launched, telemetry = self._launch(request, first, tick)
            launched = judged(request, launched, self._limits, telemetry)
            if not launched.suspended or launched.outcome.status not in (Status.IMPLAUSIBLE, Status.TIMED_OUT):
                break
        return _Measured(launched, software, telemetry)

    def _launch(
        self, request: LaunchRequest, gpu: devices.Device | None, tick: Tick
    ) -> tuple[Launched, dict[str, Any] | None]:
        if gpu is None or gpu.uuid is None:
            return self.launcher.launch(request, tick), None
        sampler = Sampler(gpu.uuid, self.nvml, own=of_a_launch)
        sampler.start()
        try:
            launched = self.launcher.launch(request, tick)
        finally:
            telemetry = sampler.stop()
        return launched, telemetry

    def _described(self, request: LaunchRequest) -> dict[str, Any]:
        """Return the part of the record's software that describes a request."""
        found: dict[str, Any] = {}
        if request.launch.repeated_batch is not None:
            found["repeated_batch"] = request.launch.repeated_batch
        if request.launch.label_sets > 1:
            found["label_sets"] = request.launch.label_sets
        if request.launch.text is not None and self.text is not None:
            found["text"] = self.text.described()
        return found

    def _tunable(self, cell: Cell) -> tuple[str, ...]:
        """Return the settings that the cell's tuning may choose."""
        framework = self.sources[cell.framework].build.framework
        return framework.tunable(cell.mode, cell.device, self.plan.network_of(cell).family.name)

    def _request(
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
            self.first_losses.of_file(framework.name, cell),
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


def _skipped(reason: str) -> _Measured:
    return _Measured(Launched(Outcome(Status.SKIPPED, reason), 0.0))
