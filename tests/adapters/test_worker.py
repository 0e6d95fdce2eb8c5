"""The guest: one launch from ``cell.json`` to ``outcome.json``, in this process and in every interpreter here."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.adapters import protocol, worker
from dlbench.adapters.base import Adapter, Unsupported
from dlbench.adapters.networks import LEARNING_RATE, NETWORKS
from dlbench.adapters.protocol import Cell, Launch, Protocol, ProtocolError, Status
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.framework import GUEST_DIRECTORY
from dlbench.suites.interpreters import find_python, inspect
from dlbench.suites.launcher import Order, ProcessLauncher

PARITY_STEPS = NETWORKS["fcn5"].parity.steps


class Pretender(Adapter):
    """An adapter that computes nothing and notes what is called, and in which phase."""

    computes = False
    parity_reason = "it only pretends"

    def __init__(self, folder, **failures):
        self.folder, self.failures = folder, failures
        self.calls, self.phases, self.rates, self.loss = [], [], [], 2.5

    def note(self, what):
        self.calls.append(what)
        self.phases.append(json.loads((self.folder / protocol.PHASE_FILE).read_text())["phase"])
        error = self.failures.get(what)
        if error is not None:
            raise error

    def supports(self, network):
        self.note("supports")
        return self.failures.get("unsupported") is None, self.failures.get("unsupported", "")

    def prepare(self, network, weights, batch):
        self.note("prepare")

    def step(self):
        self.note("step")

    def set_learning_rate(self, rate):
        self.rates.append((rate, self.calls.count("step")))

    def last_loss(self):
        self.note("last_loss")
        return self.loss

    def parameters(self):
        return iter(())

    def effective_threads(self):
        return 3

    def describe(self):
        return {"framework": "a pretender"}

    def is_out_of_memory(self, error):
        return "no memory" in str(error)


def launch_of(folder, network="fcn5", settings=None, **numbers):
    measured = Protocol(**{"warmup_steps": PARITY_STEPS + 2, "steps": 4, "minimum_steps": 2, "seconds": 0.1, **numbers})
    cell = Cell("null", "null", "null", network, "cpu", 2, 8)
    return Launch(cell, measured, settings or {}, None, str(folder))


def run(folder, adapter=None, load=None, **options):
    protocol.write_launch(str(folder), launch_of(folder, **options))
    assert worker.run(str(folder), load or (lambda launch: adapter)) == 0
    return protocol.read_outcome(str(folder))


def test_the_life_of_an_adapter(tmp_path):
    adapter = Pretender(tmp_path)
    outcome = run(tmp_path, adapter)
    assert outcome.status is Status.OK
    parity = ["step", "last_loss"] * PARITY_STEPS
    assert adapter.calls == ["supports", "prepare", *parity, *["step"] * 2, *["step"] * 4, "last_loss"]
    assert adapter.phases == [
        *["import", "build"],
        *["first step"] * len(parity),
        *["warm-up"] * 2,
        *["timed"] * 5,
    ]
    # The recipe's rate for the parity steps, the networks' own for all others.
    assert adapter.rates == [(NETWORKS["fcn5"].parity.learning_rate, 0), (LEARNING_RATE, PARITY_STEPS)]


def test_the_outcome_of_a_launch(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_VARIABLES", "A_THREADS,NOT_THERE")
    monkeypatch.setenv("A_THREADS", "2")
    outcome = run(tmp_path, Pretender(tmp_path), settings={"fast": True})
    assert (len(outcome.warmup_ns), len(outcome.samples_ns)) == (2, 4)
    assert outcome.first_step_seconds > 0
    assert (outcome.final_loss, outcome.final_loss_finite) == (2.5, True)
    assert (outcome.parity.verdict, outcome.parity.reason) == ("unchecked", "it only pretends")
    assert (outcome.threads.requested, outcome.threads.framework_says) == (2, 3)
    assert outcome.contention.voluntary_switches >= 0
    assert outcome.software["framework"] == "a pretender"
    assert outcome.software["python"] == platform.python_version()
    assert outcome.software["mode_settings"] == {"fast": True}
    assert outcome.software["variables"] == {"A_THREADS": "2"}
    assert "numpy" in outcome.software["distributions"]


def test_the_parity_steps_count_as_warm_up_and_one_more_is_always_taken(tmp_path):
    assert len(run(tmp_path, Pretender(tmp_path), warmup_steps=1).warmup_ns) == 1


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RuntimeError("broken"), Status.CRASHED, "RuntimeError: broken"),
        (RuntimeError("\n  first line \nsecond line"), Status.CRASHED, "RuntimeError: first line"),
        (KeyError(), Status.CRASHED, "KeyError: (no message)"),
        (RuntimeError("x" * 10_000), Status.CRASHED, "RuntimeError: " + "x" * 300),
        (MemoryError("too much"), Status.OUT_OF_MEMORY, "MemoryError: too much"),
        (RuntimeError("no memory left"), Status.OUT_OF_MEMORY, "RuntimeError: no memory left"),
        (Unsupported("not this one"), Status.UNSUPPORTED, "not this one"),
    ],
)
@pytest.mark.parametrize("where", ["prepare", "step", "last_loss"])
def test_whatever_goes_wrong_is_an_outcome(tmp_path, error, status, reason, where):
    outcome = run(tmp_path, Pretender(tmp_path, **{where: error}))
    assert (outcome.status, outcome.reason) == (status, reason)
    assert outcome.samples_ns == []


def test_a_framework_that_cannot_be_imported_is_a_crash_with_the_reason(tmp_path):
    def load(launch):
        raise ImportError("libtorch.so is not there")

    outcome = run(tmp_path, load=load)
    assert (outcome.status, outcome.reason) == (Status.CRASHED, "ImportError: libtorch.so is not there")


def test_a_cell_the_adapter_does_not_support_is_not_built(tmp_path):
    adapter = Pretender(tmp_path, unsupported="not on this device")
    outcome = run(tmp_path, adapter)
    assert (outcome.status, outcome.reason) == (Status.UNSUPPORTED, "not on this device")
    assert adapter.calls == ["supports"]
    assert "python" in outcome.software


@pytest.mark.parametrize(("device", "precision"), [("cuda:0", "float32"), ("cpu", "bfloat16")])
def test_the_contract_refuses_what_an_adapter_does_not_say_it_can(tmp_path, device, precision):
    cell = launch_of(tmp_path).cell._replace(device=device, precision=precision)
    supported, reason = Adapter(cell, {}, "").supports(NETWORKS["fcn5"])
    assert not supported
    assert device in reason or precision in reason


def test_an_unknown_network_is_unsupported(tmp_path):
    adapter = Pretender(tmp_path)
    outcome = run(tmp_path, adapter, network="fcn99")
    assert (outcome.status, outcome.reason) == (Status.UNSUPPORTED, "no network is named 'fcn99'")
    assert adapter.calls == []


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_flagged_and_never_written(tmp_path, loss):
    adapter = Pretender(tmp_path)
    adapter.loss = loss
    outcome = run(tmp_path, adapter)
    assert (outcome.final_loss, outcome.final_loss_finite) == (None, False)


def test_an_interrupt_is_no_outcome(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Pretender(tmp_path, step=KeyboardInterrupt()))
    assert not (tmp_path / protocol.OUTCOME_FILE).exists()


def test_a_cell_file_of_another_version_is_refused(tmp_path):
    (tmp_path / protocol.CELL_FILE).write_text('{"schema_version": 99}')
    with pytest.raises(ProtocolError):
        worker.run(str(tmp_path))


def guest(interpreter, folder, **options):
    """Carry out one launch of the null framework as the product does it."""
    launch = launch_of(folder, **options)
    return ProcessLauncher().launch(Order(launch, interpreter, {"OMP_NUM_THREADS": "2"}, 120.0)).outcome


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
    assert (outcome.status, outcome.reason) == (Status.OK, "")
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
        "    names = ('null', 'tensorflow.adapter', 'mxnet.adapter', 'worker', 'dlbench')\n"
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
    assert "_dlbench_guest.worker" in guest_modules
    assert protocol.read_outcome(str(tmp_path)).status is Status.OK


def test_started_without_a_folder_it_says_how(tmp_path):
    command = [sys.executable, "-I", str(GUEST_DIRECTORY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "CONTROL_DIR" in done.stderr
