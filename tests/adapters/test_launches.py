"""A launch inside the guest: outcomes, the adapter's contract, interpreters, workers."""

import json
import os
import platform
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from pretending_adapter import Pretender, launch_of, run
from processes import null_order, wait_until
from small_networks import small_networks

from dlbench.adapters import networks, protocol
from dlbench.adapters.base import Adapter, Unsupported
from dlbench.adapters.families import LEARNING_RATE
from dlbench.adapters.launch import batches, contract, team, worker
from dlbench.adapters.launch.contract import ContractBroken
from dlbench.adapters.null.adapter import NullAdapter
from dlbench.adapters.protocol import Cell, Launch, Protocol, Status
from dlbench.reports.results.outcome import Outcome
from dlbench.suites.environments.interpreters import find_python, inspect
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.run.judge import judged
from dlbench.suites.run.launcher import LaunchRequest, launch_process


def launch_null(
    cache: Path,
    settings: dict[str, Any] | None = None,
    protocol: dict[str, Any] | None = None,
    cpus: list[int] | None = None,
    variables: dict[str, str] | None = None,
    **of_cell: Any,
) -> Outcome:
    """Carry out a launch of the null framework; ``cache`` is also what `workers_of` knows it by."""
    order = null_order(
        cache,
        settings,
        variables={"DLBENCH_TEST_LAUNCH": str(cache), **(variables or {})},
        **of_cell,
    )
    numbers = order.launch.protocol._replace(**(protocol or {}))
    order = replace(order, launch=order.launch._replace(protocol=numbers, cpus=cpus))
    return judged(order, launch_process(order), None)


def workers_of(cache: Path) -> list[psutil.Process]:
    """Wait for the further workers of a launch to be there, and return them."""
    return wait_until(
        lambda: [process for process in psutil.process_iter() if _is_worker(process, str(cache))],
        "a worker",
    )


def _is_worker(process: psutil.Process, cache: str) -> bool:
    try:
        return (
            "--worker" in process.cmdline()
            and process.environ().get("DLBENCH_TEST_LAUNCH") == cache
        )
    except psutil.Error:
        return False


def test_the_life_of_an_adapter_and_its_outcome(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_VARIABLES", "A_THREADS,NOT_THERE")
    monkeypatch.setenv("A_THREADS", "2")
    adapter = Pretender(tmp_path)
    outcome = run(tmp_path, adapter, settings={"fast": True})
    assert outcome.status is Status.OK
    assert adapter.calls == [
        "supports",
        "prepare",
        "step",
        *["step"] * 2,
        *["step"] * 4,
        "last_loss",
    ]
    assert adapter.phases == ["import", "build", "first step", *["warm-up"] * 2, *["timed"] * 5]
    assert adapter.rates == [(LEARNING_RATE, 0)]
    assert (len(outcome.warmup_ns), len(outcome.samples_ns)) == (2, 4)
    assert outcome.first_step_seconds > 0
    assert (outcome.final_loss, outcome.final_loss_finite) == (2.5, True)
    assert (outcome.parity_sample, outcome.reason) == (None, "it only pretends")
    assert (outcome.threads.requested, outcome.threads.framework_says) == (2, 3)
    assert outcome.contention.voluntary_switches >= 0
    assert outcome.software["framework"] == "a pretender"
    assert outcome.software["python"] == platform.python_version()
    assert outcome.software["mode_settings"] == {"fast": True}
    assert outcome.software["variables"] == {"A_THREADS": "2"}
    assert "numpy" in outcome.software["distributions"]


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


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (None, "fcn5: family: no family of networks is named None"),
        (
            {"family": "made-up", "numbers": {}},
            "fcn5: family: no family of networks is named 'made-up'",
        ),
        ({"family": "feedforward", "numbers": {"inputs": 3}}, "fcn5: hidden: it is missing"),
    ],
)
def test_a_network_that_these_adapters_do_not_know_is_unsupported(tmp_path, network, reason):
    adapter = Pretender(tmp_path)
    protocol.write_launch(str(tmp_path), launch_of(tmp_path)._replace(network=network))
    assert worker.run(str(tmp_path), lambda launch: adapter) == 0
    outcome = protocol.read_answer(str(tmp_path))
    assert outcome.status is Status.UNSUPPORTED
    assert outcome.reason.startswith(reason)
    assert adapter.calls == []


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_flagged_and_never_written(tmp_path, loss):
    adapter = Pretender(tmp_path)
    adapter.loss = loss
    outcome = run(tmp_path, adapter)
    assert (outcome.final_loss, outcome.final_loss_finite) == (None, False)


NETWORK = small_networks(networks)["small-dense"]
WEIGHTS = batches.initial_weights(NETWORK)
FIRST = next(iter(WEIGHTS))


def changed(name, value):
    return {**WEIGHTS, name: value}.items()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (changed("second_bias", np.ones(3)), "'second_bias', which the network does not have"),
        (list(WEIGHTS.items())[1:], f"did not yield {FIRST}"),
        ([*WEIGHTS.items(), (FIRST, WEIGHTS[FIRST])], f"{FIRST} twice"),
        (changed(FIRST, WEIGHTS[FIRST].T), f"{FIRST} has shape"),
        (changed(FIRST, WEIGHTS[FIRST].astype(np.int32)), "int32"),
        (list(WEIGHTS), "not \\(name, array\\)"),
    ],
)
def test_parameters_are_the_networks(parameters, words):
    with pytest.raises(ContractBroken, match=words):
        list(
            contract.current_parameters(
                SimpleNamespace(parameters=lambda: iter(parameters)), NETWORK
            )
        )


def outside_launch(folder, adapter="outside_mine"):
    cell = Cell("mine", adapter, "", "fcn5", "cpu", 1, 4)
    return Launch(cell, Protocol(), {}, "", adapter_directory=str(folder))


@pytest.fixture(autouse=True)
def _fresh_process():
    """Forget what was imported: a launch loads one adapter in a process of its own."""
    yield
    for name in [name for name in sys.modules if ".outside_mine" in name]:
        del sys.modules[name]


@pytest.mark.parametrize("package", [True, False])
def test_an_adapter_outside_finds_our_modules(tmp_path, package):
    if package:
        (tmp_path / "__init__.py").write_text("HERE = 1\n")
    (tmp_path / "part.py").write_text(
        "from ..base import Adapter\n\nclass Mine(Adapter):\n    pass\n"
    )
    (tmp_path / "adapter.py").write_text("from .part import Mine\n\nADAPTER = Mine\n")
    assert isinstance(contract.load(outside_launch(tmp_path)), Adapter)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no adapter.py"),
        ("", "binds no subclass of Adapter"),
        ("class ADAPTER: pass\n", "binds no subclass of Adapter"),
    ],
)
def test_a_folder_without_an_adapter(tmp_path, text, words):
    if text is not None:
        (tmp_path / "adapter.py").write_text(text)
    with pytest.raises(ContractBroken, match=words):
        contract.load(outside_launch(tmp_path))


def fastest(launch, near):
    """Return the shortest step, of up to five launches: others may hold the machine, and only ever
    lengthen it."""
    best = float("inf")
    for _ in range(5):
        best = min(best, *launch().step_seconds())
        if best == pytest.approx(near, rel=0.05):
            break
    return best


EXTRA = "DLBENCH_EXTRA_PRODUCTS"


def test_extra_products_make_every_timed_step_longer_by_what_they_take(tmp_path):
    def launch(variables):
        settings = {"step_seconds": 1e-3, "serial_fraction": 1.0}
        return launch_null(tmp_path, settings, {"steps": 30, "seconds": 10.0}, variables=variables)

    assert fastest(lambda: launch({}), 1.0e-3) == pytest.approx(1.0e-3, rel=0.05)
    assert fastest(lambda: launch({EXTRA: "1x500"}), 1.5e-3) == pytest.approx(1.5e-3, rel=0.05)
    heavier = launch({EXTRA: "1x500"})
    assert min(heavier.warmup_ns) >= 1_450_000
    assert heavier.software["variables"][EXTRA] == "1x500"


linux = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot bind a process to CPUs"
)


@linux
def test_a_launch_bound_to_a_cpu_has_that_one_and_numpy_too(tmp_path):
    allowed = sorted(os.sched_getaffinity(0))
    free = launch_null(tmp_path)
    assert free.cpus == allowed
    for cpu in (allowed[0], allowed[-1]):
        bound = launch_null(tmp_path, cpus=[cpu])
        assert (bound.status, bound.reason, bound.cpus) == (Status.OK, "", [cpu])
        # One thread, and that is the main one: NumPy's pool counted the CPUs when it was imported.
        assert bound.threads.os_threads in (None, 1)
    if len(allowed) > 1 and free.threads.os_threads is not None:
        assert free.threads.os_threads > 1, (
            "a NumPy without a thread pool: this test shows nothing here"
        )


def guest(interpreter, folder, **options):
    """Carry out one launch of the null framework as the product does it."""
    launch = launch_of(folder, **options)
    return launch_process(
        LaunchRequest(launch, interpreter, {"OMP_NUM_THREADS": "2"}, 120.0)
    ).outcome()


def given_interpreters():
    """Return the interpreters that DLBENCH_GUEST_PYTHONS names, by minor version."""
    words = [word for word in os.environ.get("DLBENCH_GUEST_PYTHONS", "").split(os.pathsep) if word]
    return {".".join(inspect(Path(word)).version.split(".")[:2]): Path(word) for word in words}


@pytest.mark.parametrize(
    "version", ["3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]
)
def test_the_guest_runs_in_every_interpreter(tmp_path, version):
    interpreter = given_interpreters().get(version) or find_python(version)
    if interpreter is None:
        pytest.skip(
            f"no Python {version} in DLBENCH_GUEST_PYTHONS, on PATH, under pyenv or under uv"
        )
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


def test_the_workers_deal_out_the_step_and_their_cpu_time_is_the_launches_own(tmp_path):
    outcome = launch_null(tmp_path, {"step_seconds": 0.2, "serial_fraction": 0.0}, world_size=2)
    assert outcome.status is Status.OK, outcome.reason
    assert 0.09 < min(outcome.step_seconds()) < 0.17  # dealt out: 0.1; not dealt out: 0.2
    assert outcome.threads.requested == 2
    busiest, second, *_ = outcome.threads.cpu_seconds_by_thread
    assert second > 0.3 * busiest > 0.0
    assert outcome.threads.cpu_seconds >= busiest + second - 0.05


@pytest.mark.parametrize(
    ("workers", "sync", "steps"), [(1, "step", 1), (2, "local:3", 3), (2, "async", 16)]
)
def test_a_sample_has_its_share_of_the_exchanges_and_further_steps_show_losses(
    tmp_path, workers, sync, steps
):
    outcome = launch_null(tmp_path, protocol={"loss_steps": 41}, world_size=workers, sync=sync)
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.steps_per_sample == steps
    assert outcome.losses == [[steps, 1.0] for steps in (*range(2, 41, 2), 41)]
    assert "losses_ended" not in outcome.software


def test_a_loss_that_is_not_finite_ends_the_further_steps(tmp_path):
    settings = {"fault": "nan", "fault_step": 60, "step_seconds": 1e-4}
    outcome = launch_null(tmp_path, settings, {"loss_steps": 100})
    assert outcome.software["losses_ended"].startswith("the loss was not finite after")
    assert all(steps < 100 for steps, _ in outcome.losses)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ({"sync": "async"}, "needs a world size of 2 or more"),
        ({"sync": "local:x", "world_size": 2}, "known values are step, local:H"),
        ({"sync": "local:2", "world_size": 2, "batch_size": 3}, "cannot be split evenly"),
    ],
)
def test_workers_that_cannot_exchange_are_refused(tmp_path, cell, reason):
    launch = null_order(tmp_path, **cell).launch
    assert reason in team.refusal(NullAdapter(launch.cell, {}, ""), launch)


@pytest.mark.parametrize(
    ("fault", "worker", "workers", "reason"),
    [
        ("crash", 1, 2, "worker 1 of 2 ended by signal 11"),
        ("exit", 1, 2, "worker 1 of 2 ended with exit code 3"),
        (
            "memory",
            2,
            4,
            "worker 2 of 4: MemoryError: the null framework was set to run out",
        ),  # the others end too
        ("unsupported", 1, 2, "worker 1 of 2"),
    ],
)
def test_a_lost_worker_is_told_with_its_own_reason(fault, worker, workers, reason, tmp_path):
    settings = {"fault": fault, "fault_worker": worker, "step_seconds": 0.05}
    outcome = launch_null(tmp_path, settings, world_size=workers)
    assert reason in outcome.reason
    assert (outcome.status is Status.OUT_OF_MEMORY) == (fault == "memory")
    assert not outcome.samples_ns


def test_a_first_worker_that_waits_for_a_lost_one_for_ever_is_ended(tmp_path):
    given_up = []

    def lose():
        worker = workers_of(tmp_path)[0]
        given_up.append(worker.pid)
        worker.kill()

    # It hangs in its first step, as an engine may whose other end is gone.
    threading.Timer(0.0, lose).start()
    outcome = launch_null(tmp_path, {"fault": "stubborn", "fault_worker": 0}, world_size=2)
    assert outcome.status is Status.CRASHED
    assert outcome.reason == "worker 1 of 2 ended by signal 9"
    assert not any(psutil.pid_exists(pid) for pid in given_up)
