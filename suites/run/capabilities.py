"""The capabilities of each framework on this machine, found by short launches that ask it.

None of these launches is stored or compared. An adapter asks its framework whether this build
drives GPUs, derives gradients itself and has an engine for several processes. ``supports`` lists
the networks. How a thread count is honoured, and the default one, are observed. Answers are kept
for each machine and environment.
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
from dlbench.adapters.protocol import INSTALLED, Cell, Launch, Protocol, Status
from dlbench.hardware_probe import Machine
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.thread_evidence import threads_seen

from ..environments import folders
from ..environments.digests import add_variables, code_digest
from ..environments.environment import BuildSource, Say
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
    """The reason why there are no answers, empty if there are some."""


def ask(
    framework: Framework,
    source: BuildSource,
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
    the environment variables name. 0 leaves each out. ``given`` are variables that the user gives.
    """
    assert source.interpreter is not None
    mode = mode or framework.default_mode
    shipped = networks.shipped()
    network = shipped[_NETWORK]
    # A build's capabilities must not depend on a setting that it may lack.
    chosen = None
    if installed or only_capabilities:
        chosen = ()
    cell = Cell(
        framework.name, framework.folder, mode, network.name, devices.CPU, calls, network.batch_size
    )
    queried = None
    if only_capabilities:
        queried = [to_data(queried_network) for queried_network in shipped.values()]
    launch = Launch(
        cell,
        _PROTOCOL,
        framework.launch_settings(mode, chosen),
        str(folders.make_folder(folders.cache_directory(framework))),
        adapter_directory=framework.outside,
        only_capabilities=only_capabilities,
        network=to_data(network),
        queried_networks=queried,
    )
    environment = {
        **framework.launch_variables(mode, variables, source.folder, chosen),
        **given,
        **devices.variables(None),
    }
    request = LaunchRequest(launch, source.interpreter, environment, _SECONDS)
    return launcher(request, no_tick).outcome()


def _threads_seen(outcome: Outcome) -> int | None:
    if outcome.threads is None:
        return None
    return threads_seen(outcome.threads, outcome.contention)


def _default_threads(outcome: Outcome) -> int | None:
    """Return the threads that a launch without a thread count had, as far as known."""
    if outcome.threads is None:
        return None
    return outcome.threads.framework_says or _threads_seen(outcome)


def machine_key(machine: Machine) -> str:
    """Return the machine's part of a stored answer's key: the machine and the CPUs it may use."""
    return f"{machine.fingerprint}:{machine.cpu.capacity_cpus:g}"


def threads_by_default(
    plan: Plan, sources: dict[str, BuildSource], where: str, launcher: Launcher, report: Say
) -> dict[tuple[str, str, str], int]:
    """Return the default thread counts by framework, mode and tuning of the cells on the CPU.

    Unknown ones are left out. A count is observed in one short launch that sets no thread count:
    the framework's report counts if it has one, otherwise the threads that the operating system saw
    working. As installed, a framework may compute its products with another library, so those cells
    have their own answer. Answers are kept for each place (see `machine_key`), environment, adapter
    code and mode.
    """
    path = folders.make_folder(folders.home() / "cache") / "default-threads.json"
    answers: dict[str, int | None] = _read(path, TypeAdapter(dict[str, int])) or {}
    family = networks.shipped()[_NETWORK].family.name
    counts: dict[tuple[str, str, str], int] = {}
    ways = [(cell.framework, cell.mode, cell.tuning) for cell in plan.cells if cell.on_cpu]
    for name, mode, tuning in dict.fromkeys(ways):
        source = sources[name]
        framework = source.build.framework
        # A user's own step may be slow. Releases are not compared over threads.
        own_or_release = framework.file is not None or source.build.released is not None
        if source.interpreter is None or not framework.computes or own_or_release:
            continue
        installed = tuning == INSTALLED and bool(framework.tunable(mode, devices.CPU, family))
        words = ""
        if installed:
            words = ", installed"
        environment = add_variables(source.digest, plan.variables)
        key = f"{where}:{environment}:{code_digest(framework)}:{framework.name}:{mode}{words}"
        if key not in answers:
            report(f"asking {name} {mode}{words} for its default thread count, once")
            outcome = ask(
                framework, source, launcher, mode, installed=installed, given=plan.variables
            )
            answers[key] = _default_threads(outcome)
            _keep(path, {answered: threads for answered, threads in answers.items() if threads})
        count = answers[key]
        if count:
            counts[name, mode, tuning] = count
    return counts


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
    source: BuildSource,
    machine: str,
    cpus: int,
    launcher: Launcher,
    report: Say,
) -> Capabilities:
    """Return the capabilities of the framework's default mode.

    It is asked once for each machine, environment and adapter. ``machine`` is a key of the machine
    and the CPUs that this process may use. Without an environment on this machine the result has
    the reason.
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
        statuses.add(launched.verdict.status)
        return launched

    threads = None
    try:
        outcome = ask(framework, source, watched, only_capabilities=True)
        if outcome.status is not Status.OK:
            return Capabilities("", problem=f"{outcome.status.value}: {outcome.reason}")
        if framework.computes and cpus > 1:
            threads = _ask_for_threads(framework, source, watched)
    except Interrupted:
        raise
    except DlbenchError as error:
        return Capabilities("", problem=str(error))
    capabilities = _read_answers(framework, outcome, threads)
    # A failure may be chance and is not stored. A refusal is an answer.
    if statuses <= {Status.OK, Status.UNSUPPORTED}:
        _keep(path, (key, asdict(capabilities)))
    return capabilities


def _read_answers(
    framework: Framework, outcome: Outcome, threads: dict[str, Any] | None
) -> Capabilities:
    """Return the capabilities that a launch reported. Their types are not trusted."""
    answers: dict[str, tuple[bool, str]] = {}
    refusals: dict[str, str] = {}
    for key, pair in outcome.software["capabilities"].items():
        able = bool(pair[0])
        text = str(pair[1])
        if key.startswith(NETWORK):
            if able:
                text = ""
            refusals[key.removeprefix(NETWORK)] = text
        else:
            answers[key] = able, text
    project = outcome.software.get("project", {})
    return Capabilities(
        version=_version(framework, outcome),
        answers=answers,
        networks=refusals,
        threads=threads,
        project={str(key): str(text) for key, text in project.items()},
    )


def _version(framework: Framework, outcome: Outcome) -> str:
    if not framework.computes:
        return ""  # its environment is another's
    distributions = outcome.software.get("distributions", {})
    for name in (framework.imports, framework.name):
        version = distributions.get(name.replace("_", "-"))
        if version:
            return str(version)
    if framework.project:
        released = {release.version for release in framework.project.releases}
        for version in distributions.values():
            if version in released:
                return str(version)
    # The adapter reports the version of a framework that is no Python distribution.
    return str(outcome.software.get("version", ""))


def _ask_for_threads(
    framework: Framework, source: BuildSource, launcher: Launcher
) -> dict[str, Any]:
    """Ask for a count that is not the default, in each way alone and in both."""

    def seen(calls: int, variables: int) -> int | None:
        return _threads_seen(ask(framework, source, launcher, calls=calls, variables=variables))

    by_nothing = seen(0, 0)
    asked = 2 if by_nothing == 1 else 1
    templates = {**framework.variables, **framework.modes[framework.default_mode].variables}
    names = [name for name, value in templates.items() if "{threads}" in value]
    by_variables = by_nothing
    if names:
        by_variables = seen(0, asked)
    by_calls = seen(asked, 0)
    by_both = by_calls
    if names:
        by_both = seen(asked, asked)
    listed = ", ".join(names)
    setting = "its own setting"
    ways = []
    if names and by_variables == asked:
        ways.append(listed)
    if by_calls == asked:
        ways.append(setting)
    if None in (by_variables, by_calls, by_both):
        words = "not seen"
    elif by_nothing == asked:
        words = "not seen: it is the default"
    elif ways:
        words = ", or ".join(ways)
    elif by_both == asked:
        words = f"{listed} and {setting}, together"
    else:
        words = "not honoured"
    return {
        "asked": asked,
        "by_nothing": by_nothing,
        "by_variables": by_variables,
        "by_calls": by_calls,
        "by_both": by_both,
        "variables": names,
        "words": words,
    }
