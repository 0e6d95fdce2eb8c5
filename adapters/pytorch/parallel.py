"""Data-parallel training with PyTorch's own engine, DistributedDataParallel: over NCCL on GPUs, gloo on the CPU.

Every worker is a process, as torchrun would start it; they find one another by a file, so no port is taken. Gradients
are averaged while the backward pass still runs. Batch normalisation uses each worker's own part of the mini-batch, as
DistributedDataParallel does unless told otherwise.
"""

import datetime
import os
from typing import Any, Dict

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

#: A worker that waits longer for another has lost it.
PATIENCE = datetime.timedelta(minutes=10)


def backend(on_cpu: bool) -> str:
    """Return the engine that carries the gradients."""
    return "gloo" if on_cpu else "nccl"


def refusal(on_cpu: bool) -> str:
    """Return why this build of PyTorch cannot train with several workers; empty where it can."""
    distributed, name = torch.distributed, backend(on_cpu)
    there = distributed.is_available() and getattr(distributed, "is_%s_available" % name)()
    return "" if there else "PyTorch %s: this build has no %s, which its workers need" % (torch.__version__, name)


def join(on_cpu: bool, worker: int, workers: int, meeting: str) -> None:
    """Wait until all workers of this machine have come to the meeting."""
    # Without it gloo looks the machine's name up, which in a container may lead nowhere.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    options: Dict[str, Any] = {} if on_cpu else {"device_id": torch.device("cuda:0")}
    torch.distributed.init_process_group(
        backend(on_cpu), init_method="file://" + meeting, rank=worker, world_size=workers, timeout=PATIENCE, **options
    )


def wrap(module: nn.Module, on_cpu: bool) -> nn.Module:
    """Return the module with its gradients averaged over all workers."""
    return DistributedDataParallel(
        module,
        device_ids=None if on_cpu else [0],
        broadcast_buffers=False,  # there is none that must agree: running statistics of normalisation are not used
        gradient_as_bucket_view=True,  # no copy from the buckets into the gradients
    )


def mean(value: torch.Tensor, workers: int) -> float:
    """Return the mean of a number over all workers, which all must ask for."""
    total = value.detach().clone()
    torch.distributed.all_reduce(total)
    return float(total) / workers


def describe(on_cpu: bool) -> Dict[str, Any]:
    """Name the engine."""
    found = {"engine": "DistributedDataParallel", "backend": backend(on_cpu)}
    if not on_cpu:
        found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return found
