"""PyTorch on a CUDA GPU: whether this build can, at which precision, and what its instruments tell.

A launch sees one GPU alone, so it is always PyTorch's device 0.
"""

import re
from typing import Any, Callable, Dict

import torch

from ..libraries import gpus
from ..protocol import PLACEMENTS, Cell

DEVICE = "cuda:0"
#: What each precision computes products in. TF32 is no data type: float32 whose products lose bits on the way in.
DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_OUT_OF_MEMORY = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
_GIVE_ANOTHER = "give a build that has, --python torch=<its interpreter>"


def refusal(cell: Cell) -> str:
    """Return why this build of PyTorch cannot do the cell on a GPU, in its own terms; empty where it can."""
    version = "PyTorch %s" % torch.__version__
    reason = gpus.refusal(cell, "PyTorch", tuple(DTYPES), PLACEMENTS)
    if reason:
        return reason
    if torch.version.cuda is None:
        if torch.version.hip is not None:
            return "%s: this build is for ROCm and has no CUDA code: %s" % (version, _GIVE_ANOTHER)
        return "%s: this build has no CUDA code: %s" % (version, _GIVE_ANOTHER)
    try:
        torch.cuda.init()
        capability = torch.cuda.get_device_capability(0)
    except (RuntimeError, AssertionError) as error:  # a driver too old, or a GPU that does not answer
        return "%s, built for CUDA %s, cannot use the GPU: %s" % (version, torch.version.cuda, gpus.first_line(error))
    reason = gpus.refusal_of_build(cell, version, _GIVE_ANOTHER, torch.cuda.get_arch_list(), tuple(capability))
    if reason:
        return reason
    try:
        torch.backends.cudnn.version()
    except RuntimeError as error:  # a cuDNN that has left this GPU behind, or that is not the build's
        return "%s cannot use its cuDNN here: %s" % (version, gpus.first_line(error))
    return ""


def recurrent_refusal(precision: str, device: str, cell: str = "lstm") -> str:
    """Return why layers of this cell cannot be had at this precision on "cpu" or `DEVICE`; empty where they can.

    On GPUs autocast has long given it float16 for bfloat16 as well, in which the gradients of these networks vanish; on
    CPUs oneDNN does not train every LSTM in bfloat16. So it is asked: with a small one that trains.
    """
    if precision != "bfloat16":
        return ""
    kind = cell.upper()
    try:
        layer, inputs = getattr(torch.nn, kind)(8, 8, 2).to(device), torch.zeros(2, 2, 8, device=device)
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
            outputs, _ = layer(inputs)
        outputs.float().sum().backward()
    except RuntimeError as error:
        return "precision bfloat16: PyTorch %s cannot run its %s in it: %s" % (
            torch.__version__,
            kind,
            gpus.first_line(error),
        )
    if outputs.dtype != torch.bfloat16:
        given = str(outputs.dtype).rpartition(".")[2]
        return "precision bfloat16: autocast of PyTorch %s runs its %s in %s" % (torch.__version__, kind, given)
    return ""


def set_up(precision: str) -> None:
    """Let float32 products, convolutions and LSTMs use TF32 or not, and cuDNN try its convolutions out once."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    # The mini-batch never changes its shape, so that what is found out in the first step serves all others.
    torch.backends.cudnn.benchmark = True


def mark() -> torch.cuda.Event:
    """Put a timed event into the current stream and return it."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def nanoseconds_between(earlier: torch.cuda.Event, later: torch.cuda.Event) -> int:
    """Return the time between two events that have passed; CUDA resolves it to about half a microsecond."""
    return max(0, round(earlier.elapsed_time(later) * 1e6))  # given in milliseconds


def multiply(size: int, precision: str) -> Callable[[], object]:
    """Return a call that multiplies two square matrices on the GPU and waits for the result."""
    left, right = (torch.rand(size, size, device=DEVICE).to(DTYPES[precision]) for _ in range(2))
    result = torch.empty_like(left)

    def product() -> None:
        torch.mm(left, right, out=result)
        torch.cuda.synchronize()

    return product


def is_out_of_memory(error: BaseException) -> bool:
    """Recognise the failures of CUDA and its libraries that are none of PyTorch's own allocator."""
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _OUT_OF_MEMORY)


def slug() -> str:
    """Return the GPU's model as a part of a file name: what is tuned for one serves no other."""
    name = re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name(0).lower()).strip("-")
    return "%s-sm%d%d" % ((name,) + tuple(torch.cuda.get_device_capability(0)))


def describe(precision: str) -> Dict[str, Any]:
    """Name the GPU as PyTorch sees it, the libraries that drive it and what decides its arithmetic."""
    properties = torch.cuda.get_device_properties(0)
    matmul = torch.backends.cuda.matmul
    mixed = DTYPES[precision] != torch.float32
    return {
        "device": torch.cuda.get_device_name(0),
        "uuid": str(getattr(properties, "uuid", "")) or None,
        "compute_capability": "%d.%d" % tuple(torch.cuda.get_device_capability(0)),
        "device_memory_bytes": int(properties.total_memory),
        "multiprocessors": int(properties.multi_processor_count),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "architectures": torch.cuda.get_arch_list(),
        "matmul_tf32": bool(matmul.allow_tf32),
        "cudnn_tf32": bool(torch.backends.cudnn.allow_tf32),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "reduced_precision_sums": {
            "float16": bool(matmul.allow_fp16_reduced_precision_reduction),
            "bfloat16": bool(matmul.allow_bf16_reduced_precision_reduction),
        },
        "autocast": precision if mixed else "off",
    }
