"""The training step: eager, scaled, compiled, as a CUDA graph, and among several workers."""

import datetime
import importlib
import importlib.util
import mmap
import os
import shutil
import statistics
import sys
import sysconfig
import types
from collections import Counter
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..base import Unsupported
from ..launch.batches import Batch, Block, RmsProp
from ..libraries.gpus import first_line

#: By a family's ``loss``. A loss takes outputs and labels and is a mean over all of them.
LOSSES: Dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross_entropy": functional.cross_entropy,
    "squares": functional.mse_loss,
}


class _NoCompiler(types.ModuleType):
    """A stand-in for ``torch._dynamo`` in a process that compiles nothing.

    It loads the real one on any further use.
    """

    @staticmethod
    def disable(function: Any, *_: Any, **__: Any) -> Any:
        return function

    @staticmethod
    def graph_break(_: str = "") -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        # Python itself asks every module for such names.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
            # in no older version
            setattr(torch, "_dynamo", importlib.import_module(self.__name__))  # noqa: B010
        return getattr(sys.modules[self.__name__], name)


def leave_out_compiler() -> None:
    """Skip the import of torch.compile in this process, which takes as long as PyTorch's own.

    Optimizers import it only to exclude themselves from tracing. Without it a step is some
    microseconds shorter, so use this only for steps of milliseconds.
    """
    name = "torch._dynamo"
    if name not in sys.modules:
        sys.modules[name] = _NoCompiler(name)
        setattr(torch, "_dynamo", sys.modules[name])  # noqa: B010 - in no older version


class EagerStep:
    """Forward, loss, backward and SGD of one resident mini-batch, as ordinary PyTorch.

    ``fused``: one operator updates all parameters. ``clip`` is the largest norm of all gradients
    together (0: none).
    """

    def __init__(
        self,
        module: nn.Module,
        trainable: List[nn.Parameter],
        inputs: torch.Tensor,
        labels: torch.Tensor,
        fused: bool,
        criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        clip: float,
    ) -> None:
        self.module = module
        self.trainable = trainable
        self.inputs = inputs
        self.labels = labels
        self.criterion = criterion
        self.clip = clip
        if fused:
            self.optimizer = torch.optim.SGD(trainable, lr=0.0, foreach=False, fused=True)
        else:
            # PyTorch's choice for the parameters' device.
            self.optimizer = torch.optim.SGD(trainable, lr=0.0)
        #: The choices, for the description.
        self.choices: Dict[str, Any] = {"optimizer": "SGD (%s)" % ("fused" if fused else "usual")}

    def loss(self) -> torch.Tensor:
        return self.criterion(self.module(self.inputs), self.labels)

    def __call__(self) -> torch.Tensor:
        """Run one step; return its loss, a scalar still on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss()
        loss.backward()
        if self.clip:
            # The norm is never read on the host.
            nn.utils.clip_grad_norm_(self.trainable, self.clip, foreach=True)
        self.optimizer.step()
        return loss.detach()

    def forget(self) -> None:
        """Forget earlier steps' findings.

        Gradients are made anew by each step, and plain SGD keeps nothing.
        """

    def set_learning_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def describe(self) -> Dict[str, Any]:
        return self.choices


class ForwardPass:
    """The forward pass of a module in evaluation mode, in PyTorch's inference mode.

    Its outputs are float32. At a precision of 16 bits weights are converted once, and inputs in
    each pass.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        dtype: torch.dtype,
        compiles: bool,
    ) -> None:
        module.eval().requires_grad_(False)
        self.inputs = inputs
        self.labels = labels
        self._narrow = dtype if dtype != torch.float32 else None
        if self._narrow is not None:
            module.to(self._narrow)
        self.module: Any = torch.compile(module, dynamic=False) if compiles else module

    def __call__(self) -> torch.Tensor:
        with torch.inference_mode():
            if self._narrow is None:
                outputs: torch.Tensor = self.module(self.inputs)
                return outputs
            inputs = (
                self.inputs.to(self._narrow) if self.inputs.is_floating_point() else self.inputs
            )
            narrow: torch.Tensor = self.module(inputs)
            return narrow.float()

    def forget(self) -> None:
        """Do nothing: nothing is left from one pass to the next."""

    def describe(self) -> Dict[str, Any]:
        return {"gradients": "inference_mode"}


class Narrowed(nn.Module):
    """A module whose operators run in the data type that autocast gives each of them.

    Its logits are float32. ``kept``: a weight is cast once a step. Not inside a CUDA graph, whose
    casts must all be in the graph.
    """

    def __init__(
        self, module: nn.Module, device_type: str, dtype: torch.dtype, kept: bool = True
    ) -> None:
        super().__init__()
        self.module = module
        self.device_type = device_type
        self.dtype = dtype
        self.kept = kept

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device_type, dtype=self.dtype, cache_enabled=self.kept):
            logits = self.module(inputs)
        return logits.float()


class ScaledStep(EagerStep):
    """Eager mode's step in float16: the loss is scaled up, lest small gradients become zero.

    Where a scaled gradient overflows, the step changes nothing and the scale is halved. Both stay
    on the device.
    """

    def __init__(self, *task: Any) -> None:
        super().__init__(*task)
        self.scaler = torch.amp.GradScaler(self.inputs.device.type)
        self.first_scale = self.scaler.state_dict()

    def __call__(self) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss()
        self.scaler.scale(loss).backward()
        if self.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.trainable, self.clip, foreach=True)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def forget(self) -> None:
        self.scaler.load_state_dict(self.first_scale)

    def describe(self) -> Dict[str, Any]:
        scale = float(self.scaler.get_scale())
        return dict(self.choices, loss_scaling="torch.amp.GradScaler", loss_scale=scale)


# The training step through torch.compile.
#
# Without recurrence it is one graph of forward, backward and update. An LSTM would be unrolled over
# its steps in such a graph: for lstm32 that took minutes to compile and about 1.4 times eager
# mode's CPU time a step, so there the LSTM stays the operator of oneDNN that eager mode uses, and
# the rest is compiled.


def compiler_refusal(on_cpu: bool) -> str:
    """Return why the compiler's back end cannot work on this machine; empty where it can."""
    if on_cpu:
        language = "C++"
        compilers = [os.environ.get("CXX", "g++")]
        advice = "install g++ or set CXX"
    else:
        if importlib.util.find_spec("triton") is None:
            return (
                "torch.compile needs the package triton for GPUs, and this interpreter does not "
                "have it"
            )
        capability = torch.cuda.get_device_capability(0)
        if capability < (7, 0):
            words = "torch.compile needs compute capability 7.0, and this GPU has %d.%d"
            return words % tuple(capability)
        # Triton compiles a small C module for each kernel, which starts it.
        language = "C"
        advice = "install gcc or set CC"
        compilers = [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "clang"]
    if not any(shutil.which(compiler) for compiler in compilers):
        words = "torch.compile needs a %s compiler, and %s is not found: %s"
        return words % (language, compilers[0], advice)
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    if not os.path.exists(header):
        return "torch.compile needs Python's headers, and %s is missing" % header
    return ""


def compiled(step: EagerStep, graph: str) -> EagerStep:
    """Have the step's loss, and the way back from it, compiled.

    Python drives the rest.
    """
    step.loss = torch.compile(step.loss, dynamic=False)  # type: ignore[method-assign]
    step.choices.update(compiler="inductor", graph=graph)
    return step


def compiled_step(module: nn.Module, *task: Any) -> EagerStep:
    """Return the training step as one graph.

    Around recurrent layers the graph breaks, and the step is in pieces.
    """
    if any(isinstance(part, nn.RNNBase) for part in module.modules()):
        words = "forward and backward, in pieces around recurrent layers"
        return compiled(EagerStep(module, *task), words)
    return WholeStep(module, *task)


def compiled_scaled_step(*task: Any) -> EagerStep:
    """Return the training step in float16, its loss and the way back from it compiled."""
    return compiled(ScaledStep(*task), "forward and backward")


class WholeStep(EagerStep):
    """Forward, loss, backward and SGD of one resident mini-batch, as one compiled function."""

    def __init__(self, *task: Any) -> None:
        super().__init__(*task)
        # A tensor, and not a number that the graph would hold as a constant: a new rate costs no
        # compilation.
        self.rate = torch.zeros((), device=self.inputs.device)
        torch._dynamo.config.trace_autograd_ops = True
        self.function = torch.compile(self._step, fullgraph=True, dynamic=False)
        self.choices = {"compiler": "inductor", "graph": "forward, backward and update in one"}

    def _step(self, inputs: torch.Tensor, labels: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
        loss = self.criterion(self.module(inputs), labels)
        gradients = torch.autograd.grad(loss, self.trainable)
        if self.clip:
            norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
            norm = torch.linalg.vector_norm(torch.stack(norms))
            rate = rate * torch.clamp(self.clip / norm, max=1.0)
        with torch.no_grad():
            for parameter, gradient in zip(self.trainable, gradients):
                parameter.sub_(rate * gradient)
        return loss.detach()

    def __call__(self) -> torch.Tensor:
        return self.function(self.inputs, self.labels, self.rate)

    def set_learning_rate(self, rate: float) -> None:
        self.rate.fill_(rate)


# The training step as one CUDA graph: captured once, then started as a whole.
#
# For a network of many small operators, starting each of them costs more than computing it. A graph
# has them in it already, with the addresses of their arguments: mini-batch, parameters and learning
# rate stay where they are.

WARM_UP_STEPS = 3


def run_aside(work: Callable[[], object], times: int = 1) -> None:
    """Run on a stream aside, as PyTorch's documentation asks before a capture.

    Libraries try their kernels out.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(aside)


def captured(work: Callable[[], torch.Tensor]) -> Tuple[Any, torch.Tensor, int]:
    """Return the CUDA graph of this work, its result, and the bytes it takes.

    Raises Unsupported.
    """
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            result = work()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise Unsupported("a CUDA graph cannot hold this step: %s" % first_line(error)) from error
    # A graph's own memory counts as free once it is captured, though every replay uses it.
    return graph, result, int(torch.cuda.max_memory_allocated())


class GraphStep(EagerStep):
    """Forward, softmax cross-entropy, backward and SGD of one mini-batch, in one CUDA graph."""

    def __init__(self, *task: Any) -> None:
        super().__init__(*task)
        # A tensor, and not a number that the graph would hold as a constant.
        self.rate = torch.zeros((), device=self.inputs.device)
        self.optimizer = torch.optim.SGD(self.trainable, lr=self.rate, fused=True)
        self.choices = {
            "optimizer": "SGD (fused, its rate on the device)",
            "graph": "the whole step in one CUDA graph",
        }
        self.graph: Any = None
        self.captured_bytes = 0

    def __call__(self) -> torch.Tensor:
        if self.graph is None:
            self._capture()
        self.graph.replay()
        return self.captured_loss

    def _capture(self) -> None:
        """Capture a step. The steps that warm up run at rate 0, so that no parameter changes."""
        wanted = self.rate.clone()
        self.rate.zero_()
        run_aside(super().__call__, WARM_UP_STEPS)
        self.rate.copy_(wanted)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph, self.captured_loss, self.captured_bytes = captured(super().__call__)

    def set_learning_rate(self, rate: float) -> None:
        self.rate.fill_(rate)


def training_losses(
    step: EagerStep, place: Callable[[Batch], None], blocks: Iterable[Block], update: RmsProp
) -> Iterator[List[float]]:
    """Train on mini-batches that ``place`` puts where ``step`` reads them.

    Yield each block's losses.
    """
    optimizer = torch.optim.RMSprop(
        step.trainable, lr=0.0, alpha=update.decay, eps=update.epsilon, foreach=True
    )
    for block in blocks:
        for group in optimizer.param_groups:
            group["lr"] = block.rate
        losses = []
        for batch in block.batches:
            place(batch)
            optimizer.zero_grad(set_to_none=True)
            loss = step.loss()
            loss.backward()
            nn.utils.clip_grad_norm_(step.trainable, update.clip, foreach=True)
            optimizer.step()
            losses.append(loss.detach())
        yield [float(loss) for loss in torch.stack(losses).cpu()]


# Data-parallel training. Where workers exchange at every step it is that of PyTorch's own engine,
# DistributedDataParallel: over NCCL on GPUs, gloo on the CPU.
#
# Every worker is a process, as torchrun would start it; they find one another by a file, so no port
# is taken. Gradients are averaged while the backward pass still runs. Batch normalisation uses each
# worker's own part of the mini-batch, as DistributedDataParallel does by default.

#: A worker that waits longer for another gives up.
PATIENCE = datetime.timedelta(minutes=10)


def backend(on_cpu: bool) -> str:
    """Return the engine that carries the gradients."""
    return "gloo" if on_cpu else "nccl"


def workers_refusal(on_cpu: bool) -> str:
    """Return why this build of PyTorch cannot train with several workers; empty where it can."""
    name = backend(on_cpu)
    distributed = torch.distributed
    if distributed.is_available() and getattr(distributed, "is_%s_available" % name)():
        return ""
    return "PyTorch %s: this build has no %s, which its workers need" % (torch.__version__, name)


def join_workers(on_cpu: bool, worker: int, workers: int, meeting: str) -> None:
    """Wait until all workers of this machine have met."""
    # Otherwise gloo looks up the machine's name, which may not resolve in a container.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    options: Dict[str, Any] = {} if on_cpu else {"device_id": torch.device("cuda:0")}
    torch.distributed.init_process_group(
        backend(on_cpu),
        init_method="file://" + meeting,
        rank=worker,
        world_size=workers,
        timeout=PATIENCE,
        **options,
    )


def describe_workers(on_cpu: bool, engine: str) -> Dict[str, Any]:
    """Return the engine, and the library that carries its messages."""
    nccl = {} if on_cpu else {"nccl": ".".join(str(part) for part in torch.cuda.nccl.version())}
    return {"engine": engine, "backend": backend(on_cpu), **nccl}


# Workers that exchange less often, or without waiting. Each one's parameters are contiguous in one
# flat tensor.

#: In numbers: each parameter begins on a cache line.
_ALIGNED = 16


def _room(parameter: torch.Tensor) -> int:
    return -(-parameter.numel() // _ALIGNED) * _ALIGNED


def move_into(flat: torch.Tensor, parameters: Iterable[nn.Parameter]) -> None:
    """Move these parameters into a flat tensor, one after another.

    Each keeps its own order in memory.
    """
    start = 0
    for parameter in parameters:
        place = flat.as_strided(parameter.size(), parameter.stride(), start)
        place.copy_(parameter.detach())
        parameter.data = place
        start += _room(parameter)


class LocalStep(EagerStep):
    """A worker's step on its own parameters; after ``every`` steps all workers average theirs."""

    engine = "all_reduce of the parameters"

    def __init__(self, *task: Any, every: int) -> None:
        super().__init__(*task)
        self.every = every
        self.workers = torch.distributed.get_world_size()
        self.flat = torch.zeros(sum(map(_room, self.trainable)), device=self.inputs.device)
        move_into(self.flat, self.trainable)
        self.taken = 0  # since the last reset

    def __call__(self) -> torch.Tensor:
        loss = super().__call__()
        self.taken += 1
        if self.taken % self.every == 0:
            torch.distributed.all_reduce(self.flat)
            self.flat.div_(self.workers)
        return loss

    def forget(self) -> None:
        self.taken = 0


def shared_memory(size: int) -> mmap.mmap:
    """Return zeros that all workers share, without a file that could be left behind."""
    first = torch.distributed.get_rank() == 0
    descriptor = os.memfd_create("parameters") if first else -1
    if first:
        os.ftruncate(descriptor, size)
    paths = ["/proc/%d/fd/%d" % (os.getpid(), descriptor)]
    torch.distributed.broadcast_object_list(paths)
    if not first:
        descriptor = os.open(paths[0], os.O_RDWR)
    memory = mmap.mmap(descriptor, size)
    # The first worker's descriptor is the way to it for all others.
    torch.distributed.barrier()
    os.close(descriptor)
    return memory


class SharedStep(EagerStep):
    """A worker's step on parameters that all workers share and change without a lock.

    This is Hogwild (Niu et al. 2011). Each reads them while others write, and adds its own update
    when it has one, at the rate divided by the number of workers, since one mini-batch yields that
    many updates. A step's staleness is the number of updates that others made between its first
    read and its own update.
    """

    engine = "shared memory, without locks (Hogwild)"

    def __init__(self, *task: Any) -> None:
        super().__init__(*task)
        self.worker = torch.distributed.get_rank()
        self.workers = torch.distributed.get_world_size()
        numbers = sum(map(_room, self.trainable))
        memory = shared_memory(4 * numbers + 8 * self.workers)
        # All workers put the same weights there.
        move_into(torch.frombuffer(memory, dtype=torch.float32, count=numbers), self.trainable)
        #: The updates that each worker has made.
        self.updates = np.frombuffer(memory, np.int64, self.workers, 4 * numbers)
        self.stale: "Counter[int]" = Counter()
        self.counted = self.stale
        torch.distributed.barrier()

    def __call__(self) -> torch.Tensor:
        before = int(self.updates.sum())
        loss = super().__call__()
        self.counted[int(self.updates.sum()) - before] += 1
        self.updates[self.worker] += 1
        return loss

    def set_learning_rate(self, rate: float) -> None:
        super().set_learning_rate(rate / self.workers)

    def forget(self) -> None:
        """Wait for the others, which put the same weights in place.

        The following steps are not counted. They are single steps, and between them all workers
        wait.
        """
        self.counted = Counter()
        torch.distributed.barrier()

    def staleness(self) -> Dict[str, Any]:
        """Return the median and the maximum over this worker's steps before the parity check."""
        counts = sorted(self.stale.elements())
        if not counts:
            return {}
        median = statistics.median(counts)
        return {"median": median, "maximum": counts[-1], "steps": len(counts)}
