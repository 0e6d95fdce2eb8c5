"""Where ONNX Runtime runs a graph: its execution providers, the memory they read and write, and whether they can."""

from typing import Any, Dict, List, Tuple

import onnxruntime

from ..libraries import gpus
from ..libraries.onnx_graphs import add_product
from ..libraries.onnx_sessions import CPU
from ..protocol import Cell
from .graph import Graph

CUDA = "CUDAExecutionProvider"
PRECISIONS = ("float32", "tf32")
_GIVE_ANOTHER = "give a build that can, --python onnx=<its interpreter>"


def providers(cell: Cell) -> List[Any]:
    """Return what runs a session's operators; on a GPU those that it has no kernel for stay on the CPU.

    TF32 is off unless it is asked for. Convolutions are tried out once, as a step's shapes never change.
    """
    if cell.on_cpu:
        return [CPU]
    tf32 = "1" if cell.precision == "tf32" else "0"
    return [(CUDA, {"device_id": "0", "use_tf32": tf32, "cudnn_conv_algo_search": "EXHAUSTIVE"}), CPU]


def home(cell: Cell) -> Tuple[str, int]:
    """Return the memory that buffers lie in: a launch sees one GPU, so it is always the first."""
    return ("cpu", 0) if cell.on_cpu else ("cuda", 0)


def refusal(cell: Cell) -> str:
    """Return why this build of ONNX Runtime cannot do the cell on a GPU, in its own terms; empty where it can."""
    version = "ONNX Runtime %s" % onnxruntime.__version__
    reason = gpus.refusal(cell, "ONNX Runtime", PRECISIONS)
    if reason:
        return reason
    there = onnxruntime.get_available_providers()
    if CUDA not in there:
        return "%s: this build has no %s (it has %s): %s" % (version, CUDA, ", ".join(there), _GIVE_ANOTHER)
    # Where the provider cannot be loaded ONNX Runtime says so in its log, and takes the CPU in its place.
    try:
        in_force = _in_force(cell)
    except Exception as error:
        return "%s cannot use the GPU: %s" % (version, " ".join(str(error).split())[:300])
    if CUDA not in in_force:
        return (
            "%s has the %s and cannot load it: CUDA's or cuDNN's libraries, or the driver, are missing or too old"
            % (version, CUDA)
        )
    return ""


def _in_force(cell: Cell) -> List[str]:
    """Return the providers that a small session got."""
    model = add_product(Graph(), 2).model().SerializeToString()
    return list(onnxruntime.InferenceSession(model, providers=providers(cell)).get_providers())


def run_options(cell: Cell) -> Any:
    """Return how a step is run; on a GPU it only starts there, and somebody else waits for its end."""
    if cell.on_cpu:
        return None
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


def describe(session: Any) -> Dict[str, Any]:
    """Name the providers in force and their options."""
    if session is None:
        return {}
    return {"providers": session.get_providers(), "provider_options": session.get_provider_options()}
