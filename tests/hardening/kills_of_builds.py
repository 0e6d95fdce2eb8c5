"""Builds of an environment that are killed at random moments; the next build must give a whole one."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from random import Random

from kills_of_runs import demand, kill
from made_up_pythons import script
from tiny_framework import left_behind, make_framework

from dlbench.suites.environments import environment, folders, interpreters
from dlbench.suites.environments.environment import State
from dlbench.suites.planning.framework import Framework

# As a Python that installs many files slowly; a file without its last line was not written to its end.
FILES = 20
_PYTHON = f"""#!/bin/sh
case "$*" in
"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
*"pip install"*)
    here=$(dirname "$0")
    for n in $(seq {FILES}); do (echo begin; echo end) > "$here/file-$n"; sleep 0.002; done ;;
*) echo '{{"version": "3.99.1", "implementation": "FakePython", "distributions": {{"tiny": "1.0"}}, "missing": []}}' ;;
esac
"""
BUILD_SECONDS = 0.25


def prepare(folder: Path) -> tuple[Framework, dict[str, str]]:
    """Return a framework to build in this folder, and the variables to build it with."""
    script(folder / "path" / "python3.99", _PYTHON)
    return make_framework(folder), {"PATH": f"{folder / 'path'}:/usr/bin:/bin", "DLBENCH_HOME": str(folder / "home")}


def start(framework: Framework) -> int:
    """Build in a fork of this process; return its process number."""
    child = os.fork()
    if child:
        return child
    try:
        environment.build(framework)
        os._exit(0)
    finally:
        os._exit(1)


def trial(folder: Path, random: Random) -> Counter[str]:
    """Kill one to three builds one after the other, build, and return how often which kind of kill met a build."""
    framework, variables = prepare(folder)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    interpreters.find_python.cache_clear()
    counts: Counter[str] = Counter()
    try:
        for _ in range(random.randint(1, 3)):
            builder = start(framework)
            time.sleep(random.uniform(0.0, BUILD_SECONDS))
            kill(builder)
            _, status = os.waitpid(builder, 0)
            counts["build"] += os.WIFSIGNALED(status)
            _look(framework, folder)
        built = environment.build(framework)
        demand(built.state is State.READY, f"after kills the build gives: {built.state} {built.reason}")
        _look(framework, folder)
        demand(len(left_behind(folder / "home")) == 1, f"left behind is {left_behind(folder / 'home')}")
        demand(not folders.downloads(built.directory).exists(), "downloads are left behind")
    finally:
        interpreters.find_python.cache_clear()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return counts


def _look(framework: Framework, folder: Path) -> None:
    """Demand that what counts as built is whole."""
    found = environment.locate(framework)
    demand(found.state is not State.UNAVAILABLE, f"the environment is unavailable: {found.reason}")
    if found.state is State.READY:
        manifest = json.loads((found.directory / interpreters.MANIFEST).read_text())
        demand(manifest["framework"] == "tiny", "the manifest is not whole")
        files = list((found.directory / "bin").glob("file-*"))
        whole = [file for file in files if file.read_text().endswith("end\n")]
        demand(len(whole) == FILES, f"an environment counts as built with {len(whole)} of {FILES} files")
