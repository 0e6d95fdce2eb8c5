"""How a mini-batch lies in memory, and mini-batches that lie in the host's and are copied to the GPU in each step."""

from typing import List, Tuple

import torch

from ..families import Family
from ..launch.batches import Batch


def tensors_of(family: Family, batch: Batch) -> List[torch.Tensor]:
    """Return inputs and labels in the shapes that steps read, with the steps first where the family is so.

    They may share the arrays' memory.
    """
    inputs, labels = torch.from_numpy(batch.inputs), torch.from_numpy(batch.labels)
    if family.time_major:
        inputs, labels = inputs.transpose(0, 1), labels.transpose(0, 1)
    return [inputs, labels.flatten(0, 1) if labels.dim() > 1 else labels]


def copy_of(tensor: torch.Tensor, images: torch.memory_format) -> torch.Tensor:
    """Return a copy in the order in memory that steps read, for images the one that is given."""
    return tensor.clone(memory_format=images if tensor.dim() == 4 else torch.contiguous_format)


class Feed:
    """Copies a mini-batch from pinned or pageable memory of the host into tensors that stay on the device.

    From pinned memory the copy is queued and the host goes on; from pageable memory CUDA takes it through a buffer of
    its own, and the host waits.
    """

    def __init__(self, tensors: List[torch.Tensor], device: str, pinned: bool) -> None:
        self.pinned = pinned
        self.pairs: List[Tuple[torch.Tensor, torch.Tensor]] = []
        for tensor in tensors:
            # Both keep the order in memory, NHWC too, so that the copy is one plain transfer.
            self.pairs.append((tensor.pin_memory() if pinned else tensor, torch.empty_like(tensor, device=device)))

    def here(self) -> List[torch.Tensor]:
        """Return the tensors on the host."""
        return [host for host, _ in self.pairs]

    def there(self) -> List[torch.Tensor]:
        """Return the tensors on the device."""
        return [device for _, device in self.pairs]

    def __call__(self) -> None:
        """Copy the mini-batch once. Work on one stream runs in order: the step before has read its own by then."""
        for host, device in self.pairs:
            device.copy_(host, non_blocking=self.pinned)
