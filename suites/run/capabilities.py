"""What each framework can do here, found by short launches that ask it; none of them is stored or compared.

An adapter asks its framework whether this build drives GPUs, derives gradients itself and has an engine for several
processes; ``supports`` lists the networks. How a thread count is honoured, and the default one, are observed. Answers
are kept for each machine and environment.
"""

import contextlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dlbench.adapters.networks import to_data
from dlbench.adapters.protocol import INSTALLED, Cell, Launch, Outcome, Protocol, Status
from dlbench.hardware_probe import Machine
from dlbench.reports.flags import wanting_threads, working_threads

from ..environments import folders
from ..environments.digests import code_digest
from ..environments.environment import Report, Source
from ..environments.folders import write_whole
from ..errors import DlbenchError, Interrupted
from ..planning import devices, networks
from ..planning.framework import Framework
from ..planning.plan import Plan
from . import capabilities
from .launcher import Launched, Launcher, LaunchRequest, Tick, no_tick

# Large dense layers have work for every thread of a framework.
_NETWORK = "fcn5"
_PROTOCOL = Protocol(warmup_steps=3, steps=3, minimum_steps=3, seconds=1.0)
_SECONDS = 300.0


def ask(
    framework: Framework,
    mode: str,
    source: Source,
    launcher: Launcher,
    *,
    calls: int = 0,
    variables: int = 0,
    installed: bool = False,
    only_capabilities: bool = False,
) -> Outcome:
    """Launch a mode of a framework for a few steps, tuned or as installed, and return the outcome.

    ``calls`` is the thread count that the adapter sets in the framework, ``variables`` the one that the environment
    variables name; 0 leaves each out.
    """
    known = networks.shipped()
    network = known[_NETWORK]
    # What a build can do must not hang on a setting that it may lack.
    chosen = () if installed or only_capabilities else None
    cell = Cell(framework.name, framework.folder, mode, network.name, "cpu", calls, network.batch_size)
    launch = Launch(
        cell,
        _PROTOCOL,
        framework.launch_settings(mode, chosen),
        str(folders.make_folder(folders.cache_directory(framework))),
        adapter_directory=framework.outside,
        only_capabilities=only_capabilities,
        network=to_data(network),
        asked_about=[to_data(each) for each in known.values()] if only_capabilities else None,
    )
    assert source.interpreter is not None
    named = {**framework.launch_variables(mode, variables, source.folder, chosen), **devices.variables(None)}
    return launcher.launch(LaunchRequest(launch, source.interpreter, named, _SECONDS)).outcome


def threads_seen(outcome: Outcome) -> int | None:
    """Return how many threads the operating system saw working at once; None where that is unknown."""
    if outcome.threads is None:
        return None
    # No more than wanted to run at any one moment: threads that take turns (TensorFlow's caller and its pool) are fewer
    # than they look. The quarter is what the clocks and helper threads may add.
    at_once = max(1, math.ceil(wanting_threads(outcome.threads, outcome.contention) - 0.25))
    return min(at_once, working_threads(outcome.threads) or at_once)


def place_of(machine: Machine) -> str:
    """Return what an answer that is kept depends on besides the framework: the machine and the CPUs it may use."""
    return f"{machine.fingerprint}:{machine.cpu.capacity_cpus:g}"


def threads_by_default(
    plan: Plan, sources: dict[str, Source], where: str, launcher: Launcher, report: Report
) -> dict[tuple[str, str, str], int]:
    """Return the default thread count of each framework's mode and tuning, where known.

    As installed a framework may compute its products with another library, so those cells have an answer of their own;
    all others have that of the tuned ones. Left out are rows without a cell on the CPU: their threads only start what a
    GPU computes.

    Not typed in but seen: one short launch that sets no thread count at all. The framework's own word counts where it
    has one, else the threads that the operating system saw working. The answer is kept for each place (see `place_of`),
    environment, adapter's code and mode, so that it is asked once.
    """
    path = folders.make_folder(folders.home() / "cache") / "default-threads.json"
    known: dict[str, int | None] = {**_known_defaults(path)}
    family = networks.shipped()[_NETWORK].family.name
    found = {}
    for name, mode, tuning in dict.fromkeys((c.framework, c.mode, c.tuning) for c in plan.cells if c.on_cpu):
        source = sources[name]
        framework = source.build.framework
        if source.interpreter is None or not framework.computes:
            continue
        if framework.file is not None:  # it builds nothing but its own, and may take its time for it
            continue
        installed = tuning == INSTALLED and bool(framework.tunable(mode, devices.CPU, family))
        words = ", installed" if installed else ""
        key = f"{where}:{source.digest}:{code_digest(framework)}:{framework.name}:{mode}{words}"
        if key not in known:
            report(f"asking {name} {mode}{words} for its default thread count, once")
            outcome = ask(framework, mode, source, launcher, installed=installed)
            says = outcome.threads.framework_says if outcome.threads is not None else None
            known[key] = says or threads_seen(outcome)
            with contextlib.suppress(OSError):  # it is asked again, then
                write_whole(
                    path, json.dumps({key: answers for key, answers in known.items() if answers is not None}, indent=1)
                )
        threads = known[key]
        if threads is not None:
            found[name, mode, tuning] = threads
    return found


def _known_defaults(path: Path) -> dict[str, int]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in content.items() if isinstance(value, int)} if isinstance(content, dict) else {}


NETWORK = "network:"
_ASKED = "without settings"
"""How they are asked: answers of before this is another are asked for again."""


@dataclass(frozen=True)
class Threads:
    """How many threads the operating system saw working when so many were asked for in these ways; None: unknown."""

    asked: int
    by_nothing: int | None
    by_variables: int | None
    by_calls: int | None
    by_both: int | None
    variables: tuple[str, ...]
    """The environment variables that speak of threads in this framework's description."""

    @property
    def words(self) -> str:
        """How a thread count is honoured, in a few words."""
        names = ", ".join(self.variables)
        variables = self.by_variables == self.asked and bool(self.variables)
        calls = self.by_calls == self.asked
        if None in (self.by_variables, self.by_calls, self.by_both):
            return "not seen"
        if self.by_nothing == self.asked:
            return "not seen: it is the default"
        if variables and calls:
            return f"{names}, or its own setting"
        if variables:
            return names
        if calls:
            return "its own setting"
        if self.by_both == self.asked:
            return f"{names} and its own setting, together"
        return "not honoured"


@dataclass(frozen=True)
class Capabilities:
    """What one mode of a framework answered."""

    version: str  # of the framework's distribution; "" where its metadata lack it
    answers: dict[str, tuple[bool, str]] = field(default_factory=dict)
    """"gpu", "automatic_gradients", "several_processes": the answer, and how it was found out."""
    networks: dict[str, str] = field(default_factory=dict)
    """Every network: the reason why it is refused, empty where it is not."""
    threads: Threads | None = None
    problem: str = ""
    """Why nothing was answered; empty where something was."""


@dataclass(frozen=True)
class _Kept:
    """An answer with what it depends on."""

    key: str
    found: Capabilities


@dataclass
class _Watched:
    """A launcher that remembers whether a launch failed; a refusal is an answer."""

    launcher: Launcher
    failed: bool = False

    def launch(self, order: LaunchRequest, tick: Tick = no_tick) -> Launched:
        """Carry out one launch."""
        launched = self.launcher.launch(order, tick)
        self.failed |= launched.outcome.status not in (Status.OK, Status.UNSUPPORTED)
        return launched


def probe(
    framework: Framework, source: Source, machine: str, cpus: int, launcher: Launcher, report: Report
) -> Capabilities:
    """Return what the framework's default mode can do, asked once for each machine, environment and adapter.

    ``machine`` is a key of the machine and the CPUs that this process may use.
    """
    path = folders.make_folder(folders.home() / "cache" / "capabilities") / f"{framework.name}.json"
    key = f"{machine}:{source.digest}:{code_digest(framework)}:{_ASKED}"
    kept = _read(path)
    if kept is not None and kept.key == key:
        return kept.found
    report(f"asking {framework.title} what it can do, once")
    watched = _Watched(launcher)
    found = _probe(framework, source, cpus, watched)
    if not found.problem and not watched.failed:  # what failed may have failed by chance
        with contextlib.suppress(OSError):  # it is asked again, then
            write_whole(path, TypeAdapter(_Kept).dump_json(_Kept(key, found), indent=1).decode())
    return found


def _probe(framework: Framework, source: Source, cpus: int, launcher: Launcher) -> Capabilities:
    mode = framework.default_mode
    try:
        outcome = capabilities.ask(framework, mode, source, launcher, only_capabilities=True)
        if outcome.status is not Status.OK:
            return Capabilities("", problem=f"{outcome.status.value}: {outcome.reason}")
        threads = _threads(framework, mode, source, cpus, launcher) if framework.computes else None
    except Interrupted:
        raise
    except DlbenchError as error:
        return Capabilities("", problem=str(error))
    answers = outcome.software["capabilities"]
    networks = {key.removeprefix(NETWORK): pair for key, pair in answers.items() if key.startswith(NETWORK)}
    return Capabilities(
        _version(framework, outcome),
        {key: (bool(pair[0]), str(pair[1])) for key, pair in answers.items() if not key.startswith(NETWORK)},
        {name: "" if pair[0] else str(pair[1]) for name, pair in networks.items()},
        threads,
    )


def _version(framework: Framework, outcome: Outcome) -> str:
    if not framework.computes:
        return ""  # its environment is another's
    distributions = outcome.software.get("distributions", {})
    known = {release.version for release in framework.project.releases} if framework.project else set()
    for name in (framework.imports, framework.name):
        if version := distributions.get(name.replace("_", "-")):
            return str(version)
    found = next((str(version) for version in distributions.values() if version in known), "")
    return found or str(outcome.software.get("version", ""))  # of one that is no Python distribution


def _threads(framework: Framework, mode: str, source: Source, cpus: int, launcher: Launcher) -> Threads | None:
    """Ask for a count that is not the default, in each way alone and in both; None where there is only one CPU."""
    if cpus < 2:
        return None
    by_nothing = capabilities.threads_seen(capabilities.ask(framework, mode, source, launcher))
    asked = 2 if by_nothing == 1 else 1
    templates = {**framework.variables, **framework.modes[mode].variables}
    variables = tuple(name for name, value in templates.items() if "{threads}" in value)

    def seen(calls: int, named: int) -> int | None:
        return capabilities.threads_seen(
            capabilities.ask(framework, mode, source, launcher, calls=calls, variables=named)
        )

    by_calls = seen(asked, 0)
    if not variables:
        return Threads(asked, by_nothing, by_nothing, by_calls, by_calls, ())
    return Threads(asked, by_nothing, seen(0, asked), by_calls, seen(asked, asked), variables)


def _read(path: Path) -> _Kept | None:
    try:
        return TypeAdapter(_Kept).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def of_all(
    frameworks: Iterable[Framework],
    sources: dict[str, Source],
    machine: str,
    cpus: int,
    launcher: Launcher,
    report: Report,
) -> dict[str, Capabilities]:
    """Return the capabilities of each framework; of one that has no environment here, why not."""
    found = {}
    for framework in frameworks:
        source = sources.get(framework.name)
        if source is None or source.interpreter is None:
            found[framework.name] = Capabilities("", problem=source.reason if source else "no environment")
        else:
            found[framework.name] = probe(framework, source, machine, cpus, launcher, report)
    return found
