"""Runs launches of cells, with their attempts, and makes a Record of each. Stores nothing.

Records are yielded when their launches have ended, so that a caller can store them before the next
attempt begins. A disturbed launch is attempted again, at most ``most`` times in all. Before each
repetition dlbench waits until the machine is quiet. If it stays busy, there is no repetition.
`reports.results.record.last_attempts` decides which attempt counts.

The two sides of a comparison are two runners over one run: each with its own ``sources`` (other
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
from dlbench.adapters.protocol import Cell, Launch, Protocol, Status
from dlbench.adapters.tuning import in_force
from dlbench.hardware_probe import Machine, probe_gpus
from dlbench.hardware_probe import gpu as chosen_nvml
from dlbench.hardware_probe.cpu import bound_mask, node_mask
from dlbench.hardware_probe.telemetry import GpuSampler
from dlbench.reports.results.disturbance import disturbed
from dlbench.reports.results.hosts import Host, Node, host_of
from dlbench.reports.results.outcome import HostFacts, Outcome
from dlbench.reports.results.record import GATE, PROFILED, Record, Run

from ..environments import folders
from ..environments.digests import adapter_digest, add_variables
from ..environments.environment import BuildSource
from ..errors import UsageError
from ..planning import devices
from ..planning.framework import Framework
from ..planning.plan import Plan, PlannedLaunch, binds, too_large
from .instances import run_instances
from .judge import FirstLosses, JudgedLaunch, Limits, judged, limits_of, losses_key, note_losses
from .launch_files import FeedFiles
from .launcher import (
    Launched,
    Launcher,
    LaunchRequest,
    Tick,
    belongs_to_launch,
    no_tick,
    run_together,
)
from .preparation import Reference
from .privacy import private_anywhere, recorded
from .quiet import QuietWait
from .standstill import places
from .texts import Text
from .turns import Member, Turns, may_be_sliced, rounds_of

_SUSPENDED_REPEATS = 3
"""Launches at most where this process was stopped (SIGSTOP) during each."""

References = Callable[[Cell], Reference | None]


@dataclass(frozen=True)
class LaunchRunner:
    """Runner of one run's launches, data in and data out."""

    plan: Plan
    run: Run
    launcher: Launcher
    sources: Mapping[str, BuildSource]
    reference: References
    _: KW_ONLY
    weights: Callable[[Cell], Path | None] = lambda cell: None
    """Returns the folder of a cell's large weights, or None if each launch draws them."""
    feeds: Callable[[Cell], FeedFiles | None] = lambda cell: None
    """Returns the files of a cell's mini-batches, or None if each launch draws them."""
    machine: Machine | None = None
    """The machine as probed when the run began.

    The CPUs of a bound cell, the quota, the GPUs, and whether a launch was disturbed follow from
    it. Without it no launch counts as disturbed."""
    quiet_wait: QuietWait | None = None
    default_threads: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Default thread counts by framework, mode and tuning."""
    variables: Mapping[str, str] = field(default_factory=dict)  # of this side alone
    guest: Path | None = None
    text: Text | None = None  # to train on, where the protocol has steps for it
    first_losses: FirstLosses = field(default_factory=dict)
    """First losses of the user's own steps."""
    losses_by_row: bool = False
    """Whether the rows may compute different things, as releases may."""
    ceilings: dict[str, Any] | None = None
    """The machine's ceilings, as a store keeps them.

    Without them the limits are those of the CPU's instructions."""
    node: Callable[[], Node | None] = lambda: None
    """Returns the node of a fleet as it is now. It is asked before each launch."""
    nvml: Any = field(default_factory=chosen_nvml.in_use)

    @cached_property
    def host(self) -> Host | None:
        """The machine as records know it."""
        if self.machine is None:
            return None
        return host_of(self.machine)

    @cached_property
    def given_variables(self) -> dict[str, str]:
        """The user's variables for these launches: those of the plan, and this side's own."""
        return {**self.plan.variables, **self.variables}

    @cached_property
    def _limits(self) -> Limits | None:
        if self.machine is None:
            return None
        return limits_of(self.machine, self.ceilings)

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
        cell = planned.cell
        source = self.sources[cell.framework]
        network = self.plan.network_of(cell)
        tunable = source.build.framework.tunable(
            cell.mode, cell.device, network.family.name, cell.task
        )
        node = self.node()
        started = datetime.now(UTC)
        launch = self._measure(planned, protocol, source, skip, tunable, tick, member)
        outcome = launch.outcome
        note_losses(self.first_losses, cell, outcome, network.family, self.losses_by_row)
        software = outcome.software
        if software:  # a launch that could not answer measured nothing
            software = launch.facts.added_to(software)
        software = self._facts_of_row(cell, source).added_to(software)
        quota_cpus = None
        if self.machine is not None:
            quota_cpus = self.machine.cpu.quota_cpus
        return Record(
            run=self.run.id,
            suite=self.run.suite,
            launch=planned.index,
            cell=cell,
            outcome=private_anywhere(outcome._replace(software=software)),
            machine=self.run.machine,
            environment=add_variables(source.digest, self.given_variables),
            interpreter=source.name,
            protocol=protocol,
            started=started,
            wall_seconds=launch.wall_seconds,
            version=self.run.version,
            attempt=attempt,
            side=planned.side,
            stage=self._stage(planned),
            quota_cpus=quota_cpus,
            telemetry=launch.telemetry,
            network=specification(network.family),
            variables=recorded(self.given_variables),
            node=node,
        )

    def _facts_of_launch(
        self,
        launch: Launch,
        framework: Framework,
        tunable: Sequence[str],
        feed: FeedFiles | None,
        text: Text | None,
        gpus: Sequence[dict[str, Any]],
    ) -> HostFacts:
        """Return the facts of a launch's settings, data and GPUs."""
        cell = launch.cell
        setting = ""
        if cell.cpu_quota and cell.threads:
            setting = framework.thread_setting(cell.mode, cell.threads)
        digest = None
        if framework.external:  # dlbench's own adapters come with its version
            digest = adapter_digest(framework)
        facts = HostFacts(
            repeated_batch=launch.repeated_batch,
            cold_start=self.plan.cold_start or None,
            tunable=list(tunable),
            thread_setting=setting or None,
            adapter_digest=digest,
        )
        if gpus:
            facts = facts._replace(gpu=gpus[0])
        if len(gpus) > 1:
            facts = facts._replace(gpus=list(gpus))
        if launch.label_sets > 1:
            facts = facts._replace(label_sets=launch.label_sets)
        if feed is not None:
            facts = facts._replace(feed=feed.described)
        if text is not None:
            facts = facts._replace(text=text.described())
        return facts

    def _facts_of_row(self, cell: Cell, source: BuildSource) -> HostFacts:
        """Return the default threads and the release date of a cell's row."""
        threads = None
        if cell.on_cpu:
            threads = self.default_threads.get((cell.framework, cell.mode, cell.tuning))
        released = None
        if source.build.released is not None:
            released = source.build.released.isoformat()
        return HostFacts(default_threads=threads, released=released)

    def _stage(self, planned: PlannedLaunch) -> str:
        if planned.profiled_steps:
            return PROFILED
        return GATE if self.run.purpose == GATE else ""

    def _measure(
        self,
        planned: PlannedLaunch,
        protocol: Protocol,
        source: BuildSource,
        skip: str,
        tunable: Sequence[str],
        tick: Tick,
        member: Member | None,
    ) -> JudgedLaunch:
        """Launch a cell on its device and judge it."""
        cell = planned.cell
        reason = ""
        if self.machine is not None:
            reason = too_large(self.plan, cell, self.machine)
        if not reason:
            reason = skip if source.interpreter else source.reason
        gpus: tuple[devices.Device, ...] | str = ()
        identities: list[dict[str, Any]] = []
        if not reason and not cell.on_cpu:
            gpus, identities = self._gpus(cell)
        if isinstance(gpus, str):
            reason = gpus
        if source.interpreter is None or reason or isinstance(gpus, str):
            return JudgedLaunch(Outcome(Status.SKIPPED, reason), 0.0)
        uuids = ",".join(gpu.uuid or "" for gpu in gpus) or None
        request, facts = self._request(
            planned, protocol, source, tunable, uuids, identities, member
        )
        # Of several GPUs, which do the same, the first is watched.
        watched = gpus[0].uuid if gpus else None
        for _ in range(_SUSPENDED_REPEATS):
            launch = self._launch(request, watched, tick)
            # Where this process was stopped meanwhile, its clock says nothing about the guest.
            by_clock = launch.outcome.status in (Status.IMPLAUSIBLE, Status.TIMED_OUT)
            if not (launch.suspended and by_clock):
                break
        return replace(launch, facts=facts)

    def _request(
        self,
        planned: PlannedLaunch,
        protocol: Protocol,
        source: BuildSource,
        tunable: Sequence[str],
        uuids: str | None,
        identities: Sequence[dict[str, Any]],
        member: Member | None,
    ) -> tuple[LaunchRequest, HostFacts]:
        """Return the request of a launch, and the facts of it that a record keeps."""
        assert source.interpreter is not None
        cell = planned.cell
        framework = source.build.framework
        chosen = in_force(cell.tuning, tunable)
        cache = folders.make_folder(folders.cache_directory(framework))
        settings = {
            **framework.launch_settings(cell.mode, chosen),
            **self.plan.settings.get(framework.name, {}),
        }
        launch = Launch(
            cell,
            protocol,
            settings,
            str(cache),
            cpus=self._cpus(cell, framework, chosen),
            adapter_directory=framework.outside,
            gpu=uuids,
            network=to_data(self.plan.network_of(cell)),
            helpers=framework.helpers,
            in_turns=member is not None,
            profiled_steps=planned.profiled_steps,
            profiled_seconds=planned.profiled_seconds,
        )
        reference = self.reference(cell)
        reference_path = None
        if reference is not None:
            reference_path = reference.path
            launch = launch._replace(
                repeated_batch=reference.repeated_batch, label_sets=reference.label_sets
            )
        weights = self.weights(cell)
        if weights is not None:
            launch = launch._replace(weights=str(weights))
        feed = self.feeds(cell)
        if feed is not None:
            launch = launch._replace(feed=str(feed.folder))
        text = None
        if protocol.curve_steps:
            text = self.text
        if text is not None:
            launch = launch._replace(text=str(text.file()))
        request = LaunchRequest(
            launch,
            source.interpreter,
            self._variables(cell, source, chosen, cache, uuids),
            self.plan.cell_seconds,
            self.guest,
            reference_path,
            framework.computes,
            self.first_losses.get(losses_key(framework.name, cell, self.losses_by_row)),
            member=member,
        )
        return request, self._facts_of_launch(launch, framework, tunable, feed, text, identities)

    def _variables(
        self, cell: Cell, source: BuildSource, chosen: Iterable[str], cache: Path, uuids: str | None
    ) -> dict[str, str]:
        """Return the environment variables of a launch."""
        framework = source.build.framework
        variables = framework.launch_variables(cell.mode, cell.threads, source.folder, chosen)
        if uuids is not None:
            # What the driver compiles for a GPU is kept apart from the user's own.
            variables["CUDA_CACHE_PATH"] = str(cache / "cuda")
        return {**variables, **self.given_variables, **devices.variables(uuids)}

    def _gpus(self, cell: Cell) -> tuple[tuple[devices.Device, ...] | str, list[dict[str, Any]]]:
        """Return the GPUs of a launch, or why it cannot have them, and their descriptions.

        These are the ones that a record keeps.
        """
        now = probe_gpus(self.nvml)
        planned = now
        if self.machine:
            planned = self.machine.gpus
        named = dict.fromkeys(other.device for other in self.plan.cells if not other.on_cpu)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = devices.locate(cell.device, planned, now, cell.world_size, tuple(named), visible)
        if isinstance(gpus, str):
            return gpus, []
        return gpus, [gpu.identity(now.driver_version) for gpu in gpus]

    def _launch(self, request: LaunchRequest, gpu: str | None, tick: Tick) -> JudgedLaunch:
        """Carry out a launch while its GPU is watched, and judge it.

        Several instances are judged each by itself.
        """
        if request.launch.cell.instances > 1:

            def launch(instance: LaunchRequest, look: Tick) -> JudgedLaunch:
                return self._launch(instance, None, look)

            return run_instances(request, launch, tick)
        sampler = None
        telemetry: dict[str, Any] | None = None
        if gpu is not None:
            sampler = GpuSampler(gpu, self.nvml, own=belongs_to_launch)
            sampler.start()
        try:
            launched = self._launch_with_cache(request, tick)
        finally:
            if sampler is not None:
                telemetry = sampler.stop()
        outcome = judged(request, launched, self._limits, telemetry)
        return JudgedLaunch(outcome, launched.wall_seconds, launched.suspended, telemetry)

    def _launch_with_cache(self, request: LaunchRequest, tick: Tick) -> Launched:
        """Carry out a launch, with an empty cache where each start is to be a cold one."""
        if not self.plan.cold_start:
            return self.launcher(request, tick)
        with tempfile.TemporaryDirectory(
            prefix="dlbench-cache-", ignore_cleanup_errors=True
        ) as folder:
            cache = request.launch.cache_directory
            variables = {
                name: value.replace(cache, folder) for name, value in request.variables.items()
            }
            launch = request.launch._replace(cache_directory=folder)
            return self.launcher(replace(request, launch=launch, variables=variables), tick)

    def threads(self, cell: Cell) -> int:
        """Return the threads that a launch asks for, including those that load its data.

        0 means that the framework decides.
        """
        if not cell.threads:
            return 0
        return cell.all_threads + self.sources[cell.framework].build.framework.helpers

    def has_a_cpu_each(self, cell: Cell) -> bool:
        """Return whether each thread of a launch has a CPU, and no quota makes it wait."""
        if cell.cpu_quota:
            return False
        return self.machine is None or self.threads(cell) <= self.machine.cpu.effective_cpus

    def places(self, cell: Cell) -> list[tuple[int, ...]]:
        """Return the sets of CPUs that a cell may have in a round of turns, or none for any."""
        if self.machine is None or binds(cell):
            return []
        return places(self.machine.cpu, self.threads(cell))

    def _cpus(self, cell: Cell, framework: Framework, chosen: Iterable[str]) -> list[int] | None:
        """Return the CPUs that a cell may use, or None for all.

        Raises UsageError where a bound cell finds too few.
        """
        if not binds(cell):
            if self.machine is None or not framework.bound_to_one_node(chosen):
                return None
            return list(node_mask(self.machine.cpu))
        workers = cell.world_size * cell.instances
        needed = cell.all_threads + framework.helpers * cell.instances
        mask = None
        if self.machine is not None:
            mask = bound_mask(self.machine.cpu, needed, workers)
        if mask is None:
            raise UsageError(
                f"{needed} threads cannot be bound to as many CPUs on this machine: this process "
                "may use fewer."
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
    """Yield the records of each attempt at a launch, or at a group of them.

    Each launch is made by the runner of its side. There are attempts until no launch was disturbed,
    at most ``most``. Raises the errors of `LaunchRunner.attempt`. No process of any launch is left
    then.
    """
    quiet_wait = runners[launches[0].side].quiet_wait
    for attempt in range(most):
        if attempt and quiet_wait is not None and not quiet_wait.before_repeat():
            return
        calls: list[Callable[..., Record]] = []
        for launch in launches:
            protocol = protocol_of(launch.cell)
            skip = skip_reason(launch.cell)
            runner = runners[launch.side]
            calls.append(partial(runner.attempt, launch, protocol, attempt, skip=skip))
        if len(launches) == 1:
            records = [calls[0](tick)]
        else:
            members = _members(runners, launches, protocol_of(launches[0].cell), attempt)
            in_turns = []
            for call, member in zip(calls, members, strict=True):
                in_turns.append(partial(call, member=member))
            records = run_together(in_turns, members[0].turns, tick)
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
    """Return the members for launches that take turns: two sides of a cell, or several cells."""
    first = launches[0]
    plan = runners[first.side].plan
    machine = runners[first.side].machine
    seed = f"{plan.seed}:{first.index}:{attempt}:{first.cell!r}"
    cells = []
    frameworks = set()
    work = set()
    cpu_each = []
    for launch in launches:
        cells.append(launch.cell)
        cpu_each.append(runners[launch.side].has_a_cpu_each(launch.cell))
        frameworks.add(plan.row_of(launch.cell).build.framework.name)
        work.add(axes.without(launch.cell, "framework"))
    alike = len(frameworks) == 1 and len(work) == 1
    quota = any(cell.cpu_quota for cell in cells)
    rounds = rounds_of(protocol, alike, quota, may_be_sliced(cells, alike, all(cpu_each)))
    cpus = 1
    if machine is not None:
        cpus = machine.cpu.effective_cpus
    needed = 1
    if len(set(cells)) == 1:
        needed = len(launches)
    turns = Turns(len(launches), seed, rounds, needed, cpus, cells)
    members = []
    for number, launch in enumerate(launches):
        cpu_sets = runners[launch.side].places(launch.cell)
        members.append(Member(turns, number, cpu_sets, cpu_each[number]))
    return members
