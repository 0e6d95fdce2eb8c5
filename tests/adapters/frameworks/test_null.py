"""The framework that is none, on a pretended GPU: its known times, memory and mistakes."""

import time
from types import SimpleNamespace

import pytest
from known_networks import NETWORKS

from dlbench.adapters.launch import timing
from dlbench.adapters.libraries import gpus
from dlbench.adapters.null import adapter as pretended
from dlbench.adapters.null.adapter import NullAdapter
from dlbench.adapters.protocol import Cell

pytestmark = pytest.mark.alone  # its clocks are held to some percent

CELL = Cell("null", "null", "null", "fcn5", "cuda:0", 1, 64)
QUICK = {"device_step_seconds": 0.004, "device_host_seconds": 0.001}


def adapter(settings=None, **changes):
    return NullAdapter(CELL._replace(**changes), {**QUICK, **(settings or {})}, "")


def timed(made, steps=5):
    """Return (seconds by the wall, seconds by the device's marks) of the quickest of some samples of so many steps."""
    found = []
    for _ in range(12):
        made.synchronize()
        start, earlier = time.perf_counter(), made.event()
        for _ in range(steps):
            made.step()
        later = made.event()
        made.synchronize()
        found.append((time.perf_counter() - start, made.event_nanoseconds(earlier, later) * 1e-9))
    return min(found)


def test_the_host_goes_on_while_the_device_works():
    made = adapter({"device_step_seconds": 0.2})
    returned = []
    for _ in range(3):  # whatever keeps the host from going on once
        made.synchronize()
        start = time.perf_counter()
        made.step()
        returned.append(time.perf_counter() - start)
        made.synchronize()
        assert time.perf_counter() - start >= 0.2
    assert min(returned) < 0.2


def test_steps_take_as_long_as_they_were_told_to_by_both_clocks():
    wall, device = timed(adapter())
    assert 0.020 <= wall < 0.030
    assert device == pytest.approx(wall, rel=0.1)


def test_a_step_that_the_host_starts_slowly_is_host_bound():
    wall, device = timed(adapter({"device_host_seconds": 0.008}))
    assert 0.040 <= wall < 0.055
    assert device == pytest.approx(wall, rel=0.1)
    profile = adapter({"device_host_seconds": 0.008}).profile(2)
    busy = sum(operator.seconds for operator in profile.operators if operator.on_device)
    assert busy == pytest.approx(0.004)
    assert profile.step_seconds >= 0.008


@pytest.mark.parametrize(("error", "factor"), [(0.5, 1.5), (-0.25, 0.75)])
def test_events_err_by_what_was_asked_for(error, factor):
    wall, device = timed(adapter({"event_error": error}))
    assert device == pytest.approx(factor * wall, rel=0.1)


def test_precision_and_placement_change_a_steps_time():
    usual, _ = timed(adapter())
    fast, _ = timed(adapter({"device_speedup": {"tf32": 2.0}}, precision="tf32"))
    pinned, _ = timed(adapter({"device_copy_seconds": 0.002}, placement="pinned"))
    pageable, _ = timed(adapter({"device_copy_seconds": 0.002}, placement="pageable"))
    assert fast < 0.75 * usual
    assert usual * 1.3 < pinned < pageable


def test_a_mini_batch_needs_memory_and_too_much_of_it_is_known_as_such():
    settings = {"device_memory_bytes": 1000, "device_memory_bytes_per_example": 10}
    fits, does_not = adapter(settings, batch_size=100), adapter(settings, batch_size=101)
    fits.prepare(NETWORKS["fcn5"], {}, None)
    assert fits.device_peak_memory() == 1000
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        does_not.prepare(NETWORKS["fcn5"], {}, None)
    assert does_not.is_out_of_memory(caught.value)
    assert not does_not.is_out_of_memory(RuntimeError("CUDA error"))


def test_everything_is_supported_on_a_gpu_unless_the_build_has_no_code_for_it():
    network = NETWORKS["fcn5"]
    for precision in ("float32", "tf32", "bfloat16", "float16"):
        for placement in ("resident", "pinned", "pageable"):
            assert adapter(precision=precision, placement=placement).supports(network) == (True, "")
    supported, reason = adapter({"cpu_only_build": True}).supports(network)
    assert not supported
    assert "cuda:0" in reason
    assert not NullAdapter(CELL._replace(device="cpu", precision="tf32"), {}, "").supports(network)[0]


def test_the_cpu_has_neither_events_nor_a_devices_memory():
    made = NullAdapter(CELL._replace(device="cpu"), {}, "")
    assert (made.event(), made.device_peak_memory()) == (None, None)
    made.step()
    made.synchronize()


def test_a_lost_gpu_is_an_error_in_cudas_words():
    made = adapter({"fault": "lost"})
    with pytest.raises(RuntimeError, match="CUDA error"):
        made.step()


RATES = {
    "device_memory_bytes_per_second": 4e12,
    "device_link_bytes_per_second": 5e10,
    "device_operator_seconds": 0.0001,
}


@pytest.fixture
def _exact(monkeypatch):
    """Let time pass by nothing but the pretended work, and a nanosecond for each look at the clock."""
    now = [0.0]

    def spin(until):
        now[0] = max(now[0], until)

    def nanoseconds():
        now[0] += 1e-9
        return round(now[0] * 1e9)

    monkeypatch.setattr(pretended, "spin", spin)
    monkeypatch.setattr(pretended, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(timing, "nanoseconds", nanoseconds)


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("copy", 4e12),
        ("to_device_pinned", 5e10),
        ("to_device_pageable", 2.5e10),
        ("from_device_pinned", 5e10),
        ("from_device_pageable", 2.5e10),
    ],
)
def test_a_pretended_devices_bandwidths_are_found_again(name, rate):
    size = gpus.probe_size(name)
    seconds = gpus.seconds_in_a_row(adapter(RATES).device_probe(name, size))
    assert (2 if name == "copy" else 1) * size / seconds == pytest.approx(rate, rel=1e-4)


@pytest.mark.usefixtures("_exact")
def test_a_pretended_devices_operators_take_the_host_as_long_as_it_was_told():
    probe = adapter(RATES).device_probe("operator", 0)
    assert gpus.seconds_to_start(probe) == pytest.approx(0.0001, rel=1e-3)
    assert gpus.seconds_to_finish(probe) == pytest.approx(0.0003, rel=1e-3)


def test_what_no_setting_tells_is_not_pretended():
    for name in gpus.PROBES:
        assert adapter().device_probe(name, 100) is None
        assert NullAdapter(CELL._replace(device="cpu"), RATES, "").device_probe(name, 100) is None
