"""What each framework can do here, found by short launches that ask it; none of them is stored or
compared.

An adapter asks its framework whether this build drives GPUs, derives gradients itself and has an
engine for several processes; ``supports`` lists the networks. How a thread count is honoured, and
the default one, are observed. Answers are kept for each machine and environment.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from dlbench.adapters.networks import to_data
from dlbench.adapters.protocol import INSTALLED, Cell, Launch, Outcome, Protocol, Status
from dlbench.hardware_probe import Machine
from dlbench.reports.results.thread_evidence import threads_seen

from ..environments import folders
from ..environments.digests import code_digest, with_variables
from ..environments.environment import Report, Source
from ..environments.folders import write_whole
from ..errors import DlbenchError, Interrupted
from ..planning import devices, networks
from ..planning.framework import Framework
from ..planning.plan import Plan
from .launcher import Launched, Launcher, LaunchRequest, Tick, no_tick

# Large dense layers have work for every thread of a framework.
_NETWORK = "fcn5"
_PROTOCOL = Protocol(warmup_steps=3, steps=3, minimum_steps=3, seconds=1.0)
_SECONDS = 300.0


@dataclass(frozen=True)
class Capabilities:
    """The answers of a framework's default mode.

    ``answers`` ("gpu", "automatic_gradients", "several_processes", "openmp", "opencl",
    "pretrained_models", "boltzmann_machines") come with how each was found out. ``networks`` has
    the reason why each network is refused, empty if it is supported. ``threads`` has the number of
    threads that the operating system saw working for a count requested in each way, with a summary
    in ``words``.
    """

    version: str  # of the framework's distribution; "" where its metadata lack it
    answers: dict[str, tuple[bool, str]] = field(default_factory=dict)
    networks: dict[str, str] = field(default_factory=dict)
    threads: dict[str, Any] | None = None
    project: dict[str, str] = field(default_factory=dict)
    """Metadata of the framework's distribution: `adapters/libraries/inventory.py`."""
    problem: str = ""
    """Why there are no answers; empty if there are some."""


def ask(
    framework: Framework,
    source: Source,
    launcher: Launcher,
    mode: str = "",
    *,
    calls: int = 0,
    variables: int = 0,
    installed: bool = False,
    only_capabilities: bool = False,
    given: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Launch a mode of a framework (else its default one) for a few steps, tuned or as installed.

    ``calls`` is the thread count that the adapter sets in the framework, ``variables`` the one that
    the environment variables name; 0 leaves each out. ``given`` are variables that the user gives.
    """
    known, mode = networks.shipped(), mode or framework.default_mode
    network = known[_NETWORK]
    # A build's capabilities must not depend on a setting that it may lack.
    chosen = () if installed or only_capabilities else None
    launch = Launch(
        Cell(
            framework.name,
            framework.folder,
            mode,
            network.name,
            devices.CPU,
            calls,
            network.batch_size,
        ),
        _PROTOCOL,
        framework.launch_settings(mode, chosen),
        str(folders.make_folder(folders.cache_directory(framework))),
        adapter_directory=framework.outside,
        only_capabilities=only_capabilities,
        network=to_data(network),
        queried_networks=[to_data(each) for each in known.values()] if only_capabilities else None,
    )
    assert source.interpreter is not None
    named = {
        **framework.launch_variables(mode, variables, source.folder, chosen),
        **given,
        **devices.variables(None),
    }
    return launcher(LaunchRequest(launch, source.interpreter, named, _SECONDS), no_tick).outcome


def _seen(outcome: Outcome) -> int | None:
    return None if outcome.threads is None else threads_seen(outcome.threads, outcome.contention)


def place_of(machine: Machine) -> str:
    """Return the part of a stored answer's key besides the framework: the machine and the CPUs it
    may use.
    """
    return f"{machine.fingerprint}:{machine.cpu.capacity_cpus:g}"


def threads_by_default(
    plan: Plan, sources: dict[str, Source], where: str, launcher: Launcher, report: Report
) -> dict[tuple[str, str, str], int]:
    """Return the default thread count of each framework's mode and tuning with a cell on the CPU,
    where known.

    It is observed in one short launch that sets no thread count: the framework's report counts if
    it has one, else the threads that the operating system saw working. As installed, a framework
    may compute its products with another library, so those cells have their own answer. Answers are
    kept for each place (see `place_of`), environment, adapter code and mode.
    """
    path = folders.make_folder(folders.home() / "cache") / "default-threads.json"
    answers: dict[str, int | None] = _read(path, TypeAdapter(dict[str, int])) or {}
    family = networks.shipped()[_NETWORK].family.name
    found: dict[tuple[str, str, str], int] = {}
    for name, mode, tuning in dict.fromkeys(
        (c.framework, c.mode, c.tuning) for c in plan.cells if c.on_cpu
    ):
        source = sources[name]
        framework = source.build.framework
        # A user's own step may be slow; releases are not compared over threads.
        own_or_release = framework.file is not None or source.build.released is not None
        if source.interpreter is None or not framework.computes or own_or_release:
            continue
        installed = tuning == INSTALLED and bool(framework.tunable(mode, devices.CPU, family))
        words = ", installed" if installed else ""
        environment = with_variables(source.digest, plan.variables)
        key = f"{where}:{environment}:{code_digest(framework)}:{framework.name}:{mode}{words}"
        if key not in answers:
            report(f"asking {name} {mode}{words} for its default thread count, once")
            outcome = ask(
                framework, source, launcher, mode, installed=installed, given=plan.variables
            )
            says = outcome.threads.framework_says if outcome.threads is not None else None
            answers[key] = says or _seen(outcome)
            _keep(path, {each: count for each, count in answers.items() if count})
        if count := answers[key]:
            found[name, mode, tuning] = count
    return found


def _read(path: Path, kind: TypeAdapter[Any]) -> Any:
    try:
        return kind.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _keep(path: Path, content: Any) -> None:
    with contextlib.suppress(OSError):  # it is asked again, then
        write_whole(path, json.dumps(content, indent=1))


NETWORK = "network:"
_ASKED = "without settings, with libraries"
"""How they are asked: answers stored under another text are asked for again."""
_KEPT = TypeAdapter(tuple[str, Capabilities])


def probe(
    framework: Framework,
    source: Source,
    machine: str,
    cpus: int,
    launcher: Launcher,
    report: Report,
) -> Capabilities:
    """Return what the framework's default mode can do, asked once for each machine, environment and
    adapter.

    ``machine`` is a key of the machine and the CPUs that this process may use. Without an
    environment here: why not.
    """
    if source.interpreter is None:
        return Capabilities("", problem=source.reason)
    path = folders.make_folder(folders.home() / "cache" / "capabilities") / f"{framework.name}.json"
    key = f"{machine}:{source.digest}:{code_digest(framework)}:{_ASKED}"
    kept = _read(path, _KEPT)
    if kept is not None and kept[0] == key:
        return cast(Capabilities, kept[1])
    report(f"asking {framework.title} for its capabilities, once")
    statuses = set()

    def watched(request: LaunchRequest, tick: Tick) -> Launched:
        launched = launcher(request, tick)
        statuses.add(launched.outcome.status)
        return launched

    try:
        outcome = ask(framework, source, watched, only_capabilities=True)
        if outcome.status is not Status.OK:
            return Capabilities("", problem=f"{outcome.status.value}: {outcome.reason}")
        threads = _threads(framework, source, watched) if framework.computes and cpus > 1 else None
    except Interrupted:
        raise
    except DlbenchError as error:
        return Capabilities("", problem=str(error))
    answers = outcome.software["capabilities"]
    refused = {
        key.removeprefix(NETWORK): pair for key, pair in answers.items() if key.startswith(NETWORK)
    }
    found = Capabilities(
        _version(framework, outcome),
        {
            key: (bool(pair[0]), str(pair[1]))
            for key, pair in answers.items()
            if not key.startswith(NETWORK)
        },
        {name: "" if pair[0] else str(pair[1]) for name, pair in refused.items()},
        threads,
        {str(key): str(text) for key, text in outcome.software.get("project", {}).items()},
    )
    # A failure may be chance and is not stored; a refusal is an answer.
    if statuses <= {Status.OK, Status.UNSUPPORTED}:
        _keep(path, (key, asdict(found)))
    return found


def _version(framework: Framework, outcome: Outcome) -> str:
    if not framework.computes:
        return ""  # its environment is another's
    distributions = outcome.software.get("distributions", {})
    known = (
        {release.version for release in framework.project.releases} if framework.project else set()
    )
    for name in (framework.imports, framework.name):
        if version := distributions.get(name.replace("_", "-")):
            return str(version)
    found = next((str(version) for version in distributions.values() if version in known), "")
    return found or str(
        outcome.software.get("version", "")
    )  # of one that is no Python distribution


def _threads(framework: Framework, source: Source, launcher: Launcher) -> dict[str, Any]:
    """Ask for a count that is not the default, in each way alone and in both."""

    def seen(calls: int, variables: int) -> int | None:
        return _seen(ask(framework, source, launcher, calls=calls, variables=variables))

    by_nothing = seen(0, 0)
    asked = 2 if by_nothing == 1 else 1
    templates = {**framework.variables, **framework.modes[framework.default_mode].variables}
    names = [name for name, value in templates.items() if "{threads}" in value]
    by_variables = seen(0, asked) if names else by_nothing
    by_calls = seen(asked, 0)
    by_both = seen(asked, asked) if names else by_calls
    listed, own = ", ".join(names), "its own setting"
    through = [
        way
        for way, count in ((listed, by_variables if names else None), (own, by_calls))
        if count == asked
    ]
    if None in (by_variables, by_calls, by_both):
        words = "not seen"
    elif by_nothing == asked:
        words = "not seen: it is the default"
    elif through:
        words = ", or ".join(through)
    else:
        words = f"{listed} and {own}, together" if by_both == asked else "not honoured"
    seen_by = {
        "by_nothing": by_nothing,
        "by_variables": by_variables,
        "by_calls": by_calls,
        "by_both": by_both,
    }
    return {"asked": asked, **seen_by, "variables": names, "words": words}
