"""The guest in every interpreter here, and what it finds there."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from pretending_adapter import launch_of

from dlbench.adapters import protocol
from dlbench.adapters.protocol import Status
from dlbench.suites.environments.interpreters import find_python, inspect
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.planning.framework import GUEST_DIRECTORY
from dlbench.suites.run.launcher import LaunchRequest, ProcessLauncher


def guest(interpreter, folder, **options):
    """Carry out one launch of the null framework as the product does it."""
    launch = launch_of(folder, **options)
    return ProcessLauncher().launch(LaunchRequest(launch, interpreter, {"OMP_NUM_THREADS": "2"}, 120.0)).outcome


def given_interpreters():
    """Return the interpreters that DLBENCH_GUEST_PYTHONS names, by minor version."""
    words = [word for word in os.environ.get("DLBENCH_GUEST_PYTHONS", "").split(os.pathsep) if word]
    return {".".join(inspect(Path(word)).version.split(".")[:2]): Path(word) for word in words}


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_the_guest_runs_in_every_interpreter(tmp_path, version):
    interpreter = given_interpreters().get(version) or find_python(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} in DLBENCH_GUEST_PYTHONS, on PATH, under pyenv or under uv")
    try:
        inspection = inspect(interpreter, ("numpy",))
    except FrameworkEnvironmentError as error:
        pytest.fail(str(error))
    outcome = guest(interpreter, tmp_path)
    if inspection.missing:
        # Without NumPy the guest cannot measure, but it says so, whatever the interpreter's age.
        assert outcome.status is Status.CRASHED
        assert "No module named 'numpy'" in outcome.reason
        pytest.skip(f"{interpreter} has no NumPy: name one that has in DLBENCH_GUEST_PYTHONS")
    assert (outcome.status, outcome.reason) == (Status.OK, "the null framework computes nothing")
    assert outcome.software["python"] == inspection.version
    assert outcome.software["distributions"] == inspection.distributions
    assert len(outcome.samples_ns) >= 2
    assert outcome.threads.requested == 2
    json.dumps(protocol.to_dict(outcome), allow_nan=False)


def test_a_guest_of_another_interpreter_sees_none_of_the_hosts_packages(tmp_path):
    others = [
        path for version, path in given_interpreters().items() if not platform.python_version().startswith(version)
    ]
    if not others:
        pytest.skip("DLBENCH_GUEST_PYTHONS names no interpreter of another version")
    for other in others:
        found = guest(other, tmp_path).software["distributions"]
        assert not {"sqlalchemy", "pydantic", "typer", "pytest"} & set(found)


def test_the_adapters_folder_shadows_no_framework(tmp_path):
    """Run by path, the folder stands first on sys.path: `import tensorflow` would find adapters/tensorflow."""
    protocol.write_launch(str(tmp_path), launch_of(tmp_path))
    # As `python -I adapters DIR` does it, but telling before it ends what could be imported.
    program = (
        "import importlib.util, json, os, runpy, sys\n"
        "def tell(code):\n"
        "    names = ('null', 'tensorflow.adapter', 'mxnet.adapter', 'launch', 'dlbench')\n"
        "    def there(name):\n"
        "        try: return importlib.util.find_spec(name) is not None\n"
        "        except ImportError: return False\n"
        "    print(json.dumps([[n for n in names if there(n) and n != 'dlbench'], 'dlbench' in sys.modules,\n"
        "        sorted(n for n in sys.modules if n.startswith('_dlbench_guest.'))]))\n"
        "os._exit = tell\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    command = [sys.executable, "-I", "-c", program, str(GUEST_DIRECTORY), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, None), done.stderr
    shadowed, host_imported, guest_modules = json.loads(done.stdout.splitlines()[0])
    assert shadowed == []
    assert not host_imported
    assert "_dlbench_guest.launch.worker" in guest_modules
    assert protocol.read_outcome(str(tmp_path)).status is Status.OK
