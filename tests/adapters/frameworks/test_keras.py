"""What is particular to Keras, shown by the guest in its environment on each of its backends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inside import Guest, check_parameters_come_back_as_they_were_given, guest_of

from dlbench.suites.planning.framework import find

pytestmark = pytest.mark.framework

BACKENDS = ("tensorflow", "jax", "torch")
# For modules that know both a folder's networks and the reference's answer.
REFERENCE = "from guest.reference.adapter import ReferenceAdapter; import keras"


@pytest.fixture
def on(framework_python: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Guest]:
    """Give a function that returns, for a backend, the function running statements with that mode's variables."""

    def guest(backend: str) -> Guest:
        variables = find("keras").launch_variables(backend, 1)
        return guest_of(framework_python("keras"), tmp_path, "keras", "keras", backend, REFERENCE, **variables)

    return guest


@pytest.fixture(params=BACKENDS)
def guest(request: pytest.FixtureRequest, on: Callable[[str], Guest]) -> Guest:
    """Give the function that runs statements, on each backend in turn."""
    return on(request.param)


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    check_parameters_come_back_as_they_were_given(guest)


AGREES = """
    answer = {{}}
    for name, network in SMALL.items():
        observed = small.parity_observation(parity, batches, make(name, **{settings!r}), network, 4)
        reference = ReferenceAdapter(Cell("reference", "reference", "", name, "cpu", 1, 4), {{}}, "")
        expected = small.parity_observation(parity, batches, reference, network, 4)
        verdict = parity.judge(observed, expected, network.parity)
        answer[name] = (verdict.verdict, verdict.reason)
"""


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
    errors = on(backend)(AGREES.format(settings=settings))
    assert len(errors) == 5
    assert {verdict for verdict, _ in errors.values()} == {"agrees"}, errors


def test_padding_is_symmetric_whatever_the_stride_and_never_pooled(guest: Guest) -> None:
    errors = guest("""
        from guest.keras.networks import Builder, Options
        random = np.random.RandomState(0)
        answer = []
        formats = ("channels_last",) if keras.backend.backend() == "tensorflow" else ("channels_last", "channels_first")
        cases = ((9, 3, 1, 1), (8, 3, 2, 1), (11, 5, 2, 2), (10, 7, 2, 3), (7, 1, 2, 0), (8, 2, 1, 1))
        for data_format in formats:
            last = data_format == "channels_last"
            for side, kernel, stride, padding in cases:
                image = random.rand(1, side, side, 2).astype("float32") - 2
                weight = random.rand(kernel, kernel, 2, 3).astype("float32")
                around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
                padded, low = np.pad(image, around), np.pad(image, around, constant_values=-np.inf)
                out = (side + 2 * padding - kernel) // stride + 1
                wanted = np.zeros((1, out, out, 3)), np.zeros((1, out, out, 2))
                for y in range(out):
                    for x in range(out):
                        window = np.s_[:, y * stride : y * stride + kernel, x * stride : x * stride + kernel]
                        wanted[0][:, y, x] = np.einsum("bhwi,hwio->bo", padded[window], weight)
                        wanted[1][:, y, x] = low[window].max((1, 2))
                builder = Builder(Options(data_format, False, "auto"))
                held = image if last else image.transpose(0, 3, 1, 2).copy()
                inputs = keras.Input(batch_shape=held.shape)
                convolved = builder.convolution(inputs, "c", 3, kernel, stride, padding)
                builder.parameters["c.weight"][0].assign(weight)
                pooled = builder.pool(inputs, kernel, stride, padding)
                found = keras.Model(inputs, [convolved, pooled])(held)
                for one, expected in zip(found, wanted):
                    one = keras.ops.convert_to_numpy(one)
                    one = one if last else one.transpose(0, 2, 3, 1)
                    answer.append(float(np.abs(one - expected).max()) if one.shape == expected.shape else 1e9)
    """)
    assert max(errors) < 1e-4, errors


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
    moved, after_first, at_end, compiles = guest("""
        traces = []
        compute = keras.Model.compute_loss
        keras.Model.compute_loss = lambda *given, **named: traces.append(1) or compute(*given, **named)
        adapter = prepared("small-dense")
        adapter.step()
        after_first, moved = len(traces), []
        for rate in (0.0, 0.5, 0.0):
            before = {name: value.copy() for name, value in adapter.parameters()}
            adapter.set_learning_rate(rate)
            adapter.step()
            moved.append(any((value != before[name]).any() for name, value in adapter.parameters()))
        answer = moved, after_first, len(traces), keras.backend.backend() != "torch"
    """)
    assert moved == [False, True, False]
    assert after_first >= 1
    assert at_end == after_first if compiles else at_end == 4


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
    dispatched, waited = on("jax")("""
        import time
        n = networks
        wide = n.Feedforward((2048,), (n.Dense("fc1", 2048, 4096, "relu"), n.Dense("fc2", 4096, 2048, "none")))
        network = SMALL["small-dense"]._replace(family=wide)
        adapter = make("small-dense")
        adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 256))
        adapter.step(); adapter.synchronize()
        answer = []
        start = time.perf_counter(); adapter.step(); answer.append(time.perf_counter() - start)
        adapter.synchronize(); answer.append(time.perf_counter() - start)
    """)
    assert waited > 2 * dispatched


def test_a_failed_allocation_is_recognised(guest: Guest) -> None:
    recognised = guest("""
        adapter, answer = make("small-dense"), []
        for provoke in (
            lambda: keras.ops.ones((1 << 24, 1 << 20)) + 1,
            lambda: np.empty(1 << 50),
            lambda: keras.ops.matmul(keras.ops.ones((1, 3)), keras.ops.ones((4, 1))),
        ):
            try:
                provoke()
            except Exception as error:
                answer.append((type(error).__name__, str(error)[:80], adapter.is_out_of_memory(error)))
    """)
    assert [memory for _, _, memory in recognised] == [True, True, False], recognised


def test_a_users_own_defaults_for_keras_are_neither_read_nor_written(guest: Guest, tmp_path: Path) -> None:
    folder = tmp_path / "home" / ".keras"
    folder.mkdir(parents=True)
    own = '{"floatx": "float64", "image_data_format": "channels_first", "backend": "numpy", "epsilon": 0.5}'
    (folder / "keras.json").write_text(own)
    errors = guest(AGREES.format(settings={}), HOME=str(tmp_path / "home"))
    assert {verdict for verdict, _ in errors.values()} == {"agrees"}, errors
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
