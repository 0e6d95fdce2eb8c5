"""The guest: one launch from ``cell.json`` to ``outcome.json``, in this process and in every interpreter here."""

import itertools
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_networks import small_networks

from dlbench.adapters import networks, protocol
from dlbench.adapters.base import Adapter, Unsupported
from dlbench.adapters.launch import timing, worker
from dlbench.adapters.networks import LEARNING_RATE, NETWORKS
from dlbench.adapters.protocol import Cell, Launch, Protocol, ProtocolError, Status
from dlbench.suites.environments.interpreters import find_python, inspect
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.measuring.launcher import Order, ProcessLauncher
from dlbench.suites.planning.framework import GUEST_DIRECTORY

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
        return {"framework": "a pretender", "version": "1"}

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


def test_started_without_a_folder_it_says_how(tmp_path):
    command = [sys.executable, "-I", str(GUEST_DIRECTORY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "CONTROL_DIR" in done.stderr


class Clockwork(Pretender):
    """A pretender whose every step lasts as long as it is told, on a clock of its own."""

    def __init__(self, folder, lengths):
        super().__init__(folder)
        self.lengths, self.now = lengths, 10**15

    def step(self):
        super().step()
        # The parity steps and the first of the warm-up come before the series that is told.
        index = self.calls.count("step") - PARITY_STEPS - 2
        self.now += int(self.lengths(max(0, index)))


def timed_by(monkeypatch, folder, lengths, **numbers):
    """Carry out a launch in which the n-th timed step (from 0) lasts ``lengths(n)`` nanoseconds."""
    adapter = Clockwork(folder, lengths)
    monkeypatch.setattr(timing, "nanoseconds", lambda: adapter.now)
    loop = timing.timed_loop
    monkeypatch.setattr(timing, "timed_loop", lambda *given: loop(*given, clock=lambda: adapter.now))
    numbers = {"warmup_steps": PARITY_STEPS + 1, "steps": 20, "minimum_steps": 5, "seconds": 1000.0, **numbers}
    return run(folder, adapter, **numbers)


def lengths_of(level, seed=0, noise=0.005):
    factors = np.exp(np.random.default_rng(seed).normal(0.0, noise, 1000))
    return lambda index: 1_000_000 * level(index) * factors[index]


def test_a_warm_up_is_cut_off_and_kept_apart(tmp_path, monkeypatch):
    lengths = lengths_of(lambda index: 1.3 if index < 6 else 1.0)
    # The first of the warm-up is the one before the timed samples begin.
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=30)
    assert outcome.steady is True
    assert len(outcome.warmup_ns) + len(outcome.samples_ns) == 21
    assert 6 <= len(outcome.warmup_ns) <= 8
    assert max(outcome.samples_ns) < 1_100_000 < min(outcome.warmup_ns[:6])
    assert (outcome.timed_steps(), outcome.observed_steps()) == (len(outcome.samples_ns), 20)


def test_without_a_longest_warm_up_nothing_is_looked_for(tmp_path, monkeypatch):
    outcome = timed_by(monkeypatch, tmp_path, lengths_of(lambda index: 1.3 if index < 6 else 1.0))
    assert (outcome.steady, len(outcome.warmup_ns), len(outcome.samples_ns)) == (None, 1, 20)


def test_more_samples_are_taken_until_enough_are_steady(tmp_path, monkeypatch):
    lengths = lengths_of(lambda index: 1.3 if index < 18 else 1.0)
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=30)
    assert outcome.steady is True
    assert 18 <= len(outcome.warmup_ns) <= 20
    assert 5 <= len(outcome.samples_ns) <= 9
    assert outcome.observed_steps() == len(outcome.warmup_ns) - 1 + len(outcome.samples_ns) == 25


@pytest.mark.parametrize("longest", [1, 4, 12, 30])
def test_the_longest_warm_up_is_never_passed_and_then_all_samples_are_kept(tmp_path, monkeypatch, longest):
    lengths = lengths_of(lambda index: 0.97**index)
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=longest)
    assert outcome.status is Status.OK
    assert outcome.steady is False
    assert (len(outcome.warmup_ns), len(outcome.samples_ns)) == (1, 20 + longest)
    assert outcome.observed_steps() == outcome.timed_steps() == 20 + longest


def test_a_change_after_the_longest_warm_up_is_no_warm_up(tmp_path, monkeypatch):
    lengths = lengths_of(lambda index: 1.3 if index < 12 else 1.0)
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=8)
    assert (outcome.steady, len(outcome.samples_ns)) == (False, 20)


def test_the_search_for_a_steady_state_ends_with_the_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(worker.time, "perf_counter", itertools.count(0.0, 3.0).__next__)
    lengths = lengths_of(lambda index: 0.97**index)
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=10_000, seconds=10.0)
    assert outcome.steady is False
    assert 20 < len(outcome.samples_ns) <= 40


@pytest.mark.parametrize("warm_up", [0, 5])
def test_short_steps_are_timed_several_at_a_time(tmp_path, monkeypatch, warm_up):
    lengths = lengths_of(lambda index: 0.1)
    outcome = timed_by(
        monkeypatch, tmp_path, lambda index: lengths(index % 1000), sample_seconds=0.01, maximum_warmup_steps=warm_up
    )
    assert 100 <= outcome.steps_per_sample <= 110
    assert len(outcome.samples_ns) == 20
    assert min(outcome.samples_ns) >= 9_900_000
    assert outcome.step_seconds() == pytest.approx([1e-4] * 20, rel=0.01)
    assert outcome.timed_steps() == outcome.observed_steps() == 20 * outcome.steps_per_sample
    # What comes before them is told by the step, the tries to find their number among it.
    assert outcome.warmup_ns == pytest.approx([100_000] * len(outcome.warmup_ns), rel=0.02)
    assert len(outcome.warmup_ns) >= 2


def test_batched_warm_up_counts_its_steps(tmp_path, monkeypatch):
    lengths = lengths_of(lambda index: 0.13 if index < 600 else 0.1)
    outcome = timed_by(
        monkeypatch,
        tmp_path,
        lambda index: lengths(min(index, 999)),
        sample_seconds=0.01,
        maximum_warmup_steps=20,
    )
    assert outcome.steady is True
    assert outcome.observed_steps() == 20 * outcome.steps_per_sample
    assert 3 * outcome.steps_per_sample <= outcome.observed_steps() - outcome.timed_steps()
    assert max(outcome.step_seconds()) < 1.15e-4
    assert max(outcome.warmup_ns) < 140_000  # of a step, not of a sample


def null_launch(folder, cpus=None, variables=None, settings=None, **numbers):
    """Carry out one launch of the null framework in a process of its own."""
    launch = launch_of(folder, settings={"serial_fraction": 1.0, **(settings or {})}, **numbers)._replace(cpus=cpus)
    return ProcessLauncher().launch(Order(launch, Path(sys.executable), variables or {}, 120.0)).outcome


def fastest(launch, near):
    """Return the shortest step, of up to five launches: others may hold the machine, and only ever lengthen it."""
    best = float("inf")
    for _ in range(5):
        best = min(best, *launch().step_seconds())
        if best == pytest.approx(near, rel=0.05):
            break
    return best


def test_a_real_short_step_is_timed_right_in_batches(tmp_path):
    def launch(sample_seconds):
        settings = {"step_seconds": 1e-4}
        return null_launch(tmp_path, settings=settings, steps=30, seconds=10.0, sample_seconds=sample_seconds)

    # On a machine that others hold too, a sample of 1 ms is now and then undisturbed; one of 10 ms may never be.
    assert fastest(lambda: launch(0.001), 1e-4) == pytest.approx(1e-4, rel=0.05)
    outcome = launch(0.01)
    assert len(outcome.samples_ns) == 30
    assert min(outcome.samples_ns) >= 1e5 * outcome.steps_per_sample
    assert outcome.timed_steps() == outcome.observed_steps() == 30 * outcome.steps_per_sample
    assert np.median(outcome.samples_ns) >= 9_500_000


class Trainer(Pretender):
    """Moves every weight by a little in each of its first steps, and no longer."""

    computes = True

    def __init__(self, folder, steps, only=None):
        super().__init__(folder)
        self.left, self.only = steps, only

    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)
        self.held = {name: value.copy() for name, value in weights.items()}

    def step(self):
        super().step()
        self.left -= 1
        if self.left >= 0:
            for name, value in self.held.items():
                value += 0.5 if self.only in (None, name) else 0.0

    def parameters(self):
        return iter(self.held.items())


@pytest.fixture
def small(monkeypatch):
    """Give the name of a small network that launches can ask for."""
    network = small_networks(networks)["small-dense"]
    monkeypatch.setitem(NETWORKS, network.name, network)
    return network.name


def test_a_step_that_trains_on_after_the_parity_steps_is_ok(tmp_path, small):
    assert run(tmp_path, Trainer(tmp_path, 10**9), network=small).status is Status.OK


def test_one_parameter_that_moves_is_enough(tmp_path, small):
    assert run(tmp_path, Trainer(tmp_path, 10**9, only="fc2.bias"), network=small).status is Status.OK


def test_what_trains_during_the_parity_steps_only_is_caught(tmp_path, small):
    outcome = run(tmp_path, Trainer(tmp_path, NETWORKS[small].parity.steps), network=small)
    assert outcome.status is Status.PARITY_FAILED
    assert "no parameter changed after the parity steps" in outcome.reason
    assert (outcome.parity.verdict, outcome.parity.reason) == ("disagrees", outcome.reason)
    assert outcome.samples_ns, "the number is kept, and marked"


def test_a_loss_that_is_not_finite_leaves_nothing_to_learn_from_the_parameters(tmp_path, small):
    adapter = Trainer(tmp_path, 0)
    adapter.loss = float("nan")
    outcome = run(tmp_path, adapter, network=small)
    assert (outcome.status, outcome.final_loss_finite) == (Status.OK, False)


EXTRA = "DLBENCH_EXTRA_PRODUCTS"


def test_extra_products_make_every_timed_step_longer_by_what_they_take(tmp_path):
    def launch(variables):
        settings = {"step_seconds": 1e-3}
        return null_launch(tmp_path, settings=settings, steps=30, seconds=10.0, variables=variables)

    assert fastest(lambda: launch({}), 1.0e-3) == pytest.approx(1.0e-3, rel=0.05)
    assert fastest(lambda: launch({EXTRA: "1x500"}), 1.5e-3) == pytest.approx(1.5e-3, rel=0.05)
    assert fastest(lambda: launch({EXTRA: "3x100"}), 1.3e-3) == pytest.approx(1.3e-3, rel=0.05)
    heavier = launch({EXTRA: "1x500"})
    assert min(heavier.warmup_ns) >= 1_450_000
    assert heavier.software["variables"] == {EXTRA: "1x500"}


@pytest.mark.parametrize(
    "asked", ["5", "x5", "5x", "-1x5", "1.5x3", "5X3", "1x0", "1x500\n", "1x500; rm", " 1x5", "9" * 99]
)
def test_extra_work_that_cannot_be_read_is_refused(tmp_path, monkeypatch, asked):
    monkeypatch.setenv(EXTRA, asked)
    outcome = run(tmp_path, Pretender(tmp_path))
    assert outcome.status is Status.UNSUPPORTED
    assert EXTRA in outcome.reason
    assert "such as 18x128" in outcome.reason
    assert len(outcome.reason) < 200
    assert outcome.samples_ns == []


def test_extra_work_that_a_framework_cannot_do_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(EXTRA, "1x5")
    outcome = run(tmp_path, Pretender(tmp_path))
    assert (outcome.status, outcome.reason) == (Status.UNSUPPORTED, f"{EXTRA}: this framework offers no matrix product")


def test_extra_work_is_done_after_each_timed_step_and_after_no_step_of_the_parity_check(tmp_path, monkeypatch):
    class Multiplier(Pretender):
        def multiply(self, size):
            return lambda: self.note(f"product of {size}")

    monkeypatch.setenv(EXTRA, "2x7")
    adapter = Multiplier(tmp_path)
    assert run(tmp_path, adapter).status is Status.OK
    timed = ["step", "product of 7", "product of 7"] * 6
    assert adapter.calls == ["supports", "prepare", *["step", "last_loss"] * PARITY_STEPS, *timed, "last_loss"]


linux = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot bind a process to CPUs")


@linux
def test_a_launch_bound_to_a_cpu_has_that_one_and_numpy_too(tmp_path):
    allowed = sorted(os.sched_getaffinity(0))
    free = null_launch(tmp_path)
    assert free.cpus == allowed
    for cpu in (allowed[0], allowed[-1]):
        bound = null_launch(tmp_path, cpus=[cpu])
        assert (bound.status, bound.reason, bound.cpus) == (Status.OK, "", [cpu])
        # One thread, and that is the main one: NumPy's pool counted the CPUs when it was imported.
        assert bound.threads.os_threads in (None, 1)
    if len(allowed) > 1 and free.threads.os_threads is not None:
        assert free.threads.os_threads > 1, "a NumPy without a thread pool: this test shows nothing here"


@linux
def test_cpus_that_are_not_there_are_refused_before_anything_is_done(tmp_path):
    allowed = sorted(os.sched_getaffinity(0))
    missing = max(allowed) + 1000
    # The kernel would take the second mask without a word, for those CPUs in it that are there.
    for cpus in ([missing], [allowed[0], missing], []):
        outcome = null_launch(tmp_path, cpus=cpus)
        assert outcome.status is Status.UNSUPPORTED
        assert outcome.reason.startswith("CPUs " + (",".join(map(str, cpus)) or "(none)"))
        assert outcome.reason.endswith("it may use " + ",".join(map(str, allowed[:16])) + ",..." * (len(allowed) > 16))
        assert outcome.samples_ns == []
