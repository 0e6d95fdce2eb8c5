"""Runs launches of cells, with their attempts, and makes a Record of each; stores nothing.

Records are yielded when their launches have ended, so that a caller can store them before the next
attempt begins. A disturbed launch is attempted again, at most ``most`` times in all; before each
repetition the gate waits until the machine is quiet, and where it is not, there is none.
`reports.results.record.last_attempts` decides which one counts.

The two sides of a comparison are two of these over one run: each with its own ``sources`` (other
interpreters), ``variables`` (over those of the plan and the framework's own) and ``guest`` folder
(another version of the adapters).

Records do not contain the user, the host's name, paths of files, or any password (see `privacy`).
"""

import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.networks import specification, to_data
from dlbench.adapters.protocol import Cell, Launch, Outcome, Protocol, Status
from dlbench.adapters.tuning import THREAD_SETTING, TUNABLE, in_force
from dlbench.hardware_probe import Machine, probe_gpus
from dlbench.hardware_probe import gpu as chosen_nvml
from dlbench.hardware_probe.cpu import bound_mask, node_mask
from dlbench.hardware_probe.telemetry import Sampler
from dlbench.reports.results.disturbance import disturbed
from dlbench.reports.results.hosts import Host, Node, host_of
from dlbench.reports.results.record import GATE, PROFILED, RELEASED, Record, Run

from ..environments import folders
from ..environments.digests import DIGEST, adapter_digest, with_variables
from ..environments.environment import Source
from ..errors import UsageError
from ..planning import devices
from ..planning.framework import Framework
from ..planning.plan import Plan, PlannedLaunch, binds, too_large
from .instances import run_instances
from .judge import FirstLosses, Limits, judged, limits_of, losses_key, note_losses
from .launch_files import FeedFiles
from .launcher import Launched, Launcher, LaunchRequest, Tick, at_once, no_tick, of_a_launch
from .preparation import Reference
from .privacy import private_anywhere, recorded
from .quiet import QuietGate
from .standstill import places
from .texts import Text
from .turns import Member, Turns, rounds_of

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
    weights: Callable[[Cell], Path | None] = lambda cell: None
    """Returns the folder of a cell's large weights; None: they are drawn in each launch."""
    feeds: Callable[[Cell], FeedFiles | None] = lambda cell: None
    """Returns the files of the mini-batches that a cell's steps take; None: they are drawn in each
    launch."""
    machine: Machine | None = None
    """As probed when the run began: the CPUs of a bound cell, the quota, the GPUs, and whether a
    launch was disturbed follow from it; without it no launch counts as disturbed."""
    gate: QuietGate | None = None
    default_threads: Mapping[tuple[str, str, str], int] = field(
        default_factory=dict
    )  # by framework, mode and tuning
    variables: Mapping[str, str] = field(default_factory=dict)  # of this side alone
    guest: Path | None = None
    text: Text | None = None  # to train on, where the protocol has steps for it
    first_losses: FirstLosses = field(default_factory=dict)
    """Of the user's own steps."""
    losses_by_row: bool = False
    """Whether the rows may compute different things, as releases may."""
    ceilings: dict[str, Any] | None = None
    """The machine's, as a store keeps them; without them the limits are those of the CPU's
    instructions."""
    node: Callable[[], Node | None] = lambda: None
    """The node of a fleet as it is now: asked before each launch."""
    nvml: Any = field(default_factory=chosen_nvml.in_use)

    @cached_property
    def host(self) -> Host | None:
        """The machine as records know it."""
        return None if self.machine is None else host_of(self.machine)

    @cached_property
    def given_variables(self) -> dict[str, str]:
        """The variables that the user gave these launches: those of the plan, and this side's
        own.
        """
        return {**self.plan.variables, **self.variables}

    @cached_property
    def _limits(self) -> Limits | None:
        return None if self.machine is None else limits_of(self.machine, self.ceilings)

    def attempt(
        self,
        planned: PlannedLaunch,
        protocol: Protocol,
        attempt: int = 0,
        tick: Tick = no_tick,
        *,
        skip: str = "",
        member: Member | None = None,
    ) -> Record:
        """Return the record of one attempt at a launch.

        As a ``member`` it takes turns with others.

        A row without interpreter, a reason to ``skip``, or a GPU that does not answer gives a
        record of status SKIPPED and starts nothing. Raises FrameworkEnvironmentError where a launch
        cannot write its folder, and KeyboardInterrupt as it comes.
        """
        cell, source = planned.cell, self.sources[planned.cell.framework]
        network, framework = self.plan.network_of(cell), source.build.framework
        tunable = framework.tunable(cell.mode, cell.device, network.family.name, cell.task)
        default = (
            self.default_threads.get((cell.framework, cell.mode, cell.tuning))
            if cell.on_cpu
            else None
        )
        node, started = self.node(), datetime.now(UTC)
        launched, software, telemetry = self._measure(
            planned, protocol, source, skip, tunable, tick, member
        )
        outcome = launched.outcome
        note_losses(self.first_losses, cell, outcome, network.family, self.losses_by_row)
        if outcome.software:
            software[TUNABLE] = list(tunable)
            if (
                cell.cpu_quota
                and cell.threads
                and (setting := framework.thread_setting(cell.mode, cell.threads))
            ):
                software[THREAD_SETTING] = setting
            if framework.external:  # dlbench's own adapters come with its version
                software[DIGEST] = adapter_digest(framework)
        else:
            software = {}  # a launch that could not answer measured nothing
        if default is not None:
            software["default_threads"] = default
        if source.build.released is not None:
            software[RELEASED] = source.build.released.isoformat()
        return Record(
            run=self.run.id,
            suite=self.run.suite,
            launch=planned.block,
            cell=cell,
            outcome=private_anywhere(outcome._replace(software={**outcome.software, **software})),
            machine=self.run.machine,
            environment=with_variables(source.digest, self.given_variables),
            interpreter=source.name,
            protocol=protocol,
            started=started,
            wall_seconds=launched.wall_seconds,
            version=self.run.version,
            attempt=attempt,
            side=planned.side,
            stage=self._stage(planned),
            quota_cpus=None if self.machine is None else self.machine.cpu.quota_cpus,
            telemetry=telemetry,
            network=specification(network.family),
            variables=recorded(self.given_variables),
            node=node,
        )

    def _stage(self, planned: PlannedLaunch) -> str:
        if planned.profiled_steps:
            return PROFILED
        return GATE if self.run.purpose == GATE else ""

    def _measure(
        self,
        planned: PlannedLaunch,
        protocol: Protocol,
        source: Source,
        skip: str,
        tunable: Sequence[str],
        tick: Tick,
        member: Member | None,
    ) -> tuple[Launched, dict[str, Any], Telemetry]:
        """Launch a cell on its device and judge it; return it with additions to the record's
        software.
        """
        cell = planned.cell
        unfit = "" if self.machine is None else too_large(self.plan, cell, self.machine)
        reason = unfit or (skip if source.interpreter else source.reason)
        gpus, software = ((), {}) if reason or cell.on_cpu else self._gpus(cell)
        if source.interpreter is None or reason or isinstance(gpus, str):
            return (
                Launched(
                    Outcome(Status.SKIPPED, reason or (gpus if isinstance(gpus, str) else "")), 0.0
                ),
                {},
                None,
            )
        uuids = ",".join(gpu.uuid or "" for gpu in gpus) or None
        framework, chosen = source.build.framework, in_force(cell.tuning, tunable)
        reference, feed = self.reference(cell), self.feeds(cell)
        text = self.text if protocol.curve_steps else None
        weights = self.weights(cell)
        cache = folders.make_folder(folders.cache_directory(framework))
        launch = Launch(
            cell,
            protocol,
            {
                **framework.launch_settings(cell.mode, chosen),
                **self.plan.settings.get(framework.name, {}),
            },
            str(cache),
            cpus=self._cpus(cell, framework, chosen),
            adapter_directory=framework.outside,
            gpu=uuids,
            repeated_batch=None if reference is None else reference.repeated_batch,
            label_sets=1 if reference is None else reference.label_sets,
            network=to_data(self.plan.network_of(cell)),
            weights=None if weights is None else str(weights),
            text=None if text is None else str(text.file()),
            feed=None if feed is None else str(feed.folder),
            helpers=framework.helpers,
            in_turns=member is not None,
            profiled_steps=planned.profiled_steps,
            profiled_seconds=planned.profiled_seconds,
        )
        described = {
            "feed": None if feed is None else feed.described,
            "repeated_batch": launch.repeated_batch,
            "label_sets": launch.label_sets if launch.label_sets > 1 else None,
            "cold_start": self.plan.cold_start or None,
            "text": None if text is None else text.described(),
        }
        software |= {key: value for key, value in described.items() if value is not None}
        variables = {
            **framework.launch_variables(cell.mode, cell.threads, source.folder, chosen),
            # What the driver compiles for a GPU is kept apart from the user's own.
            **({} if uuids is None else {"CUDA_CACHE_PATH": str(cache / "cuda")}),
            **self.given_variables,
            **devices.variables(uuids),
        }
        request = LaunchRequest(
            launch,
            source.interpreter,
            variables,
            self.plan.cell_seconds,
            self.guest,
            None if reference is None else reference.path,
            framework.computes,
            self.first_losses.get(losses_key(framework.name, cell, self.losses_by_row)),
            member=member,
        )
        # Of several GPUs, which do the same, the first is watched.
        watched = gpus[0].uuid if gpus else None
        for _ in range(_SUSPENDED_REPEATS):
            launched, telemetry = self._launch(request, watched, tick)
            # Where this process was stopped meanwhile, its clock says nothing about the guest.
            if not launched.suspended or launched.outcome.status not in (
                Status.IMPLAUSIBLE,
                Status.TIMED_OUT,
            ):
                break
        return launched, software, telemetry

    def _gpus(self, cell: Cell) -> tuple[tuple[devices.Device, ...] | str, dict[str, Any]]:
        """Return the GPUs of a launch, or why it cannot have them, and the description of them that
        a record keeps.
        """
        now = probe_gpus(self.nvml)
        named = dict.fromkeys(each.device for each in self.plan.cells if not each.on_cpu)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        found = devices.locate(
            cell.device,
            self.machine.gpus if self.machine else now,
            now,
            cell.world_size,
            tuple(named),
            visible,
        )
        if isinstance(found, str):
            return found, {}
        identities = [gpu.identity(now.driver_version) for gpu in found]
        return found, {
            "gpu": identities[0],
            **({"gpus": identities} if len(identities) > 1 else {}),
        }

    def _launch(
        self, request: LaunchRequest, gpu: str | None, tick: Tick
    ) -> tuple[Launched, Telemetry]:
        """Carry out a launch while its GPU is watched, and judge it; several instances each by
        itself.
        """
        if request.launch.cell.instances > 1:
            return run_instances(
                request, lambda each, look: self._launch(each, None, look)[0], tick
            ), None
        sampler = None if gpu is None else Sampler(gpu, self.nvml, own=of_a_launch)
        telemetry: Telemetry = None
        if sampler is not None:
            sampler.start()
        try:
            launched = self._with_its_cache(request, tick)
        finally:
            if sampler is not None:
                telemetry = sampler.stop()
        return replace(
            launched, outcome=judged(request, launched.outcome, self._limits, telemetry)
        ), telemetry

    def _with_its_cache(self, request: LaunchRequest, tick: Tick) -> Launched:
        """Carry out a launch, with an empty cache where each start is to be a cold one."""
        if not self.plan.cold_start:
            return self.launcher(request, tick)
        with tempfile.TemporaryDirectory(
            prefix="dlbench-cache-", ignore_cleanup_errors=True
        ) as folder:
            before = request.launch.cache_directory
            variables = {
                name: value.replace(before, folder) for name, value in request.variables.items()
            }
            launch = request.launch._replace(cache_directory=folder)
            return self.launcher(replace(request, launch=launch, variables=variables), tick)

    def threads(self, cell: Cell) -> int:
        """Return the threads that a launch asks for, those that load its data included; 0: the
        framework decides.
        """
        if not cell.threads:
            return 0
        return cell.all_threads + self.sources[cell.framework].build.framework.helpers

    def has_a_cpu_each(self, cell: Cell) -> bool:
        """Tell whether there is a CPU for each thread of a launch, and no quota that makes them
        wait.
        """
        if cell.cpu_quota:
            return False
        return self.machine is None or self.threads(cell) <= self.machine.cpu.effective_cpus

    def places(self, cell: Cell) -> list[tuple[int, ...]]:
        """Return the sets of CPUs that a cell may have in a round of launches that take turns;
        none: any CPUs.
        """
        if self.machine is None or binds(cell):
            return []
        return places(self.machine.cpu, self.threads(cell))

    def _cpus(self, cell: Cell, framework: Framework, chosen: Iterable[str]) -> list[int] | None:
        """Return the CPUs that a cell may use, None for all; raises UsageError where a bound cell
        finds too few.
        """
        if not binds(cell):
            one_node = framework.bound_to_one_node(chosen)
            return (
                list(node_mask(self.machine.cpu)) if one_node and self.machine is not None else None
            )
        workers = cell.world_size * cell.instances
        needed = cell.all_threads + framework.helpers * cell.instances
        mask = None if self.machine is None else bound_mask(self.machine.cpu, needed, workers)
        if mask is None:
            raise UsageError(
                f"{needed} threads cannot be bound to as many CPUs here: this process may use "
                "fewer."
            )
        return list(mask)


def run_attempts(
    runners: Mapping[str, LaunchRunner],
    launches: Sequence[PlannedLaunch],
    protocol_of: Callable[[Cell], Protocol],
    *,
    most: int = 1,
    skip_reason: Callable[[Cell], str] = lambda cell: "",
    tick: Tick = no_tick,
) -> Iterator[list[Record]]:
    """Yield the records of each attempt at a launch, or at a group of them, by the runner of its
    side.

    There are attempts until no launch was disturbed, at most ``most``. Raises what
    `LaunchRunner.attempt` raises; no process of any launch is left then.
    """
    gate = runners[launches[0].side].gate
    for attempt in range(most):
        if attempt and gate is not None and not gate.before_repeat():
            return
        attempts = [
            partial(
                runners[each.side].attempt,
                each,
                protocol_of(each.cell),
                attempt,
                skip=skip_reason(each.cell),
            )
            for each in launches
        ]
        if len(launches) == 1:
            records = [attempts[0](tick)]
        else:
            members = _members(runners, launches, protocol_of(launches[0].cell), attempt)
            calls = [
                partial(each, member=member) for each, member in zip(attempts, members, strict=True)
            ]
            records = at_once(calls, members[0].turns, tick)
            group = secrets.token_hex(4)
            records = [replace(record, group=group) for record in records]
        yield records
        if not any(disturbed(record, runners[record.side].host) for record in records):
            return


def _members(
    runners: Mapping[str, LaunchRunner],
    launches: Sequence[PlannedLaunch],
    protocol: Protocol,
    attempt: int,
) -> list[Member]:
    """Return the places of launches among those that take turns: of the two sides of a cell, or of
    several cells.
    """
    first = launches[0]
    seed = f"{runners[first.side].plan.seed}:{first.block}:{attempt}:{first.cell!r}"
    cells = [each.cell for each in launches]
    plan = runners[first.side].plan
    rows = {plan.row_of(cell).build.framework.name for cell in cells}
    alike = len(rows) == 1 and len({axes.without(cell, "framework") for cell in cells}) == 1
    rounds = rounds_of(protocol, alike, any(cell.cpu_quota for cell in cells))
    machine = runners[first.side].machine
    cpus = 1 if machine is None else machine.cpu.effective_cpus
    needed = len(launches) if len(set(cells)) == 1 else 1
    turns = Turns(len(launches), seed, rounds, needed, cpus, cells)
    return [
        Member(
            turns,
            number,
            runners[each.side].places(each.cell),
            runners[each.side].has_a_cpu_each(each.cell),
        )
        for number, each in enumerate(launches)
    ]
