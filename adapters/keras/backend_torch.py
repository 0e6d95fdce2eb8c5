"""Keras on PyTorch."""

from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np
import torch

from ..base import slope_told
from .backends import Backend, Training


class TorchTraining(Training):
    """Calls the train function with tensors."""

    def __init__(self, model: Any, inputs: Any, labels: Any) -> None:
        super().__init__(model, inputs, labels)
        model.train()

    def step(self) -> None:
        """As ``train_on_batch`` does, less the conversion of its arguments and results."""
        self.model.reset_metrics()
        self.logs = self.model.train_function([self.batch])


class TorchBackend(Backend):
    """PyTorch in this process."""

    execution = "Model.train_function on resident tensors"

    def __init__(self, threads: int) -> None:
        if threads:
            torch.set_num_threads(threads)
        # Nothing here runs operations side by side; the pool would only be threads without work.
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)

    def tensor(self, array: np.ndarray) -> Any:
        """Copy the array."""
        return torch.tensor(array)

    def training(self, model: Any, inputs: Any, labels: Any) -> Training:
        """Return the training step."""
        return TorchTraining(model, inputs, labels)

    def effective_threads(self) -> Optional[int]:
        """Return the size of PyTorch's intra-op pool."""
        return int(torch.get_num_threads())

    def describe(self) -> Dict[str, Any]:
        """Name PyTorch's build."""
        mkldnn = torch.backends.mkldnn
        return {
            "backend_version": torch.__version__,
            "git_version": torch.version.git_version,
            "blas": "MKL" if torch.backends.mkl.is_available() else "not MKL",
            "onednn_enabled": bool(mkldnn.is_available() and mkldnn.enabled),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "intra_op_threads": torch.get_num_threads(),
            "inter_op_threads": torch.get_num_interop_threads(),
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        """Ask the framework below Keras, which itself has neither gradients nor processes."""
        value = torch.tensor(3.0, requires_grad=True)
        (value * value).backward()
        assert value.grad is not None
        slope = float(value.grad)
        return {
            "gpu": (bool(torch.backends.cuda.is_built()), "torch.backends.cuda.is_built()"),
            "automatic_gradients": slope_told(slope),
            "several_processes": (torch.distributed.is_available(), "torch.distributed.is_available()"),
        }

    def multiply(self, size: int) -> Callable[[], object]:
        """Multiply into a result made beforehand."""
        left, right = torch.rand(size, size), torch.rand(size, size)
        result = torch.empty(size, size)
        return lambda: torch.mm(left, right, out=result)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Recognise PyTorch's failed allocations."""
        if isinstance(error, torch.OutOfMemoryError):
            return True
        # The CPU allocator's failures are plain RuntimeErrors.
        signs = ("DefaultCPUAllocator: not enough memory", "DefaultCPUAllocator: can't allocate memory")
        return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


BACKEND = TorchBackend
