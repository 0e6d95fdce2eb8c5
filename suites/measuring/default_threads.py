"""How many threads does a framework take when nobody asks for a number?

Not typed in but seen: one short launch of each row that sets no thread count at all. The framework's own word counts
where it has one, else the threads that the operating system saw working. The answer is kept per machine, environment,
adapter's code and mode, so that it is asked once.
"""

import json
from pathlib import Path

from ..environments import environment
from ..environments.adapter_digest import code_digest
from ..environments.environment import Report
from ..environments.row_interpreters import Source
from ..planning.plan import Plan
from ..planning.values import Row
from . import short_launch
from .launcher import Launcher

RowName = tuple[str, str]


def _ask(row: Row, source: Source, launcher: Launcher) -> int | None:
    outcome = short_launch.ask(row.build.framework, row.mode, source, launcher)
    if outcome.threads is not None and outcome.threads.framework_says:
        return outcome.threads.framework_says
    return short_launch.threads_seen(outcome)


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

    ``machine`` is what the answer depends on besides environment and adapter: the machine and the CPUs this process
    may use.
    """
    path = environment.make_folder(environment.home() / "cache") / "default-threads.json"
    known = _read(path)
    found: dict[RowName, int] = {}
    for row in plan.rows:
        source = sources[row.build.name]
        if source.interpreter is None or not row.build.framework.computes:
            continue
        framework = row.build.framework
        key = f"{machine}:{source.digest}:{code_digest(framework)}:{framework.name}:{row.mode}"
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
