"""Runs one launch of a cell, with its attempts, and makes a Record of each; stores nothing.

    runner = LaunchRunner(plan, run, launch_process, sources, reference, machine=machine, gate=gate)
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
from dlbench.hardware_probe import Gpus, Machine, probe_gpus
from dlbench.hardware_probe import gpu as chosen_nvml
from dlbench.hardware_probe.cpu import bound_mask
from dlbench.hardware_probe.telemetry import Sampler
from dlbench.reports.disturbance import disturbed
from dlbench.reports.storage.hosts import Host, Node, host_of
from dlbench.reports.storage.record import Record, Run

from ..environments import folders
from ..environments.digests import DIGEST, adapter_digest
from ..environments.environment import Source
from ..errors import UsageError
from ..planning import devices
from ..planning.framework import Framework
from ..planning.plan import Plan, PlannedLaunch, too_large
from .judge import FirstLosses, judged, losses_key, note_losses
from .launcher import Launched, Launcher, LaunchRequest, Tick, no_tick, of_a_launch
from .plausibility import Limits, limits_of
from .privacy import private_anywhere
from .quiet_gate import QuietGate
from .references import Reference
from .texts import Text

_SUSPENDED_REPEATS = 3
"""Launches at most where this process was stopped (SIGSTOP) during each."""

References = Callable[[Cell], Reference | None]
Telemetry = dict[str, Any] | None


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
    first_losses: FirstLosses = field(default_factory=dict)
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
    def _planned_gpus(self) -> Gpus:
        return probe_gpus(self.nvml) if self.machine is None else self.machine.gpus

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
        cell, node, started = planned.cell, self.node(), datetime.now(UTC)
        source, network = self.sources[cell.framework], self.plan.network_of(cell)
        unfit = "" if self.machine is None else too_large(self.plan, cell, self.machine)
        reason = unfit or (skip if source.interpreter else source.reason)
        added: dict[str, Any] = {}
        telemetry: Telemetry = None
        if source.interpreter is None or reason:
            launched = _skipped(reason)
        else:
            launched, added, telemetry = self._measure(cell, protocol, source.interpreter, source.folder, tick)
        outcome = launched.outcome
        note_losses(self.first_losses, cell, outcome, network.family)
        if outcome.software:  # a launch that could not answer measured nothing
            added[TUNABLE] = list(self._tunable(cell))
            # dlbench's own adapters come with its version.
            if source.build.framework.external:
                added[DIGEST] = adapter_digest(source.build.framework)
        else:
            added = {}
        default = self.default_threads.get((cell.framework, cell.mode, cell.tuning))
        if default is not None and cell.on_cpu:
            added["default_threads"] = default
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
            wall_seconds=launched.wall_seconds,
            version=self.run.version,
            attempt=attempt,
            side=planned.side,
            stage=planned.stage,
            quota_cpus=None if self.machine is None else self.machine.cpu.quota_cpus,
            telemetry=telemetry,
            network=specification(network.family),
            node=node,
        )

    def _measure(
        self, cell: Cell, protocol: Protocol, interpreter: Path, folder: Path | None, tick: Tick
    ) -> tuple[Launched, dict[str, Any], Telemetry]:
        """Launch a cell on its device and judge it; return it with what the record's software says besides."""
        gpus, software = self._gpus(cell)
        if isinstance(gpus, str):
            return _skipped(gpus), {}, None
        request = self._request(cell, protocol, interpreter, folder, ",".join(gpu.uuid or "" for gpu in gpus) or None)
        if request.launch.repeated_batch is not None:
            software["repeated_batch"] = request.launch.repeated_batch
        if request.launch.label_sets > 1:
            software["label_sets"] = request.launch.label_sets
        if request.launch.text is not None and self.text is not None:
            software["text"] = self.text.described()
        for _ in range(_SUSPENDED_REPEATS):
            # Of several GPUs, which do the same, the first is watched.
            launched, telemetry = self._launch(request, gpus[0].uuid if gpus else None, tick)
            launched = judged(request, launched, self._limits, telemetry)
            # Where this process was stopped meanwhile, its clock says nothing about the guest.
            if not launched.suspended or launched.outcome.status not in (Status.IMPLAUSIBLE, Status.TIMED_OUT):
                break
        return launched, software, telemetry

    def _gpus(self, cell: Cell) -> tuple[tuple[devices.Device, ...] | str, dict[str, Any]]:
        """Return the GPUs of a launch, or why it cannot have them, and the description of them that a record keeps."""
        if cell.on_cpu:
            return (), {}
        now, planned = probe_gpus(self.nvml), self._planned_gpus
        named = dict.fromkeys(each.device for each in self.plan.cells if not each.on_cpu)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        found = devices.locate(cell.device, planned, now, cell.world_size, tuple(named), visible)
        if isinstance(found, str):
            return found, {}
        identities = [gpu.identity(now.driver_version) for gpu in found]
        return found, {"gpu": identities[0], **({"gpus": identities} if len(identities) > 1 else {})}

    def _launch(self, request: LaunchRequest, gpu: str | None, tick: Tick) -> tuple[Launched, Telemetry]:
        if gpu is None:
            return self.launcher(request, tick), None
        sampler = Sampler(gpu, self.nvml, own=of_a_launch)
        sampler.start()
        try:
            launched = self.launcher(request, tick)
        finally:
            telemetry = sampler.stop()
        return launched, telemetry

    def _framework(self, cell: Cell) -> Framework:
        return self.sources[cell.framework].build.framework  # of a comparison, this side's

    def _tunable(self, cell: Cell) -> tuple[str, ...]:
        """Return the settings that the cell's tuning may choose."""
        return self._framework(cell).tunable(cell.mode, cell.device, self.plan.network_of(cell).family.name)

    def _request(
        self, cell: Cell, protocol: Protocol, interpreter: Path, folder: Path | None, gpu: str | None
    ) -> LaunchRequest:
        framework, reference = self._framework(cell), self.reference(cell)
        chosen = in_force(cell.tuning, self._tunable(cell))
        cache = folders.make_folder(folders.cache_directory(framework))
        launch = Launch(
            cell,
            protocol,
            {**framework.launch_settings(cell.mode, chosen), **self.plan.settings.get(framework.name, {})},
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
            self.first_losses.get(losses_key(framework.name, cell)),
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


def _skipped(reason: str) -> Launched:
    return Launched(Outcome(Status.SKIPPED, reason), 0.0)
