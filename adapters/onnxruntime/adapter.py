"""ONNX Runtime's on-device training: a training graph and an SGD graph over one set of parameters."""

import importlib.util
import sys
import types
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np

# onnxruntime.training imports its mixed-precision optimisers for torch models, and they import torch: 700 MB that
# on-device training never calls. An empty module in their place suffices.
sys.modules.setdefault("onnxruntime.training.optim", types.ModuleType("onnxruntime.training.optim"))

import onnxruntime
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from ..launch.batches import Batch
from ..libraries import profiles
from ..libraries.onnx_graphs import feed, parameter_names, permute_gates
from ..libraries.onnx_sessions import SessionAdapter
from ..networks import Network
from ..protocol import Profile
from . import networks
from .networks import Graph, forward_model


class OnnxRuntimeAdapter(SessionAdapter):
    """Drives a training session and an optimizer session that share their parameters.

    Setting beside those of `SessionAdapter`: ``fused_loss``, one operator for softmax and cross-entropy (default), or
    LogSoftmax and a gather.
    """

    graph = Graph

    def refuses_gpu(self) -> str:
        words = "device %s: this ONNX Runtime %s has the execution providers %s, and is driven here on the CPU only"
        providers = ", ".join(onnxruntime.get_available_providers())
        return words % (self.cell.device, onnxruntime.__version__, providers)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.network = network
        self.batch_size = len(batch.inputs)
        self._open_sessions(weights, self.options)
        # Each OrtValue lies on its NumPy array: no copy, here or in the step.
        self.inputs = [self.value_of(array) for array in feed(network, batch)]
        self.loss: Any = None

    def _open_sessions(self, weights: Dict[str, np.ndarray], options: Any) -> None:
        """Make the sessions of a step, with parameters of these values."""
        fused_loss = bool(self.settings.get("fused_loss", True))
        model = forward_model(self.network, self.batch_size, fused_loss)
        with networks.temporary_directory(self.cache_directory) as directory:
            training, update, checkpoint = networks.generate_artifacts(model, directory, self.network.family.clip)
            self.state = CheckpointState.load_checkpoint(checkpoint)
            self.module = Module(training, self.state, None, "cpu", options)
            self._load(weights)
            if options.enable_profiling:
                # Named by the second they began in, the profiles of both sessions would be one file.
                options.profile_file_prefix += "-update"
            # Only now: an optimizer that met a checkpoint without values would fault.
            self.optimizer = Optimizer(update, self.module)

    def _load(self, weights: Dict[str, np.ndarray]) -> None:
        """Copy the weights into the parameters through one flat buffer, the way a nominal checkpoint takes them."""
        flat = np.concatenate(
            [permute_gates(self.network, name, weights[name]).reshape(-1) for name in parameter_names(self.network)]
        )
        value = onnxruntime.OrtValue.ortvalue_from_numpy(flat)
        self.module.copy_buffer_to_parameters(value._ortvalue, trainable_only=False)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        for name in parameter_names(self.network):
            held = permute_gates(self.network, name, weights[name])
            self.state.parameters[name] = np.ascontiguousarray(held)
        self.inputs = [self.value_of(array.copy()) for array in feed(self.network, batch)]

    def step(self) -> None:
        self.loss = self.module(*self.inputs)
        self.optimizer.step()
        self.module.lazy_reset_grad()

    def set_learning_rate(self, rate: float) -> None:
        self.optimizer.set_learning_rate(rate)

    def last_loss(self) -> float:
        return float(self.loss.numpy())

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name in parameter_names(self.network):
            yield name, permute_gates(self.network, name, self.state.parameters[name].data)

    def describe(self) -> Dict[str, Any]:
        return dict(super().describe(), framework="onnxruntime-training-cpu")

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        providers = onnxruntime.get_available_providers()
        gradients = importlib.util.find_spec("onnxruntime.training.artifacts") is not None
        gpu = any(name.startswith(("CUDA", "ROCM", "MIGraphX", "Tensorrt")) for name in providers)
        artifacts = "onnxruntime.training.artifacts is %s" % ("there" if gradients else "missing")
        return {
            "gpu": (gpu, "execution providers: %s" % ", ".join(providers)),
            "automatic_gradients": (gradients, artifacts),
        }

    def profile(self, steps: int) -> Optional[Profile]:
        kept = self.state, self.module, self.optimizer
        weights = dict(self.parameters())

        def close_sessions() -> None:
            self.state, self.module, self.optimizer = kept

        try:
            return profiles.take_onnx_profile(
                self, lambda options: self._open_sessions(weights, options), close_sessions, steps
            )
        finally:
            close_sessions()


ADAPTER = OnnxRuntimeAdapter
