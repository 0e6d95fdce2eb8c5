"""Telemetry of a GPU, through a stand-in for NVML; the sampler's thread is the real one."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_nvml import (
    GIB,
    GPU_IS_LOST,
    HARDWARE_THERMAL,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    POWER_CAP,
    UNKNOWN,
    FakeNvml,
    NVMLError,
    SimulatedGpu,
    board,
)
from hypothesis import given
from hypothesis import strategies as st

from dlbench.hardware_probe import telemetry as module
from dlbench.hardware_probe.telemetry import Processes, Sampler, descends_from_this_process

UUID = "GPU-0123"
PERIOD = 0.01
COLUMNS = {
    "joules": "TotalEnergyConsumption",
    "watts": "PowerUsage",
    "sm_mhz": "ClockInfo",
    "temperature": "Temperature",
    "utilisation": "UtilizationRates",
    "used_bytes": "MemoryInfo",
}


def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until something is so; fail where it never is."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


def sampled(
    nvml: FakeNvml, uuid: str = UUID, samples: int = 6, meanwhile: Callable[[], object] = lambda: None, **options: Any
) -> dict[str, Any]:
    """Sample until so many samples were taken since the launch began, or the sampler ended of itself."""
    sampler = Sampler(uuid, nvml, PERIOD, **options)
    sampler.start()
    meanwhile()
    begun = len(sampler._fast)
    until(lambda: len(sampler._fast) >= begun + samples or not sampler._thread.is_alive())
    return sampler.stop()


def column(told: dict[str, Any], name: str, table: str = "samples") -> list[Any]:
    values = told[table].get(name)
    return values if isinstance(values, list) else [values] * len(told[table]["at"])


def test_the_samples_of_a_gpu_at_work() -> None:
    gpu = SimulatedGpu(watts=lambda seconds: 300.0, joules=lambda seconds: 300.0 * seconds, tick_seconds=0.001)
    nvml = FakeNvml(board(uuid="GPU-other"), gpu.board())

    def change() -> None:
        gpu.sm_mhz, gpu.reasons = 1200, POWER_CAP | HARDWARE_THERMAL

    before = time.monotonic()
    told = sampled(nvml, meanwhile=change)
    assert before <= told["origin"] <= time.monotonic()
    assert told["gpu"] == {
        "uuid": UUID,
        "name": "NVIDIA A100-SXM4-80GB",
        "driver": "550.54.15",
        "power_limit_watts": 400.0,
        "part": False,
    }
    at = told["samples"]["at"]
    assert at[0] == 0.0
    assert at == sorted(at)
    assert 0.0 <= told["launched_at"] <= at[-1]
    clocks = column(told, "sm_mhz")
    assert (clocks[0], clocks[-1]) == (1410, 1200)
    assert column(told, "reasons")[-1] == POWER_CAP | HARDWARE_THERMAL
    # What stays the same is said once.
    assert told["samples"]["memory_mhz"] == 1593
    assert told["samples"]["watts"] == 300.0
    assert (told["samples"]["utilisation"], told["samples"]["memory_utilisation"]) == (98, 60)
    assert told["samples"]["used_bytes"] == 10 * GIB
    assert told["slow_samples"]["uncorrected"] == 0
    joules = column(told, "joules")
    assert joules[0] == 0.0
    assert joules == sorted(joules)
    assert joules[-1] == pytest.approx(300.0 * at[-1], abs=300.0 * 0.02)
    assert told["notes"] == []
    assert told["lost_at"] is None
    assert told["cpu_seconds"] >= 0.0
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    # Opened and closed once, and nothing but read.
    assert (nvml.opened, nvml.shut_down) == (0, True)
    assert all(name.startswith("nvmlDeviceGet") for name in nvml.asked)


def test_pcie_and_processes_are_looked_at_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_PERIOD_SECONDS", 3 * PERIOD)
    gpu = SimulatedGpu()
    gpu.sent_kb, gpu.received_kb = 3, 7
    told = sampled(FakeNvml(gpu.board()), samples=12)
    slow = told["slow_samples"]["at"]
    assert 3 <= len(slow) <= len(told["samples"]["at"]) // 3 + 2
    # Not before the launch, nor at its end: the query takes its time.
    sent, received = (column(told, name, "slow_samples") for name in ("sent", "received"))
    assert (sent[0], sent[-1], received[0], received[-1]) == (None,) * 4
    assert set(sent[1:-1]) == {3000}
    assert set(received[1:-1]) == {7000}
    assert told["slow_period_seconds"] == pytest.approx(3 * PERIOD)


def test_a_board_that_tells_nothing_has_times_only() -> None:
    nvml = FakeNvml({"nvmlDeviceGetUUID": UUID})
    told = sampled(nvml)
    assert set(told["samples"]) == set(told["slow_samples"]) == {"at"}
    assert told["processes"] is None
    assert told["notes"] == []
    # What is not supported is asked once.
    assert nvml.asked.count("nvmlDeviceGetPowerUsage") == 1


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, UNKNOWN])
def test_a_query_that_fails_costs_its_column_only(name: str, code: int) -> None:
    whole = sampled(FakeNvml(SimulatedGpu().board()), samples=2)
    told = sampled(FakeNvml(SimulatedGpu().board(**{COLUMNS[name]: NVMLError(code)})), samples=2)
    lost = set(whole["samples"]) - set(told["samples"])
    assert name in lost
    assert lost <= {name, "memory_mhz", "memory_utilisation"}  # those come with the same answers
    assert [COLUMNS[name] in note for note in told["notes"]] == ([True] if code == UNKNOWN else [])


def test_a_query_that_fails_now_and_then_costs_single_readings() -> None:
    answers = iter([55, NVMLError(UNKNOWN), 57])

    def temperature(sensor: int) -> int:
        answer = next(answers, 58)
        if isinstance(answer, Exception):
            raise answer
        return answer

    told = sampled(FakeNvml(SimulatedGpu().board(Temperature=temperature)))
    assert column(told, "temperature")[:4] == [55, None, 57, 58]
    assert told["notes"] == ["nvmlDeviceGetTemperature: Unknown Error"]


def test_an_old_driver_and_an_old_binding_use_the_old_names() -> None:
    gpu = SimulatedGpu()
    gpu.reasons = POWER_CAP
    new = "nvmlDeviceGetCurrentClocksEventReasons"
    for nvml in (FakeNvml(gpu.board(), missing=[new]), FakeNvml(gpu.board(), unbound=[new])):
        told = sampled(nvml, samples=2)
        assert told["samples"]["reasons"] == POWER_CAP
        assert nvml.asked.count(new) == 1
        assert told["notes"] == []


@pytest.mark.parametrize("queries", [0, 1, 3, 7, 20, 45, 90])
def test_a_gpu_that_disappears_ends_the_sampling_and_is_noted(queries: int) -> None:
    nvml = FakeNvml(SimulatedGpu().board(), lost_after=queries)
    sampler = Sampler(UUID, nvml, PERIOD)
    sampler.start()
    until(lambda: not sampler._thread.is_alive())
    asked = len(nvml.asked)
    told = sampler.stop()
    assert told["notes"] == ["the GPU stopped answering: GPU is lost"]
    assert told["lost_at"] is not None
    assert len(nvml.asked) == asked == queries + 1
    assert nvml.opened == 0
    # What was read before is kept: a sample is ten queries or so.
    assert len(told["samples"]["at"]) >= (queries - 4) // 16
    json.dumps(told, allow_nan=False)


def test_a_gpu_that_is_lost_in_one_query_is_lost_for_all() -> None:
    lost = NVMLError(GPU_IS_LOST)
    told = sampled(FakeNvml(SimulatedGpu().board(UtilizationRates=lost)))
    assert told["samples"]["at"] == []
    assert told["notes"] == ["the GPU stopped answering: GPU is lost"]


def test_no_driver_and_no_such_gpu() -> None:
    told = sampled(FakeNvml(init=NVMLError(LIBRARY_NOT_FOUND)))
    assert told["notes"] == ["no usable NVIDIA driver: NVML Shared Library Not Found"]
    told = sampled(FakeNvml(board()), uuid="GPU-elsewhere")
    assert told["notes"][0] == "no GPU of this driver has the UUID GPU-elsewhere"
    assert told["samples"] == {"at": []}
    assert told["processes"] is None


def test_answers_of_an_unheard_of_form_end_the_sampling_not_the_launch() -> None:
    told = sampled(FakeNvml(SimulatedGpu().board(PowerUsage="much")))
    assert told["samples"]["at"] == []
    assert "not understood: TypeError" in told["notes"][0]


def test_a_mig_device_has_its_memory_and_the_rest_of_its_gpu() -> None:
    gpu = SimulatedGpu()
    part = board("A100 MIG 3g.40gb", 40 * GIB, uuid="MIG-1") | {
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=40 * GIB, free=30 * GIB, used=10 * GIB),
        "nvmlDeviceGetComputeRunningProcesses": [],
    }
    del part["nvmlDeviceGetClockInfo"]
    gpu.used_bytes = 33 * GIB
    gpu.processes = {4321: GIB}  # in another slice
    nvml = FakeNvml(gpu.board(MigMode=[1, 1], mig=[board(uuid="MIG-0"), part]))
    told = sampled(nvml, uuid="MIG-1")
    assert (told["gpu"]["part"], told["gpu"]["name"]) == (True, "A100 MIG 3g.40gb")
    assert told["samples"]["sm_mhz"] == 1410
    assert told["samples"]["used_bytes"] == 10 * GIB
    assert told["processes"] == []
    # Named as a whole, nobody can tell whose the processes of its slices are.
    told = sampled(nvml)
    assert told["gpu"]["part"] is True
    assert told["processes"] is None


def test_it_stops_at_once() -> None:
    sampler = Sampler(UUID, FakeNvml(SimulatedGpu().board()), period_seconds=60.0)
    sampler.start()
    start = time.monotonic()
    told = sampler.stop()
    assert time.monotonic() - start < 0.5
    assert len(told["samples"]["at"]) == 2  # the first and the last
    assert not sampler._thread.is_alive()


def test_a_query_that_does_not_return_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_SECONDS", 0.05)
    gpu = SimulatedGpu()
    stuck = threading.Event()

    def power() -> int:
        if gpu.temperature == 0:
            stuck.wait(10.0)
        return 250_000

    sampler = Sampler(UUID, FakeNvml(gpu.board(PowerUsage=power)), PERIOD)
    sampler.start()
    gpu.temperature = 0
    time.sleep(3 * PERIOD)
    start = time.monotonic()
    told = sampler.stop()
    assert time.monotonic() - start < 0.5
    assert "did not answer within 0.05 s" in told["notes"][-1]
    assert column(told, "watts")[0] == 250.0
    assert told["cpu_seconds"] is None
    stuck.set()
    until(lambda: not sampler._thread.is_alive())


def test_a_driver_that_wakes_up_slowly_delays_a_launch_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 0.02)
    gpu = SimulatedGpu()
    gpu.processes = {77: GIB}
    sampler = Sampler(UUID, FakeNvml(gpu.board(), seconds={"nvmlInit": 1.5}), PERIOD, own=lambda pid: None)
    start = time.monotonic()
    sampler.start()
    assert time.monotonic() - start < 1.4  # also beside other tests
    until(lambda: bool(sampler._slow))
    told = sampler.stop()
    assert told["launched_at"] is None
    # It may be the launch's own by now.
    assert [each["whose"] for each in told["processes"]] == ["unknown"]


def test_no_more_samples_are_kept_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SAMPLES", 4)
    sampler = Sampler(UUID, FakeNvml(SimulatedGpu().board()), period_seconds=0.001)
    sampler.start()
    until(lambda: sampler._fast[0]["joules"] > 5000.0)  # the first is no longer there
    told = sampler.stop()
    assert len(told["samples"]["at"]) == 4
    assert told["samples"]["at"][0] == 0.0
    assert told["launched_at"] < 0.0


def whose(processes: Processes) -> dict[float | None, str]:
    """By the bytes they hold, as their numbers are not told."""
    told = processes.told(0.0)
    assert told is not None
    assert all(set(each) == {"whose", "first", "last", "bytes"} for each in told)
    return {each["bytes"]: each["whose"] for each in told}


def listed(*pids: int) -> list[SimpleNamespace]:
    """Each holds as many bytes as its number says."""
    return [SimpleNamespace(pid=pid, usedGpuMemory=pid) for pid in pids]


def test_processes_where_their_numbers_tell() -> None:
    processes = Processes({1: True, 2: False}.get)
    processes.note(listed(9), 0.0, before_launch=True)
    processes.note(listed(1, 2, 3, 9), 1.0, before_launch=False)
    processes.note(listed(1, 2, 4), 2.0, before_launch=False)
    processes.note(listed(1, 4), 3.0, before_launch=False)
    # 3 was seen once and is not there: it may have been a short one of the launch's.
    assert whose(processes) == {1: "own", 2: "other", 3: "unknown", 4: "other", 9: "other"}
    told = {each["bytes"]: each for each in processes.told(0.5) or []}
    assert (told[2]["first"], told[2]["last"]) == (0.5, 1.5)


def test_processes_numbered_as_in_another_container() -> None:
    processes = Processes({2: False}.get)  # by chance there is a process 2 here
    processes.note(listed(9), 0.0, before_launch=True)
    processes.note(listed(2, 3, 9), 1.0, before_launch=False)
    processes.note(listed(2, 3, 9), 2.0, before_launch=False)
    assert whose(processes) == {2: "unknown", 3: "unknown", 9: "other"}


def test_no_list_is_not_an_empty_list() -> None:
    assert Processes(lambda pid: None).told(0.0) is None
    processes = Processes(lambda pid: None)
    processes.note([], 0.0, before_launch=True)
    assert processes.told(0.0) == []


def test_memory_that_is_not_told_is_not_made_up() -> None:
    processes = Processes(lambda pid: True)
    for held in (None, 5, None, 3):
        processes.note([SimpleNamespace(pid=1, usedGpuMemory=held)], 0.0, before_launch=False)
    assert whose(processes) == {5: "own"}


def test_whose_a_process_is() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert descends_from_this_process(child.pid) is True
        assert descends_from_this_process(os.getpid()) is True
        assert os.getppid() == 0 or descends_from_this_process(os.getppid()) is False
    finally:
        child.communicate(b"\n")
    assert descends_from_this_process(child.pid) is None


@given(st.integers())
def test_no_number_is_too_strange_for_a_process(pid: int) -> None:
    assert descends_from_this_process(pid) in (True, False, None)
