"""Builds the networks' specifications as Caffe nets that end in the mean loss.

Caffe's layouts are the canonical ones (dense (outputs, inputs), convolution OIHW) but for the LSTM, whose gates come
in the order input, forget, output, cell and whose data are time-major.
"""

from typing import Any, Dict, NamedTuple

import numpy as np
from caffe import NetSpec
from caffe import layers as L  # noqa: N812 - as every Caffe script has it
from caffe import params as P  # noqa: N812

from ..families import Bottleneck, Chain, Convolution, Dense, Family, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..launch.batches import Batch

LOSS = "loss"


class Place(NamedTuple):
    """Where a parameter lies: a blob of a layer, and whether its rows are LSTM gates in Caffe's order."""

    layer: str
    blob: int
    gates: bool = False


class Built(NamedTuple):
    """A net as Caffe's protocol buffer, and its parameters by canonical name."""

    net: Any  # caffe_pb2.NetParameter
    places: Dict[str, Place]


def reorder_gates(value: np.ndarray) -> np.ndarray:
    """Swap the last two quarters of the rows: from the canonical order of gates to Caffe's, and back."""
    first, second, third, fourth = np.split(value, 4)
    return np.concatenate((first, second, fourth, third))


def _weight_and_bias(name: str, places: Dict[str, Place]) -> None:
    places[name + ".weight"] = Place(name, 0)
    places[name + ".bias"] = Place(name, 1)


def _max_pool(bottom: Any, kernel: int, stride: int, padding: int) -> Any:
    # FLOOR: Caffe's own rule rounds the output's size up.
    return L.Pooling(
        bottom, pool=P.Pooling.MAX, kernel_size=kernel, stride=stride, pad=padding, round_mode=P.Pooling.FLOOR
    )


def _feedforward(spec: NetSpec, family: Chain, values: Any, places: Dict[str, Place]) -> Any:
    for index, layer in enumerate(family.layers):
        if isinstance(layer, Dense):
            spec[layer.name] = values = L.InnerProduct(values, num_output=layer.outputs)
        elif isinstance(layer, Convolution):
            spec[layer.name] = values = L.Convolution(
                values, num_output=layer.out_channels, kernel_size=layer.kernel, stride=layer.stride, pad=layer.padding
            )
        elif isinstance(layer, MaxPool):
            spec["pool%d" % index] = values = _max_pool(values, layer.kernel, layer.stride, layer.padding)
            continue
        else:
            assert isinstance(layer, Flatten)
            continue  # InnerProduct takes everything behind the first axis as one
        _weight_and_bias(layer.name, places)
        if layer.activation != "none":
            activation = {"relu": L.ReLU, "sigmoid": L.Sigmoid, "tanh": L.TanH}[layer.activation]
            spec[layer.name + "." + layer.activation] = values = activation(values, in_place=True)
    return values


def _normalised(
    spec: NetSpec, family: Residual, values: Any, unit: NormalisedConvolution, places: Dict[str, Place], relu: bool
) -> Any:
    """Append a convolution without bias, its normalisation and its ReLU."""
    name, norm = unit.name, unit.norm
    spec[name] = values = L.Convolution(
        values, num_output=unit.outputs, kernel_size=unit.kernel, stride=unit.stride, pad=unit.padding, bias_term=False
    )
    spec[norm + ".statistics"] = values = L.BatchNorm(
        values, in_place=True, use_global_stats=False, eps=family.epsilon, param=[{"lr_mult": 0.0}] * 3
    )
    spec[norm] = values = L.Scale(values, in_place=True, bias_term=True)
    places[name + ".weight"] = Place(name, 0)
    places[norm + ".gamma"] = Place(norm, 0)
    places[norm + ".beta"] = Place(norm, 1)
    if relu:
        spec[norm + ".relu"] = values = L.ReLU(values, in_place=True)
    return values


def _bottleneck(spec: NetSpec, family: Residual, block: Bottleneck, values: Any, places: Dict[str, Place]) -> Any:
    first, second, third = block.body
    inner = _normalised(spec, family, values, first, places, relu=True)
    inner = _normalised(spec, family, inner, second, places, relu=True)
    inner = _normalised(spec, family, inner, third, places, relu=False)
    if block.shortcut is not None:
        values = _normalised(spec, family, values, block.shortcut, places, relu=False)
    spec[block.name] = total = L.Eltwise(inner, values)
    spec[block.name + ".relu"] = total = L.ReLU(total, in_place=True)
    return total


def _residual(spec: NetSpec, family: Residual, values: Any, places: Dict[str, Place]) -> Any:
    values = _normalised(spec, family, values, family.stem, places, relu=True)
    spec["stem_pool"] = values = _max_pool(values, 3, 2, 1)
    for block in family.bottlenecks:
        values = _bottleneck(spec, family, block, values, places)
    spec["average"] = values = L.Pooling(values, pool=P.Pooling.AVE, global_pooling=True)
    spec["fc"] = values = L.InnerProduct(values, num_output=family.classes)
    _weight_and_bias("fc", places)
    return values


def _recurrent(spec: NetSpec, family: Recurrent, symbols: Any, continues: Any, places: Dict[str, Place]) -> Any:
    """Append embedding, LSTM layers and dense layer; time-major symbols to logits (steps, batch, classes)."""
    values = symbols
    if family.embedding:
        spec["embedding"] = values = L.Embed(
            symbols, input_dim=family.vocabulary, num_output=family.embedding, bias_term=False
        )
        places["embedding.weight"] = Place("embedding", 0)
    for name in family.layer_names():
        spec[name] = values = L.LSTM(values, continues, recurrent_param={"num_output": family.hidden})
        for blob, part in enumerate(("input_weight", "bias", "hidden_weight")):
            places[name + "." + part] = Place(name, blob, gates=True)
    spec["fc"] = values = L.InnerProduct(values, num_output=family.vocabulary, axis=2)
    _weight_and_bias("fc", places)
    return values


def feeds_of(family: Family, batch: Batch) -> Dict[str, np.ndarray]:
    """Return what the net's Input layers are fed with."""
    if not isinstance(family, Recurrent):
        return {"inputs": batch.inputs, "labels": batch.labels}
    # Zero where a sequence begins: there the LSTM takes its state for zero.
    continues = np.ones(batch.labels.T.shape, dtype=np.float32)
    continues[0] = 0.0
    return {"inputs": batch.inputs.swapaxes(0, 1), "continues": continues, "labels": batch.labels.T}


def build(family: Family, batch: Batch) -> Built:
    """Return the network as a net of Caffe for mini-batches like this one."""
    spec: Any = NetSpec()
    places: Dict[str, Place] = {}
    tops = {}
    for name, value in feeds_of(family, batch).items():
        spec[name] = tops[name] = L.Input(shape={"dim": list(value.shape)})
    options: Dict[str, Any] = {}
    if isinstance(family, Recurrent):
        scores = _recurrent(spec, family, tops["inputs"], tops["continues"], places)
        options["softmax_param"] = {"axis": 2}
    elif isinstance(family, Residual):
        scores = _residual(spec, family, tops["inputs"], places)
    else:
        assert isinstance(family, Chain)
        scores = _feedforward(spec, family, tops["inputs"], places)
    spec[LOSS] = L.SoftmaxWithLoss(scores, tops["labels"], **options)
    return Built(spec.to_proto(), places)
