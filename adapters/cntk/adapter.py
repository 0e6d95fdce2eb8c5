"""CNTK 2.7: one static graph, trained by CNTK's own ``Trainer`` and SGD learner.

CNTK's layouts are the canonical ones, where a dense layer multiplies by the transposed weight. Only
its LSTM block has others: weights (inputs, 4 x hidden), and the gates in the order input, cell,
forget, output.
"""

import ctypes
import os
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

# At import it warns of every Linux but Ubuntu 16.04, and of the GPU's libraries, which its CPU
# build never loads.
warnings.filterwarnings("ignore", module=r"cntk\.")

import cntk

from ..base import Adapter, factors, slope_found
from ..families import CELLS, LEARNING_RATE, Elman, Family, Layer, Recurrent
from ..launch.batches import Batch
from ..launch.evidence import read_file
from ..libraries import blas
from ..libraries.walks import Functions, unchanged
from ..networks import Network

#: A trainable parameter, and the functions that turn its value to the canonical layout and back to
#: CNTK's.
Trained = Tuple[Any, Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]


def _as_it_is(value: np.ndarray) -> np.ndarray:
    return value


def swap_gates(value: np.ndarray) -> np.ndarray:
    """Turn rows of gates (4 x hidden, ...) from canonical order to CNTK's.

    It is its own inverse.
    """
    first, second, third, fourth = np.split(value, 4)
    return np.concatenate((first, third, second, fourth))


#: How the bias and the weights of a block lie: to the canonical layout, and back. By whether it is
#: a weight.
_GATES = (
    (swap_gates, swap_gates),
    (lambda value: swap_gates(value.T), lambda value: np.ascontiguousarray(swap_gates(value).T)),
)
_TURNED = ((lambda value: np.ascontiguousarray(value.T),) * 2,) * 2


def _over_channels(value: np.ndarray) -> np.ndarray:
    return value.reshape(-1, 1, 1)


def padded(
    inputs: Any, kernel: int, stride: int, padding: int, value: float = 0.0
) -> Tuple[Any, bool]:
    """Return the input of a window, and whether CNTK has to pad it itself.

    The padding is then symmetric.

    CNTK's automatic padding makes the output ceil(side / stride) long and puts the windows' centres
    in the middle of the input: that is (kernel - 1) / 2 on both sides as long as the stride leaves
    at most one row over. Anything else is padded by a separate operation, with ``value``.
    ``inputs`` (channels, side, side).
    """
    if padding == 0:
        return inputs, False
    if 2 * padding == kernel - 1 and (inputs.shape[-1] - 1) % stride < 2:
        return inputs, True
    return cntk.pad(
        inputs, [(0, 0), (padding, padding), (padding, padding)], constant_value=value
    ), False


def max_pool(inputs: Any, kernel: int, stride: int, padding: int) -> Any:
    """Return the maxima of the windows; sizes round down."""
    inputs, automatic = padded(inputs, kernel, stride, padding, float(np.finfo(np.float32).min))
    window, strides = (kernel, kernel), (stride, stride)
    return cntk.pooling(inputs, cntk.MAX_POOLING, window, strides, [False, automatic, automatic])


ACTIVATIONS = {"sigmoid": cntk.sigmoid, "relu": cntk.relu, "tanh": cntk.tanh}


class CntkFunctions(Functions):
    """Networks by CNTK's operators and blocks.

    Parameters are made where they are used, and kept in ``trained``.
    """

    activations = ACTIVATIONS
    pool = staticmethod(max_pool)
    rows = staticmethod(unchanged)

    def __init__(self, family: Any, weights: Mapping[str, np.ndarray]) -> None:
        super().__init__(family, weights)
        self.trained: Dict[str, Trained] = {}

    def parameter(self, name: str) -> Any:
        """Return a parameter that starts as a copy of the weight of this name."""
        made = cntk.Parameter(self.w[name].shape, init=self.w[name])
        self.trained[name] = (made, _as_it_is, _as_it_is)
        return made

    def dense(self, name: str, values: Any) -> Any:
        return cntk.times_transpose(values, self.parameter(name + ".weight")) + self.parameter(
            name + ".bias"
        )

    def convolution(self, spec: Layer, values: Any) -> Any:
        values, automatic = padded(values, spec.kernel, spec.stride, spec.padding)
        strides = (spec.stride, spec.stride)
        padding = [False, automatic, automatic]
        values = cntk.convolution(
            self.parameter(spec.name + ".weight"), values, strides, auto_padding=padding
        )
        if spec.norm:
            return values
        value = self.w[spec.name + ".bias"]
        added = cntk.Parameter((len(value), 1, 1), init=_over_channels(value))
        self.trained[spec.name + ".bias"] = (added, np.ravel, _over_channels)
        return values + added

    def flatten(self, values: Any) -> Any:
        return cntk.reshape(values, (-1,))

    def norm(self, name: str, values: Any) -> Any:
        # Running statistics are constants that it updates itself.
        channels = values.shape[0]
        if self.statistics:
            running = [
                cntk.Constant(self.statistics["%s.%s" % (name, part)])
                for part in ("mean", "variance")
            ]
        else:
            running = [cntk.Constant(0.0, (channels,)), cntk.Constant(0.0, (channels,))]
        return cntk.batch_normalization(
            values,
            self.parameter(name + ".gamma"),
            self.parameter(name + ".beta"),
            *running,
            spatial=True,
            epsilon=self.family.epsilon,
            use_cudnn_engine=False,
            running_count=cntk.Constant(0.0, ()),
        )

    def pixel_mean(self, values: Any) -> Any:
        return self.flatten(cntk.pooling(values, cntk.AVG_POOLING, values.shape[1:]))

    def embedded(self, name: str, symbols: Any) -> Any:
        return cntk.times(symbols, self.parameter(name + ".weight"))

    def recurrent_layer(self, name: str, values: Any) -> Any:
        if self.family.cell == "gru":
            return self._gru(name, values)
        if self.family.cell == "rnn":
            return self._block(
                name, values, cntk.layers.RNNStep(self.family.hidden, activation=cntk.tanh), _TURNED
            )
        return self._block(name, values, cntk.layers.LSTM(self.family.hidden), _GATES)

    def elman_layer(self, values: Any) -> Any:
        block = cntk.layers.RNNStep(
            self.family.hidden, activation=ACTIVATIONS[self.family.activation]
        )
        return self._block("rnn", values, block, _TURNED)

    def _block(self, name: str, values: Any, block: Any, layouts: Any) -> Any:
        """Return the outputs of one of CNTK's blocks, run over the sequence from a zero state."""
        outputs = cntk.layers.Recurrence(block)(values)
        # Their shapes are known only now that the block has inputs.
        parameters = {parameter.name: parameter for parameter in block.parameters}
        for part, theirs in (("input_weight", "W"), ("hidden_weight", "H"), ("bias", "b")):
            canonical = "%s.%s" % (name, part)
            parameter, _, held = self.trained[canonical] = (
                parameters[theirs],
                *layouts[part != "bias"],
            )
            parameter.value = held(self.w[canonical])
        return outputs

    def _gru(self, name: str, values: Any) -> Any:
        """Return the outputs of a GRU by single operators.

        CNTK's own block resets the state before its product.
        """
        hidden = self.family.hidden
        shares = cntk.times_transpose(
            values, self.parameter(name + ".input_weight")
        ) + self.parameter(name + ".bias")
        weight = self.parameter(name + ".hidden_weight")
        bias = self.parameter(name + ".hidden_bias")

        def gate(values: Any, number: int) -> Any:
            return cntk.slice(values, -1, number * hidden, (number + 1) * hidden)

        def turn(before: Any, share: Any) -> Any:
            product = cntk.times_transpose(before, weight) + bias
            reset, update = [
                cntk.sigmoid(gate(share, number) + gate(product, number)) for number in (0, 1)
            ]
            new = cntk.tanh(gate(share, 2) + reset * gate(product, 2))
            return new + update * (before - new)

        return cntk.layers.Recurrence(cntk.Function(turn))(shares)


def input_of(spec: Family) -> Any:
    """Return the variable of the network's inputs."""
    if spec.loss == "squares":
        return cntk.sequence.input_variable(spec.drawn_inputs().shape[-1])
    if isinstance(spec, Recurrent):
        return cntk.sequence.input_variable(spec.vocabulary, is_sparse=spec.embedding > 0)
    return cntk.input_variable(spec.drawn_inputs().shape)


def build(
    spec: Family, weights: Dict[str, np.ndarray]
) -> Tuple[Any, Dict[str, Trained], Tuple[Any, Any]]:
    """Build the network with copies of these weights."""
    functions, inputs = CntkFunctions(spec, weights), input_of(spec)
    if spec.loss == "squares":
        labels = cntk.sequence.input_variable(spec.drawn_labels().shape[-1])
        loss = cntk.reduce_mean(cntk.square(functions.scores(inputs) - labels))
        return loss, functions.trained, (inputs, labels)
    classes = spec.drawn_labels().below
    if isinstance(spec, Recurrent):
        labels = cntk.sequence.input_variable(classes, is_sparse=True)
    else:
        labels = cntk.input_variable(classes, is_sparse=True)
    loss = cntk.cross_entropy_with_softmax(functions.scores(inputs), labels)
    return loss, functions.trained, (inputs, labels)


def values_of(spec: Family, batch: Batch) -> List[Any]:
    """Return copies of inputs and labels.

    Labels and tokens are sparse one-hot vectors, CNTK's form of an index.
    """
    if isinstance(spec, Elman):
        return [cntk.Value(np.array(array)) for array in batch]
    labels = cntk.Value.one_hot(batch.labels.tolist(), spec.drawn_labels().below)
    if isinstance(spec, Recurrent) and spec.embedding:
        return [cntk.Value.one_hot(batch.inputs.tolist(), spec.vocabulary), labels]
    return [cntk.Value(np.array(batch.inputs)), labels]


def loaded_libraries() -> List[str]:
    """Return the paths of the shared libraries in this process."""
    lines = (read_file("/proc/self/maps") or "").splitlines()
    paths = {line.split(None, 5)[-1].strip() for line in lines}
    return sorted(path for path in paths if ".so" in os.path.basename(path))


def describe_mkl() -> Dict[str, Any]:
    """Return the version and the threads of MKL; empty where it is not found."""
    paths = [path for path in loaded_libraries() if os.path.basename(path).startswith("libmklml")]
    if not paths:
        return {}
    library = ctypes.CDLL(paths[0])
    version = (
        ctypes.c_int * 32
    )()  # MKL's ``MKLVersion``, which begins with major, minor and update
    library.MKL_Get_Version(ctypes.byref(version))
    return {
        "name": "mkl",
        "version": "%d.%d.%d" % tuple(version[:3]),
        "threads": int(library.MKL_Get_Max_Threads()),
    }


class CntkAdapter(Adapter):
    """Drives CNTK, whose step on the CPU is over when its call returns.

    Setting: ``kernels`` ("mkl", the default, or "widest"): whether MKL takes the widest vector
    kernels that the processor runs, or chooses by its maker.
    """

    families = (*Adapter.families, "elman")
    cells = tuple(CELLS)
    one_hot = True
    further_axes = ("task",)
    out_of_memory = ("bad_alloc",)

    def set_up(self) -> None:
        if self.settings.get("kernels", "mkl") == "widest":
            blas.take_widest_mkl_kernels()
        if self.cell.threads:
            # The only thread setting it honours, and that up to the CPUs present.
            cntk.cntk_py.set_max_num_cputhreads(self.cell.threads)

    def refuses(self, network: Network) -> str:
        family = network.family
        if isinstance(family, Elman) and family.clip:
            return "clip %g: CNTK's learners clip each parameter's gradient by itself" % family.clip
        if isinstance(family, Elman) and family.alpha != 1.0:
            return "alpha %g: CNTK's RNNStep has no leaky units" % family.alpha
        return ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        loss, self.trained, self.variables = build(network.family, weights)
        self.family = network.family
        self.arguments = dict(zip(self.variables, values_of(self.family, batch)))
        # Without a mini-batch size the rate is that of the mean gradient, whatever the mini-batch.
        rate = cntk.learning_parameter_schedule(LEARNING_RATE)
        self.learner = cntk.sgd([parameter for parameter, _, _ in self.trained.values()], rate)
        self.trainer = cntk.Trainer(None, (loss, None), [self.learner])

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self.family = network.family
        functions, self.variable = CntkFunctions(network.family, weights), input_of(network.family)
        functions.statistics = statistics
        self.forward = functions.scores(self.variable)
        self.show(batch)

    def infer(self) -> None:
        self.result = self.forward.eval(self.arguments, as_numpy=False)

    def show(self, batch: Batch) -> None:
        self.arguments = {self.variable: values_of(self.family, batch)[0]}

    def outputs(self) -> np.ndarray:
        examples = self.cell.known_batch_size
        return np.array(self.result.data.asarray(), dtype=np.float32).reshape(
            examples, -1, self.forward.shape[-1]
        )

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy the weights into the parameters; the mini-batch is an argument of the trainer."""
        for name, (parameter, _, held) in self.trained.items():
            parameter.value = held(weights[name])
        self.arguments = dict(zip(self.variables, values_of(self.family, batch)))

    def step(self) -> None:
        self.trainer.train_minibatch(self.arguments)

    def set_learning_rate(self, rate: float) -> None:
        self.learner.reset_learning_rate(cntk.learning_parameter_schedule(rate))

    def last_loss(self) -> float:
        return float(self.trainer.previous_minibatch_loss_average)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, (parameter, canonical, _) in self.trained.items():
            yield name, canonical(parameter.value)

    def effective_threads(self) -> Optional[int]:
        return int(cntk.cntk_py.get_max_num_cputhreads())

    def describe(self) -> Dict[str, Any]:
        return {
            "framework": "cntk",
            "version": cntk.__version__,
            "blas": describe_mkl(),
            "kernels": blas.mkl_kernels_setting(),
            "execution": "static graph, Trainer.train_minibatch, mini-batch held as Value",
            "recurrence": "loop",
            "recurrent_layers": "layers.Recurrence of layers.LSTM or layers.RNNStep",
            "optimizer": "cntk.sgd",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        cuda = any("libcudart" in path or "libcublas" in path for path in loaded_libraries())
        variable = cntk.input_variable(1, needs_gradient=True)
        slope = float(
            np.ravel(cntk.square(variable).grad({variable: np.array([[3.0]], np.float32)}))[0]
        )
        several = callable(
            getattr(cntk.train.distributed, "data_parallel_distributed_learner", None)
        )
        return {
            "gpu": (cuda, "linked with %s" % ("CUDA" if cuda else "no CUDA library")),
            "automatic_gradients": slope_found(slope),
            "several_processes": (several, "data_parallel_distributed_learner looked up"),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left, right = factors(size)
        rows = cntk.input_variable(size)
        product = cntk.times(rows, cntk.Parameter((size, size), init=right))
        arguments, outputs = {rows: cntk.Value(left)}, [product.output]
        return lambda: product.forward(arguments, outputs, as_numpy=False)


ADAPTER = CntkAdapter
