"""The training step through torch.compile: one graph of forward, backward and update."""

import os
import shutil
import sysconfig
from typing import Any, Dict, List, Tuple

import torch
from torch import nn
from torch.nn import functional


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


class CompiledStep:
    """Forward, softmax cross-entropy, backward and SGD of one resident mini-batch, as one compiled function."""

    def __init__(self, module, trainable, inputs, labels, settings):
        # type: (nn.Module, List[nn.Parameter], torch.Tensor, torch.Tensor, Dict[str, Any]) -> None
        self.module = module
        self.trainable = trainable
        self.inputs = inputs
        self.labels = labels
        # A tensor, and not a number that the graph would hold as a constant: a new rate costs no compilation.
        self.rate = torch.zeros(())
        torch._dynamo.config.trace_autograd_ops = True
        torch._dynamo.config.allow_rnn = True
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
