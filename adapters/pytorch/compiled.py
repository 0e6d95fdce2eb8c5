"""The training step through torch.compile.

Without recurrence it is one graph of forward, backward and update. An LSTM would be unrolled over its steps in such a
graph: for lstm32 that took minutes to compile and about 1.4 times eager mode's CPU time a step, so there the LSTM
stays the operator of oneDNN that eager mode uses, and what surrounds it is compiled.
"""

import importlib.util
import os
import shutil
import sysconfig
from typing import Any, Dict, Union

import torch
from torch import nn

from .eager import EagerStep, Task
from .mixed import ScaledStep


def use_cache(directory: str) -> None:
    """Keep what the compiler makes in this directory, so that a later process finds it."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = directory


def refusal(on_cpu: bool) -> str:
    """Return why the compiler's back end for CPUs, or for GPUs, cannot work here; empty where it can."""
    if on_cpu:
        what, compilers, advice = "C++", [os.environ.get("CXX", "g++")], "install g++ or set CXX"
    else:
        if importlib.util.find_spec("triton") is None:
            return "torch.compile needs the package triton for GPUs, and this interpreter does not have it"
        capability = torch.cuda.get_device_capability(0)
        if capability < (7, 0):
            return "torch.compile needs compute capability 7.0, and this GPU has %d.%d" % tuple(capability)
        # Triton compiles a small C module for each kernel, which starts it.
        what, advice = "C", "install gcc or set CC"
        compilers = [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "clang"]
    if not any(shutil.which(compiler) for compiler in compilers):
        return "torch.compile needs a %s compiler, and %s is not found: %s" % (what, compilers[0], advice)
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    if not os.path.exists(header):
        return "torch.compile needs Python's headers, and %s is missing" % header
    return ""


def refuses_gradients() -> str:
    """Return why the compiler does not take a whole step, its gradients included, as one graph; empty where it does."""
    if hasattr(torch._dynamo.config, "trace_autograd_ops"):
        return ""
    return "torch.compile of PyTorch %s cannot trace gradients within a step" % torch.__version__


def make_step(task: Task) -> "Union[WholeStep, PiecewiseStep]":
    """Return the training step as one graph, or in pieces around recurrent layers."""
    recurrent = any(isinstance(part, nn.RNNBase) for part in task.module.modules())
    return PiecewiseStep(task) if recurrent else WholeStep(task)


class WholeStep:
    """Forward, loss, backward and SGD of one resident mini-batch, as one compiled function."""

    def __init__(self, task: Task) -> None:
        self.module = task.module
        self.trainable = task.trainable
        self.inputs = task.inputs
        self.labels = task.labels
        self.criterion = task.criterion
        self.clip = task.clip
        # A tensor, and not a number that the graph would hold as a constant: a new rate costs no compilation.
        self.rate = torch.zeros((), device=task.inputs.device)
        torch._dynamo.config.trace_autograd_ops = True
        self.function = torch.compile(self._step, fullgraph=True, dynamic=False)

    def _step(self, inputs: torch.Tensor, labels: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
        loss = self.criterion(self.module(inputs), labels)
        gradients = torch.autograd.grad(loss, self.trainable)
        if self.clip:
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in gradients]))
            rate = rate * torch.clamp(self.clip / norm, max=1.0)
        with torch.no_grad():
            for parameter, gradient in zip(self.trainable, gradients):
                parameter.sub_(rate * gradient)
        return loss.detach()

    def __call__(self) -> torch.Tensor:
        """Carry out one step; return its loss, a scalar still on the device."""
        return self.function(self.inputs, self.labels, self.rate)

    def forget(self) -> None:
        """Forget nothing: no step leaves anything but the parameters."""

    def set_learning_rate(self, rate: float) -> None:
        """Use this rate from the next step on."""
        self.rate.fill_(rate)

    def describe(self) -> Dict[str, Any]:
        """Name what was chosen."""
        return {"compiler": "inductor", "graph": "forward, backward and update in one"}


class CompiledLoss(EagerStep):
    """A step of PyTorch's optimiser whose loss, and the way back from it, is compiled."""

    graph = ""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.loss = torch.compile(self.loss, dynamic=False)  # type: ignore[method-assign]

    def describe(self) -> Dict[str, Any]:
        """Name what was chosen."""
        return dict(super().describe(), compiler="inductor", graph=self.graph)


class PiecewiseStep(CompiledLoss):
    """Eager mode's step whose loss is compiled in pieces: the graph breaks at recurrent layers."""

    graph = "forward and backward, in pieces around recurrent layers"


class ScaledPieces(CompiledLoss, ScaledStep):
    """The step with a scaled loss, forward and backward compiled: the scaling itself is driven by Python."""

    graph = "forward and backward"
