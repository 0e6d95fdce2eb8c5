"""PaddlePaddle's dynamic graph on the CPU, which computes synchronously."""

from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional

from ..base import Adapter, factors, slope_told
from ..families import CELLS, LEARNING_RATE, Attention, Elman
from ..launch.batches import Batch, laid_out
from ..libraries import mkl_kernels
from ..networks import Network
from ..protocol import Cell, Profile
from . import libraries, profile
from .networks import build, load

LOSSES = {"cross_entropy": functional.cross_entropy, "squares": functional.mse_loss}


class PaddleAdapter(Adapter):
    """Drives PaddlePaddle.

    Settings: ``widest_kernels`` (default false) tells MKL to use the widest kernels that the processor has, see
    ``mkl_kernels``.
    """

    families = (*Adapter.families, "elman", "attention")
    cells = tuple(CELLS)
    one_hot = True

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        self._widest = bool(settings.get("widest_kernels", False))
        if self._widest:
            mkl_kernels.take_widest()
        paddle.device.set_device("cpu")

    def supports(self, network: Network) -> Tuple[bool, str]:
        """Refuse to choose kernels of an MKL that this build has not."""
        if self._widest and libraries.mkl_threads() is None:
            return False, "the setting widest_kernels: this build of PaddlePaddle computes without MKL"
        family = network.family
        if isinstance(family, Elman) and (family.activation == "sigmoid" or family.alpha != 1.0):
            return False, "PaddlePaddle's SimpleRNN has no sigmoid and no leaky units"
        if isinstance(family, Attention) and family.epsilon > 1e-3:
            return False, "epsilon %g: PaddlePaddle's layer normalisation takes 0.001 at most" % family.epsilon
        return super().supports(network)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        """Build the layers with these weights and put the mini-batch into tensors."""
        self.family = network.family
        self.built = build(network, weights)
        self.inputs, self.labels = [paddle.to_tensor(array) for array in laid_out(self.family, batch, np.int64)]
        clip = network.family.clip
        self.optimizer = paddle.optimizer.SGD(
            LEARNING_RATE,
            parameters=list(self.built.parameters.values()),
            grad_clip=nn.ClipGradByGlobalNorm(clip) if clip else None,
        )
        self.criterion = LOSSES[network.family.loss]

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy them into the tensors that there are; gradients were cleared, and plain SGD keeps nothing."""
        load(self.built, weights)
        for tensor, array in zip((self.inputs, self.labels), laid_out(self.family, batch, np.int64)):
            tensor.set_value(array)

    def step(self) -> None:
        """Run forward, backward and update; PaddlePaddle returns when they are done."""
        self.loss = self.criterion(self.built.layer(self.inputs), self.labels)
        self.loss.backward()
        self.optimizer.step()
        # The layer's, not the optimizer's: gradients of parameters that are not updated would add up.
        self.built.layer.clear_gradients(set_to_zero=False)

    def set_learning_rate(self, rate: float) -> None:
        """Hand the rate to the optimizer."""
        self.optimizer.set_lr(rate)

    def last_loss(self) -> float:
        """Return the mean loss of the last step."""
        return float(self.loss)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield every trainable parameter in canonical layout."""
        for name, parameter in self.built.parameters.items():
            value = parameter.numpy()
            yield name, value.T if name in self.built.transposed else value

    def effective_threads(self) -> Optional[int]:
        """Return the most threads that one of its libraries uses: MKL for products, OpenMP for its own loops."""
        told = [count for count in (libraries.mkl_threads(), libraries.openmp_threads()) if count is not None]
        return max(told) if told else None

    def describe(self) -> Dict[str, Any]:
        """Return versions, libraries and execution settings."""
        return {
            "framework": "paddle",
            "version": paddle.__version__,
            "commit": paddle.version.commit,
            "blas": "MKL (MKLML)" if paddle.version.mkl() == "ON" else "OpenBLAS",
            "mkl_threads": libraries.mkl_threads(),
            "openmp_threads": libraries.openmp_threads(),
            "mkl_kernels": mkl_kernels.asked_for(),
            "onednn_built_in": bool(paddle.base.core.is_compiled_with_onednn()),
            "compiler_built_in": bool(paddle.is_compiled_with_cinn()),
            "allocator": paddle.get_flags("FLAGS_allocator_strategy")["FLAGS_allocator_strategy"],
            "execution": "dynamic graph",
            "recurrence": "fused",
            "optimizer": "paddle.optimizer.SGD",
            "image_layout": "NCHW",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        """Ask PaddlePaddle how it was built, for a gradient, and for its own data-parallel training."""
        gpu = bool(paddle.is_compiled_with_cuda() or paddle.is_compiled_with_rocm())
        value = paddle.to_tensor(3.0, stop_gradient=False)
        (value * value).backward()
        slope = float(value.grad)
        several = bool(paddle.distributed.is_available())
        return {
            "gpu": (gpu, "paddle.is_compiled_with_cuda() or paddle.is_compiled_with_rocm() is %s" % gpu),
            "automatic_gradients": slope_told(slope),
            "several_processes": (several, "paddle.distributed.is_available() is %s" % several),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a float32 matrix product."""
        left, right = map(paddle.to_tensor, factors(size))
        return lambda: paddle.matmul(left, right)

    def profile(self, steps: int) -> Optional[Profile]:
        """Run so many steps under paddle.profiler."""
        return profile.take(self, steps)


ADAPTER = PaddleAdapter
