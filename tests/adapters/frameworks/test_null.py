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


def test_steps_take_as_long_as_they_were_told_to_by_both_clocks():
    wall, device = timed(adapter())
    assert 0.020 <= wall < 0.030
    assert device == pytest.approx(wall, rel=0.1)


@pytest.mark.parametrize(("error", "factor"), [(0.5, 1.5), (-0.25, 0.75)])
def test_events_err_by_what_was_asked_for(error, factor):
    wall, device = timed(adapter({"event_error": error}))
    assert device == pytest.approx(factor * wall, rel=0.1)


def test_a_mini_batch_needs_memory_and_too_much_of_it_is_known_as_such():
    settings = {"device_memory_bytes": 1000, "device_memory_bytes_per_example": 10}
    fits, does_not = adapter(settings, batch_size=100), adapter(settings, batch_size=101)
    fits.prepare(NETWORKS["fcn5"], {}, None)
    assert fits.device_peak_memory() == 1000
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        does_not.prepare(NETWORKS["fcn5"], {}, None)
    assert does_not.is_out_of_memory(caught.value)
    assert not does_not.is_out_of_memory(RuntimeError("CUDA error"))


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
