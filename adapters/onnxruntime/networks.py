"""Builds the networks of ``adapters/networks.py`` as forward ONNX graphs that end in the loss.

The weights are not in the graph: a parameter is an initializer of known shape without data, which the artifact
builder turns into an input of the training graph. Every parameter keeps its canonical name.
"""

import numpy as np
from onnx import ModelProto, TensorProto, helper

from ..libraries import onnx_graphs
from ..libraries.onnx_graphs import LOSS, add_logits
from ..networks import Network


class Graph(onnx_graphs.Graph):
    """A forward graph; ONNX Runtime derives the backward one."""

    # Old enough for ONNX Runtime 1.19, whose gradient builder has to know every operator of these networks.
    operator_set = 17
    ir_version = 8

    def normalise(self, name: str, value: str, channels: int, epsilon: float) -> str:
        """Add batch normalisation in training mode; its running statistics start at 0 and 1 and go nowhere."""
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
