"""Set up dlbench in a virtual environment in the checkout, then run it or its tests.

    python3 suites/bootstrap.py demo         an example result
    python3 suites/bootstrap.py run quick    any arguments of the dlbench command
    python3 suites/bootstrap.py test         the tests (further arguments go to pytest)
    python3 suites/bootstrap.py rest         the tests of large and historic frameworks
    python3 suites/bootstrap.py properties   the property tests, with many examples (--examples N)
    python3 suites/bootstrap.py kills        kills at random moments: nothing is lost (--count N)
    python3 suites/bootstrap.py check        formatting, lint, types, and the guest's syntax
    python3 suites/bootstrap.py docs         the documentation, as a site in build/docs

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
RUN_MEGABYTES = 100
"""Downloads of RUN_LOCK."""
DOCS_LOCK = ROOT / ".docs" / "requirements.lock"
NEEDED = (3, 11)
# Three groups of tests at a time for each CPU, since many tests wait for something. They run in the
# order of their files: the tests of adapters take longest and come first.
GROUPS_AT_ONCE = min(8, 3 * len(os.sched_getaffinity(0)))
WORKERS = ["-n", str(GROUPS_AT_ONCE), "--dist", "loadgroup", "--no-loadscope-reorder"]
DURATIONS = ["--durations=30"] if os.environ.get("CI") else []


def fail(message: str) -> int:
    """Print one clear line; return the exit code of a missing or broken environment."""
    print(f"dlbench: {message}", file=sys.stderr)
    return 3


def quietly(command: list[str], message: str) -> bool:
    """Run a set-up command, and return whether it succeeds; show its output only if it fails."""
    print(f"dlbench: {message} ...", file=sys.stderr)
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
    digest = hashlib.sha256(lock.read_bytes())
    digest.update((ROOT / "pyproject.toml").read_bytes())
    digest.update(f"{sys.version}{ROOT}".encode())
    return digest.hexdigest()


def set_up(lock: Path) -> str:
    """Install exactly this lock and the project; return the error, empty if there is none."""
    stamp_file = VENV / f"dlbench-{lock.parent.name}.stamp"
    if PYTHON.exists() and stamp_file.exists() and stamp_file.read_text() == stamp(lock):
        return ""
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check"]
    has_pip = False
    if PYTHON.exists():
        has_pip = subprocess.run([*pip, "--version"], capture_output=True).returncode == 0
    if not has_pip:
        command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
        if not quietly(command, f"making {VENV}"):
            return (
                f"{sys.executable} cannot make a virtual environment in {VENV}. Install its venv "
                "package (Debian: python3-venv), use another Python >= 3.11, or set DLBENCH_VENV "
                "to a folder you may write to."
            )
    install = [*pip, "install", "--no-input"]
    requirements = [*install, "--no-compile", "-r", str(lock)]
    size = f", about {RUN_MEGABYTES} MB of downloads" if lock == RUN_LOCK else ""
    if not quietly(requirements, f"installing {lock.relative_to(ROOT)}{size}"):
        return (
            "The locked requirements could not be installed; see pip's output above. Check network "
            "and disk space."
        )
    project = [*install, "--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    if not quietly(project, "installing dlbench"):
        return "dlbench itself could not be installed; see pip's output above."
    stamp_file.write_text(stamp(lock))
    return ""


def run_tests(arguments: list[str]) -> int:
    """Build the environments of all but the large and historic frameworks, then run the tests.

    Without a framework's environment its tests are skipped with the reason. Under CI that is a
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

    Ends the process if they cannot be listed.
    """
    listed = subprocess.run([*DLBENCH, "env", "list", "--json"], stdout=subprocess.PIPE, text=True)
    if listed.returncode != 0:
        sys.exit(
            fail("The frameworks could not be listed (`dlbench env list`); see its output above.")
        )
    names = []
    for framework in json.loads(listed.stdout):
        if (framework["historic"] or framework["large"]) == on_request:
            names.append(framework["name"])
    return names


def variables_of_tests(names: list[str]) -> dict[str, str]:
    """Return the environment variables of tests of these frameworks; other tests are skipped."""
    variables = {"DLBENCH_TEST_FRAMEWORKS": ",".join(names), **os.environ}
    # The tests start hundreds of interpreters, each of which would compile every module anew: half
    # of its time.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def parsed(arguments: list[str], option: str, usual: str | int) -> tuple[Any, list[str]]:
    """Return the value of one option, and the other arguments, which are for pytest."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(option, type=type(usual), default=usual, dest="value")
    given, others = parser.parse_known_args(arguments)
    return given.value, others


def narrowed(names: list[str], arguments: list[str]) -> list[str]:
    """Return pytest's arguments for the tests that name one of these, and fit the user's -k.

    pytest would ignore all but the last -k.
    """
    chosen, others = parsed(arguments, "-k", "")
    expression = " or ".join(names)
    if chosen:
        expression = f"({expression}) and ({chosen})"
    return ["-k", expression, *others]


def run_rest_of_tests(arguments: list[str]) -> int:
    """Build the large and historic frameworks' environments, then run the tests that name one.

    If one cannot be built on this machine, its tests are skipped with the reason. Under CI that is
    a failure instead.
    """
    names = frameworks(on_request=True)
    built = subprocess.run([*DLBENCH, "env", "build", "--rest"]).returncode
    if built != 0 and os.environ.get("CI"):
        return built
    words = narrowed(names, arguments)
    return subprocess.run([*PYTEST, *words], cwd=ROOT, env=variables_of_tests(names)).returncode


def run_properties(arguments: list[str]) -> int:
    """Run the property tests with many examples.

    With ``--examples N``, a test that usually gets a hundred examples gets N, others in proportion.
    """
    examples, others = parsed(arguments, "--examples", 1000)
    variables = {**os.environ, "DLBENCH_PROPERTY_EXAMPLES": str(max(1, examples))}
    command = [*PYTEST, *WORKERS, "-m", "hypothesis", *others]
    return subprocess.run(command, cwd=ROOT, env=variables).returncode


def run_kills(arguments: list[str]) -> int:
    """Kill ``--count N`` runs of the null framework at random moments."""
    count, others = parsed(arguments, "--count", 1000)
    # WORKERS would run the tests of one file one after the other.
    workers = ["-n", str(GROUPS_AT_ONCE), "--dist", "load", "--maxschedchunk", "1"]
    command = [*PYTEST, *workers, "-x", "tests/hardening/test_kills.py", *others]
    variables = {**os.environ, "DLBENCH_KILLS": str(count)}
    return subprocess.run(command, cwd=ROOT, env=variables).returncode


def check(arguments: list[str]) -> int:
    """Run every static check; return 1 if one fails."""
    types = ["mypy", "-p", "dlbench"]
    if os.environ.get("CI"):
        # A fresh clone has no cache of its own: it uses that of the last clone in the same place.
        types += ["--cache-dir", str(Path.home() / ".cache" / "dlbench" / "mypy")]
    failed = False
    for command in (["ruff", "format", "--check", str(ROOT)], ["ruff", "check", str(ROOT)], types):
        if subprocess.run([str(PYTHON), "-m", *command], cwd=ROOT).returncode != 0:
            failed = True
    for version, files in sorted(guest_modules(ROOT / "adapters").items()):
        findings = too_new(version, files)
        if findings:
            print(findings)
            failed = True
        else:
            print(f"The guest's syntax: {len(files)} files fit Python {version[0]}.{version[1]}.")
    return int(failed)


def build_docs(arguments: list[str]) -> int:
    """Build the documentation in the given folder, or in build/docs; a warning is an error."""
    folder = arguments[0] if arguments else str(ROOT / "build" / "docs")
    options = ["-q", "-E", "-W", "--keep-going", "-c", str(ROOT / ".docs")]
    command = [str(PYTHON), "-m", "sphinx", *options, str(ROOT), folder]
    built = subprocess.run(command, cwd=ROOT).returncode
    if built == 0:
        print(f"The documentation is in {folder}.")
    return built


def guest_modules(adapters: Path) -> dict[tuple[int, int], list[Path]]:
    """Return the guest's modules by the oldest Python that each must run on.

    A framework's own modules need no older one than the framework does; all others run on Python
    3.6.
    """
    import tomllib  # not at the top: a Python older than 3.11 must get as far as its message

    files_by_version: dict[tuple[int, int], list[Path]] = {}
    folders = [path for path in sorted(adapters.iterdir()) if path.is_dir()]
    for folder in (adapters, *folders):
        oldest = (3, 6)
        description = folder / "framework.toml"
        if description.is_file():
            versions = []
            for version in tomllib.loads(description.read_text()).get("python", []):
                major, minor = version.split(".")
                versions.append((int(major), int(minor)))
            oldest = min(versions, default=oldest)
        files = folder.glob("*.py") if folder == adapters else folder.rglob("*.py")
        files_by_version.setdefault(oldest, []).extend(sorted(files))
    return files_by_version


def too_new(version: tuple[int, int], files: list[Path]) -> str:
    """Return vermin's findings of syntax in these files that this Python lacks."""
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
    "docs": build_docs,
}
LOCKS = {"docs": DOCS_LOCK}
"""Requirements of actions that need others than the tests do."""


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
        problem = set_up(LOCKS.get(arguments[0], TEST_LOCK) if action else RUN_LOCK)
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
