"""Update a framework's lock to the newest releases: resolve, build, check parity, gate against the
old build.

    .venv/bin/python suites/recipes/refresh_lock.py jax [SUITE]        in a clone, with uv on PATH

uv resolves `packages` of framework.toml for the oldest Python of the lock that this machine's
environment is built from; releases named under [held] stay. If the new build cannot be installed or
fails the conformance tests, the old lock is restored. The script exits with the gate's code; the
new lock stays, to be committed or reverted.
"""

import re
import shutil
import subprocess
import sys
from itertools import chain

from dlbench.suites.environments import environment, packages
from dlbench.suites.errors import DlbenchError, FrameworkEnvironmentError, UsageError
from dlbench.suites.planning.framework import find

DLBENCH = (sys.executable, "-m", "dlbench.suites")
_COMPILE = (
    "uv",
    "pip",
    "compile",
    "--generate-hashes",
    "--no-annotate",
    "--no-header",
    "--quiet",
    "--upgrade",
)


def refresh(name: str, suite: str) -> int:
    """Refresh the lock of a framework and return the gate's exit code; raise DlbenchError if that
    fails.
    """
    built = environment.build(find(name), print)
    framework, lock = built.framework, built.framework.lock_file
    if framework.environment != "own" or framework.interpreter:
        raise UsageError(f"{name} has no locked Python packages.")
    old = lock.read_text(encoding="utf-8")
    always, _, where_asked = old.partition(packages.ONLY_WHERE)
    lines = packages.by_name(packages.sections(lock)[0])
    several = []
    for package, builds in lines.items():
        if len(builds) > 1 and package not in framework.held:
            several.append(package)
    if several:
        raise UsageError(
            f"{lock} has several builds of {', '.join(several)}: change those lines by hand."
        )
    new = _resolved(
        framework.packages or tuple(lines),
        [lines[package][0] for package in framework.held if package in lines],
        min(framework.python, key=lambda version: int(version.partition(".")[2])),
    )
    for package in framework.held:  # its line as it was: it may name builds that no index has
        new = [line for line in new if not line.startswith(f"{package}==")] + lines.get(package, [])
    old_lines = chain.from_iterable(lines.values())
    old_requirements = {line.split()[0] for line in old_lines}
    if {line.split()[0] for line in new} == old_requirements:
        print(f"{name}: nothing is newer than {lock.name}.")
        return 0
    heading = re.match(r"(#.*\n)*", always)
    text = (heading[0] if heading else "") + "\n".join(sorted(new)) + "\n"
    lock.write_text(
        text + (packages.ONLY_WHERE + where_asked if where_asked else ""), encoding="utf-8"
    )
    tests = (sys.executable, "-m", "pytest", "-q", "tests/adapters/test_conformance.py", "-k", name)
    try:
        environment.build(find(name), print)
        if subprocess.run(tests).returncode != 0:
            raise FrameworkEnvironmentError(f"The new build of {name} fails the conformance tests.")
    except BaseException:
        lock.write_text(old, encoding="utf-8")
        print(f"{name}: {lock} is as it was.")
        raise
    gate = (
        *DLBENCH,
        "gate",
        suite,
        "--baseline",
        f"{name}={built.interpreter}",
        "--frameworks",
        f"{name}:*",
    )
    return subprocess.run([*gate, "--threads", "cores", "--affinity", "bound"]).returncode


def _resolved(packages: tuple[str, ...], held: list[str], python: str) -> list[str]:
    """Return one line for each package of the newest set that fits together: name==version and its
    hashes.
    """
    if shutil.which("uv") is None:
        raise FrameworkEnvironmentError("uv is not on PATH. Install it: python -m pip install uv.")
    pins = [line.split()[0] for line in held]
    wanted = "\n".join((*packages, *pins)) + "\n"
    done = subprocess.run(
        [*_COMPILE, "--python-version", python, "-"],
        input=wanted,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        raise FrameworkEnvironmentError("uv could not resolve the packages; its words are above.")
    return re.sub(r"\s*\\\n\s*", " ", done.stdout).splitlines()


if __name__ == "__main__":
    try:
        sys.exit(refresh(sys.argv[1], *(sys.argv[2:] or ["quick"])))
    except DlbenchError as error:
        sys.exit(f"refresh_lock: {error}")
