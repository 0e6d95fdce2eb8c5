"""Mini-batches that lie in the host's memory and are copied to the GPU in each step."""

from typing import List, Tuple

import torch


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

    def there(self) -> List[torch.Tensor]:
        """Return the tensors on the device."""
        return [device for _, device in self.pairs]

    def __call__(self) -> None:
        """Copy the mini-batch once. Work on one stream runs in order: the step before has read its own by then."""
        for host, device in self.pairs:
            device.copy_(host, non_blocking=self.pinned)
