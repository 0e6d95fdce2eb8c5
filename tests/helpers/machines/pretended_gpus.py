"""GPUs that the tests of this room pretend to have: in this process, and for commands through DLBENCH_NVML."""

from pathlib import Path
from typing import Any

import fake_nvml as fake

from dlbench.hardware_probe import Gpus, probe_gpus

STAND_IN = Path(__file__).with_name("fake_nvml.py")

A100, H200 = "NVIDIA A100-SXM4-80GB", "NVIDIA H200"
FIRST, SECOND, PART, OTHER_PART = (
    f"{kind}-{digit * 8}-1111-2222-3333-444444444444"
    for kind, digit in (("GPU", "a"), ("GPU", "b"), ("MIG", "c"), ("MIG", "d"))
)

# Sources of stand-ins, with `fake` as above in scope.
TWO = f"fake.FakeNvml(fake.board(uuid={FIRST!r}), fake.board({H200!r}, uuid={SECOND!r}))"
TWINS = f"fake.FakeNvml(fake.board(uuid={FIRST!r}), fake.board(uuid={SECOND!r}))"
PARTED = (
    f"fake.FakeNvml(fake.board(uuid={FIRST!r}, MigMode=[1, 1], MaxMigDeviceCount=7, mig=["
    f"fake.board('{A100} MIG 3g.40gb', uuid={PART!r}), fake.board('{A100} MIG 4g.40gb', uuid={OTHER_PART!r})]), "
    f"fake.board({H200!r}, uuid={SECOND!r}))"
)
NO_PARTS = f"fake.FakeNvml(fake.board(uuid={FIRST!r}, MigMode=[1, 1], MaxMigDeviceCount=7, mig=[]))"
LOST = f"fake.FakeNvml(fake.board(uuid={FIRST!r}), {{name: fake.NVMLError(fake.GPU_IS_LOST) for name in fake.board()}})"
NO_GPU = "fake.FakeNvml()"
NO_DRIVER = "fake.FakeNvml(init=fake.NVMLError(fake.LIBRARY_NOT_FOUND))"
OLD_DRIVER = "fake.FakeNvml(init=OSError('Driver/library version mismatch'))"


def nvml(source: str) -> Any:
    """Return a stand-in."""
    return eval(source, {"fake": fake})


def gpus(source: str) -> Gpus:
    """Return the GPUs that it shows."""
    return probe_gpus(nvml(source))


def stand_in(folder: Path, source: str, before: str = "") -> str:
    """Write a file for DLBENCH_NVML, and return its path; ``before`` are lines above the stand-in's."""
    path = folder / "pretended.py"
    path.write_text(
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('fake_nvml', {str(STAND_IN)!r})\n"
        "fake = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(fake)\n"
        f"{before}\n"
        f"nvml = {source}\n"
    )
    return str(path)
