"""The guest: one launch from ``cell.json`` to ``outcome.json``, in this process and in every interpreter here."""

import platform

import pytest
from known_networks import NETWORKS
from pretending_adapter import Pretender, launch_of, run

from dlbench.adapters import protocol
from dlbench.adapters.base import Adapter, Unsupported
from dlbench.adapters.families import LEARNING_RATE
from dlbench.adapters.launch import worker
from dlbench.adapters.protocol import ProtocolError, Status


def test_the_life_of_an_adapter(tmp_path):
    adapter = Pretender(tmp_path)
    outcome = run(tmp_path, adapter)
    assert outcome.status is Status.OK
    assert adapter.calls == ["supports", "prepare", "step", *["step"] * 2, *["step"] * 4, "last_loss"]
    assert adapter.phases == ["import", "build", "first step", *["warm-up"] * 2, *["timed"] * 5]
    assert adapter.rates == [(LEARNING_RATE, 0)]


def test_the_outcome_of_a_launch(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_VARIABLES", "A_THREADS,NOT_THERE")
    monkeypatch.setenv("A_THREADS", "2")
    outcome = run(tmp_path, Pretender(tmp_path), settings={"fast": True})
    assert (len(outcome.warmup_ns), len(outcome.samples_ns)) == (2, 4)
    assert outcome.first_step_seconds > 0
    assert (outcome.final_loss, outcome.final_loss_finite) == (2.5, True)
    assert (outcome.parity, outcome.answer, outcome.reason) == (None, None, "it only pretends")
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


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "fcn5: network: the launch carries none"),
        ({"family": "made-up", "numbers": {}}, "fcn5: family: no family of networks is named 'made-up'"),
        ({"family": "feedforward", "numbers": {"inputs": 3}}, "fcn5: hidden: it is missing"),
    ],
)
def test_a_network_that_these_adapters_do_not_know_is_unsupported(tmp_path, given, reason):
    adapter = Pretender(tmp_path)
    protocol.write_launch(str(tmp_path), launch_of(tmp_path)._replace(network=given))
    assert worker.run(str(tmp_path), lambda launch: adapter) == 0
    outcome = protocol.read_outcome(str(tmp_path))
    assert outcome.status is Status.UNSUPPORTED
    assert outcome.reason.startswith(reason)
    assert adapter.calls == []


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_flagged_and_never_written(tmp_path, loss):
    adapter = Pretender(tmp_path)
    adapter.loss = loss
    outcome = run(tmp_path, adapter)
    assert (outcome.final_loss, outcome.final_loss_finite) == (None, False)


def test_a_cell_file_of_another_version_is_refused(tmp_path):
    (tmp_path / protocol.CELL_FILE).write_text('{"schema_version": 99}')
    with pytest.raises(ProtocolError):
        worker.run(str(tmp_path))
