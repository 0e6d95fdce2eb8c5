"""The training step as one CUDA graph: captured once, then started as a whole.

For a network of many small operators, starting each of them costs more than computing it. A graph has them in it
already, with the addresses of their arguments: mini-batch, parameters and learning rate stay where they are.
"""

from typing import Any, Dict, Optional

import torch

from ..base import Unsupported
from ..libraries.gpus import first_line
from .eager import EagerStep, Task

#: Before the capture, as PyTorch's documentation asks: libraries set themselves up and try their kernels out.
WARM_UP_STEPS = 3


class GraphStep(EagerStep):
    """Forward, softmax cross-entropy, backward and SGD of one mini-batch, in one CUDA graph."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        # A tensor, and not a number that the graph would hold as a constant.
        self.rate = torch.zeros((), device=task.inputs.device)
        self.optimizer = torch.optim.SGD(task.trainable, lr=self.rate, fused=True)
        self.graph: Optional[torch.cuda.CUDAGraph] = None
        self.captured_bytes = 0

    def __call__(self) -> torch.Tensor:
        """Carry out one step; return its loss, a scalar still on the device."""
        if self.graph is None:
            self.graph = self._capture()
        self.graph.replay()
        return self.captured_loss

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Return the graph of a step. The steps that warm up run at rate 0, so that no parameter changes."""
        wanted = self.rate.clone()
        self.rate.zero_()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP_STEPS):
                super().__call__()
        torch.cuda.current_stream().wait_stream(aside)
        self.rate.copy_(wanted)
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.captured_loss = super().__call__()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise Unsupported("a CUDA graph cannot hold this step: %s" % first_line(error)) from error
        # A graph's own memory counts as free once it is captured, though every replay uses it.
        self.captured_bytes = int(torch.cuda.max_memory_allocated())
        return graph

    def set_learning_rate(self, rate: float) -> None:
        """Use this rate from the next step on."""
        self.rate.fill_(rate)

    def describe(self) -> Dict[str, Any]:
        """Name what was chosen."""
        return {"optimizer": "SGD (fused, its rate on the device)", "graph": "the whole step in one CUDA graph"}
