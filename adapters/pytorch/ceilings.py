"""What `device_ceilings` times on a GPU, by PyTorch's own copies and its smallest operator."""

from typing import Callable, Tuple

import torch

from ..libraries import device_ceilings
from ..libraries.device_ceilings import Probe
from . import cuda

_PINNED = (device_ceilings.TO_DEVICE_PINNED, device_ceilings.FROM_DEVICE_PINNED)
_FROM_DEVICE = (device_ceilings.FROM_DEVICE_PINNED, device_ceilings.FROM_DEVICE_PAGEABLE)


def probe(
    name: str, size: int, device: str = cuda.DEVICE, wait: Callable[[], object] = torch.cuda.synchronize
) -> Probe:
    """Return how PyTorch does what this name of `device_ceilings.NAMES` says, with tensors of so many bytes."""
    if name == device_ceilings.OPERATOR:
        number = torch.zeros(1, device=device)
        return Probe(lambda: number.add_(1.0), wait)
    source, target = pair(name, size, device)
    pinned = name in _PINNED
    return Probe(lambda: target.copy_(source, non_blocking=pinned), wait)


def pair(name: str, size: int, device: str) -> Tuple[torch.Tensor, torch.Tensor]:
    """Return the tensors between which a copy of this name goes: from the first to the second, each of ``size`` bytes.

    All of them are written to before: pages of the host that never were may all be one.
    """
    there = torch.ones(size, dtype=torch.uint8, device=device)
    other = torch.zeros(size, dtype=torch.uint8, device=device if name == device_ceilings.COPY else "cpu")
    if name == device_ceilings.COPY:
        return there, other
    other.fill_(2)
    if name in _PINNED:
        other = other.pin_memory()
    return (there, other) if name in _FROM_DEVICE else (other, there)
