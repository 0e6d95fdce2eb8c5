"""Caffe 1.0: nets of layers written by hand in C++, over a BLAS, driven by Caffe's own SGD solver.

Caffe's layouts are the canonical ones (dense (outputs, inputs), convolution OIHW) but for the LSTM,
whose gates come in the order input, forget, output, cell and whose data are time-major.
"""

import ctypes
import os
import tempfile
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import caffe
import numpy as np
from caffe import NetSpec
from caffe import layers as L  # noqa: N812 - as every Caffe script has it
from caffe import params as P  # noqa: N812
from caffe.proto import caffe_pb2
from google.protobuf import text_format

from ..base import Adapter
from ..families import LEARNING_RATE, Family, Layer, Recurrent
from ..launch.batches import Batch, by_example
from ..libraries import blas
from ..libraries.walks import Functions, unchanged
from ..networks import Network

LOSS = "loss"


def reorder_gates(name: str, value: np.ndarray) -> np.ndarray:
    """Turn an LSTM's parameter from the canonical order of gates to Caffe's, and back.

    Other parameters stay.
    """
    if not name.startswith("lstm"):
        return value
    first, second, third, fourth = np.split(value, 4)
    return np.concatenate((first, second, fourth, third))


class CaffeFunctions(Functions):
    """Networks as layers of a net, whose tops are the values.

    ``continues`` is the LSTM's input of that name.
    """

    activations: Dict[str, Any] = {"relu": L.ReLU, "sigmoid": L.Sigmoid, "tanh": L.TanH}
    rows = staticmethod(unchanged)

    def __init__(self, family: Family, spec: Any, continues: Any, infers: bool = False) -> None:
        super().__init__(family, {})
        self.infers = infers
        self.spec = spec
        self.continues = continues
        self.places: Dict[str, Tuple[str, int]] = {}  # layer and number of its blob

    def _add(self, name: str, top: Any, *parts: str) -> Any:
        self.spec[name] = top
        self.places.update(
            ("%s.%s" % (name, part), (name, blob)) for blob, part in enumerate(parts)
        )
        return top

    def _numbered(self, kind: str, top: Any) -> Any:
        return self._add("%s%d" % (kind, len(self.spec.tops)), top)

    def activated(self, values: Any, activation: str) -> Any:
        if activation == "none":
            return values
        return self._numbered(activation, self.activations[activation](values, in_place=True))

    def dense(self, name: str, values: Any) -> Any:
        shapes = {parameter.name: parameter.shape for parameter in self.family.parameters()}
        outputs = shapes[name + ".weight"][0]
        options = {"axis": 2} if self.family.time_major else {}
        return self._add(
            name, L.InnerProduct(values, num_output=outputs, **options), "weight", "bias"
        )

    def convolution(self, spec: Layer, values: Any) -> Any:
        sizes = {
            "num_output": spec.outputs,
            "kernel_size": spec.kernel,
            "stride": spec.stride,
            "pad": spec.padding,
        }
        parts = ("weight",) if spec.norm else ("weight", "bias")
        return self._add(spec.name, L.Convolution(values, bias_term=not spec.norm, **sizes), *parts)

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        # FLOOR: Caffe's own rule rounds the output's size up.
        options = {"pool": P.Pooling.MAX, "round_mode": P.Pooling.FLOOR}
        return self._numbered(
            "pool", L.Pooling(values, kernel_size=kernel, stride=stride, pad=padding, **options)
        )

    def flatten(self, values: Any) -> Any:
        return values  # InnerProduct takes everything behind the first axis as one

    def norm(self, name: str, values: Any) -> Any:
        options = {
            "use_global_stats": self.infers,
            "eps": self.family.epsilon,
            "param": [{"lr_mult": 0.0}] * 3,
        }
        values = self._add(name + ".statistics", L.BatchNorm(values, in_place=True, **options))
        return self._add(name, L.Scale(values, in_place=True, bias_term=True), "gamma", "beta")

    def added(self, inner: Any, values: Any) -> Any:
        return self._numbered("sum", L.Eltwise(inner, values))

    def pixel_mean(self, values: Any) -> Any:
        return self._add("average", L.Pooling(values, pool=P.Pooling.AVE, global_pooling=True))

    def embedded(self, name: str, symbols: Any) -> Any:
        sizes = {"input_dim": self.family.vocabulary, "num_output": self.family.embedding}
        return self._add(name, L.Embed(symbols, bias_term=False, **sizes), "weight")

    def recurrent_layer(self, name: str, values: Any) -> Any:
        top = L.LSTM(values, self.continues, recurrent_param={"num_output": self.family.hidden})
        return self._add(name, top, "input_weight", "bias", "hidden_weight")


def feeds_of(family: Family, batch: Batch, infers: bool = False) -> Dict[str, np.ndarray]:
    """Return the inputs of the net's Input layers; labels only to train."""
    if infers:
        return {name: value for name, value in feeds_of(family, batch).items() if name != "labels"}
    if not isinstance(family, Recurrent):
        return {"inputs": batch.inputs, "labels": batch.labels}
    # Zero where a sequence begins: there the LSTM takes its state for zero.
    continues = np.ones(batch.labels.T.shape, dtype=np.float32)
    continues[0] = 0.0
    return {"inputs": batch.inputs.swapaxes(0, 1), "continues": continues, "labels": batch.labels.T}


def build(
    family: Family, batch: Batch, infers: bool = False
) -> Tuple[Any, Dict[str, Tuple[str, int]]]:
    """Return a net for mini-batches like this one, and the places of its parameters.

    The net is a protocol buffer.
    """
    spec: Any = NetSpec()
    tops = {}
    for name, value in feeds_of(family, batch, infers).items():
        spec[name] = tops[name] = L.Input(shape={"dim": list(value.shape)})
    functions = CaffeFunctions(family, spec, tops.get("continues"), infers)
    scores = functions.scores(tops["inputs"])
    if infers:
        return spec.to_proto(), functions.places
    options: Dict[str, Any] = {"softmax_param": {"axis": 2}} if family.time_major else {}
    spec[LOSS] = L.SoftmaxWithLoss(scores, tops["labels"], **options)
    return spec.to_proto(), functions.places


# A handle of the extension module finds the symbols of every library it depends on: libcaffe, and
# Caffe's own BLAS.
LINKED = ctypes.CDLL(caffe._caffe.__file__)
# CBLAS's numbers.
_ROW_MAJOR = 101
_NOT_TRANSPOSED = 111


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def blas_product(size: int) -> Callable[[], object]:
    """Return a call of the BLAS routine of Caffe's dense layers and convolutions.

    It multiplies square matrices.
    """
    left = np.full((size, size), 0.5, dtype=np.float32)
    right = np.full((size, size), 0.25, dtype=np.float32)
    out = np.full((size, size), 0.0, dtype=np.float32)
    one = ctypes.c_float(1.0)
    zero = ctypes.c_float(0.0)

    def multiply() -> np.ndarray:
        operands = _address(left), size, _address(right), size
        LINKED.cblas_sgemm(
            _ROW_MAJOR,
            _NOT_TRANSPOSED,
            _NOT_TRANSPOSED,
            size,
            size,
            size,
            one,
            *operands,
            zero,
            _address(out),
            size,
        )
        return out

    return multiply


class CaffeAdapter(Adapter):
    """An adapter of Caffe's SGD solver.

    Its ``step(1)`` is forward, loss, backward and update of one mini-batch. The mode chooses the
    build of OpenBLAS before this process starts; there are no settings. A check that fails in
    Caffe's C++ (a failed allocation too) ends the process: the launch then counts as crashed, with
    Caffe's message.
    """

    one_hot = True
    further_axes = ("task",)
    multiply = staticmethod(blas_product)

    def set_up(self) -> None:
        caffe.set_mode_cpu()
        if self.cell.threads:
            blas.set_openblas_threads(LINKED, self.cell.threads)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        net, self.places = build(network.family, batch)
        self.solver = _solver(net)
        self.family = network.family
        self.net = self.solver.net
        self.loss = self.net.blobs[LOSS]
        self.reset(weights, batch)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy weights and mini-batch into the net's blobs.

        Without momentum the solver keeps nothing that counts.
        """
        for name, (layer, blob) in self.places.items():
            self.net.params[layer][blob].data[...] = reorder_gates(name, weights[name])
        self.show(batch)

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        net, self.places = build(network.family, batch, infers=True)
        self.family = network.family
        path = _file_of(net)
        try:
            self.net = caffe.Net(path, caffe.TEST)
        finally:
            os.remove(path)
        self.reset(weights, batch)
        for name, value in statistics.items():
            layer, _, part = name.rpartition(".")
            blobs = self.net.params[layer + ".statistics"]
            blobs[0 if part == "mean" else 1].data[...] = value
            blobs[2].data[...] = 1.0  # what Caffe divides both by
        self.last = self.net.outputs[0]

    def infer(self) -> None:
        self.net._forward(
            0, len(self.net.layers) - 1
        )  # as ``Net.forward``, which also copies the outputs' names

    def show(self, batch: Batch) -> None:
        for name, value in feeds_of(self.family, batch, self.cell.infers).items():
            self.net.blobs[name].data[...] = value

    def outputs(self) -> np.ndarray:
        outputs = np.array(self.net.blobs[self.last].data)
        rows = outputs.reshape(-1, outputs.shape[-1])
        return by_example(self.family, rows, self.cell.known_batch_size)

    def step(self) -> None:
        self.solver.step(1)

    def set_learning_rate(self, rate: float) -> None:
        self.solver.param.base_lr = rate

    def last_loss(self) -> float:
        return float(self.loss.data)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, (layer, blob) in self.places.items():
            yield name, reorder_gates(name, self.net.params[layer][blob].data)

    def effective_threads(self) -> Optional[int]:
        return blas.openblas_threads(LINKED)  # nothing else in Caffe's CPU code is parallel

    def describe(self) -> Dict[str, Any]:
        return {
            "framework": "caffe",
            "version": caffe.__version__,
            "blas": blas.describe_openblas(LINKED),
            "execution": (
                "one layer after another; convolutions as im2col and a matrix product for each "
                "image"
            ),
            "optimizer": None if self.cell.infers else "SGDSolver, momentum 0, weight decay 0",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        return {
            "gpu": (
                hasattr(LINKED, "cublasSgemm_v2"),
                "whether it is linked to cuBLAS, as every build with GPU code is",
            ),
            "automatic_gradients": (
                callable(getattr(caffe.Net, "backward", None)),
                "whether a Net has backward()",
            ),
            "several_processes": (bool(caffe.has_nccl()), "caffe.has_nccl()"),
        }


def _solver(net: Any) -> Any:
    """Return a plain SGD solver of this net."""
    parameter = caffe_pb2.SolverParameter(
        train_net_param=net,
        base_lr=LEARNING_RATE,
        lr_policy="fixed",
        momentum=0.0,
        weight_decay=0.0,
        display=0,
        snapshot=0,
        snapshot_after_train=False,
        solver_mode=caffe_pb2.SolverParameter.CPU,
        type="SGD",
    )
    path = _file_of(parameter)
    try:
        return caffe.SGDSolver(path)
    finally:
        os.remove(path)


def _file_of(message: Any) -> str:
    """Return a new file with a solver or a net, which Caffe reads from files only."""
    descriptor, path = tempfile.mkstemp(suffix=".prototxt", dir=os.getcwd())
    with os.fdopen(descriptor, "w") as file:
        file.write(text_format.MessageToString(message))
    return path


ADAPTER = CaffeAdapter
