"""Which NVML is asked: the driver's or a stand-in, and what a stand-in that cannot be used says."""

from pathlib import Path

import pynvml
import pytest

from dlbench.hardware_probe import gpu as nvml
from dlbench.hardware_probe import probe, probe_gpus

STAND_IN = Path(__file__).parents[2] / "helpers" / "machines" / "fake_nvml.py"


def test_the_drivers_unless_a_stand_in_is_named(monkeypatch):
    monkeypatch.delenv(nvml.VARIABLE, raising=False)
    assert nvml.in_use() is pynvml
    monkeypatch.setenv(nvml.VARIABLE, "")
    assert nvml.in_use() is pynvml


def test_a_file_with_a_stand_in(monkeypatch):
    monkeypatch.setenv(nvml.VARIABLE, str(STAND_IN))
    found = nvml.in_use()
    assert found is nvml.in_use()  # one for the process: it may remember what it was asked
    names = [gpu.uuid for gpu in probe_gpus().devices]
    assert names == [board["nvmlDeviceGetUUID"] for board in found.boards]
    assert [gpu.uuid for gpu in probe().gpus.devices] == names


def test_a_module_with_a_stand_in(tmp_path, monkeypatch):
    (tmp_path / "made_up_drivers.py").write_text(
        "class Old:\n    def nvmlInit(self): raise OSError('too old')\nold = Old()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(nvml.VARIABLE, "made_up_drivers:old")
    assert probe_gpus().reason == "no usable NVIDIA driver: too old"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("nowhere.py", "nowhere.py"),
        ("no_such_module:nvml", "no_such_module"),
        ("json:nvml", "nvml"),
        ("json", "cannot be used"),
        (":", "cannot be used"),
    ],
)
def test_a_stand_in_that_cannot_be_loaded_is_a_driver_that_does_not_start(monkeypatch, text, part):
    monkeypatch.setenv(nvml.VARIABLE, text)
    gpus = probe_gpus()
    assert gpus.devices == ()
    assert f"DLBENCH_NVML={text}" in gpus.reason
    assert part in gpus.reason
