"""ONNX Runtime's on-device training: a training graph and an SGD graph over one set of
parameters.
"""

import contextlib
import importlib.util
import os
import sys
import tempfile
import types
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np

# onnxruntime.training imports its mixed-precision optimisers for torch models, and they import
# torch: 700 MB that on-device training never calls. An empty module in their place suffices.
sys.modules.setdefault("onnxruntime.training.optim", types.ModuleType("onnxruntime.training.optim"))

import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper
from onnxruntime.training import onnxblock
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from ..launch.batches import Batch, in_rows
from ..libraries import onnx_graphs, profiles
from ..libraries.onnx_graphs import LOSS, add_logits, parameter_names, permute_gates
from ..libraries.onnx_sessions import SessionAdapter
from ..networks import Network
from ..protocol import Profile


class RuntimeGraph(onnx_graphs.OnnxGraph):
    """A forward graph; ONNX Runtime derives the backward one."""

    # Old enough for ONNX Runtime 1.19, whose gradient builder has to know every operator of these
    # networks.
    operator_set = 17
    ir_version = 8

    def normalise(self, name: str, value: str, channels: int, epsilon: float) -> str:
        mean = self.constant("running_mean:%d" % channels, np.zeros(channels, dtype=np.float32))
        variance = self.constant(
            "running_variance:%d" % channels, np.ones(channels, dtype=np.float32)
        )
        inputs = [value, name + ".gamma", name + ".beta", mean, variance]
        outputs = [name, name + ":mean", name + ":variance"]
        return self.several(
            "BatchNormalization", inputs, outputs, epsilon=epsilon, training_mode=1
        )[0]

    def loss(self, logits: str, fused: bool) -> str:
        """Add the mean softmax cross-entropy, as one operator or as LogSoftmax and a gather."""
        if fused:
            outputs = [LOSS, "log_probabilities"]
            return self.several(
                "SoftmaxCrossEntropyLoss", [logits, "labels"], outputs, reduction="mean"
            )[0]
        every = self.node("LogSoftmax", [logits], axis=1)
        rows = self.node("Unsqueeze", ["labels", self.integers(1)])
        picked = self.node("GatherElements", [every, rows], axis=1)
        return self.node("Neg", [self.node("ReduceMean", [picked], keepdims=0)], LOSS)

    def model(self) -> ModelProto:
        """Return the model, to whose gradient ONNX Runtime's own operators will belong."""
        model = super().model()
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return model


def forward_model(network: Network, batch_size: int, fused_loss: bool = True) -> ModelProto:
    """Return the graph from ``inputs`` and ``labels`` to ``loss`` for mini-batches of this size."""
    graph = RuntimeGraph()
    for parameter in network.family.parameters():
        tensor = TensorProto(name=parameter.name, data_type=TensorProto.FLOAT, dims=parameter.shape)
        graph.constants[parameter.name] = tensor
    logits, _ = add_logits(graph, network, batch_size)
    if network.family.loss == "squares":
        errors = graph.node("Sub", [logits, "labels"])
        graph.node("ReduceMean", [graph.node("Mul", [errors, errors])], LOSS, keepdims=0)
        graph.output(LOSS, ())
    else:
        graph.output(graph.loss(logits, fused_loss), ())
    return graph.model()


# The files that ONNX Runtime trains from, made of a forward graph.
#
# ``onnxruntime.training.artifacts.generate_artifacts`` wants the weights inside the model, and
# copies, checks and serialises them several times: most of a minute for a hundred million of them.
# The blocks it is made of need only their shapes, and take hundredths of a second; so nothing is
# kept from launch to launch, and no stale or half-written file can be met.


class _Training(onnxblock.TrainingBlock):
    """The loss is in the graph already: name it."""

    def build(self) -> str:
        return LOSS


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the gradient builder's log, which no severity setting reaches, from standard error."""
    sys.stderr.flush()
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def generate_artifacts(model: ModelProto, directory: str, clip: float = 0.0) -> Tuple[str, ...]:
    """Write the artifacts of a forward model into this directory; parameters are its initializers
    without data.

    Beyond 0 ``clip`` is the largest norm of all gradients together. Returned are the files of the
    training model (forward and backward; it adds to the gradient buffers), of the optimizer model
    (plain SGD), and of the checkpoint (names, types and shapes of the parameters, no values:
    "nominal").
    """
    block = _Training()
    for initializer in model.graph.initializer:
        if not initializer.raw_data:
            block.requires_grad(initializer.name)
    with onnxblock.base(model), _silence():
        block()
        training_model, _ = block.to_model_proto()  # the other is for evaluation
        parameters = block.parameters()
    optimizer = onnxblock.optim.SGD(clip_grad=onnxblock.optim.ClipGradNorm(clip) if clip else None)
    with onnxblock.empty_base(opset_version=RuntimeGraph.operator_set):
        optimizer(parameters)
        optimizer_model = optimizer.to_model_proto()
    files = tuple(
        os.path.join(directory, name) for name in ("training.onnx", "sgd.onnx", "checkpoint")
    )
    onnx.save(training_model, files[0])
    onnx.save(optimizer_model, files[1])
    onnxblock.save_checkpoint(parameters, files[2], nominal_checkpoint=True)
    return files


class OnnxRuntimeAdapter(SessionAdapter):
    """Drives a training session and an optimizer session that share their parameters.

    Setting beside those of `SessionAdapter`: ``fused_loss``, one operator for softmax and
    cross-entropy (default), or LogSoftmax and a gather.
    """

    graph = RuntimeGraph

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.network = network
        self.batch_size = len(batch.inputs)
        self._open_sessions(weights, self.options)
        # Each OrtValue lies on its NumPy array: no copy, here or in the step.
        self.inputs = [self.value_of(array) for array in in_rows(network.family, batch, np.int64)]
        self.loss: Any = None

    def _open_sessions(self, weights: Dict[str, np.ndarray], options: Any) -> None:
        """Make the sessions of a step, with parameters of these values."""
        fused_loss = bool(self.settings.get("fused_loss", True))
        model = forward_model(self.network, self.batch_size, fused_loss)
        os.makedirs(self.cache_directory, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix="onnxruntime-", dir=self.cache_directory
        ) as directory:
            training, update, checkpoint = generate_artifacts(
                model, directory, self.network.family.clip
            )
            self.state = CheckpointState.load_checkpoint(checkpoint)
            self.module = Module(training, self.state, None, "cpu", options)
            self._load(weights)
            if options.enable_profiling:
                # Named by the second they began in, the profiles of both sessions would be one
                # file.
                options.profile_file_prefix += "-update"
            # Only now: an optimizer that met a checkpoint without values would fault.
            self.optimizer = Optimizer(update, self.module)

    def _load(self, weights: Dict[str, np.ndarray]) -> None:
        """Copy the weights into the parameters, which a nominal checkpoint makes from one flat
        buffer only.

        That one holds zeros: pages that were never written to take no memory, and no time.
        """
        flat = np.zeros(sum(value.size for value in weights.values()), np.float32)
        value = onnxruntime.OrtValue.ortvalue_from_numpy(flat)
        self.module.copy_buffer_to_parameters(value._ortvalue, trainable_only=False)
        self._set(weights)

    def _set(self, weights: Mapping[str, np.ndarray]) -> None:
        for name in parameter_names(self.network):
            held = permute_gates(self.network, name, weights[name])
            self.state.parameters[name] = np.ascontiguousarray(held)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        self._set(weights)
        self.inputs = [
            self.value_of(array) for array in in_rows(self.network.family, batch, np.int64)
        ]

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
        if self.cell.infers:
            return self.profile_inference(steps)
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
