"""A stand-in for NVML: plays drivers and GPUs that no developer has at hand. It needs neither a
driver nor pynvml.

    nvml = FakeNvml(board(), board("NVIDIA H200", uuid="GPU-b"), lost_after=40)

A board is its answers by NVML's function name; a missing one is "not supported". An answer that is
an exception is raised, one that is a function is called with the query's further arguments,
anything else is returned. So whatever changes with time is a function. `SimulatedGpu` makes the
answers of a GPU under load.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dlbench.hardware_probe import Gpus, probe_gpus

GIB = 1024**3

# NVML's error numbers, as in its C interface, and its words.
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, LIBRARY_NOT_FOUND, GPU_IS_LOST, UNKNOWN = (
    3,
    4,
    6,
    12,
    15,
    999,
)
_MESSAGES = {
    NOT_SUPPORTED: "Not Supported",
    NO_PERMISSION: "Insufficient Permissions",
    NOT_FOUND: "Not Found",
    LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    GPU_IS_LOST: "GPU is lost",
    UNKNOWN: "Unknown Error",
}

# Bits of the reasons why clocks are lower than they could be.
POWER_CAP, HARDWARE_THERMAL = 0x4, 0x40


class NVMLError(Exception):
    """An error of NVML by its number, as pynvml has it."""

    def __init__(self, value: int) -> None:
        super().__init__(_MESSAGES[value])
        self.value = value


class FakeNvml:
    """Plays pynvml. A handle is the GPU's index, or (index, slot) of a MIG device.

    ``lost_after``: so many queries are answered, then every GPU is lost. ``init``: raised by
    ``nvmlInit``.
    """

    NVMLError = NVMLError

    def __init__(
        self,
        *boards: Mapping[str, Any],
        lost_after: int | None = None,
        init: Exception | None = None,
    ) -> None:
        self.boards, self.queries_left, self.init = boards, lost_after, init
        self.opened = 0
        self.shut_down = False
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init is not None:
            raise self.init
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1
        self.shut_down = True

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"550.54.15"  # as old bindings give it

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        return 12040

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self._ask("nvmlDeviceGetHandleByIndex")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802
        self._ask("nvmlDeviceGetHandleByUUID")
        for index, board in enumerate(self.boards):
            if board.get("nvmlDeviceGetUUID") == uuid:
                return index
            for slot, instance in enumerate(board.get("mig", ())):
                if instance.get("nvmlDeviceGetUUID") == uuid:
                    return index, slot
        raise NVMLError(NOT_FOUND)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: int, slot: int) -> tuple[int, int]:  # noqa: N802
        if slot >= len(self.boards[gpu].get("mig", ())):
            raise NVMLError(NOT_FOUND)
        return gpu, slot

    def nvmlDeviceIsMigDeviceHandle(self, handle: Any) -> bool:  # noqa: N802
        self._ask("nvmlDeviceIsMigDeviceHandle")
        return isinstance(handle, tuple)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Any) -> int:  # noqa: N802
        self._ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
        if not isinstance(handle, tuple):
            raise NVMLError(NOT_FOUND)
        return int(handle[0])

    def __getattr__(self, function: str) -> Any:
        if not function.startswith("nvmlDeviceGet"):
            if function.startswith("nvml"):
                self.asked.append(
                    function
                )  # what would change a GPU is not there, and whoever tries it is seen
            raise AttributeError(function)

        def query(handle: Any, *arguments: object) -> Any:
            self._ask(function)
            board = (
                self.boards[handle[0]]["mig"][handle[1]]
                if isinstance(handle, tuple)
                else self.boards[handle]
            )
            answer = board.get(function, NVMLError(NOT_SUPPORTED))
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return query

    def _ask(self, function: str) -> None:
        with self._lock:
            self.asked.append(function)
            if self.queries_left is not None:
                if self.queries_left == 0:
                    raise NVMLError(GPU_IS_LOST)
                self.queries_left -= 1


def board(
    name: str = "NVIDIA A100-SXM4-80GB", memory: int = 80 * GIB, **changes: Any
) -> dict[str, Any]:
    """Return the answers of an idle GPU; ``MaxPcieLinkWidth=8`` is the answer of
    ``nvmlDeviceGetMaxPcieLinkWidth``.

    ``mig`` is a list of boards, its MIG devices.
    """
    answers: dict[str, Any] = {
        "Name": name,
        "UUID": changes.pop("uuid", "GPU-0123"),
        "MemoryInfo": SimpleNamespace(total=memory, free=memory // 2, used=memory - memory // 2),
        "CudaComputeCapability": (8, 0),
        "ClockInfo": 210,
        "MaxClockInfo": 1410,
        "EnforcedPowerLimit": 400_000,
        "MaxPcieLinkGeneration": 4,
        "MaxPcieLinkWidth": 16,
        "MigMode": [0, 0],
        "EccMode": [1, 1],
        "PersistenceMode": 1,
    }
    mig = {"mig": changes.pop("mig")} if "mig" in changes else {}
    return {f"nvmlDeviceGet{key}": value for key, value in {**answers, **changes}.items()} | mig


class SimulatedGpu:
    """A GPU under load whose answers follow its attributes, which a test may change while somebody
    samples it.

    ``watts`` is a function of the seconds since it was made; the energy counter is ``joules`` of
    the same seconds, in ticks of ``tick_seconds``.
    """

    def __init__(
        self,
        watts: Callable[[float], float] = lambda seconds: 250.0,
        joules: Callable[[float], float] = lambda seconds: 250.0 * seconds,
        tick_seconds: float = 0.02,
    ) -> None:
        self.watts, self.joules, self.tick_seconds, self.made = (
            watts,
            joules,
            tick_seconds,
            time.monotonic(),
        )
        self.sm_mhz, self.temperature, self.reasons, self.used_bytes = 1410, 55, 0, 10 * GIB
        self.processes: dict[int, int | None] = {}
        """Process number and bytes it holds."""

    def board(self, **changes: Any) -> dict[str, Any]:
        """Return the board that answers with this GPU's state."""
        seconds = lambda: time.monotonic() - self.made  # noqa: E731
        ticked = lambda: seconds() // self.tick_seconds * self.tick_seconds  # noqa: E731
        state: dict[str, Any] = {
            "PowerUsage": lambda: round(self.watts(seconds()) * 1000),
            "TotalEnergyConsumption": lambda: 5_000_000 + round(self.joules(ticked()) * 1000),
            "ClockInfo": lambda domain: 1593 if domain == 2 else self.sm_mhz,
            "Temperature": lambda sensor: self.temperature,
            "CurrentClocksEventReasons": lambda: self.reasons,
            "CurrentClocksThrottleReasons": lambda: self.reasons,
            "UtilizationRates": SimpleNamespace(gpu=98, memory=60),
            "PcieThroughput": lambda counter: 2000 if counter == 1 else 1000,
            "MemoryInfo": lambda: SimpleNamespace(
                total=80 * GIB, free=80 * GIB - self.used_bytes, used=self.used_bytes
            ),
            "TotalEccErrors": lambda kind, counter: 0,
            "ComputeRunningProcesses": lambda: [
                SimpleNamespace(pid=pid, usedGpuMemory=held)
                for pid, held in dict(self.processes).items()
            ],
        }
        return board(**{**state, **changes})


STAND_IN = Path(__file__).with_name("fake_nvml.py")

A100, H200 = "NVIDIA A100-SXM4-80GB", "NVIDIA H200"
FIRST, SECOND, PART, OTHER_PART = (
    f"{kind}-{digit * 8}-1111-2222-3333-444444444444"
    for kind, digit in (("GPU", "a"), ("GPU", "b"), ("MIG", "c"), ("MIG", "d"))
)

# Sources of stand-ins, with this module as `fake` in scope.
TWO = f"fake.FakeNvml(fake.board(uuid={FIRST!r}), fake.board({H200!r}, uuid={SECOND!r}))"
TWINS = f"fake.FakeNvml(fake.board(uuid={FIRST!r}), fake.board(uuid={SECOND!r}))"
PARTED = (
    f"fake.FakeNvml(fake.board(uuid={FIRST!r}, MigMode=[1, 1], MaxMigDeviceCount=7, "
    f"mig=[fake.board('{A100} MIG 3g.40gb', uuid={PART!r}), fake.board('{A100} MIG 4g.40gb', "
    f"uuid={OTHER_PART!r})]), fake.board({H200!r}, uuid={SECOND!r}))"
)
NO_PARTS = f"fake.FakeNvml(fake.board(uuid={FIRST!r}, MigMode=[1, 1], MaxMigDeviceCount=7, mig=[]))"
LOST = (
    f"fake.FakeNvml(fake.board(uuid={FIRST!r}), {{name: fake.NVMLError(fake.GPU_IS_LOST) for name "
    "in fake.board()})"
)
NO_GPU = "fake.FakeNvml()"
NO_DRIVER = "fake.FakeNvml(init=fake.NVMLError(fake.LIBRARY_NOT_FOUND))"


def nvml(source: str) -> Any:
    """Return a stand-in."""
    return eval(source, {"fake": sys.modules[__name__]})


def gpus(source: str) -> Gpus:
    """Return the GPUs that it shows."""
    return probe_gpus(nvml(source))


def stand_in(folder: Path, source: str, before: str = "") -> str:
    """Write a file for DLBENCH_NVML, and return its path; ``before`` are lines above the
    stand-in's."""
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
