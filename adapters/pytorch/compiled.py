"""The training step through torch.compile.

Without recurrence it is one graph of forward, backward and update. An LSTM would be unrolled over its steps in such a
graph: for lstm32 that took minutes to compile and about 1.4 times eager mode's CPU time a step, so there the LSTM
stays the operator of oneDNN that eager mode uses, and what surrounds it is compiled.
"""

import os
import shutil
import sysconfig
from typing import Any, Dict, List, Tuple, Union

import torch
from torch import nn
from torch.nn import functional

from .eager import EagerStep


def use_cache(directory):
    # type: (str) -> None
    """Keep what the compiler makes in this directory, so that a later process finds it."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = directory


def available():
    # type: () -> Tuple[bool, str]
    """Return whether the compiler's back end for CPUs can work here, and if not, why."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return (
            False,
            "torch.compile needs a C++ compiler, and %s is not found: install g++ or set CXX" % compiler,
        )
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    if not os.path.exists(header):
        return False, "torch.compile needs Python's headers, and %s is missing" % header
    return True, ""


def make_step(module, trainable, inputs, labels, settings):
    # type: (nn.Module, List[nn.Parameter], torch.Tensor, torch.Tensor, Dict[str, Any]) -> Union[WholeStep, PiecewiseStep]
    """Return the training step as one graph, or in pieces around recurrent layers."""
    if any(isinstance(part, nn.RNNBase) for part in module.modules()):
        return PiecewiseStep(module, trainable, inputs, labels, settings)
    return WholeStep(module, trainable, inputs, labels)


class WholeStep:
    """Forward, softmax cross-entropy, backward and SGD of one resident mini-batch, as one compiled function."""

    def __init__(self, module, trainable, inputs, labels):
        # type: (nn.Module, List[nn.Parameter], torch.Tensor, torch.Tensor) -> None
        self.module = module
        self.trainable = trainable
        self.inputs = inputs
        self.labels = labels
        # A tensor, and not a number that the graph would hold as a constant: a new rate costs no compilation.
        self.rate = torch.zeros(())
        torch._dynamo.config.trace_autograd_ops = True
        self.function = torch.compile(self._step, fullgraph=True, dynamic=False)

    def _step(self, inputs, labels, rate):
        # type: (torch.Tensor, torch.Tensor, torch.Tensor) -> torch.Tensor
        loss = functional.cross_entropy(self.module(inputs), labels)
        gradients = torch.autograd.grad(loss, self.trainable)
        with torch.no_grad():
            for parameter, gradient in zip(self.trainable, gradients):
                parameter.sub_(rate * gradient)
        return loss.detach()

    def __call__(self):
        # type: () -> torch.Tensor
        """Carry out one step; return its loss, a scalar still on the device."""
        return self.function(self.inputs, self.labels, self.rate)

    def set_learning_rate(self, rate):
        # type: (float) -> None
        """Use this rate from the next step on."""
        self.rate.fill_(rate)

    def describe(self):
        # type: () -> Dict[str, Any]
        """Name what was chosen."""
        return {"compiler": "inductor", "graph": "forward, backward and update in one"}


class PiecewiseStep(EagerStep):
    """Eager mode's step whose loss is compiled in pieces: the graph breaks at recurrent layers."""

    def __init__(self, module, trainable, inputs, labels, settings):
        # type: (nn.Module, List[nn.Parameter], torch.Tensor, torch.Tensor, Dict[str, Any]) -> None
        super(PiecewiseStep, self).__init__(module, trainable, inputs, labels, settings)
        self.loss = torch.compile(self.loss, dynamic=False)  # type: ignore[method-assign]

    def describe(self):
        # type: () -> Dict[str, Any]
        """Name what was chosen."""
        described = super(PiecewiseStep, self).describe()
        described.update(compiler="inductor", graph="forward and backward, in pieces around recurrent layers")
        return described
