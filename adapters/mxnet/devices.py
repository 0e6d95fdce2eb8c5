"""MXNet's contexts: where a launch computes, and whether this build can compute there."""

import os
from typing import Any

import mxnet as mx

from ..libraries import gpus
from ..protocol import Cell

_GIVE_ANOTHER = "give a build that can, --python mxnet=<its interpreter>"


def context(cell: Cell) -> Any:
    """Return where a cell computes: a launch sees one GPU, so it is always MXNet's first.

    Called before anything computes: CUDA's libraries read once whether float32 products may lose bits as TF32.
    """
    if cell.on_cpu:
        return mx.cpu()
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    return mx.gpu(0)


def refusal(cell: Cell) -> str:
    """Return why this build of MXNet cannot do the cell on a GPU, in its own terms; empty where it can."""
    version = "MXNet %s" % mx.__version__
    reason = gpus.refusal(cell, "MXNet", ("float32",))
    if reason:
        return reason
    if not mx.runtime.Features().is_enabled("CUDA"):
        return "%s: this build was made without CUDA (its feature CUDA): %s" % (version, _GIVE_ANOTHER)
    try:
        # Only a kernel that runs shows that the driver answers and that the build has kernels for this GPU.
        mx.nd.ones((2,), ctx=mx.gpu(0)).asnumpy()
    except mx.base.MXNetError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return "%s cannot use the GPU: %s" % (version, lines[-1][:300] if lines else "it does not say why")
    return ""
