"""How many threads does a framework take when nobody asks for a number?

Not typed in but seen: one short launch of each row that sets no thread count at all. The framework's own word counts
where it has one, else the threads that the operating system saw working. The answer is kept per machine, environment
and mode, so that it is asked once.
"""

import json
import math
from pathlib import Path

from dlbench.adapters.networks import NETWORKS
from dlbench.adapters.protocol import Cell, Launch, Protocol
from dlbench.reports.evidence import wanting_threads, working_threads

from . import environment
from .axes import Row
from .environment import Report
from .launcher import Launcher, Order
from .plan import Plan
from .sources import Source

# Large dense layers: whatever threads a framework has find work in them.
_NETWORK = NETWORKS["fcn5"]
_PROTOCOL = Protocol(warmup_steps=3, steps=3, minimum_steps=3, seconds=1.0)
_SECONDS = 300.0

RowName = tuple[str, str]


def _ask(row: Row, source: Source, launcher: Launcher) -> int | None:
    assert source.interpreter is not None
    framework = row.build.framework
    cell = Cell(row.build.name, framework.folder, row.mode, _NETWORK.name, "cpu", 0, _NETWORK.batch_size)
    cache = environment.make_folder(environment.cache_directory(framework))
    settings = framework.modes[row.mode].settings
    launch = Launch(cell, _PROTOCOL, settings, None, str(cache), adapter_directory=framework.outside)
    variables = framework.launch_variables(row.mode, 0, source.folder)
    order = Order(launch, source.interpreter, variables, _SECONDS)
    outcome = launcher.launch(order).outcome
    if outcome.threads is None:
        return None
    if outcome.threads.framework_says:
        return outcome.threads.framework_says
    # No more than wanted to run at any one moment: threads that take turns (TensorFlow's caller and its pool) are fewer
    # than they look. The quarter is what the clocks and helper threads may add.
    at_once = max(1, math.ceil(wanting_threads(outcome.threads, outcome.contention) - 0.25))
    return min(at_once, working_threads(outcome.threads) or at_once)


def _read(path: Path) -> dict[str, int]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in content.items() if isinstance(value, int)} if isinstance(content, dict) else {}


def threads_by_default(
    plan: Plan, sources: dict[str, Source], machine: str, launcher: Launcher, report: Report
) -> dict[RowName, int]:
    """Return each row's default thread count; rows of which it cannot be told are left out.

    ``machine`` is what the answer depends on besides the environment: the machine and the CPUs this process may use.
    """
    path = environment.make_folder(environment.home() / "cache") / "default-threads.json"
    known = _read(path)
    found: dict[RowName, int] = {}
    for row in plan.rows:
        source = sources[row.build.name]
        if source.interpreter is None or not row.build.framework.computes:
            continue
        key = f"{machine}:{source.digest}:{row.build.framework.name}:{row.mode}"
        if key not in known:
            report(f"asking {row.build.name} {row.mode} for its default thread count, once")
            told = _ask(row, source, launcher)
            if told is None:
                continue
            known[key] = told
            partial = path.with_suffix(".part")
            partial.write_text(json.dumps(known, indent=1), encoding="utf-8")
            partial.replace(path)
        found[row.build.name, row.mode] = known[key]
    return found
