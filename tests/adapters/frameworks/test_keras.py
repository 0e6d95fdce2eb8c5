"""What is particular to Keras, shown by the guest in its environment on each of its backends."""

from collections.abc import Callable

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module", params=["tensorflow", "jax", "torch"])
def backend(request: pytest.FixtureRequest) -> str:
    """Give each backend in turn, all tests of the one before those of the next: an interpreter starts slowly."""
    return str(request.param)


@pytest.fixture
def guest(backend: str, guests: Callable[..., Guest]) -> Guest:
    """Give the function that runs statements on a backend."""
    return guests("keras", backend)


def test_padding_is_symmetric_whatever_the_stride_and_never_pooled(guest: Guest) -> None:
    layers = """
from guest.keras.networks import KerasFunctions
formats = ("channels_last",) if keras.backend.backend() == "tensorflow" else ("channels_last", "channels_first")
def made(image, build):
    found = []
    for data_format in formats:
        last = data_format == "channels_last"
        held = image if last else image.transpose(0, 3, 1, 2).copy()
        inputs, builder = keras.Input(batch_shape=held.shape), KerasFunctions(None, dict(data_format=data_format))
        one = keras.ops.convert_to_numpy(keras.Model(inputs, build(builder, inputs))(held))
        found.append(one if last else one.transpose(0, 2, 3, 1))
    return found
def convolved(image, weight, stride, padding):
    def build(builder, inputs):
        sizes = dict(outputs=weight.shape[3], kernel=weight.shape[0], stride=stride, padding=padding)
        outputs = builder.convolution(families.Layer("convolution", "c", norm="n", **sizes), inputs)
        builder.parameters["c.weight"][0].assign(weight)
        return outputs
    return made(image, build)
def pooled(image, kernel, stride, padding):
    return made(image, lambda builder, inputs: builder.pool(inputs, kernel, stride, padding))
"""
    asked.check_padding_is_symmetric(guest, layers, [(8, 2, 1, 1)])
