"""JAX's devices: those that a launch computes on, whether they can, and what JAX tells of them."""

import importlib.metadata
from typing import Any, List, Optional, Tuple

import jax

from ..libraries import gpus
from ..protocol import PLACEMENTS, Cell

#: What jax_default_matmul_precision is set to for each precision of a cell; it holds for products and convolutions.
#: On a GPU XLA takes TF32 for float32 unless "highest" forbids it.
MATMUL_PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "default"}
_GIVE_ANOTHER = "give a build that has one, --python jax=<its interpreter>"


def find_devices(name: str) -> List[Any]:
    """Return JAX's devices for a cell's "cpu" or "PLATFORM:INDEX", and keep JAX from starting any other platform.

    The index is the host's: a launch sees the GPUs of its workers alone, and those are JAX's, in order.
    """
    platform = name.partition(":")[0]
    jax.config.update("jax_platforms", platform)
    return list(jax.devices(platform))


def find_device(name: str) -> Any:
    """Return the first of `find_devices`: of several workers, the first one's."""
    return find_devices(name)[0]


def too_few(cell: Cell) -> str:
    """Return that JAX sees fewer devices than the cell has workers; empty where there are enough."""
    found = len(find_devices(cell.device))
    if found >= cell.world_size:
        return ""
    return "world size %d: each worker needs a device of its own, and JAX sees %d" % (cell.world_size, found)


def gpu_plugins() -> List[str]:
    """Return the names of the GPU plugins that this interpreter's JAX would load, as they registered themselves."""
    found = importlib.metadata.entry_points(group="jax_plugins")
    return sorted(entry.name for entry in found if any(maker in entry.name for maker in ("cuda", "rocm")))


def refusal(cell: Cell) -> str:
    """Return why this interpreter's JAX cannot do the cell on a GPU, in its own terms; empty where it can."""
    version = "JAX %s" % jax.__version__
    if cell.precision == "float16":
        return "precision float16: JAX has no scaling of the loss, without which small gradients become zero"
    reason = gpus.refusal(cell, "JAX", tuple(MATMUL_PRECISIONS), PLACEMENTS)
    if reason:
        return reason
    plugins = gpu_plugins()
    if not any("cuda" in name for name in plugins):
        return "%s: no plugin for CUDA is installed (found: %s): %s" % (
            version,
            ", ".join(plugins) or "none",
            _GIVE_ANOTHER,
        )
    try:
        device = find_device(cell.device)
    except (RuntimeError, AssertionError) as error:  # a driver too old, or a GPU that does not answer
        return "%s with %s cannot use the GPU: %s" % (version, ", ".join(plugins), gpus.first_line(error))
    capability = compute_capability(device)
    return "" if capability is None else gpus.refusal_of_build(cell, version, _GIVE_ANOTHER, (), capability)


def compute_capability(device: Any) -> Optional[Tuple[int, int]]:
    """Return a GPU's compute capability; None where JAX does not tell."""
    major, _, minor = str(getattr(device, "compute_capability", "")).partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def peak_memory_bytes(devices: List[Any]) -> Optional[int]:
    """Return what JAX's allocator gave out at most since it started, on that of the devices where it is most.

    None where it keeps no account.
    """
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in devices]
    known = [int(peak) for peak in peaks if peak is not None]
    return max(known) if known else None


def in_memory(place: Any, kind: str) -> Any:
    """Return the sharding that means a memory of a device, or of a sharding's: "device" or "pinned_host"."""
    if isinstance(place, jax.sharding.Sharding):
        return place.with_memory_kind(kind)
    return jax.sharding.SingleDeviceSharding(place, memory_kind=kind)
