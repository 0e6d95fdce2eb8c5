"""The contract of an adapter: the calls that every framework implements.

Life of an adapter, one per process: ``set_up`` (threads and execution settings, before the
framework's first operation) -> ``import_modules`` -> ``supports`` -> ``prepare`` ->
``set_learning_rate`` -> ``step`` + ``synchronize``, to warm up and while timed -> ``last_loss`` ->
``reset``, ``set_learning_rate``, ``step``, ``last_loss``, ``parameters`` for the parity check ->
``effective_threads``, ``describe``. On a GPU ``event`` and the memory's peak are called around the
timed steps, ``device_probe`` and ``profile`` after them; all of these are optional, and so is
``train_on_text``. Where each step takes another mini-batch, ``take`` is called before each
``step``, and ``prepare`` and ``reset`` only show its shape.

In inference the calls are ``prepare_inference`` -> ``infer`` + ``synchronize``, to warm up and
while timed -> ``show``, ``infer``, ``outputs`` for the parity check. An adapter that has them names
"task" in ``further_axes``.

A launch on a GPU sees that one GPU only: whatever index its cell's device has, it is the
framework's device 0. With several workers each of their processes does; an engine that drives all
from one process sees as many as there are workers.

A framework's folder holds ``adapter.py`` with a name ``ADAPTER`` bound to its subclass, which
builds the families of ``adapters/families`` (in larger ones by ``networks.py``), ``framework.toml``
(its environment, thread variables and execution modes) and its locked requirements.
"""

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
)

import numpy as np

from . import axes
from .families import CELLS, Recurrent, Spiking
from .launch.batches import Batch, Block, RmsProp
from .libraries.gpus import Probe
from .networks import Network
from .protocol import COPIED, FED, LOADER, Cell, Profile

if TYPE_CHECKING:
    from .launch.feeds import Feed

PROCESSES = "processes"
ONE_PROCESS = "one process"

#: Axes that every adapter's ``supports`` answers for, and those that the host applies.
COMMON_AXES = (
    "tuning",
    "affinity",
    "world_size",
    "cpu_quota",
    "precision",
    "placement",
    "loader_workers",
    "storage",
)

#: The families that sample rather than train; see ``libraries/sampling.py``.
SAMPLING = ("boltzmann", "mcculloch_pitts")


class Unsupported(Exception):  # noqa: N818 - an answer, not an error
    """Raised in ``prepare`` where a cell turns out to be impossible only then.

    The text is the reason shown.
    """


class Explained(Exception):  # noqa: N818 - a finding about the user's code
    """Raised where the text explains everything: no traceback is printed."""


def factors(size: int, count: int = 2) -> List[np.ndarray]:
    """Return (size, size) matrices for ``multiply``."""
    random = np.random.RandomState(0)
    return [random.rand(size, size).astype(np.float32) for _ in range(count)]


def slope_found(slope: float) -> Tuple[bool, str]:
    """Return the answer of ``capabilities`` about gradients.

    ``slope`` is the framework's gradient of x * x at 3.
    """
    return slope == 6.0, "the gradient of x * x at 3 is %g" % slope


class Adapter:
    """One framework, driving one cell in one process."""

    #: False for a framework that computes nothing: its parity is then "unchecked" with
    #: ``parity_reason``.
    computes = True
    parity_reason = ""
    #: False without a ``last_loss``.
    has_loss = True
    #: The families of networks that it builds, by their names in ``adapters/families``. Others are
    #: refused for it.
    families: Tuple[str, ...] = ("feedforward", "convolutional", "residual", "recurrent")
    #: Cells of the family ``recurrent`` that it builds, and whether it takes one-hot symbols, which
    #: have no embedding.
    cells: Tuple[str, ...] = ("lstm",)
    one_hot = False
    #: Axes that it handles in addition to those of `COMMON_AXES`. On other axes any value but the
    #: default is refused.
    further_axes: Tuple[str, ...] = ()
    #: Precisions on the CPU.
    precisions: Tuple[str, ...] = ("float32",)
    #: Whether its steps can take another mini-batch each (`FED`): it has ``hand_over``, ``take``
    #: and ``load``.
    feeds = False
    #: How it trains with several workers on parts of one mini-batch: "" not at all, `PROCESSES` a
    #: process for each (see ``join``), or `ONE_PROCESS` that drives them all. A worker is a GPU, or
    #: on the CPU ``cell.threads`` threads.
    #:
    #: Where ``further_axes`` has "sync", it knows other workers than those that average gradients
    #: at every step. With ``cell.local_steps`` each updates its own parameters, by the gradient of
    #: its own part, and all average them after every such number of steps since ``reset``. Then
    #: ``parameters`` are the first worker's. Asynchronous workers (``cell.sync`` is `ASYNC`) share
    #: parameters, and each adds its update to them whenever it has one, at the rate divided by the
    #: number of workers: a step of each moves as far as one of the whole mini-batch. ``last_loss``
    #: is the mean of the workers' losses in every case.
    data_parallel = ""
    #: Words of exceptions other than MemoryError that mean that memory ran out.
    out_of_memory: Tuple[str, ...] = ()
    loss: Any = float("nan")

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        self.cell = cell
        self.settings = settings
        self.cache_directory = cache_directory
        self.set_up()

    def set_up(self) -> None:
        """Set thread counts and execution mode, before anything else runs.

        With ``cell.threads`` 0 set no thread count: the launch observes the framework's default.
        """

    def import_modules(self) -> None:
        """Import modules that the framework's own import leaves out.

        This is a part of the seconds of a launch's import.
        """

    def refuses_family(self, network: Network) -> str:
        """Return why this adapter cannot build the network's family or layers; empty where it can.

        Called before ``supports``, so that no adapter builds an unknown family as another one.
        """
        family = network.family
        if family.name not in self.families:
            return "no network of the family %s: this adapter builds %s" % (
                family.name,
                ", ".join(self.families),
            )
        if not isinstance(family, Recurrent):
            return ""
        if family.cell not in self.cells:
            return "cell %s: this adapter builds recurrent layers of %s" % (
                family.cell,
                ", ".join(self.cells),
            )
        if not family.embedding and not self.one_hot:
            return "embedding 0: this adapter takes no one-hot symbols"
        return ""

    def refuses_axes(self, cell: Cell) -> str:
        """Return why this adapter cannot run the cell: it ignores an axis; empty where it can."""
        supported = COMMON_AXES + self.further_axes
        for axis in axes.unusual(cell):
            if axis.name not in supported:
                name = axis.name.replace("_", " ")
                value = getattr(cell, axis.name)
                return "%s %s: this adapter supports only %s" % (name, value, axis.usual)
        if cell.placement in FED and not self.feeds:
            return "placement %s: this adapter keeps the mini-batch resident" % cell.placement
        if cell.placement in FED and cell.world_size > 1:
            return (
                "placement %s: each of several workers keeps its part of one mini-batch"
                % cell.placement
            )
        return ""

    def refuses_gpu(self) -> str:
        """Return why this build of the framework cannot run the cell on its GPU; empty if it can.

        Called by ``supports`` for every device but the CPU: a build without GPU code, one without
        kernels for this GPU, a driver too old, a precision or a placement that it does not know.
        """
        return "device %s: this adapter drives the CPU only" % self.cell.device

    def refuses(self, network: Network) -> str:
        """Return why this framework cannot run the cell; empty where it can.

        These are the reasons beyond the checks of every adapter.
        """
        return ""

    def supports(self, network: Network) -> Tuple[bool, str]:
        """Return whether this framework can run the cell, and otherwise the reason.

        The reason is for the reader of a matrix. On the CPU only ``precisions`` are supported; on a
        GPU ``refuses_gpu`` decides; on both ``refuses`` does too.
        """
        reason = self._refuses_device() or self._refuses_sampling(network)
        if not reason and self.cell.infers:
            reason = self._refuses_inference(network)
        if not reason and isinstance(network.family, Spiking) and self.cell.precision != "float32":
            reason = (
                "precision %s: whether a unit fires is decided in float32" % self.cell.precision
            )
        reason = reason or self.refuses(network)
        return not reason, reason

    def _refuses_device(self) -> str:
        """Return why the cell cannot run on its device; empty where it can."""
        cell = self.cell
        if not cell.on_cpu:
            return self.refuses_gpu()
        if cell.precision not in self.precisions:
            precisions = " and ".join(self.precisions)
            return "precision %s: this adapter computes in %s only" % (cell.precision, precisions)
        if cell.placement in COPIED:
            return "placement %s: on the CPU nothing is copied to a device" % cell.placement
        return ""

    def _refuses_sampling(self, network: Network) -> str:
        """Return why a network that samples cannot run in this cell; empty where it can."""
        requested = (self.cell.precision, self.cell.placement, self.cell.world_size)
        if network.family.trains or requested == ("float32", "resident", 1):
            return ""
        return (
            "precision %s, placement %s, world size %d: sampling runs in float32, resident, on "
            "one worker only" % requested
        )

    def _refuses_inference(self, network: Network) -> str:
        """Return why a forward pass alone has no meaning for a cell; empty where it has one."""
        if not network.family.trains or isinstance(network.family, Spiking):
            return (
                "task inference: a network of the family %s has no outputs to serve"
                % network.family.name
            )
        if self.cell.world_size > 1:
            return (
                "task inference: several workers train together, and inference needs one "
                "(--instances for more)"
            )
        if self.cell.placement == LOADER:
            return "task inference: the loader is for training; give the placement fed"
        return ""

    def chosen(self, setting: str, *choices: str) -> str:
        """Return the value of a setting, by default the first of ``choices``.

        Raises ValueError for another value.
        """
        value = str(self.settings.get(setting, choices[0]))
        if value not in choices:
            raise ValueError(
                "the setting %s is %r; it can be %s" % (setting, value, ", ".join(choices))
            )
        return value

    def join(self, worker: int, meeting: str) -> None:
        """Become this worker, from 0, of the ``cell.world_size`` of a launch.

        Return when all of them have joined. Called in each of their processes before ``prepare``,
        which is then given the worker's part of the mini-batch, and only with `PROCESSES`.
        ``meeting`` is a file that is not there yet and that all of them can reach. From then on
        ``step`` updates with the mean gradient of the whole mini-batch, and ``last_loss`` returns
        its mean loss: both are called in every worker, in the same order.
        """
        raise NotImplementedError

    def meet(self) -> None:
        """Wait until all workers have arrived.

        Called in each of their processes, and only with `PROCESSES` and asynchronous workers, after
        each sample.
        """
        raise NotImplementedError

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        """Build the network with these weights (copied) and place the mini-batch.

        The mini-batch goes where the cell's placement says. With `ONE_PROCESS` it is the whole
        mini-batch, to be split equally among the workers. Shapes and layouts are those of
        ``families`` and ``batches``. Keep nothing of ``weights``: the worker drops it so that peak
        memory is the framework's own.
        """
        raise NotImplementedError

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Replace the weights and the mini-batch that ``prepare`` was given by these.

        Shapes and types are the same, and so is the step: build, trace and compile nothing anew.
        The next step starts from these weights, whatever the earlier ones did. Copy what you keep:
        each of ``weights`` is made when it is looked up, and may be changed or dropped after.
        Called after the timed steps, for the parity check: it checks the step that was timed, on
        numbers that were unknown until then.
        """
        raise NotImplementedError

    def hand_over(self, batch: Batch) -> Any:
        """Return this mini-batch as the step reads it.

        It is in the framework's own arrays, on the cell's device. They have memory of their own, or
        that of ``batch``, which stays as it is. Called within the step or, for the placement
        "prefetched", in a thread while the step before computes.
        """
        raise NotImplementedError

    def take(self, ready: Any) -> None:
        """Let the next step read this mini-batch, which ``hand_over`` or ``load`` returned.

        This is part of the timed step. Nothing is built, traced or compiled anew for it.
        """
        raise NotImplementedError

    def load(self, feed: "Feed") -> Iterator[Any]:
        """Yield the mini-batches of the feed in their order, over and over, as ``take`` reads them.

        Use the framework's own loader, with ``cell.loader_workers`` threads or processes that work
        while the step computes; 0: the step waits. This is a generator: closing it, after the last
        mini-batch, also ends them.
        """
        raise NotImplementedError

    def step(self) -> None:
        """Run forward, loss, backward and SGD update of one mini-batch.

        It may return before the device is done.
        """
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until everything that ``step`` or ``infer`` started has finished."""

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        """Build the trained network for evaluation.

        Do it as the framework's own guide recommends for serving. ``weights`` are as for
        ``prepare``. ``statistics`` are the running means and variances of batch normalisations, by
        their name and ".mean" or ".variance". They never change. The mini-batch's labels are not
        used.
        """
        raise NotImplementedError

    def infer(self) -> None:
        """Compute the outputs of the mini-batch in place; may return before the device is done."""
        raise NotImplementedError

    def show(self, batch: Batch) -> None:
        """Replace the mini-batch by this one.

        Its shapes are the same, and nothing is built anew.
        """
        raise NotImplementedError

    def outputs(self) -> np.ndarray:
        """Return the outputs of the last ``infer``, before any softmax.

        They have the shape (batch, rows of an example, outputs). An example has a row for each step
        of a sequence, and one otherwise; see `batches.by_example`.
        """
        raise NotImplementedError

    def set_learning_rate(self, rate: float) -> None:
        """Use this rate from the next step on; must not cost a new compilation."""
        raise NotImplementedError

    def last_loss(self) -> float:
        """Return the mean loss of the last step, as computed before its update.

        By default that is ``loss``.
        """
        return float(self.loss)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield the current value of every parameter by its canonical name, in any order.

        Values are in the canonical layout.
        """
        raise NotImplementedError

    def effective_threads(self) -> Optional[int]:
        """Return the number of intra-op threads that the framework reports; None without one."""
        return None

    def describe(self) -> Dict[str, Any]:
        """Return versions, BLAS, math flags and execution settings, as plain JSON.

        Keys of the host's own facts are dropped (`HostFacts` in reports/results/outcome.py).
        """
        return {}

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        """Return what this build of the framework can do: (answer, how it was found out).

        Keys: "gpu" (this build has code for GPUs), "automatic_gradients" (it derives the backward
        pass itself), "several_processes" (it has an engine for data-parallel training). Each answer
        comes from the framework, never typed in; unknown ones are left out. Called without
        ``prepare``, in a process that times nothing.
        """
        return {}

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a call that does one synchronous (size, size) matrix product, or None.

        On the cell's device and at its precision. It is timed after the steps: as a sentinel of the
        machine's state, and as a candidate for its ceiling.
        """
        return None

    def device_name(self) -> str:
        """Return the framework's name of the GPU that this launch computes on."""
        return self.cell.device

    def event(self) -> Any:
        """Record an event in the device's work queue, without waiting, and return it.

        None where there are no events. The device notes the time when it reaches the event. Two of
        them around a sample show how long the device took by its own clock, in addition to the wall
        clock. Never called on the CPU.
        """
        return None

    def event_nanoseconds(self, earlier: Any, later: Any) -> int:
        """Return the nanoseconds of the device's clock between two of these events.

        Called after ``synchronize``.
        """
        raise NotImplementedError

    def reset_device_peak_memory(self) -> None:
        """Reset the peak of the framework's allocator on the device, where it can be."""

    def device_peak_memory(self) -> Optional[int]:
        """Return the most bytes that tensors took on the device since the last reset.

        None where it is unknown. Where the framework cannot reset it: since the process began.
        """
        return None

    def device_probe(self, name: str, size: int) -> Optional[Probe]:
        """Return the probe of this name on the cell's device; None where there is none.

        Names: see ``libraries/gpus.py``. The copies are of one array of ``size`` bytes, each
        between the same two, or into a new one where the framework cannot copy into one that it is
        given (which then counts too); the host's lies in page-locked memory where the name says
        pinned, and otherwise in ordinary memory that was written to before: pages that were not may
        all be one. Decline ``operator`` where the cell's steps do not start their operators one by
        one (a captured graph). Called after the timed steps of a launch on a GPU, once for each
        name. An exception is noted and costs nothing but that number.
        """
        return None

    def profile(self, steps: int) -> Optional[Profile]:
        """Run this many further steps under the framework's own profiler.

        Return the profile, or None where the framework has no profiler. Called after the timed
        steps, on the CPU too. An exception is noted and costs nothing but the profile.
        """
        return None

    def refuses_training(self, network: Network) -> str:
        """Return why this adapter does not train this network on a text.

        Empty where ``train_on_text`` does.
        """
        return "no training on a text: this adapter times steps of one mini-batch only"

    def train_on_text(
        self, weights: Mapping[str, np.ndarray], blocks: Iterable[Block], update: RmsProp
    ) -> Iterator[List[float]]:
        """Train the prepared network from these weights; yield the mean losses of a block's steps.

        A step computes the loss and the gradients of its mini-batch, and then applies ``update`` at
        the block's rate; its loss is that before the update. Losses are read once a block, when all
        of it was started. Called after all that is timed, and followed by nothing: the state of
        ``step`` may be lost.
        """
        raise NotImplementedError

    def error_text(self, error: BaseException) -> str:
        """Return a line about this exception, where it is better than its type and first line."""
        return ""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether this exception of the framework means that memory ran out."""
        return isinstance(error, MemoryError) or any(
            sign in str(error) for sign in self.out_of_memory
        )


class EveryFamily(Adapter):
    """An adapter that builds every family of networks that train, and every recurrent layer."""

    families = (*Adapter.families, "elman", "attention")
    cells = tuple(CELLS)
    one_hot = True
