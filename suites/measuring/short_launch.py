"""Short launches that ask a framework something about itself: nothing of them is stored or compared.

How many threads it takes when nobody asks for a number is one such question: see ``threads_by_default``.
"""

import contextlib
import json
import math
from pathlib import Path

from dlbench.adapters.networks import to_data
from dlbench.adapters.protocol import INSTALLED, Cell, Launch, Outcome, Protocol
from dlbench.hardware_probe import Machine
from dlbench.reports.flags import wanting_threads, working_threads

from ..environments import folders
from ..environments.adapter_digest import code_digest
from ..environments.environment import Report
from ..environments.folders import write_whole
from ..environments.row_interpreters import Source
from ..launching.launcher import Launcher, Order
from ..planning import devices, networks
from ..planning.framework import Framework
from ..planning.plan import Plan

# Large dense layers: whatever threads a framework has find work in them.
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
        None,
        str(folders.make_folder(folders.cache_directory(framework))),
        adapter_directory=framework.outside,
        only_capabilities=only_capabilities,
        network=to_data(network),
        asked_about=[to_data(each) for each in known.values()] if only_capabilities else None,
    )
    assert source.interpreter is not None
    named = {**framework.launch_variables(mode, variables, source.folder, chosen), **devices.variables(None)}
    return launcher.launch(Order(launch, source.interpreter, named, _SECONDS)).outcome


def threads_seen(outcome: Outcome) -> int | None:
    """Return how many threads the operating system saw working at once; None where it does not tell."""
    if outcome.threads is None:
        return None
    # No more than wanted to run at any one moment: threads that take turns (TensorFlow's caller and its pool) are fewer
    # than they look. The quarter is what the clocks and helper threads may add.
    at_once = max(1, math.ceil(wanting_threads(outcome.threads, outcome.contention) - 0.25))
    return min(at_once, working_threads(outcome.threads) or at_once)


def place(machine: Machine) -> str:
    """Return what an answer that is kept depends on besides the framework: the machine and the CPUs it may use."""
    return f"{machine.fingerprint}:{machine.cpu.capacity_cpus:g}"


def threads_by_default(
    plan: Plan, sources: dict[str, Source], where: str, launcher: Launcher, report: Report
) -> dict[tuple[str, str, str], int]:
    """Return how many threads a framework's mode takes, with a tuning, when nobody asks for a number, where known.

    As installed a framework may compute its products with another library, so those cells have an answer of their own;
    all others have that of the tuned ones. Left out are rows without a cell on the CPU: their threads only start what a
    GPU computes.

    Not typed in but seen: one short launch that sets no thread count at all. The framework's own word counts where it
    has one, else the threads that the operating system saw working. The answer is kept for each place (see ``place``),
    environment, adapter's code and mode, so that it is asked once.
    """
    path = folders.make_folder(folders.home() / "cache") / "default-threads.json"
    known: dict[str, int | None] = {**_read(path)}
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
                write_whole(path, json.dumps({key: told for key, told in known.items() if told is not None}, indent=1))
        threads = known[key]
        if threads is not None:
            found[name, mode, tuning] = threads
    return found


def _read(path: Path) -> dict[str, int]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in content.items() if isinstance(value, int)} if isinstance(content, dict) else {}
