"""Networks as forward ONNX graphs that end in the loss.

The weights are not in the graph: a parameter is an initializer of known shape without data, which the artifact
builder turns into an input of the training graph. Every parameter keeps its canonical name.
"""

import contextlib
import os
import sys
import tempfile
from typing import Iterator, Tuple

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper
from onnxruntime.training import onnxblock

from ..libraries import onnx_graphs
from ..libraries.onnx_graphs import LOSS, add_logits
from ..networks import Network


class Graph(onnx_graphs.Graph):
    """A forward graph; ONNX Runtime derives the backward one."""

    # Old enough for ONNX Runtime 1.19, whose gradient builder has to know every operator of these networks.
    operator_set = 17
    ir_version = 8

    def normalise(self, name: str, value: str, channels: int, epsilon: float) -> str:
        mean = self.constant("running_mean:%d" % channels, np.zeros(channels, dtype=np.float32))
        variance = self.constant("running_variance:%d" % channels, np.ones(channels, dtype=np.float32))
        inputs = [value, name + ".gamma", name + ".beta", mean, variance]
        outputs = [name, name + ":mean", name + ":variance"]
        return self.several("BatchNormalization", inputs, outputs, epsilon=epsilon, training_mode=1)[0]

    def loss(self, logits: str, fused: bool) -> str:
        """Add the mean softmax cross-entropy, as one operator or as LogSoftmax and a gather."""
        if fused:
            outputs = [LOSS, "log_probabilities"]
            return self.several("SoftmaxCrossEntropyLoss", [logits, "labels"], outputs, reduction="mean")[0]
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
    graph = Graph()
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
# ``onnxruntime.training.artifacts.generate_artifacts`` wants the weights inside the model, and copies, checks and
# serialises them several times: most of a minute for a hundred million of them. The blocks it is made of need only
# their shapes, and take hundredths of a second; so nothing is kept from launch to launch, and no stale or half-written
# file can be met.


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
    """Write the artifacts of a forward model into this directory; parameters are its initializers without data.

    Beyond 0 ``clip`` is the largest norm of all gradients together. Returned are the files of the training model
    (forward and backward; it adds to the gradient buffers), of the optimizer model (plain SGD), and of the checkpoint
    (names, types and shapes of the parameters, no values: "nominal").
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
    with onnxblock.empty_base(opset_version=Graph.operator_set):
        optimizer(parameters)
        optimizer_model = optimizer.to_model_proto()
    files = tuple(os.path.join(directory, name) for name in ("training.onnx", "sgd.onnx", "checkpoint"))
    onnx.save(training_model, files[0])
    onnx.save(optimizer_model, files[1])
    onnxblock.save_checkpoint(parameters, files[2], nominal_checkpoint=True)
    return files


def temporary_directory(parent: str) -> "tempfile.TemporaryDirectory[str]":
    """Return a directory of this launch's own below ``parent``, removed when left."""
    os.makedirs(parent, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="onnxruntime-", dir=parent)
