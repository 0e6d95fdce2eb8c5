"""GPUs, their processes and telemetry, through stand-ins for NVML; the sampler's thread is the real
one."""

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
from processes import wait_until

from dlbench.hardware_probe import probe_gpus
from dlbench.hardware_probe import telemetry as module
from dlbench.hardware_probe.telemetry import (
    GpuSampler,
    Sighting,
    descends_from_this_process,
    processes_of,
)


def test_several_gpus() -> None:
    nvml = FakeNvml(board(), board("NVIDIA H200", 141 * GIB, CudaComputeCapability=(9, 0)))
    gpus = probe_gpus(nvml)
    assert nvml.shut_down
    assert (gpus.driver_version, gpus.cuda_driver_version, gpus.reason) == (
        "550.54.15",
        "12.4",
        None,
    )
    first, second = gpus.devices
    assert (first.index, first.name, first.memory_bytes) == (0, "NVIDIA A100-SXM4-80GB", 80 * GIB)
    assert (first.sm_clock_max_mhz, first.power_limit_watts) == (1410, 400.0)
    assert (first.pcie_generation_max, first.pcie_width_max) == (4, 16)
    assert (first.mig_enabled, first.ecc_enabled, first.persistence_mode) == (False, True, True)
    assert (second.index, second.name, second.compute_capability) == (1, "NVIDIA H200", "9.0")


def test_mig() -> None:
    slices = [board("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40 * GIB, UUID="MIG-1"), {}]
    gpus = probe_gpus(FakeNvml(board(MigMode=[1, 1], MaxMigDeviceCount=7, mig=slices)))
    (gpu,) = gpus.devices
    assert gpu.mig_enabled is True
    assert [tuple(device.values()) for device in gpu.mig_devices] == [
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "MIG-1", 40 * GIB),
        (None, None, None),
    ]
    assert gpus.reason is None  # empty slots are no problem


@pytest.mark.parametrize(
    "error",
    [
        NVMLError(UNKNOWN),
        AttributeError("an old binding"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "broken"),
        OSError("no more"),
    ],
)
def test_any_failing_query_is_none(error: Exception) -> None:
    for function in sorted(set(board()) - {"nvmlDeviceGetName", "nvmlDeviceGetClockInfo"}):
        gpus = probe_gpus(FakeNvml({**board(), function: error}, board()))
        assert [gpu.name for gpu in gpus.devices] == ["NVIDIA A100-SXM4-80GB"] * 2, function
        assert (gpus.reason is None) == isinstance(error, AttributeError), function


def test_no_driver() -> None:
    gpus = probe_gpus(FakeNvml(init=NVMLError(LIBRARY_NOT_FOUND)))
    assert (gpus.devices, gpus.driver_version) == ((), None)
    assert gpus.reason == "no usable NVIDIA driver: NVML Shared Library Not Found"


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


def sampled(
    nvml: FakeNvml,
    uuid: str = UUID,
    samples: int = 6,
    meanwhile: Callable[[], object] = lambda: None,
    **options: Any,
) -> dict[str, Any]:
    """Sample until so many samples were taken since the launch began, or the sampler ended of
    itself."""
    sampler = GpuSampler(uuid, nvml, PERIOD, **options)
    sampler.start()
    meanwhile()
    begun = len(sampler._fast)
    wait_until(
        lambda: len(sampler._fast) >= begun + samples or not sampler._thread.is_alive(), "samples"
    )
    return sampler.stop()


def column(recorded: dict[str, Any], name: str, table: str = "samples") -> list[Any]:
    values = recorded[table].get(name)
    return values if isinstance(values, list) else [values] * len(recorded[table]["at"])


def test_the_samples_of_a_gpu_at_work() -> None:
    gpu = SimulatedGpu(
        watts=lambda seconds: 300.0, joules=lambda seconds: 300.0 * seconds, tick_seconds=0.001
    )
    nvml = FakeNvml(board(uuid="GPU-other"), gpu.board())

    def change() -> None:
        gpu.sm_mhz, gpu.reasons = 1200, POWER_CAP | HARDWARE_THERMAL

    before = time.monotonic()
    recorded = sampled(nvml, meanwhile=change)
    assert before <= recorded["origin"] <= time.monotonic()
    assert recorded["gpu"] == {
        "uuid": UUID,
        "name": "NVIDIA A100-SXM4-80GB",
        "driver": "550.54.15",
        "power_limit_watts": 400.0,
        "part": False,
    }
    at = recorded["samples"]["at"]
    assert at[0] == 0.0
    assert at == sorted(at)
    assert 0.0 <= recorded["launched_at"] <= at[-1]
    clocks = column(recorded, "sm_mhz")
    assert (clocks[0], clocks[-1]) == (1410, 1200)
    assert column(recorded, "reasons")[-1] == POWER_CAP | HARDWARE_THERMAL
    # What stays the same is said once.
    assert recorded["samples"]["memory_mhz"] == 1593
    assert recorded["samples"]["watts"] == 300.0
    assert (recorded["samples"]["utilisation"], recorded["samples"]["memory_utilisation"]) == (
        98,
        60,
    )
    assert recorded["samples"]["used_bytes"] == 10 * GIB
    assert recorded["slow_samples"]["uncorrected"] == 0
    joules = column(recorded, "joules")
    assert joules[0] == 0.0
    assert joules == sorted(joules)
    assert joules[-1] == pytest.approx(300.0 * at[-1], abs=300.0 * 0.02)
    assert recorded["notes"] == []
    assert recorded["lost_at"] is None
    assert recorded["cpu_seconds"] >= 0.0
    assert json.loads(json.dumps(recorded, allow_nan=False)) == recorded
    # Opened and closed once, and nothing but read.
    assert (nvml.opened, nvml.shut_down) == (0, True)
    assert all(name.startswith("nvmlDeviceGet") for name in nvml.asked)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, UNKNOWN])
def test_a_query_that_fails_costs_its_column_only(name: str, code: int) -> None:
    complete = sampled(FakeNvml(SimulatedGpu().board()), samples=2)
    recorded = sampled(
        FakeNvml(SimulatedGpu().board(**{COLUMNS[name]: NVMLError(code)})), samples=2
    )
    lost = set(complete["samples"]) - set(recorded["samples"])
    assert name in lost
    assert lost <= {name, "memory_mhz", "memory_utilisation"}  # those come with the same answers
    assert [COLUMNS[name] in note for note in recorded["notes"]] == (
        [True] if code == UNKNOWN else []
    )


@pytest.mark.parametrize("queries", [0, 1, 3, 7, 20, 45, 90])
def test_a_gpu_that_disappears_ends_the_sampling_and_is_noted(queries: int) -> None:
    nvml = FakeNvml(SimulatedGpu().board(), lost_after=queries)
    sampler = GpuSampler(UUID, nvml, PERIOD)
    sampler.start()
    wait_until(lambda: not sampler._thread.is_alive(), "the end of the sampler")
    query_count = len(nvml.asked)
    recorded = sampler.stop()
    assert recorded["notes"] == ["the GPU stopped answering: GPU is lost"]
    assert recorded["lost_at"] is not None
    assert len(nvml.asked) == query_count == queries + 1
    assert nvml.opened == 0
    # What was read before is kept: a sample is ten queries or so.
    assert len(recorded["samples"]["at"]) >= (queries - 4) // 16
    json.dumps(recorded, allow_nan=False)


def test_no_driver_and_no_such_gpu() -> None:
    recorded = sampled(FakeNvml(init=NVMLError(LIBRARY_NOT_FOUND)))
    assert recorded["notes"] == ["no usable NVIDIA driver: NVML Shared Library Not Found"]
    recorded = sampled(FakeNvml(board()), uuid="GPU-elsewhere")
    assert recorded["notes"][0] == "no GPU of this driver has the UUID GPU-elsewhere"
    assert recorded["samples"] == {"at": []}
    assert recorded["processes"] is None


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
    recorded = sampled(nvml, uuid="MIG-1")
    assert (recorded["gpu"]["part"], recorded["gpu"]["name"]) == (True, "A100 MIG 3g.40gb")
    assert recorded["samples"]["sm_mhz"] == 1410
    assert recorded["samples"]["used_bytes"] == 10 * GIB
    assert recorded["processes"] == []
    # Named as a whole, nobody can tell whose the processes of its slices are.
    recorded = sampled(nvml)
    assert recorded["gpu"]["part"] is True
    assert recorded["processes"] is None


def test_a_query_that_does_not_return_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_SECONDS", 0.05)
    gpu = SimulatedGpu()
    stuck = threading.Event()

    def power() -> int:
        if gpu.temperature == 0:
            stuck.wait(10.0)
        return 250_000

    sampler = GpuSampler(UUID, FakeNvml(gpu.board(PowerUsage=power)), PERIOD)
    sampler.start()
    gpu.temperature = 0
    time.sleep(3 * PERIOD)
    start = time.monotonic()
    recorded = sampler.stop()
    assert time.monotonic() - start < 0.5
    assert "did not answer within 0.05 s" in recorded["notes"][-1]
    assert column(recorded, "watts")[0] == 250.0
    assert recorded["cpu_seconds"] is None
    stuck.set()
    wait_until(lambda: not sampler._thread.is_alive(), "the end of the sampler")


def test_processes_where_their_numbers_tell() -> None:
    own = {1: True, 2: False}.get
    lists = ((0.0, (9,)), (1.0, (1, 2, 3, 9)), (2.0, (1, 2, 4)), (3.0, (1, 4)))
    # Each holds as many bytes as its number says.
    sightings = []
    for at, pids in lists:
        sightings += [Sighting(pid, at, at == 0.0, pid, own(pid)) for pid in pids]
    recorded = {process["bytes"]: process for process in processes_of(sightings, 0.5)}
    # 3 was seen once and is not there: it may have been a short one of the launch's.
    whose = {size: process["whose"] for size, process in recorded.items()}
    assert whose == {1: "own", 2: "other", 3: "unknown", 4: "other", 9: "other"}
    assert (recorded[2]["first"], recorded[2]["last"]) == (0.5, 1.5)
    for process in recorded.values():
        assert set(process) == {"whose", "first", "last", "bytes"}


def test_whose_a_process_is() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert descends_from_this_process(child.pid) is True
        assert descends_from_this_process(os.getpid()) is True
        assert os.getppid() == 0 or descends_from_this_process(os.getppid()) is False
    finally:
        child.communicate(b"\n")
    assert descends_from_this_process(child.pid) is None
