"""JAX's devices: the one that a launch computes on, whether it can, and what JAX tells of it."""

import importlib.metadata
from typing import Any, List, Optional, Tuple

import jax

from ..compute_capability import AMPERE
from ..protocol import Cell

#: What jax_default_matmul_precision is set to for each precision of a cell; it holds for products and convolutions.
#: On a GPU XLA takes TF32 for float32 unless "highest" forbids it.
MATMUL_PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "default"}
PLACEMENTS = ("resident", "pinned", "pageable")


def find_device(name):
    # type: (str) -> Any
    """Return JAX's device for a cell's "cpu" or "PLATFORM:INDEX", and keep JAX from starting any other platform.

    The index is the host's: a launch sees one GPU alone, and that is JAX's first.
    """
    platform = name.partition(":")[0]
    jax.config.update("jax_platforms", platform)
    return jax.devices(platform)[0]


def gpu_plugins():
    # type: () -> List[str]
    """Return the names of the GPU plugins that this interpreter's JAX would load, as they registered themselves."""
    found = importlib.metadata.entry_points(group="jax_plugins")
    return sorted(entry.name for entry in found if any(maker in entry.name for maker in ("cuda", "rocm")))


def refusal(cell):
    # type: (Cell) -> str
    """Return why this interpreter's JAX cannot do the cell on a GPU, in its own terms; empty where it can."""
    version = "JAX %s" % jax.__version__
    if cell.device.partition(":")[0] != "cuda":
        return "device %s: JAX is driven here on the CPU and on CUDA GPUs only" % cell.device
    if cell.precision == "float16":
        return "precision float16: JAX has no scaling of the loss, without which small gradients become zero"
    if cell.precision not in MATMUL_PRECISIONS:
        return "precision %s: JAX is driven here in %s only" % (cell.precision, ", ".join(MATMUL_PRECISIONS))
    if cell.placement not in PLACEMENTS:
        return "placement %s: JAX is driven here with %s only" % (cell.placement, ", ".join(PLACEMENTS))
    plugins = gpu_plugins()
    if not any("cuda" in name for name in plugins):
        return "%s: no plugin for CUDA is installed (found: %s): give a build that has one, %s" % (
            version,
            ", ".join(plugins) or "none",
            "--python jax=<its interpreter>",
        )
    try:
        device = find_device(cell.device)
    except (RuntimeError, AssertionError) as error:  # a driver too old, or a GPU that does not answer
        lines = str(error).strip().splitlines() or ["the plugin finds none"]
        return "%s with %s cannot use the GPU: %s" % (version, ", ".join(plugins), lines[0][:300])
    capability = compute_capability(device)
    if cell.precision in ("tf32", "bfloat16") and capability is not None and capability < AMPERE:
        return "precision %s: it needs compute capability %d.%d, and this GPU has %d.%d" % (
            (cell.precision,) + AMPERE + capability
        )
    return ""


def compute_capability(device):
    # type: (Any) -> Optional[Tuple[int, int]]
    """Return a GPU's compute capability; None where JAX does not tell."""
    major, _, minor = str(getattr(device, "compute_capability", "")).partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def peak_memory_bytes(device):
    # type: (Any) -> Optional[int]
    """Return what JAX's allocator gave out on the device at most since it started; None where it keeps no account."""
    told = device.memory_stats() or {}
    peak = told.get("peak_bytes_in_use")
    return None if peak is None else int(peak)


def in_memory(device, kind):
    # type: (Any, str) -> Any
    """Return the sharding that means this device's memory of a kind: "device", or the host's "pinned_host"."""
    return jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
