"""PyTorch on the CPU.

Settings of a mode (framework.toml says which were measured to be best, and by how much):

``compile``  the training step goes through torch.compile (default false)
``optimizer``  how eager mode updates: "fused", "foreach" or "single" (torch.optim.SGD's implementations)
``channels_last``  convolutional networks keep their images in NHWC memory order (default true)
``dense``  who multiplies in fully connected layers: "mkl", PyTorch's own choice (default), or "onednn"
``flush_denormal``  denormal numbers count as zero (default false)
"""

import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch

from ..base import Adapter
from ..batches import Batch
from ..networks import Network, Recurrent
from ..protocol import Cell
from . import compiled, eager, onednn
from .networks import build, plain_dense


def _memory_format(network, settings):
    # type: (Network, Dict[str, Any]) -> Optional[torch.memory_format]
    """Return the order in which image tensors lie in memory, or None for a network without images."""
    family = network.family
    if isinstance(family, Recurrent) or len(family.input_shape) != 3:
        return None
    return torch.channels_last if settings.get("channels_last", True) else torch.contiguous_format


class TorchAdapter(Adapter):
    """Trains with PyTorch, eagerly or through torch.compile."""

    def __init__(self, cell, settings, cache_directory):
        # type: (Cell, Dict[str, Any], str) -> None
        super(TorchAdapter, self).__init__(cell, settings, cache_directory)
        if cell.threads:
            torch.set_num_threads(cell.threads)
        # Nothing here runs operations side by side; the pool would only be threads without work.
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)
        torch.set_flush_denormal(bool(settings.get("flush_denormal", False)))
        self.compiles = bool(settings.get("compile", False))
        if self.compiles:
            compiled.use_cache(os.path.join(cache_directory, "torch-" + torch.__version__))
        self.dense = settings.get("dense", "mkl")
        if self.dense not in ("mkl", "onednn"):
            raise ValueError("dense %r is neither mkl nor onednn" % self.dense)
        self._parameters = {}  # type: Dict[str, torch.nn.Parameter]
        self._loss = torch.zeros(())

    def supports(self, network):
        # type: (Network) -> Tuple[bool, str]
        """Decline, beside what every adapter declines, to compile where there is no compiler."""
        supported, reason = super(TorchAdapter, self).supports(network)
        if supported and self.dense == "onednn":
            supported, reason = onednn.available()
        if supported and self.compiles:
            supported, reason = compiled.available()
        return supported, reason

    def prepare(self, network, weights, batch):
        # type: (Network, Dict[str, np.ndarray], Batch) -> None
        """Build the module and the training step; tokens and their labels are kept time-major."""
        built = build(network, weights, onednn.onednn_dense if self.dense == "onednn" else plain_dense)
        self._parameters = built.parameters
        inputs, labels = torch.from_numpy(batch.inputs), torch.from_numpy(batch.labels)
        if isinstance(network.family, Recurrent):
            inputs, labels = inputs.t().contiguous(), labels.t().flatten()
        memory_format = _memory_format(network, self.settings)
        if memory_format is None:
            inputs = inputs.clone()
        else:
            built.module.to(memory_format=memory_format)
            inputs = inputs.clone(memory_format=memory_format)
        trainable = list(built.parameters.values())
        make_step = compiled.make_step if self.compiles else eager.EagerStep
        self._training = make_step(built.module, trainable, inputs, labels.clone(), self.settings)

    def step(self):
        # type: () -> None
        """Forward, loss, backward, update."""
        self._loss = self._training()

    def set_learning_rate(self, rate):
        # type: (float) -> None
        """Hand the rate to the optimiser, or to the compiled step as a tensor."""
        self._training.set_learning_rate(rate)

    def last_loss(self):
        # type: () -> float
        """Return the last step's mean loss."""
        return float(self._loss)

    def parameters(self):
        # type: () -> Iterator[Tuple[str, np.ndarray]]
        """Yield views; PyTorch's shapes are the canonical ones, whatever the memory order."""
        for name, parameter in self._parameters.items():
            yield name, parameter.detach().numpy()

    def effective_threads(self):
        # type: () -> Optional[int]
        """Return the size of PyTorch's intra-op pool, which OpenMP and MKL share."""
        return int(torch.get_num_threads())

    def describe(self):
        # type: () -> Dict[str, Any]
        """Name the build: libraries, instruction set, numerical modes."""
        mkldnn = torch.backends.mkldnn
        return {
            "framework": "torch",
            "version": torch.__version__,
            "git": torch.version.git_version,
            "blas": "MKL" if torch.backends.mkl.is_available() else _build_line("BLAS_INFO="),
            "mkl": _build_line("Math Kernel Library"),
            "onednn": _build_line("MKL-DNN"),
            "onednn_enabled": bool(mkldnn.is_available() and mkldnn.enabled),
            "openmp": _build_line("OpenMP"),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "dense_layers": self.dense,
            "execution": "torch.compile" if self.compiles else "eager",
            "intra_op_threads": torch.get_num_threads(),
            "inter_op_threads": torch.get_num_interop_threads(),
            "training": self._training.describe() if self._parameters else {},
        }

    def capabilities(self):
        # type: () -> Dict[str, Tuple[bool, str]]
        """Ask PyTorch for its build's GPU code, for a gradient and for its process groups."""
        value = torch.tensor(3.0, requires_grad=True)
        (value * value).backward()
        slope = float(value.grad)  # type: ignore[arg-type]
        together = torch.distributed.is_available()
        known = {
            "gloo": torch.distributed.is_gloo_available,
            "nccl": torch.distributed.is_nccl_available,
            "mpi": torch.distributed.is_mpi_available,
        }
        engines = [name for name, is_there in known.items() if together and is_there()]
        toolkit = torch.version.cuda or torch.version.hip
        return {
            "gpu": (
                bool(toolkit),
                "torch.version.cuda is %s, torch.version.hip %s" % (torch.version.cuda, torch.version.hip),
            ),
            "automatic_gradients": (slope == 6.0, "the gradient of x * x at 3 came out as %g" % slope),
            "several_processes": (bool(engines), "torch.distributed with %s" % (", ".join(engines) or "no engine")),
        }

    def multiply(self, size):
        # type: (int) -> Optional[Callable[[], object]]
        """Multiply with torch.mm into a result made beforehand."""
        left, right = torch.rand(size, size), torch.rand(size, size)
        result = torch.empty(size, size)
        return lambda: torch.mm(left, right, out=result)

    def is_out_of_memory(self, error):
        # type: (BaseException) -> bool
        """Recognise the CPU allocator's failures, which PyTorch raises as plain RuntimeErrors."""
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            return True
        signs = ("DefaultCPUAllocator: not enough memory", "DefaultCPUAllocator: can't allocate memory")
        return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def _build_line(words):
    # type: (str) -> str
    """Return the entry of PyTorch's own account of its build that holds these words, or an empty string."""
    lines = [line.strip(" -") for line in torch.__config__.show().splitlines()]  # type: List[str]
    found = [line for line in lines if words in line and not line.startswith("Build settings")]
    return found[0] if found else ""


ADAPTER = TorchAdapter
