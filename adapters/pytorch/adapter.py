"""PyTorch on the CPU and on CUDA GPUs.

Settings of a mode (framework.toml lists those measured to be best on the CPU):

``compile``
    The training step goes through torch.compile (default false).
``graph``
    The training step is one CUDA graph (default false; GPUs only).
``optimizer``
    How eager mode updates: "usual" (default: PyTorch chooses) or "fused".
``folded_norm``
    In inference, batch normalisations are folded into the convolutions before them (default false).
``channels_last``
    Convolutional networks keep their images in NHWC memory order (default false).
``dense``
    The library of fully connected layers' products: "mkl", PyTorch's own choice (default), or
    "onednn".
``recurrence``
    Simple recurrent layers (Elman): "fused", PyTorch's own where it has one (default), or "loop".
"""

import itertools
import os
import re
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from ..base import PROCESSES, SAMPLING, Adapter, EveryFamily, slope_found
from ..families import Elman, Family, Recurrent, Spiking
from ..launch.batches import Batch, Block, RmsProp, by_example
from ..launch.feeds import Feed, check_shared_memory
from ..libraries import gpus, profiles
from ..libraries.gpus import OPERATOR, Probe
from ..libraries.profiles import MICROSECONDS, Calls
from ..networks import Network
from ..protocol import ASYNC, COPIED, EVERY_STEP, FED, PLACEMENTS, Profile
from . import networks, steps
from .networks import build, load
from .sampling import TorchSampler

DEVICE = "cuda:0"  # a launch sees one GPU only
#: The data type of products at each precision. TF32 is float32 whose products lose bits on the way
#: in.
DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
#: Beyond this many steps the graph of an unrolled loop takes minutes to compile.
MOST_COMPILED_STEPS = 50
#: From this many operations on a step lasts a millisecond at least. See `steps.leave_out_compiler`.
_LONG_STEP_FLOPS = 1e10
_OUT_OF_MEMORY = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator: not enough memory",
    "DefaultCPUAllocator: can't allocate memory",
)


def recurrent_refusal(precision: str, device: str, cell: str = "lstm") -> str:
    """Return why layers of this cell are unavailable at this precision; empty where they are.

    ``device`` is "cpu" or `DEVICE`. On GPUs, autocast has for many releases run them in float16
    even for bfloat16, and in float16 the gradients of these networks vanish. On CPUs, oneDNN does
    not train every LSTM in bfloat16. So a small one is trained as a test.
    """
    if precision != "bfloat16":
        return ""
    kind = cell.upper()
    version = torch.__version__
    try:
        layer = getattr(torch.nn, kind)(8, 8, 2).to(device)
        inputs = torch.zeros(2, 2, 8, device=device)
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
            outputs, _ = layer(inputs)
        outputs.float().sum().backward()
    except RuntimeError as error:
        words = "precision bfloat16: PyTorch %s cannot run its %s in it: %s"
        return words % (version, kind, gpus.first_line(error))
    if outputs.dtype != torch.bfloat16:
        given = str(outputs.dtype).rpartition(".")[2]
        words = "precision bfloat16: autocast of PyTorch %s runs its %s in %s"
        return words % (version, kind, given)
    return ""


def describe_gpu(precision: str) -> Dict[str, Any]:
    """Return the GPU as PyTorch sees it, the libraries that drive it, and its arithmetic."""
    properties = torch.cuda.get_device_properties(0)
    matmul = torch.backends.cuda.matmul
    mixed = DTYPES[precision] != torch.float32
    return {
        "device": torch.cuda.get_device_name(0),
        "uuid": str(getattr(properties, "uuid", "")) or None,
        "compute_capability": "%d.%d" % tuple(torch.cuda.get_device_capability(0)),
        "device_memory_bytes": int(properties.total_memory),
        "multiprocessors": int(properties.multi_processor_count),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "architectures": torch.cuda.get_arch_list(),
        "matmul_tf32": bool(matmul.allow_tf32),
        "cudnn_tf32": bool(torch.backends.cudnn.allow_tf32),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "reduced_precision_sums": {
            "float16": bool(matmul.allow_fp16_reduced_precision_reduction),
            "bfloat16": bool(matmul.allow_bf16_reduced_precision_reduction),
        },
        "autocast": precision if mixed else "off",
    }


def set_threads(threads: int) -> None:
    """Set the number of threads, before any operation; 0 leaves PyTorch's default."""
    if threads:
        torch.set_num_threads(threads)
    # No adapter runs operations in parallel, so the inter-op pool's threads would only be idle.
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)


def describe_cpu() -> Dict[str, Any]:
    """Return the libraries and settings that decide PyTorch's arithmetic on the CPU."""
    mkldnn = torch.backends.mkldnn
    return {
        "blas": "MKL" if torch.backends.mkl.is_available() else _build_line("BLAS_INFO="),
        "onednn_enabled": bool(mkldnn.is_available() and mkldnn.enabled),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "intra_op_threads": torch.get_num_threads(),
        "inter_op_threads": torch.get_num_interop_threads(),
    }


def tensors_of(family: Family, batch: Batch) -> List[torch.Tensor]:
    """Return inputs and labels in the shapes that steps read, time-major where the family is."""
    inputs = torch.from_numpy(batch.inputs)
    labels = torch.from_numpy(batch.labels)
    if family.time_major:
        inputs = inputs.transpose(0, 1)
        labels = labels.transpose(0, 1)
    if labels.dim() > 1:
        labels = labels.flatten(0, 1)
    return [inputs, labels]


PROFILER = "torch.profiler"


def take_profile(adapter: Adapter, steps: int) -> Profile:
    """Run this many steps under the profiler.

    On a GPU its kernels and copies are recorded too.
    """
    activities = [ProfilerActivity.CPU]
    if not adapter.cell.on_cpu:
        activities.append(ProfilerActivity.CUDA)
    # The first session of a process loads what the profiler needs, within its first step.
    with torch.profiler.profile(activities=activities):
        profiles.run(adapter.step, adapter.synchronize, 1)
    with torch.profiler.profile(activities=activities) as recorded:
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
    return profiles.profile(PROFILER, steps, seconds, profiled_calls(recorded.key_averages()))


def profiled_calls(averages: Any) -> Iterator[Calls]:
    """Yield the calls of each row of ``key_averages()``."""
    for row in averages:
        on_device = row.device_type != DeviceType.CPU
        if on_device and row.is_user_annotation:
            continue  # a stretch of the device's time line that spans kernels
        spent = row.self_device_time_total if on_device else row.self_cpu_time_total
        yield Calls(str(row.key), on_device, spent * MICROSECONDS, row.count)


def capabilities() -> Dict[str, Tuple[bool, str]]:
    """Return what this build of PyTorch can do: see `Adapter.capabilities`."""
    value = torch.tensor(3.0, requires_grad=True)
    (value * value).backward()
    toolkits = (torch.version.cuda, torch.version.hip)
    engines = []
    if torch.distributed.is_available():
        for name in ("gloo", "nccl", "mpi"):
            if getattr(torch.distributed, "is_%s_available" % name)():
                engines.append(name)
    return {
        "gpu": (any(toolkits), "torch.version.cuda is %s, torch.version.hip %s" % toolkits),
        "automatic_gradients": slope_found(float(value.grad)),
        "several_processes": (
            bool(engines),
            "torch.distributed with %s" % (", ".join(engines) or "no engine"),
        ),
    }


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether this exception of PyTorch means that memory ran out."""
    # Failures of CUDA and its libraries, and of the CPU's allocator, are plain RuntimeErrors.
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _OUT_OF_MEMORY)


class TorchAdapter(EveryFamily):
    """An adapter of PyTorch: eager, through torch.compile or as a CUDA graph.

    Float32 on the CPU runs as if there were nothing else: no module is wrapped, and a step has no
    branch.
    """

    families = (*EveryFamily.families, "lif", *SAMPLING)
    precisions = ("float32", "bfloat16")
    further_axes = ("sync", "task")
    feeds = True
    data_parallel = PROCESSES
    capabilities = staticmethod(capabilities)
    is_out_of_memory = staticmethod(is_out_of_memory)
    profile = take_profile
    reset_device_peak_memory = staticmethod(torch.cuda.reset_peak_memory_stats)
    device_name = staticmethod(torch.cuda.get_device_name)

    def set_up(self) -> None:
        set_threads(self.cell.threads)
        self.compiles = bool(self.settings.get("compile", False))
        self.graphs = bool(self.settings.get("graph", False))
        if self.cell.on_cpu and self.compiles:
            self._keep_compiled()
        if not self.cell.on_cpu:
            # Whether float32 products, convolutions and LSTMs use TF32.
            torch.backends.cuda.matmul.allow_tf32 = self.cell.precision == "tf32"
            torch.backends.cudnn.allow_tf32 = self.cell.precision == "tf32"
            # The mini-batch never changes its shape, so that the first step's choices serve all
            # others.
            torch.backends.cudnn.benchmark = True
            self.synchronize = torch.cuda.synchronize  # type: ignore[method-assign]
        self.dense = self.chosen("dense", "mkl", "onednn")
        self._fused = self.chosen("optimizer", "usual", "fused") == "fused"
        self._loop = self.chosen("recurrence", "fused", "loop") == "loop"
        #: The order in which image tensors, and the weights of convolutions, lie in memory.
        self._images = torch.contiguous_format
        if self.settings.get("channels_last", False):
            self._images = torch.channels_last
        self._parameters: Dict[str, torch.nn.Parameter] = {}
        self.loss = torch.zeros(())

    def _keep_compiled(self) -> None:
        """Keep the compiler's output in a folder for each version and GPU.

        A later process uses it.
        """
        folder = os.path.join(self.cache_directory, "torch-" + torch.__version__)
        if not self.cell.on_cpu:
            name = re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name(0).lower()).strip("-")
            folder += "-%s-sm%d%d" % ((name,) + tuple(torch.cuda.get_device_capability(0)))
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder

    def refuses_gpu(self) -> str:
        cell = self.cell
        version = "PyTorch %s" % torch.__version__
        reason = gpus.refusal(cell, "PyTorch", tuple(DTYPES), PLACEMENTS)
        if reason:
            return reason
        if torch.version.cuda is None:
            rocm = "" if torch.version.hip is None else "is for ROCm and "
            return "%s: this build %shas no CUDA code: %s" % (version, rocm, gpus.advice(cell))
        try:
            torch.cuda.init()
            capability = torch.cuda.get_device_capability(0)
        except (RuntimeError, AssertionError) as error:
            # A driver too old, or a GPU that does not answer.
            words = "%s, built for CUDA %s, cannot use the GPU: %s"
            return words % (version, torch.version.cuda, gpus.first_line(error))
        reason = gpus.refusal_of_build(cell, version, torch.cuda.get_arch_list(), tuple(capability))
        if reason:
            return reason
        try:
            torch.backends.cudnn.version()
        except RuntimeError as error:
            # A cuDNN that no longer supports this GPU, or that is not the build's.
            return "%s cannot use its cuDNN here: %s" % (version, gpus.first_line(error))
        return ""

    def refuses(self, network: Network) -> str:
        family = network.family
        if self.cell.precision != "float32" and self._has_operator(family):
            cell = family.cell if isinstance(family, Recurrent) else "lstm"
            device = "cpu" if self.cell.on_cpu else DEVICE
            reason = recurrent_refusal(self.cell.precision, device, cell)
            if reason:
                return reason
        return self._mode_refusal() or self._family_refusal(family)

    def _family_refusal(self, family: Family) -> str:
        """Return why the mode does not apply to the family; empty where it does."""
        mode = self.cell.mode
        if not family.trains and self.dense == "onednn":
            words = "mode %s: it applies to dense layers only, and this is a %s"
            return words % (mode, family.name)
        if self._loop and not isinstance(family, Elman):
            words = "mode %s: it applies to the family elman only, and this is %s"
            return words % (mode, family.name)
        if isinstance(family, Spiking) and self.compiles:
            words = "mode %s: the slope of spikes is a function in Python, which is not compiled"
            return words % mode
        is_one_graph = self.compiles and family.trains and not self._has_operator(family)
        if not is_one_graph:
            return ""
        if isinstance(family, Elman) and family.steps > MOST_COMPILED_STEPS:
            words = "torch.compile unrolls the loop over %d steps, which takes minutes beyond %d"
            return words % (family.steps, MOST_COMPILED_STEPS)
        can_trace = hasattr(torch._dynamo.config, "trace_autograd_ops")
        if self.cell.precision != "float16" and not can_trace:
            words = "torch.compile of PyTorch %s cannot trace gradients within a step"
            return words % torch.__version__
        return ""

    def _has_operator(self, family: Family) -> bool:
        if isinstance(family, Elman):
            return not networks.loops(family, self._loop)
        return isinstance(family, Recurrent)

    def _workers_refusal(self) -> str:
        """Return why several workers cannot run the cell; empty where they can."""
        size = self.cell.world_size
        if self.compiles or self.graphs:
            words = "mode %s, world size %d: several workers run eagerly only"
            return words % (self.cell.mode, size)
        if self.cell.precision == "float16":
            words = "precision float16, world size %d: workers would scale losses differently"
            return words % size
        refused = steps.workers_refusal(self.cell.on_cpu)
        if refused or self.cell.sync != ASYNC:
            return refused
        if not self.cell.on_cpu:
            return (
                "sync async: workers share parameters in the CPU's memory, and on GPUs each has "
                "its own"
            )
        if not hasattr(os, "memfd_create"):
            return "sync async: this system lacks memfd_create, by which workers share parameters"
        return ""

    def _mode_refusal(self) -> str:
        mode = self.cell.mode
        precision = self.cell.precision
        on_cpu = self.cell.on_cpu
        if self.cell.world_size > 1:
            refused = self._workers_refusal()
            if refused:
                return refused
        if self.dense == "onednn":
            if not on_cpu:
                return "mode %s: oneDNN multiplies on the CPU only" % mode
            if precision != "float32":
                return "mode %s, precision %s: its products are in float32 only" % (mode, precision)
            return networks.onednn_refusal()
        if self.graphs:
            if self.cell.infers:
                return "mode %s: it captures training steps" % mode
            if on_cpu:
                return "mode %s: CUDA graphs run on GPUs, and this cell runs on the CPU" % mode
            if precision == "float16":
                return (
                    "mode %s, precision float16: PyTorch cannot capture the scaling of its loss"
                    % mode
                )
        if self.compiles:
            return steps.compiler_refusal(on_cpu)
        return ""

    def join(self, worker: int, meeting: str) -> None:
        steps.join_workers(self.cell.on_cpu, worker, self.cell.world_size, meeting)

    def meet(self) -> None:
        torch.distributed.barrier()

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        if not network.family.trains:
            device = "cpu" if self.cell.on_cpu else DEVICE
            self._training: Any = TorchSampler(network.family, device, self.compiles, self.graphs)
            self._training.drive(self, weights, batch)
            return
        alone = self.cell.on_cpu and self.cell.world_size == 1 and not self.compiles
        if alone and network.family.training_flops(self.cell.known_batch_size) >= _LONG_STEP_FLOPS:
            steps.leave_out_compiler()
        module, inputs, labels = self._built(network, weights, batch)
        dtype = DTYPES[self.cell.precision]
        if dtype != torch.float32:
            module = steps.Narrowed(module, inputs.device.type, dtype, kept=not self.graphs)
        if self.cell.world_size > 1 and self.cell.sync == EVERY_STEP:
            module = torch.nn.parallel.DistributedDataParallel(
                module,
                device_ids=None if self.cell.on_cpu else [0],
                # Buffers need not agree: running statistics of normalisation are not used.
                broadcast_buffers=False,
                gradient_as_bucket_view=True,  # no copy from the buckets into the gradients
            )
        trainable = list(self._parameters.values())
        criterion = steps.LOSSES[network.family.loss]
        clip = network.family.clip
        make_step = self._make_step()
        self._training = make_step(module, trainable, inputs, labels, self._fused, criterion, clip)

    def _built(
        self, network: Network, weights: Dict[str, np.ndarray], batch: Batch
    ) -> Tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
        """Build the network on the cell's device.

        Return it, and the mini-batch where steps read it.
        """
        module, self._parameters = build(network, weights, self.dense == "onednn", self._loop)
        self._family = network.family
        if len(network.family.drawn_inputs().shape) == 3:
            module.to(memory_format=self._images)
        # The mini-batch where the cell's placement says.
        self._held = []
        for tensor in tensors_of(network.family, batch):
            order = self._images if tensor.dim() == 4 else torch.contiguous_format
            self._held.append(tensor.clone(memory_format=order))
        inputs, labels = self._held
        if not self.cell.on_cpu:
            module.to(DEVICE)
            inputs, labels = self._placed()
            if self.compiles:
                self._keep_compiled()
        return module, inputs, labels

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        module, inputs, labels = self._built(network, weights, batch)
        networks.load_statistics(module, statistics)
        if self.settings.get("folded_norm", False):
            networks.fold_normalisations(module)
        dtype = DTYPES[self.cell.precision]
        self._training = steps.ForwardPass(module, inputs, labels, dtype, self.compiles)
        if self.cell.placement in COPIED:
            self.infer = self._infer_with_copy  # type: ignore[method-assign]

    def infer(self) -> None:
        self._result = self._training()

    def _infer_with_copy(self) -> None:
        self._feed()
        self._result = self._training()

    def show(self, batch: Batch) -> None:
        self.synchronize()
        self._place(batch)

    def outputs(self) -> np.ndarray:
        return by_example(self._family, self._result.cpu().numpy(), self.cell.known_batch_size)

    def _placed(self) -> List[torch.Tensor]:
        """Return the mini-batch on the GPU.

        Where it has to lie on the host, each step copies it to the GPU from now on.
        """
        if self.cell.placement in FED:
            self._copies = torch.cuda.Stream()
        if self.cell.placement not in COPIED:
            self._held = [tensor.to(DEVICE) for tensor in self._held]
            return self._held
        if self.cell.placement == "pinned":
            self._held = [tensor.pin_memory() for tensor in self._held]
        # These keep the order in memory, NHWC too, so that a copy is one plain transfer.
        self._on_device = [torch.empty_like(tensor, device=DEVICE) for tensor in self._held]
        self._feed()
        self.step = self._step_with_copy  # type: ignore[method-assign]
        return self._on_device

    def _feed(self) -> None:
        """Copy the mini-batch from the host's memory.

        Work on one stream runs in order: the last step has read its own. From pinned memory the
        copy is queued and the host continues. From pageable memory CUDA copies through a buffer of
        its own, and the host waits.
        """
        for host, device in zip(self._held, self._on_device):
            device.copy_(host, non_blocking=self.cell.placement == "pinned")

    def _make_step(self) -> Callable[..., Any]:
        scaled = self.cell.precision == "float16"
        if self.cell.local_steps:
            return partial(steps.LocalStep, every=self.cell.local_steps)
        if self.cell.sync == ASYNC:
            return steps.SharedStep
        if self.graphs:
            return steps.GraphStep
        if self.compiles and scaled:
            return steps.compiled_scaled_step
        if self.compiles:
            return steps.compiled_step
        return steps.ScaledStep if scaled else steps.EagerStep

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy them into the existing tensors.

        Compiled code and CUDA graphs have their addresses.
        """
        self.synchronize()  # the last step may still copy its mini-batch out of the host's memory
        load(self._parameters, weights)
        self._place(batch)
        self._training.forget()

    def _place(self, batch: Batch) -> None:
        for held, given in zip(self._held, tensors_of(self._family, batch)):
            held.copy_(given)

    def _laid_out(self, batch: Batch) -> List[torch.Tensor]:
        """Return the mini-batch in the order in memory that steps read.

        It is a copy only where the order is another one.
        """
        return [
            tensor.contiguous(
                memory_format=self._images if tensor.dim() == 4 else torch.contiguous_format
            )
            for tensor in tensors_of(self._family, batch)
        ]

    def hand_over(self, batch: Batch) -> List[torch.Tensor]:
        ready = self._laid_out(batch)
        if self.cell.on_cpu:
            return ready
        # On a stream of its own, so that it may run beside the steps.
        with torch.cuda.stream(self._copies):
            ready = [tensor.to(DEVICE) for tensor in ready]
        self._copies.synchronize()
        return ready

    def take(self, ready: List[torch.Tensor]) -> None:
        if self.graphs:
            # The graph has the addresses of its own.
            for own, given in zip((self._training.inputs, self._training.labels), ready):
                own.copy_(given, non_blocking=True)
            return
        if not self.cell.on_cpu:
            ready = [tensor.to(DEVICE, non_blocking=True) for tensor in ready]
            for tensor in ready:
                tensor.record_stream(torch.cuda.current_stream())
        self._training.inputs, self._training.labels = ready

    def load(self, feed: Feed) -> Iterator[Any]:
        """Load by PyTorch's own loader.

        Its workers are forks, each of which loads two mini-batches ahead.
        """
        workers = self.cell.loader_workers
        check_shared_memory(feed, workers)
        yield from torch.utils.data.DataLoader(
            feed,
            batch_size=None,
            sampler=itertools.count(),
            collate_fn=self._laid_out,
            num_workers=workers,
            pin_memory=not self.cell.on_cpu,
            multiprocessing_context="fork" if workers else None,
        )

    def step(self) -> None:
        self.loss = self._training()

    def _step_with_copy(self) -> None:
        self._feed()
        self.loss = self._training()

    def set_learning_rate(self, rate: float) -> None:
        self._training.set_learning_rate(rate)

    def last_loss(self) -> float:
        if self.cell.world_size == 1:
            return super().last_loss()
        total = self.loss.detach().clone()
        torch.distributed.all_reduce(total)
        return float(total) / self.cell.world_size

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, parameter in self._parameters.items():
            yield name, parameter.detach().cpu().numpy()

    def refuses_training(self, network: Network) -> str:
        if self.compiles or self.graphs:
            words = "no training on a text in mode %s: its step is fixed to one mini-batch and SGD"
            return words % self.cell.mode
        return ""

    def train_on_text(
        self, weights: Mapping[str, np.ndarray], blocks: Iterable[Block], update: RmsProp
    ) -> Iterator[List[float]]:
        load(self._parameters, weights)
        return steps.training_losses(self._training, self._place, blocks, update)

    def effective_threads(self) -> Optional[int]:
        return int(torch.get_num_threads())

    def describe(self) -> Dict[str, Any]:
        execution = "eager"
        if self.compiles:
            execution = "torch.compile"
        elif self.graphs:
            execution = "one CUDA graph"
        described: Dict[str, Any] = {
            "framework": "torch",
            "version": torch.__version__,
            "git": torch.version.git_version,
            **describe_cpu(),
            "mkl": _build_line("Math Kernel Library"),
            "onednn": _build_line("MKL-DNN"),
            "openmp": _build_line("OpenMP"),
            "dense_layers": self.dense,
            "execution": execution,
            self.cell.task: self._training.describe() if self._parameters else {},
        }
        if self._parameters and self._family.kind == "recurrent":
            unrolled = "unrolled" if self.compiles else "loop"
            described["recurrence"] = "fused" if self._has_operator(self._family) else unrolled
        if self.cell.world_size > 1:
            engine = "DistributedDataParallel"
            if self.cell.sync != EVERY_STEP:
                engine = self._training.engine
            described["data_parallel"] = steps.describe_workers(self.cell.on_cpu, engine)
        if self.cell.sync == ASYNC:
            described["staleness"] = self._training.staleness()
        if not self.cell.on_cpu:
            described["gpu"] = describe_gpu(self.cell.precision)
        elif self.cell.precision != "float32":
            described["autocast"] = self.cell.precision
        return described

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        dtype = torch.float32 if self.cell.on_cpu else DTYPES[self.cell.precision]
        device = "cpu" if self.cell.on_cpu else DEVICE
        left = torch.rand(size, size, device=device).to(dtype)
        right = torch.rand(size, size, device=device).to(dtype)
        result = torch.empty_like(left)

        def product() -> None:
            torch.mm(left, right, out=result)
            self.synchronize()

        return product

    def event(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def event_nanoseconds(self, earlier: Any, later: Any) -> int:
        return max(0, round(earlier.elapsed_time(later) * 1e6))  # given in milliseconds

    def device_peak_memory(self) -> Optional[int]:
        captured_bytes = getattr(self._training, "captured_bytes", 0)
        return max(int(torch.cuda.max_memory_allocated()), captured_bytes)

    def device_probe(self, name: str, size: int) -> Optional[Probe]:
        if name == OPERATOR:
            number = torch.zeros(1, device=DEVICE)
            return None if self.graphs else Probe(lambda: number.add_(1.0), torch.cuda.synchronize)
        # Written to before: pages of the host that never were may all be one.
        source = torch.full((size,), 1, dtype=torch.uint8, device=DEVICE)
        home = DEVICE if name == gpus.COPY else "cpu"
        target = torch.full((size,), 2, dtype=torch.uint8, device=home)
        pinned = name in (gpus.TO_DEVICE_PINNED, gpus.FROM_DEVICE_PINNED)
        if pinned:
            target = target.pin_memory()
        if name in (gpus.TO_DEVICE_PINNED, gpus.TO_DEVICE_PAGEABLE):
            source, target = target, source
        return Probe(lambda: target.copy_(source, non_blocking=pinned), torch.cuda.synchronize)


def _build_line(words: str) -> str:
    for line in torch.__config__.show().splitlines():
        line = line.strip(" -")
        if words in line and not line.startswith("Build settings"):
            return str(line)
    return ""


ADAPTER = TorchAdapter
