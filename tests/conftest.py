"""What every test shares: the frameworks' interpreters, and one launch carried out as the product
does it."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import postgresql_server
import processes
import pytest
from one_launch import find_framework_python, launch_once
from properties import load_profile

from dlbench.hardware_probe.doctor import TELLING_VARIABLES
from dlbench.reports.results.outcome import Outcome
from dlbench.suites import cli
from dlbench.suites.environments import digests
from dlbench.suites.planning import own
from dlbench.suites.planning.framework import catalogue

#: The longest come first, so that none is left alone at the end; one that waits beside one that
#: computes.
_FIRST = (
    *("slurm", "browser", "tests/reports/storage/test_postgresql.py", "guest of torch"),
    *(
        "tests/suites/fleet/test_fleet.py",
        "guest of tensorflow",
        "tests/suites/environments/test_releases.py",
    ),
    *(
        "guest of jax",
        "tests/suites/environments/test_debian.py",
        "tests/suites/planning/test_own_steps.py",
    ),
    *("tests/hardening/test_kills.py", "tests/suites/environments/test_packages.py"),
    *("tests/suites/in_pytest/test_pytest_plugin.py", "tests/suites/run/test_schedules.py"),
    *("tests/suites/in_pytest/test_pytest_processes.py", "tests/suites/planning/test_variables.py"),
    *("tests/suites/commands/test_python_package.py", "tests/reports/formats/test_inert.py"),
    "tests/suites/commands/test_bisect_command.py",
)

load_profile()

# So that the conformance suite holds an adapter outside the project to the contract too.
own.register_adapters(None)


# What is collected stays: neither while it is made nor during the tests need it be searched for
# garbage.
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keep on one worker the tests of a framework's interpreter, which starts slowly, and those of
    any other file."""
    groups = {}
    for item in items:
        marked = item.get_closest_marker("xdist_group")
        framework = getattr(item.module, "FRAMEWORK", None)
        of_file = f"guest of {framework}" if framework else item.location[0]
        groups[item] = of_file if marked is None else marked.args[0]
        if marked is None:
            item.add_marker(pytest.mark.xdist_group(groups[item]))
    items.sort(
        key=lambda item: _FIRST.index(groups[item]) if groups[item] in _FIRST else len(_FIRST)
    )


@pytest.fixture(scope="session", autouse=True)
def lock_of_all_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let tests wait for no dlbench outside, and for none of the tests beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLBENCH_LOCK_FOLDER", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="session", autouse=True)
def variables_of_the_shell() -> Iterator[None]:
    """Hide the variables that commands would name: some machines set OPENBLAS_CORETYPE for
    everybody."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if any(fnmatch(name, pattern) for pattern in TELLING_VARIABLES):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def digests_of_builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let all homes of tests share the digests of builds: each reads the 12,000 files of an
    environment."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    (shared / "cache" / "contents").mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "SHARED_HOME", shared)
        patch.setattr(digests, "home", lambda: shared)
        yield


@pytest.fixture(scope="module")
def few_replicates() -> Iterator[None]:
    """Simulate the fits of scaling laws nine times: all of them are most of the time of a report of
    threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dlbench.reports.curve.fits.REPLICATES", 9)
        yield


@pytest.fixture(scope="session")
def framework_python() -> Callable[[str], Path]:
    """Give the function that finds a framework's interpreter or skips."""
    return find_framework_python


@pytest.fixture(scope="session")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """Give ``launch_once`` by the framework's name, with one adapter cache for the whole
    session."""
    cache = Path(os.environ.get("DLBENCH_TEST_CACHE") or tmp_path_factory.mktemp("adapter-cache"))

    def carry_out(name: str, mode: str, network: str, **options: Any) -> Outcome:
        return launch_once(catalogue()[name], mode, network, cache=cache / name, **options)

    return carry_out


@pytest.fixture(scope="session")
def postgresql() -> Iterator[postgresql_server.Server]:
    """Give a PostgreSQL server of the tests' own, or skip."""
    binaries = postgresql_server.programs()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed here (Debian: apt-get install postgresql)")
    with postgresql_server.server(binaries) as started:
        yield started


@pytest.fixture
def database(postgresql: postgresql_server.Server) -> str:
    """Give the name of an empty database on the server, which is started where a test left it
    stopped."""
    return postgresql.database()


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[Any, str, str]]]:
    """Give a function that runs the command in this process, in an empty folder: exit code, output,
    complaints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DLBENCH_STORE", raising=False)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def carry_out(*words: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["dlbench", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        output = capsys.readouterr()
        return caught.value.code, output.out, output.err

    yield carry_out
    for number, handler in before.items():
        signal.signal(number, handler)
