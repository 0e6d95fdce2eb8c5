"""GPUs, through stand-ins for NVML: no developer has all these drivers at hand."""

import pytest
from fake_nvml import GIB, LIBRARY_NOT_FOUND, UNKNOWN, FakeNvml, NVMLError, board

from dlbench.hardware_probe import probe_gpus


def test_several_gpus() -> None:
    nvml = FakeNvml(board(), board("NVIDIA H200", 141 * GIB, CudaComputeCapability=(9, 0)))
    gpus = probe_gpus(nvml)
    assert nvml.shut_down
    assert (gpus.driver_version, gpus.cuda_driver_version, gpus.reason) == ("550.54.15", "12.4", None)
    first, second = gpus.devices
    assert (first.index, first.name, first.memory_bytes) == (0, "NVIDIA A100-SXM4-80GB", 80 * GIB)
    assert (first.sm_clock_mhz, first.sm_clock_max_mhz, first.power_limit_watts) == (210, 1410, 400.0)
    assert (first.pcie_generation, first.pcie_generation_max, first.pcie_width) == (1, 4, 16)
    assert (first.mig_enabled, first.ecc_enabled, first.persistence_mode) == (False, True, True)
    assert (second.index, second.name, second.compute_capability) == (1, "NVIDIA H200", "9.0")


def test_mig() -> None:
    slices = [board("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40 * GIB, UUID="MIG-1"), {}]
    gpus = probe_gpus(FakeNvml(board(MigMode=[1, 1], MaxMigDeviceCount=7, mig=slices)))
    (gpu,) = gpus.devices
    assert gpu.mig_enabled is True
    assert [(each.name, each.uuid, each.memory_bytes) for each in gpu.mig_devices] == [
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "MIG-1", 40 * GIB),
        (None, None, None),
    ]
    assert gpus.reason is None  # empty slots are no problem


def test_unsupported_queries_cost_their_field_only() -> None:
    gpus = probe_gpus(FakeNvml({"nvmlDeviceGetName": b"Tesla K40c"}))
    (gpu,) = gpus.devices
    assert gpu.name == "Tesla K40c"
    assert (gpu.memory_bytes, gpu.mig_enabled, gpu.ecc_enabled, gpu.power_limit_watts) == (None,) * 4
    assert gpus.reason is None


@pytest.mark.parametrize(
    "error",
    [
        NVMLError(UNKNOWN),
        AttributeError("an old binding"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "broken"),
        OSError("no more"),
    ],
)
@pytest.mark.parametrize("function", sorted(set(board()) - {"nvmlDeviceGetName"}))
def test_any_failing_query_is_none(function: str, error: Exception) -> None:
    answers = board()
    answers[function] = error
    gpus = probe_gpus(FakeNvml(answers, board()))
    assert [gpu.name for gpu in gpus.devices] == ["NVIDIA A100-SXM4-80GB"] * 2
    assert (gpus.reason is None) == isinstance(error, AttributeError)


@pytest.mark.parametrize("queries", range(0, 40, 3))
def test_driver_gone_halfway(queries: int) -> None:
    nvml = FakeNvml(board(), board(), lost_after=queries)
    gpus = probe_gpus(nvml)
    assert len(gpus.devices) == 2
    # Said once for each GPU, not once for each query.
    assert gpus.reason is None or gpus.reason.count("GPU is lost") <= 2
    if queries < 15:
        assert gpus.devices[1].name is None
        assert gpus.reason is not None
    assert nvml.shut_down


def test_no_driver() -> None:
    gpus = probe_gpus(FakeNvml(init=NVMLError(LIBRARY_NOT_FOUND)))
    assert (gpus.devices, gpus.driver_version) == ((), None)
    assert gpus.reason == "no usable NVIDIA driver: NVML Shared Library Not Found"


def test_driver_without_gpus() -> None:
    gpus = probe_gpus(FakeNvml())
    assert gpus.devices == ()
    assert gpus.reason == "the driver is there, but has no GPU"


def test_driver_that_cannot_count() -> None:
    nvml = FakeNvml()
    nvml.nvmlDeviceGetCount = lambda: (_ for _ in ()).throw(  # type: ignore[method-assign]
        NVMLError(UNKNOWN)
    )
    gpus = probe_gpus(nvml)
    assert gpus.driver_version == "550.54.15"
    assert gpus.reason == "the driver did not count its GPUs: Unknown Error"


def test_this_machine() -> None:
    gpus = probe_gpus()
    assert gpus.devices or gpus.reason
