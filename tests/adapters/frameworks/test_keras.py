"""What is particular to Keras, shown by the guest in its environment on each of its backends."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest

from dlbench.suites.planning.framework import find

pytestmark = pytest.mark.framework

BACKENDS = ("tensorflow", "jax", "torch")


@pytest.fixture
def on(guests: Callable[..., Guest]) -> Callable[[str], Guest]:
    """Give a function that returns, for a backend, the function running statements with that mode's variables."""
    return lambda backend: guests("keras", "import keras", backend, **find("keras").launch_variables(backend, 1))


@pytest.fixture(params=BACKENDS)
def guest(request: pytest.FixtureRequest, on: Callable[[str], Guest]) -> Guest:
    """Give the function that runs statements, on each backend in turn."""
    return on(request.param)


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    asked.check_parameters_come_back_as_they_were_given(guest)


@pytest.mark.parametrize(
    ("backend", "settings"),
    [
        *((backend, settings) for backend in BACKENDS for settings in ({}, {"unroll": True}, {"use_cudnn": False})),
        ("jax", {"data_format": "channels_first"}),
        ("torch", {"data_format": "channels_first"}),
        ("tensorflow", {"jit_compile": True}),
        ("jax", {"jit_compile": False}),
    ],
    ids=str,
)
def test_every_setting_agrees_with_the_reference(
    on: Callable[[str], Guest], backend: str, settings: dict[str, Any]
) -> None:
    asked.check_small_networks_agree_with_the_reference(on(backend), **settings)


def test_padding_is_symmetric_whatever_the_stride_and_never_pooled(guest: Guest) -> None:
    layers = """
from guest.keras.networks import Builder, Options
formats = ("channels_last",) if keras.backend.backend() == "tensorflow" else ("channels_last", "channels_first")
def made(image, build):
    found = []
    for data_format in formats:
        last = data_format == "channels_last"
        held = image if last else image.transpose(0, 3, 1, 2).copy()
        inputs, builder = keras.Input(batch_shape=held.shape), Builder(Options(data_format, False, "auto"))
        one = keras.ops.convert_to_numpy(keras.Model(inputs, build(builder, inputs))(held))
        found.append(one if last else one.transpose(0, 2, 3, 1))
    return found
def convolved(image, weight, stride, padding):
    def build(builder, inputs):
        outputs = builder.convolution(inputs, "c", weight.shape[3], weight.shape[0], stride, padding)
        builder.parameters["c.weight"][0].assign(weight)
        return outputs
    return made(image, build)
def pooled(image, kernel, stride, padding):
    return made(image, lambda builder, inputs: builder.pool(inputs, kernel, stride, padding))
"""
    asked.check_padding_is_symmetric(guest, layers, [(8, 2, 1, 1)])


def test_moving_statistics_do_not_enter_the_step(guest: Guest) -> None:
    same = guest("""
        from guest.keras import networks as built
        def observed():
            network = SMALL["small-residual"]
            seen = small.parity_observation(parity, batches, make("small-residual"), network, 4)
            return seen.losses, [value.tolist() for _, value in sorted(seen.updates.items())]
        usual = observed()
        class Odd(keras.layers.BatchNormalization):
            def __init__(self, **given):
                odd = keras.initializers.Constant(5.0)
                super().__init__(moving_mean_initializer=odd, moving_variance_initializer=odd, **given)
        built.layers.BatchNormalization = Odd
        answer = usual == observed()
    """)
    assert same


def test_a_new_rate_takes_effect_at_the_next_step_and_traces_nothing(guest: Guest) -> None:
    counted = """
traces, compute = [], keras.Model.compute_loss
keras.Model.compute_loss = lambda *given, **named: traces.append(1) or compute(*given, **named)
"""
    # Torch compiles nothing: each step computes its loss anew.
    asked.check_a_new_rate_takes_effect(guest, 'keras.backend.backend() == "torch" or len(traces)', counted)


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_are_the_cells(on: Callable[[str], Guest], backend: str, threads: int) -> None:
    says, described = on(backend)(f"""
        adapter = make("small-dense", threads={threads})
        described = adapter.describe()
        answer = adapter.effective_threads(), (described["intra_op_threads"], described["inter_op_threads"])
    """)
    assert says == threads
    assert described == [threads, 1]


def test_jax_has_no_word_on_its_threads(on: Callable[[str], Guest]) -> None:
    assert on("jax")("answer = make('small-dense').effective_threads()") is None


def test_a_step_on_jax_is_dispatched_and_synchronise_waits_for_it(on: Callable[[str], Guest]) -> None:
    asked.check_step_is_queued(on("jax"))


def test_a_failed_allocation_is_recognised(guest: Guest) -> None:
    provoked = {
        "keras.ops.ones((1 << 24, 1 << 20)) + 1": True,
        "np.empty(1 << 50)": True,
        "keras.ops.matmul(keras.ops.ones((1, 3)), keras.ops.ones((4, 1)))": False,
    }
    asked.check_failures_to_allocate(guest, provoked, 'adapter = make("small-dense")')


def test_a_users_own_defaults_for_keras_are_neither_read_nor_written(guest: Guest, tmp_path: Path) -> None:
    folder = tmp_path / "home" / ".keras"
    folder.mkdir(parents=True)
    own = '{"floatx": "float64", "image_data_format": "channels_first", "backend": "numpy", "epsilon": 0.5}'
    (folder / "keras.json").write_text(own)
    asked.check_small_networks_agree_with_the_reference(partial(guest, HOME=str(tmp_path / "home")))
    (folder / "keras.json").unlink()
    guest("answer = None", HOME=str(tmp_path / "home"))
    assert not list(folder.iterdir())


REFUSAL = """
    try:
        answer = make("small-dense", {given}) and "accepted"
    except ValueError as error:
        answer = str(error)
"""


def test_another_backend_is_refused_with_those_that_are_driven(on: Callable[[str], Guest]) -> None:
    refusal = on("jax")(REFUSAL.format(given=""), KERAS_BACKEND="numpy")
    assert "backend numpy" in refusal
    assert "tensorflow, jax, torch" in refusal


def test_an_order_of_axes_without_a_kernel_is_refused(on: Callable[[str], Guest]) -> None:
    refusal = on("tensorflow")(REFUSAL.format(given="data_format='channels_first'"))
    assert "'channels_first'" in refusal
    assert "channels_last" in refusal
    assert "'diagonal'" in on("torch")(REFUSAL.format(given="data_format='diagonal'"))


def test_another_placement_is_declined_with_the_reason(guest: Guest) -> None:
    supported, reason = guest("""
        cell = Cell("keras", "keras", "", "fcn5", "cpu", 1, 4, placement="host")
        answer = ADAPTER(cell, {}, "").supports(SMALL["small-dense"])
    """)
    assert not supported
    assert "placement host" in reason


def test_capabilities_are_asked_of_the_backend(guest: Guest) -> None:
    found = guest("answer = make('small-dense').capabilities()")
    assert set(found) == {"gpu", "automatic_gradients", "several_processes"}
    assert found["automatic_gradients"][0] is True
    assert all(isinstance(answer, bool) and how for answer, how in found.values())


def test_the_product_is_a_product_of_the_backend(guest: Guest) -> None:
    shape, kind, backend = guest("""
        product = make("small-dense").multiply(64)()
        answer = list(product.shape), str(product.dtype), type(product).__module__
    """)
    assert shape == [64, 64]
    assert "float32" in kind
    assert backend.startswith(("tensorflow", "jax", "torch"))


def test_the_description_names_what_decides_speed(on: Callable[[str], Guest]) -> None:
    compiled = {}
    for backend in BACKENDS:
        described = on(backend)("""
            adapter = prepared("small-dense")
            adapter.step()
            answer = adapter.describe()
        """)
        assert described["framework"] == "keras"
        assert described["version"].startswith("3.")
        assert described["backend"] == backend
        assert "train_function" in described["execution"]
        assert {"backend_version", "image_layout", "unroll", "use_cudnn", "blas"} <= set(described)
        compiled[backend] = described["jit_compile"]
    # What Keras's own "auto" comes to without a GPU.
    assert compiled == {"tensorflow": False, "jax": True, "torch": False}
