"""Networks as Caffe nets that end in the mean loss.

Caffe's layouts are the canonical ones (dense (outputs, inputs), convolution OIHW) but for the LSTM, whose gates come
in the order input, forget, output, cell and whose data are time-major.
"""

from typing import Any, Dict, Tuple

import numpy as np
from caffe import NetSpec
from caffe import layers as L  # noqa: N812 - as every Caffe script has it
from caffe import params as P  # noqa: N812

from ..families import Family, Layer, Recurrent
from ..launch.batches import Batch
from ..libraries.walks import Functions

LOSS = "loss"


def reorder_gates(name: str, value: np.ndarray) -> np.ndarray:
    """Turn an LSTM's parameter from the canonical order of gates to Caffe's, and back; others stay."""
    if not name.startswith("lstm"):
        return value
    first, second, third, fourth = np.split(value, 4)
    return np.concatenate((first, second, fourth, third))


class CaffeFunctions(Functions):
    """Networks as layers of a net; values are their tops. ``continues`` is the LSTM's input of that name."""

    activations: Dict[str, Any] = {"relu": L.ReLU, "sigmoid": L.Sigmoid, "tanh": L.TanH}

    def __init__(self, family: Family, spec: Any, continues: Any) -> None:
        super().__init__(family, {})
        self.spec, self.continues = spec, continues
        self.places: Dict[str, Tuple[str, int]] = {}  # layer and number of its blob

    def _add(self, name: str, top: Any, *parts: str) -> Any:
        self.spec[name] = top
        self.places.update(("%s.%s" % (name, part), (name, blob)) for blob, part in enumerate(parts))
        return top

    def _numbered(self, kind: str, top: Any) -> Any:
        return self._add("%s%d" % (kind, len(self.spec.tops)), top)

    def activated(self, values: Any, activation: str) -> Any:
        if activation == "none":
            return values
        return self._numbered(activation, self.activations[activation](values, in_place=True))

    def dense(self, name: str, values: Any) -> Any:
        outputs = next(each.shape[0] for each in self.family.parameters() if each.name == name + ".weight")
        options = {"axis": 2} if self.family.time_major else {}
        return self._add(name, L.InnerProduct(values, num_output=outputs, **options), "weight", "bias")

    def convolution(self, spec: Layer, values: Any) -> Any:
        sizes = {"num_output": spec.outputs, "kernel_size": spec.kernel, "stride": spec.stride, "pad": spec.padding}
        parts = ("weight",) if spec.norm else ("weight", "bias")
        return self._add(spec.name, L.Convolution(values, bias_term=not spec.norm, **sizes), *parts)

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        # FLOOR: Caffe's own rule rounds the output's size up.
        options = {"pool": P.Pooling.MAX, "round_mode": P.Pooling.FLOOR}
        return self._numbered("pool", L.Pooling(values, kernel_size=kernel, stride=stride, pad=padding, **options))

    def flatten(self, values: Any) -> Any:
        return values  # InnerProduct takes everything behind the first axis as one

    def norm(self, name: str, values: Any) -> Any:
        options = {"use_global_stats": False, "eps": self.family.epsilon, "param": [{"lr_mult": 0.0}] * 3}
        values = self._add(name + ".statistics", L.BatchNorm(values, in_place=True, **options))
        return self._add(name, L.Scale(values, in_place=True, bias_term=True), "gamma", "beta")

    def added(self, inner: Any, values: Any) -> Any:
        return self._numbered("sum", L.Eltwise(inner, values))

    def pixel_mean(self, values: Any) -> Any:
        return self._add("average", L.Pooling(values, pool=P.Pooling.AVE, global_pooling=True))

    def rows(self, values: Any) -> Any:
        return values

    def embedded(self, name: str, symbols: Any) -> Any:
        sizes = {"input_dim": self.family.vocabulary, "num_output": self.family.embedding}
        return self._add(name, L.Embed(symbols, bias_term=False, **sizes), "weight")

    def recurrent_layer(self, name: str, values: Any) -> Any:
        top = L.LSTM(values, self.continues, recurrent_param={"num_output": self.family.hidden})
        return self._add(name, top, "input_weight", "bias", "hidden_weight")


def feeds_of(family: Family, batch: Batch) -> Dict[str, np.ndarray]:
    """Return the inputs of the net's Input layers."""
    if not isinstance(family, Recurrent):
        return {"inputs": batch.inputs, "labels": batch.labels}
    # Zero where a sequence begins: there the LSTM takes its state for zero.
    continues = np.ones(batch.labels.T.shape, dtype=np.float32)
    continues[0] = 0.0
    return {"inputs": batch.inputs.swapaxes(0, 1), "continues": continues, "labels": batch.labels.T}


def build(family: Family, batch: Batch) -> Tuple[Any, Dict[str, Tuple[str, int]]]:
    """Return a net for mini-batches like this one, as a protocol buffer, and the places of its parameters."""
    spec: Any = NetSpec()
    tops = {}
    for name, value in feeds_of(family, batch).items():
        spec[name] = tops[name] = L.Input(shape={"dim": list(value.shape)})
    functions = CaffeFunctions(family, spec, tops.get("continues"))
    scores = functions.scores(tops["inputs"])
    options: Dict[str, Any] = {"softmax_param": {"axis": 2}} if family.time_major else {}
    spec[LOSS] = L.SoftmaxWithLoss(scores, tops["labels"], **options)
    return spec.to_proto(), functions.places
