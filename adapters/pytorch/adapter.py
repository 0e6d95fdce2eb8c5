"""PyTorch on the CPU and on CUDA GPUs.

Settings of a mode (framework.toml says which were measured to be best on the CPU, and by how much):

``compile``  the training step goes through torch.compile (default false)
``graph``  the training step is one CUDA graph (default false; GPUs only)
``optimizer``  how eager mode updates: "usual" (default: PyTorch chooses), "fused", "foreach" or "single"
``channels_last``  convolutional networks keep their images in NHWC memory order (default true)
``dense``  who multiplies in fully connected layers: "mkl", PyTorch's own choice (default), or "onednn"
``recurrence``  simple recurrent layers (Elman): "fused", PyTorch's own where it has one (default), or "loop"
``flush_denormal``  denormal numbers count as zero (default false)
"""

import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import torch

from ..base import PROCESSES, Adapter, slope_told
from ..families import CELLS, Elman, Family, Recurrent
from ..launch.batches import Batch
from ..libraries.device_ceilings import OPERATOR, Probe
from ..networks import Network
from ..protocol import Cell, Profile
from ..texts.mini_batches import Block, RmsProp
from . import ceilings, compiled, cuda, eager, elman, graphs, mixed, onednn, parallel, profile, training
from .networks import build, load, plain_dense
from .placement import Feed, copy_of, tensors_of


class TorchAdapter(Adapter):
    """Trains with PyTorch: eagerly, through torch.compile or as a CUDA graph.

    Float32 on the CPU runs as if there were nothing else: no module is wrapped, and nothing asked in a step.
    """

    families = (*Adapter.families, "elman", "attention")
    cells = tuple(CELLS)
    one_hot = True
    precisions = ("float32", "bfloat16")
    data_parallel = PROCESSES

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        if cell.threads:
            torch.set_num_threads(cell.threads)
        # Nothing here runs operations side by side; the pool would only be threads without work.
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)
        torch.set_flush_denormal(bool(settings.get("flush_denormal", False)))
        self.compiles = bool(settings.get("compile", False))
        self.graphs = bool(settings.get("graph", False))
        if cell.on_cpu and self.compiles:
            compiled.use_cache(self._compilers_folder())
        if not cell.on_cpu:
            cuda.set_up(cell.precision)
            self.synchronize = torch.cuda.synchronize  # type: ignore[method-assign]
        self.dense = settings.get("dense", "mkl")
        if self.dense not in ("mkl", "onednn"):
            raise ValueError("dense %r is neither mkl nor onednn" % self.dense)
        self._loop = settings.get("recurrence", "fused") == "loop"
        #: The order in which image tensors, and the weights of convolutions, lie in memory.
        self._images = torch.channels_last if settings.get("channels_last", False) else torch.contiguous_format
        self._parameters: Dict[str, torch.nn.Parameter] = {}
        self._loss = torch.zeros(())

    def _compilers_folder(self) -> str:
        return os.path.join(self.cache_directory, "torch-" + torch.__version__)

    def refuses_gpu(self) -> str:
        """Decline what this build or this GPU cannot do."""
        return cuda.refusal(self.cell)

    def supports(self, network: Network) -> Tuple[bool, str]:
        """Decline what this build, this GPU or this mode cannot do."""
        recurrent, precision = self._has_operator(network.family), self.cell.precision
        reason = super().supports(network)[1]
        if not reason and precision != "float32" and recurrent:
            cell = network.family.cell if isinstance(network.family, Recurrent) else "lstm"
            reason = cuda.recurrent_refusal(precision, "cpu" if self.cell.on_cpu else cuda.DEVICE, cell)
        reason = reason or self._against_mode() or self._against_family(network.family)
        if not reason and self.compiles and precision != "float16" and not recurrent:
            reason = compiled.refuses_gradients()
        return not reason, reason

    def _has_operator(self, family: Family) -> bool:
        """Tell whether a whole recurrent layer is one operator."""
        return isinstance(family, Recurrent) or (isinstance(family, Elman) and not elman.loops(family, self._loop))

    def _against_family(self, family: Family) -> str:
        if self._loop and not isinstance(family, Elman):
            return "mode %s: its loop is that of the family elman, and this is %s" % (self.cell.mode, family.name)
        if isinstance(family, Elman) and self.compiles and not self._has_operator(family):
            return elman.refuses_to_compile(family)
        return ""

    def _against_mode(self) -> str:
        mode, precision, on_cpu = self.cell.mode, self.cell.precision, self.cell.on_cpu
        if self.cell.world_size > 1:
            if self.compiles or self.graphs:
                return "mode %s, world size %d: several workers run eagerly only" % (mode, self.cell.world_size)
            if precision == "float16":
                return "precision float16, world size %d: workers would scale their losses apart" % self.cell.world_size
            if parallel.refusal(on_cpu):
                return parallel.refusal(on_cpu)
        if self.dense == "onednn":
            if not on_cpu:
                return "mode %s: oneDNN multiplies on the CPU only" % mode
            if precision != "float32":
                return "mode %s, precision %s: its products are in float32 only" % (mode, precision)
            return onednn.refusal()
        if self.graphs:
            if on_cpu:
                return "mode %s: CUDA graphs run on GPUs, and this cell is one of the CPU" % mode
            if precision == "float16":
                return "mode %s, precision float16: PyTorch cannot capture the scaling of its loss" % mode
        if self.compiles:
            return compiled.refusal(on_cpu)
        return ""

    def join(self, worker: int, meeting: str) -> None:
        """Become a worker of a process group."""
        parallel.join(self.cell.on_cpu, worker, self.cell.world_size, meeting)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        """Build the module and the training step; tokens and their labels are kept time-major."""
        dense = onednn.onednn_dense if self.dense == "onednn" else plain_dense
        built = build(network, weights, dense, self._loop)
        self._parameters = built.parameters
        self._family = network.family
        module = built.module
        if len(network.family.drawn_inputs().shape) == 3:
            module.to(memory_format=self._images)
        #: The mini-batch where the cell's placement says; and where the step reads it.
        self._held = [copy_of(tensor, self._images) for tensor in tensors_of(network.family, batch)]
        inputs, labels = self._held
        if not self.cell.on_cpu:
            module.to(cuda.DEVICE)
            inputs, labels = self._placed()
            if self.compiles:
                compiled.use_cache("%s-%s" % (self._compilers_folder(), cuda.slug()))
        dtype = cuda.DTYPES[self.cell.precision]
        if dtype != torch.float32:
            module = mixed.Narrowed(module, inputs.device.type, dtype, kept=not self.graphs)
        if self.cell.world_size > 1:
            module = parallel.wrap(module, self.cell.on_cpu)
        trainable = list(built.parameters.values())
        criterion = eager.LOSSES[network.family.loss]
        task = eager.Task(module, trainable, inputs, labels, self.settings, criterion, network.family.clip)
        self._training = self._make_step()(task)

    def _placed(self) -> List[torch.Tensor]:
        """Return the mini-batch on the GPU; where it is to lie on the host, each step copies it there from now on."""
        if self.cell.placement == "resident":
            self._held = [tensor.to(cuda.DEVICE) for tensor in self._held]
            return self._held
        self._feed = Feed(self._held, cuda.DEVICE, pinned=self.cell.placement == "pinned")
        self._held = self._feed.here()
        self._feed()
        self.step = self._step_with_copy  # type: ignore[method-assign]
        return self._feed.there()

    def _make_step(self) -> Callable[..., Any]:
        scaled = self.cell.precision == "float16"
        if self.graphs:
            return graphs.GraphStep
        if self.compiles:
            return compiled.ScaledPieces if scaled else compiled.make_step
        return mixed.ScaledStep if scaled else eager.EagerStep

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy them into the tensors that there are: compiled code and CUDA graphs have their addresses."""
        self.synchronize()  # the last step may still copy its mini-batch out of the host's memory
        load(self._parameters, weights)
        self._place(batch)
        self._training.forget()

    def _place(self, batch: Batch) -> None:
        for held, given in zip(self._held, tensors_of(self._family, batch)):
            held.copy_(given)

    def step(self) -> None:
        """Forward, loss, backward, update."""
        self._loss = self._training()

    def _step_with_copy(self) -> None:
        self._feed()
        self._loss = self._training()

    def set_learning_rate(self, rate: float) -> None:
        """Hand the rate to the optimiser, or to the compiled step as a tensor."""
        self._training.set_learning_rate(rate)

    def last_loss(self) -> float:
        """Return the last step's mean loss, over all workers."""
        if self.cell.world_size > 1:
            return parallel.mean(self._loss, self.cell.world_size)
        return float(self._loss)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield views, or copies from the GPU; PyTorch's shapes are the canonical ones, whatever the memory order."""
        for name, parameter in self._parameters.items():
            yield name, parameter.detach().cpu().numpy()

    def refuses_training(self, network: Network) -> str:
        """Train eagerly, whatever the optimizer of the timed steps."""
        if self.compiles or self.graphs:
            return "no training on a text in mode %s: its step is of one mini-batch and one update" % self.cell.mode
        return ""

    def train_on_text(
        self, weights: Mapping[str, np.ndarray], blocks: Iterable[Block], update: RmsProp
    ) -> Iterator[List[float]]:
        """Copy each mini-batch into the tensors that the step reads."""
        load(self._parameters, weights)
        return training.losses(self._training, self._place, blocks, update)

    def effective_threads(self) -> Optional[int]:
        """Return the size of PyTorch's intra-op pool, which OpenMP and MKL share."""
        return int(torch.get_num_threads())

    def describe(self) -> Dict[str, Any]:
        """Name the build: libraries, instruction set, numerical modes."""
        mkldnn = torch.backends.mkldnn
        described: Dict[str, Any] = {
            "framework": "torch",
            "version": torch.__version__,
            "git": torch.version.git_version,
            "blas": "MKL" if torch.backends.mkl.is_available() else _build_line("BLAS_INFO="),
            "mkl": _build_line("Math Kernel Library"),
            "onednn": _build_line("MKL-DNN"),
            "onednn_enabled": bool(mkldnn.is_available() and mkldnn.enabled),
            "openmp": _build_line("OpenMP"),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "dense_layers": self.dense,
            "execution": "torch.compile" if self.compiles else "one CUDA graph" if self.graphs else "eager",
            "intra_op_threads": torch.get_num_threads(),
            "inter_op_threads": torch.get_num_interop_threads(),
            "training": self._training.describe() if self._parameters else {},
        }
        if self._parameters and self._family.kind == "recurrent":
            unrolled = "unrolled" if self.compiles else "loop"
            described["recurrence"] = "fused" if self._has_operator(self._family) else unrolled
        if self.cell.world_size > 1:
            described["data_parallel"] = parallel.describe(self.cell.on_cpu)
        if not self.cell.on_cpu:
            described["gpu"] = cuda.describe(self.cell.precision)
        elif self.cell.precision != "float32":
            described["autocast"] = self.cell.precision
        return described

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        """Ask PyTorch for its build's GPU code, for a gradient and for its process groups."""
        value = torch.tensor(3.0, requires_grad=True)
        (value * value).backward()
        slope = float(value.grad)
        together = torch.distributed.is_available()
        known = {
            "gloo": torch.distributed.is_gloo_available,
            "nccl": torch.distributed.is_nccl_available,
            "mpi": torch.distributed.is_mpi_available,
        }
        engines = [name for name, is_there in known.items() if together and is_there()]
        toolkit = torch.version.cuda or torch.version.hip
        return {
            "gpu": (
                bool(toolkit),
                "torch.version.cuda is %s, torch.version.hip %s" % (torch.version.cuda, torch.version.hip),
            ),
            "automatic_gradients": slope_told(slope),
            "several_processes": (bool(engines), "torch.distributed with %s" % (", ".join(engines) or "no engine")),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Multiply with torch.mm into a result made beforehand."""
        if not self.cell.on_cpu:
            return cuda.multiply(size, self.cell.precision)
        left, right = torch.rand(size, size), torch.rand(size, size)
        result = torch.empty(size, size)
        return lambda: torch.mm(left, right, out=result)

    def device_name(self) -> str:
        """Return the GPU's name as CUDA has it."""
        return torch.cuda.get_device_name(0)

    def event(self) -> Any:
        """Put a CUDA event into the stream of the steps."""
        return cuda.mark()

    def event_nanoseconds(self, earlier: Any, later: Any) -> int:
        """Return the time between two CUDA events."""
        return cuda.nanoseconds_between(earlier, later)

    def reset_device_peak_memory(self) -> None:
        """Let PyTorch's caching allocator forget its peak."""
        torch.cuda.reset_peak_memory_stats()

    def device_peak_memory(self) -> Optional[int]:
        """Return what tensors took at most; of a CUDA graph, what they took while it was captured."""
        return max(int(torch.cuda.max_memory_allocated()), getattr(self._training, "captured_bytes", 0))

    def device_probe(self, name: str, size: int) -> Optional[Probe]:
        """Copy tensors, or change one of a single number."""
        return None if self.graphs and name == OPERATOR else ceilings.probe(name, size)

    def profile(self, steps: int) -> Optional[Profile]:
        """Run so many steps under torch.profiler."""
        return profile.take(self, steps)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Recognise CUDA's failures, and the CPU allocator's, which PyTorch raises as plain RuntimeErrors."""
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or cuda.is_out_of_memory(error):
            return True
        signs = ("DefaultCPUAllocator: not enough memory", "DefaultCPUAllocator: can't allocate memory")
        return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def _build_line(words: str) -> str:
    """Return the entry of PyTorch's own account of its build that holds these words, or an empty string."""
    lines: List[str] = [line.strip(" -") for line in torch.__config__.show().splitlines()]
    found = [line for line in lines if words in line and not line.startswith("Build settings")]
    return found[0] if found else ""


ADAPTER = TorchAdapter
