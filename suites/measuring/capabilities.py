"""What each framework can do here: asked of its own build, and seen in short launches, never typed in.

An adapter asks its framework whether this build drives GPUs, derives gradients itself and has an engine for several
processes; ``supports`` tells the networks. How threads are honoured is seen: launches that set a count by environment
variables alone, by the framework's own calls alone, and not at all. Answers are kept for each machine and environment.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dlbench.adapters.protocol import Outcome, Status

from ..environments import folders
from ..environments.adapter_digest import code_digest
from ..environments.environment import Report
from ..environments.folders import write_whole
from ..environments.row_interpreters import Source
from ..errors import DlbenchError, Interrupted
from ..launching.launcher import Launched, Launcher, Order, Tick, no_tick
from ..planning.framework import Framework
from . import short_launch

NETWORK = "network:"
_ASKED = "without settings"
"""How they are asked: answers of before this is another are asked for again."""


@dataclass(frozen=True)
class Threads:
    """How many threads the operating system saw working when so many were asked for in these ways; None: not told."""

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

    version: str  # of the framework's distribution; "" where its metadata do not tell
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

    def launch(self, order: Order, tick: Tick = no_tick) -> Launched:
        """Carry out one launch."""
        launched = self.launcher.launch(order, tick)
        self.failed |= launched.outcome.status not in (Status.OK, Status.UNSUPPORTED)
        return launched


def probe(
    framework: Framework, source: Source, machine: str, cpus: int, launcher: Launcher, report: Report
) -> Capabilities:
    """Return what the framework's default mode can do, asked once for each machine, environment and adapter.

    ``machine`` names what the answer depends on besides: the machine and the CPUs this process may use.
    """
    path = folders.make_folder(folders.home() / "cache" / "capabilities") / f"{framework.name}.json"
    key = f"{machine}:{source.digest}:{code_digest(framework)}:{_ASKED}"
    kept = _read(path)
    if kept is not None and kept.key == key:
        return kept.found
    report(f"asking {framework.title} what it can do, once")
    watched = _Watched(launcher)
    found = _ask(framework, source, cpus, watched)
    if not found.problem and not watched.failed:  # what failed may have failed by chance
        with contextlib.suppress(OSError):  # it is asked again, then
            write_whole(path, TypeAdapter(_Kept).dump_json(_Kept(key, found), indent=1).decode())
    return found


def _ask(framework: Framework, source: Source, cpus: int, launcher: Launcher) -> Capabilities:
    mode = framework.default_mode
    try:
        outcome = short_launch.ask(framework, mode, source, launcher, only_capabilities=True)
        if outcome.status is not Status.OK:
            return Capabilities("", problem=f"{outcome.status.value}: {outcome.reason}")
        threads = _threads(framework, mode, source, cpus, launcher) if framework.computes else None
    except Interrupted:
        raise
    except DlbenchError as error:
        return Capabilities("", problem=str(error))
    told = outcome.software["capabilities"]
    networks = {key.removeprefix(NETWORK): pair for key, pair in told.items() if key.startswith(NETWORK)}
    return Capabilities(
        _version(framework, outcome),
        {key: (bool(pair[0]), str(pair[1])) for key, pair in told.items() if not key.startswith(NETWORK)},
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
    by_nothing = short_launch.threads_seen(short_launch.ask(framework, mode, source, launcher))
    asked = 2 if by_nothing == 1 else 1
    templates = {**framework.variables, **framework.modes[mode].variables}
    variables = tuple(name for name, value in templates.items() if "{threads}" in value)

    def seen(calls: int, named: int) -> int | None:
        return short_launch.threads_seen(
            short_launch.ask(framework, mode, source, launcher, calls=calls, variables=named)
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
