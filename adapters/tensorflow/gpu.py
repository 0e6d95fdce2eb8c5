"""TensorFlow on a CUDA GPU: whether this build can, at which precision, and what its instruments tell.

A launch sees as many GPUs as it has workers. One alone is always TensorFlow's GPU 0, where TensorFlow puts all that it
has GPU kernels for; of several workers the first is there, and what is told of one GPU is told of that one.
"""

from typing import Any, Callable, Dict, Optional, Tuple

import tensorflow as tf

from ..libraries import device_ceilings, gpus
from ..libraries.device_ceilings import Probe
from ..protocol import Cell

DEVICE = "GPU:0"
PRECISIONS = ("float32", "tf32")
_GIVE_ANOTHER = "give a build that has, --python tensorflow=<its interpreter>"


def refusal(cell: Cell) -> str:
    """Return why this build of TensorFlow cannot do the cell on a GPU, in its own terms; empty where it can."""
    version = "TensorFlow %s" % tf.version.VERSION
    reason = gpus.refusal(cell, "TensorFlow", PRECISIONS)
    if reason:
        return reason
    built = tf.sysconfig.get_build_info()
    if not built.get("is_cuda_build"):
        return "%s: this build has no CUDA code: %s" % (version, _GIVE_ANOTHER)
    found = tf.config.list_physical_devices("GPU")
    if not found:
        return "%s, built for CUDA %s, sees no GPU: its CUDA libraries or the driver are missing or too old" % (
            version,
            built.get("cuda_version", "(unknown)"),
        )
    if len(found) < cell.world_size:
        return "world size %d: each worker needs a GPU of its own, and %s sees %d" % (
            cell.world_size,
            version,
            len(found),
        )
    architectures = list(built.get("cuda_compute_capabilities") or [])
    capabilities = [compute_capability(each) for each in found[: cell.world_size]]
    reasons = [
        gpus.refusal_of_build(cell, version, _GIVE_ANOTHER, architectures, capability)
        for capability in capabilities
        if capability is not None
    ]
    return next((reason for reason in reasons if reason), "")


def compute_capability(device: Any) -> Optional[Tuple[int, int]]:
    """Return a GPU's compute capability; None where TensorFlow does not tell."""
    told = tf.config.experimental.get_device_details(device).get("compute_capability")
    return None if told is None else (int(told[0]), int(told[1]))


def set_up(precision: str) -> None:
    """Take memory as it is needed and not all at once; let float32 products and convolutions use TF32, or not."""
    for each in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(each, True)
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")


def placed(tensor: Any, device: str = DEVICE) -> Any:
    """Return the tensor on this GPU. Whole numbers in 32 bits would stay on the host, and be copied in each step."""
    with tf.device(device):
        return tf.cast(tensor, tf.int64) if tensor.dtype.is_integer else tf.identity(tensor)


def synchronize() -> None:
    """Wait until the GPU has done all it was given."""
    with tf.device(DEVICE):
        tf.raw_ops.SyncDevice()


def synchronize_all() -> None:
    """Wait until all GPUs have done all they were given."""
    for each in tf.config.list_logical_devices("GPU"):
        with tf.device(each.name):
            tf.raw_ops.SyncDevice()


def probe(name: str, size: int, device: str = DEVICE, wait: Callable[[], object] = synchronize) -> Optional[Probe]:
    """Return how TensorFlow copies so many bytes on the GPU, for `device_ceilings`; None of any other name.

    Whether its own copies from and to the host go through page-locked memory is nowhere said, and the operators of a
    step, which is one graph, are not started one by one.
    """
    if name != device_ceilings.COPY:
        return None
    source = filled(size, device)
    copied(source, device)  # raises where there is no kernel for it
    return Probe(lambda: copied(source, device), wait)


def filled(size: int, device: str) -> Any:
    """Return a tensor of so many bytes there, of a type that DeepCopy has a kernel on GPUs for: bytes are none."""
    with tf.device(device):
        return tf.fill([size // 4], tf.constant(1.0, tf.float32))


def copied(source: Any, device: str) -> Any:
    """Return a copy; raises RuntimeError where TensorFlow silently put it, or the source, elsewhere."""
    with tf.device(device):
        copy = tf.raw_ops.DeepCopy(x=source)
    for each in (source, copy):
        if not each.device.endswith(device):
            raise RuntimeError("the copy is of %s, not of %s" % (each.device, device))
    return copy


def peak_memory_bytes() -> int:
    """Return what TensorFlow's allocator gave out on the GPU at most since the last reset."""
    return int(tf.config.experimental.get_memory_info(DEVICE)["peak"])


def reset_peak_memory() -> None:
    """Let TensorFlow's allocator forget its peak."""
    tf.config.experimental.reset_memory_stats(DEVICE)


def name() -> str:
    """Return the GPU's model."""
    device = tf.config.list_physical_devices("GPU")[0]
    return str(tf.config.experimental.get_device_details(device).get("device_name", device.name))


def describe() -> Dict[str, Any]:
    """Name the GPU as TensorFlow sees it, and the libraries that drive it."""
    built = tf.sysconfig.get_build_info()
    capability = compute_capability(tf.config.list_physical_devices("GPU")[0])
    return {
        "device": name(),
        "compute_capability": None if capability is None else "%d.%d" % capability,
        "cuda": built.get("cuda_version"),
        "cudnn": built.get("cudnn_version"),
        "architectures": list(built.get("cuda_compute_capabilities") or []),
        "tf32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
    }
