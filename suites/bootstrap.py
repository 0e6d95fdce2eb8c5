"""Sets up dlbench in a virtual environment beside the checkout, then runs it or its tests.

    python3 suites/bootstrap.py run quick    any arguments of the dlbench command
    python3 suites/bootstrap.py test         the tests (further arguments go to pytest)
    python3 suites/bootstrap.py rest         the tests of large and historic frameworks
    python3 suites/bootstrap.py properties   the property tests, with many examples (--examples N)
    python3 suites/bootstrap.py kills        kills at random moments: nothing is lost (--count N)
    python3 suites/bootstrap.py check        formatting, lint, types, and the guest's syntax

Needs Python 3.11 or newer with its venv module, and nothing else: no root, no installed package.
The requirements are locked; an existing set-up is reused. The virtual environment is .venv
(DLBENCH_VENV overrides it).
"""

# An older Python must get as far as the message that it is too old.
from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(os.environ.get("DLBENCH_VENV") or ROOT / ".venv")
PYTHON = VENV / "bin" / "python"
DLBENCH = [str(PYTHON), "-m", "dlbench.suites"]
PYTEST = [str(PYTHON), "-m", "pytest"]
RUN_LOCK = ROOT / "suites" / "requirements.lock"
TEST_LOCK = ROOT / "tests" / "requirements.lock"
NEEDED = (3, 11)
# Groups of tests: three at a time for each CPU, since many wait for something, in the order of
# their files: those of adapters take longest and come first.
WORKERS = [
    "-n",
    str(min(8, 3 * len(os.sched_getaffinity(0)))),
    "--dist",
    "loadgroup",
    "--no-loadscope-reorder",
]
DURATIONS = ["--durations=30"] if os.environ.get("CI") else []


def fail(message: str) -> int:
    """Print one clear line; return the exit code of a missing or broken environment."""
    print(f"dlbench: {message}", file=sys.stderr)
    return 3


def quietly(command: list[str], what: str) -> bool:
    """Run a set-up command; its output is shown only when it fails."""
    print(f"dlbench: {what} ...", file=sys.stderr)
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        print(done.stdout[-3000:], file=sys.stderr)
    return done.returncode == 0


def stamp(lock: Path) -> str:
    """Return a digest of a set-up's inputs: lock, project file, interpreter and place."""
    digest = hashlib.sha256()
    for part in (
        lock.read_bytes(),
        (ROOT / "pyproject.toml").read_bytes(),
        f"{sys.version}{ROOT}".encode(),
    ):
        digest.update(part)
    return digest.hexdigest()


def set_up(lock: Path) -> str:
    """Install exactly this lock and the project into the virtual environment; return "" or the
    error.
    """
    noted = VENV / f"dlbench-{lock.parent.name}.stamp"
    if PYTHON.exists() and noted.exists() and noted.read_text() == stamp(lock):
        return ""
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check"]
    works = (
        PYTHON.exists() and subprocess.run([*pip, "--version"], capture_output=True).returncode == 0
    )
    if not works and not quietly(
        [sys.executable, "-m", "venv", "--clear", str(VENV)], f"making {VENV}"
    ):
        return (
            f"{sys.executable} cannot make a virtual environment in {VENV}. Install its venv "
            "package (Debian: python3-venv), use another Python >= 3.11, or set DLBENCH_VENV to a "
            "folder you may write to."
        )
    install = [*pip, "install", "--no-input"]
    if not quietly(
        [*install, "--no-compile", "-r", str(lock)], f"installing {lock.relative_to(ROOT)}"
    ):
        return (
            "The locked requirements could not be installed; see pip's output above. Check network "
            "and disk space."
        )
    if not quietly(
        [*install, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], "installing dlbench"
    ):
        return "dlbench itself could not be installed; see pip's output above."
    noted.write_text(stamp(lock))
    return ""


def run_tests(arguments: list[str]) -> int:
    """Build the frameworks' environments, then run the tests; the large and historic frameworks are
    left to ``rest``.

    Without a framework's environment its tests are skipped with the reason; under CI that is a
    failure instead.
    """
    variables = variables_of_tests(frameworks(on_request=False))
    # Each of several workers would compile all tests, at the same time.
    compiled = [*PYTEST, "--collect-only", *arguments]
    compiling = subprocess.Popen(compiled, cwd=ROOT, env=variables, stdout=subprocess.DEVNULL)
    built = subprocess.run([*DLBENCH, "env", "build"]).returncode
    compiling.wait()
    if built != 0 and os.environ.get("CI"):
        return built
    chosen = arguments or [*WORKERS, *DURATIONS]
    return subprocess.run([*PYTEST, *chosen], cwd=ROOT, env=variables).returncode


def frameworks(on_request: bool) -> list[str]:
    """Return the names of the frameworks that are built and tested on request, or of the others.

    Ends the process where they cannot be listed.
    """
    listed = subprocess.run([*DLBENCH, "env", "list", "--json"], stdout=subprocess.PIPE, text=True)
    if listed.returncode != 0:
        sys.exit(
            fail("The frameworks could not be listed (`dlbench env list`); see its output above.")
        )
    return [
        each["name"]
        for each in json.loads(listed.stdout)
        if (each["historic"] or each["large"]) == on_request
    ]


def variables_of_tests(names: list[str]) -> dict[str, str]:
    """Return the environment of tests that are about these frameworks: the tests of the others are
    skipped.
    """
    variables = {"DLBENCH_TEST_FRAMEWORKS": ",".join(names), **os.environ}
    # The tests start hundreds of interpreters, each of which would compile every module anew: half
    # of its time.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def parsed(arguments: list[str], option: str, usual: str | int) -> tuple[Any, list[str]]:
    """Return the value of one option, and the other arguments, which are pytest's."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(option, type=type(usual), default=usual, dest="value")
    given, others = parser.parse_known_args(arguments)
    return given.value, others


def narrowed(names: list[str], arguments: list[str]) -> list[str]:
    """Return pytest's arguments for the tests that name one of these, and fit the user's -k where
    there is one.

    Of two -k pytest would take the last alone.
    """
    chosen, others = parsed(arguments, "-k", "")
    named = " or ".join(names)
    return ["-k", f"({named}) and ({chosen})" if chosen else named, *others]


def run_rest_of_tests(arguments: list[str]) -> int:
    """Build the large and historic frameworks' environments, then run the tests that name one of
    them.

    Where one cannot be built here, its tests are skipped with the reason; under CI that is a
    failure instead.
    """
    names = frameworks(on_request=True)
    built = subprocess.run([*DLBENCH, "env", "build", "--rest"]).returncode
    if built != 0 and os.environ.get("CI"):
        return built
    words = narrowed(names, arguments)
    return subprocess.run([*PYTEST, *words], cwd=ROOT, env=variables_of_tests(names)).returncode


def run_properties(arguments: list[str]) -> int:
    """Run the property tests with ``--examples N`` for one that usually gets a hundred, others in
    proportion.
    """
    examples, others = parsed(arguments, "--examples", 1000)
    variables = {**os.environ, "DLBENCH_PROPERTY_EXAMPLES": str(max(1, examples))}
    return subprocess.run(
        [*PYTEST, *WORKERS, "-m", "hypothesis", *others], cwd=ROOT, env=variables
    ).returncode


def run_kills(arguments: list[str]) -> int:
    """Kill ``--count N`` runs of the null framework at random moments."""
    count, others = parsed(arguments, "--count", 1000)
    words = [*PYTEST, "-x", "tests/hardening/test_kills.py", *others]
    return subprocess.run(
        words, cwd=ROOT, env={**os.environ, "DLBENCH_KILLS": str(count)}
    ).returncode


def check(arguments: list[str]) -> int:
    """Run every static check; return 1 when one fails."""
    python = [str(PYTHON), "-m"]
    # A fresh clone has no cache of its own: it takes what was checked in the last one of the same
    # place.
    kept = (
        ["--cache-dir", str(Path.home() / ".cache" / "dlbench" / "mypy")]
        if os.environ.get("CI")
        else []
    )
    types = ["mypy", "-p", "dlbench", *kept]
    commands = [["ruff", "format", "--check", str(ROOT)], ["ruff", "check", str(ROOT)], types]
    codes = [subprocess.run([*python, *command], cwd=ROOT).returncode for command in commands]
    for version, files in sorted(guest_modules(ROOT / "adapters").items()):
        found = too_new(version, files)
        print(
            found or f"The guest's syntax: {len(files)} files fit Python {version[0]}.{version[1]}."
        )
        codes.append(int(bool(found)))
    return int(any(codes))


def guest_modules(adapters: Path) -> dict[tuple[int, int], list[Path]]:
    """Return the guest's modules by the oldest Python that each must run on.

    A framework's own modules need no older one than the framework does; all others run on Python
    3.6.
    """
    import tomllib  # an older Python than 3.11 has none, and must get as far as to say so

    found: dict[tuple[int, int], list[Path]] = {}
    for folder in (adapters, *(path for path in sorted(adapters.iterdir()) if path.is_dir())):
        described = folder / "framework.toml"
        versions = (
            tomllib.loads(described.read_text()).get("python", []) if described.is_file() else []
        )
        numbers = [tuple(int(part) for part in version.split(".")) for version in versions]
        oldest = min(((major, minor) for major, minor in numbers), default=(3, 6))
        files = folder.glob("*.py") if folder == adapters else folder.rglob("*.py")
        found.setdefault(oldest, []).extend(sorted(files))
    return found


def too_new(version: tuple[int, int], files: list[Path]) -> str:
    """Return vermin's findings of syntax in these files that this Python lacks; empty if there are
    none.
    """
    options = [f"-t={version[0]}.{version[1]}-", "--no-tips", "--violations"]
    command = [str(PYTHON), "-c", "import vermin; vermin.main()", *options, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


ACTIONS = {
    "test": run_tests,
    "rest": run_rest_of_tests,
    "properties": run_properties,
    "kills": run_kills,
    "check": check,
}


def main(arguments: list[str]) -> int:
    """Set up what the first word needs and hand over to it."""
    if sys.version_info < NEEDED:
        return fail(
            "dlbench needs Python 3.11 or newer; this is {}.{}.".format(*sys.version_info[:2])
        )
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    action = ACTIONS.get(arguments[0])
    try:
        problem = set_up(TEST_LOCK if action else RUN_LOCK)
    except OSError as error:
        problem = (
            f"{VENV} cannot be written: {error.strerror}. Set DLBENCH_VENV to a folder you may "
            "write to."
        )
    if problem:
        return fail(problem)
    if action:
        return action(arguments[1:])
    command = str(VENV / "bin" / "dlbench")
    return os.execv(command, [command, *arguments])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
