"""Turns a forward graph into the files that ONNX Runtime trains from.

``onnxruntime.training.artifacts.generate_artifacts`` wants the weights inside the model, and copies, checks and
serialises them several times: most of a minute for a hundred million of them. The blocks it is made of need only
their shapes, and take hundredths of a second; so nothing is kept from launch to launch, and no stale or half-written
file can be met.
"""

import os
import sys
import tempfile
from typing import NamedTuple

import onnx
from onnx import ModelProto
from onnxruntime.training import onnxblock

from ..libraries.onnx_graphs import LOSS
from .networks import Graph


class Artifacts(NamedTuple):
    """Files that ONNX Runtime trains from."""

    training_model: str  # forward and backward graph; adds to the gradient buffers
    optimizer_model: str  # plain SGD
    checkpoint: str  # names, types and shapes of the parameters; no values ("nominal")


class _Training(onnxblock.TrainingBlock):
    """The loss is in the graph already: name it."""

    def build(self) -> str:
        return LOSS


class _Silence:
    """Keeps the gradient builder's log, which no severity setting reaches, from standard error."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._kept = os.dup(2)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)

    def __exit__(self, *exception: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)


def generate(model: ModelProto, directory: str, clip: float = 0.0) -> Artifacts:
    """Write the artifacts of a forward model into this directory; parameters are its initializers without data.

    Beyond 0 ``clip`` is the largest norm of all gradients together.
    """
    block = _Training()
    for initializer in model.graph.initializer:
        if not initializer.raw_data:
            block.requires_grad(initializer.name)
    with onnxblock.base(model), _Silence():
        block()
        training_model, _ = block.to_model_proto()  # the other is for evaluation
        parameters = block.parameters()
    optimizer = onnxblock.optim.SGD(clip_grad=onnxblock.optim.ClipGradNorm(clip) if clip else None)
    with onnxblock.empty_base(opset_version=Graph.operator_set):
        optimizer(parameters)
        optimizer_model = optimizer.to_model_proto()
    names = ("training.onnx", "sgd.onnx", "checkpoint")
    files = Artifacts(*(os.path.join(directory, name) for name in names))
    onnx.save(training_model, files.training_model)
    onnx.save(optimizer_model, files.optimizer_model)
    onnxblock.save_checkpoint(parameters, files.checkpoint, nominal_checkpoint=True)
    return files


def temporary_directory(parent: str) -> "tempfile.TemporaryDirectory[str]":
    """Return a directory of this launch's own below ``parent``, removed when left."""
    os.makedirs(parent, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="onnxruntime-", dir=parent)
