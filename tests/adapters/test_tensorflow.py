"""What is particular to TensorFlow, shown by the guest in TensorFlow's own interpreter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inside import Guest, check_parameters_come_back_as_they_were_given, guest_of

pytestmark = pytest.mark.framework


@pytest.fixture
def guest(framework_python: Callable[[str], Path], tmp_path: Path) -> Guest:
    """Give a function that runs statements in TensorFlow's interpreter and returns what they bind to ``answer``."""
    return guest_of(
        framework_python("tensorflow"),
        tmp_path,
        "tensorflow",
        "tensorflow",
        "function",
        "import tensorflow as tf",
        TF_CPP_MIN_LOG_LEVEL="3",
    )


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    check_parameters_come_back_as_they_were_given(guest)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, marks=marks, id=",".join(f"{key}={value}" for key, value in settings.items()))
        for settings, marks in (
            ({"recurrence": "loop"}, pytest.mark.slow),
            ({"inter_op": 2}, pytest.mark.slow),
            ({"compile": True}, ()),
            ({"compile": True, "recurrence": "loop"}, pytest.mark.slow),
        )
    ],
)
def test_settings_do_not_change_the_mathematics(guest: Guest, settings: dict[str, Any]) -> None:
    plain: dict[str, Any] = {}
    program = """
        answer = {{}}
        for name, network in SMALL.items():
            adapter = make(name, **{settings!r})
            adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 4))
            adapter.set_learning_rate(network.parity.learning_rate)
            losses = []
            for _ in range(network.parity.steps):
                adapter.step()
                losses.append(adapter.last_loss())
            answer[name] = (losses, {{key: value.reshape(-1)[:50].tolist() for key, value in adapter.parameters()}})
    """
    # Two processes: thread counts are fixed at TensorFlow's first operation.
    found, expected = (guest(program.format(settings=chosen)) for chosen in (settings, plain))
    assert set(found) == set(expected)
    for name, (losses, parameters) in expected.items():
        assert found[name][0] == pytest.approx(losses, rel=1e-4), name
        for key, values in parameters.items():
            assert found[name][1][key] == pytest.approx(values, rel=1e-2, abs=1e-3), (name, key)


def test_padding_is_symmetric_whatever_the_stride(guest: Guest) -> None:
    errors = guest("""
        from guest.tensorflow.networks import convolve, max_pool
        random = np.random.RandomState(0)
        answer = []
        for side, kernel, stride, padding in ((9, 3, 1, 1), (8, 3, 2, 1), (11, 5, 2, 2), (10, 7, 2, 3), (7, 1, 2, 0)):
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
            found = convolve(tf.constant(image), tf.constant(weight), stride, padding)
            pooled = max_pool(tf.constant(image), kernel, stride, padding)
            answer.append(float(np.abs(found.numpy() - wanted[0]).max()))
            answer.append(float(np.abs(pooled.numpy() - wanted[1]).max()))
    """)
    assert max(errors) < 1e-4, errors


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_are_the_cells_whatever_the_environment_says(guest: Guest, threads: int) -> None:
    variables = {"OMP_NUM_THREADS": "3", "TF_NUM_INTRAOP_THREADS": "3", "TF_NUM_INTEROP_THREADS": "3"}
    says, described = guest(
        f"""
        adapter = make("small-dense", threads={threads})
        answer = adapter.effective_threads(), adapter.describe()["inter_op_threads"]
        """,
        **variables,
    )
    assert (says, described) == (threads, 1)


@pytest.mark.parametrize("settings", [{}, {"compile": True}], ids=["function", "xla"])
def test_a_new_rate_takes_effect_at_the_next_step_and_traces_nothing(guest: Guest, settings: dict[str, Any]) -> None:
    moved, traces = guest(f"""
        from guest.tensorflow import networks as built
        traces = []
        loss = built.Model.loss
        built.Model.loss = lambda *given: traces.append(1) or loss(*given)
        adapter = prepared("small-dense", **{settings!r})
        moved = []
        for rate in (0.0, 0.5, 0.0):
            before = dict(adapter.parameters())
            adapter.set_learning_rate(rate)
            adapter.step()
            moved.append(any((value != before[name]).any() for name, value in adapter.parameters()))
        answer = moved, len(traces)
    """)
    assert moved == [False, True, False]
    assert traces == 1


def test_a_failed_allocation_is_recognised(guest: Guest) -> None:
    recognised = guest("""
        adapter, answer = make("small-dense"), []
        wide = tf.ones([1 << 24])
        for provoke in (
            lambda: tf.broadcast_to(wide, [1 << 20, 1 << 24]),
            lambda: np.empty(1 << 50),
            lambda: tf.matmul(tf.ones([1, 3]), tf.ones([4, 1])),
        ):
            try:
                provoke()
            except Exception as error:
                answer.append((type(error).__name__, str(error)[:80], adapter.is_out_of_memory(error)))
    """)
    assert [memory for _, _, memory in recognised] == [True, True, False], recognised


def test_an_unknown_recurrence_is_refused_with_the_known_ones(guest: Guest) -> None:
    refusal = guest("""
        try:
            answer = make("small-recurrent", recurrence="spiral") and "accepted"
        except ValueError as error:
            answer = str(error)
    """)
    assert "'spiral'" in refusal
    assert "loop, unrolled" in refusal


def test_the_description_names_what_decides_speed(guest: Guest) -> None:
    described = guest('answer = make("small-dense", threads=2, compile=True).describe()', TF_ENABLE_ONEDNN_OPTS="0")
    assert described["version"].startswith("2.")
    assert described["execution"] == "one tf.function, compiled by XLA"
    assert described["intra_op_threads"] == 2
    assert described["onednn_enabled"] is False


def test_a_gpu_is_refused_in_tensorflows_own_terms(guest: Guest) -> None:
    said = guest("""
        def refused(device="cuda:0", **cell):
            return make("small-dense", device=device, **cell).supports(SMALL["small-dense"])
        answer = [refused("tpu:0"), refused(precision="bfloat16"), refused(placement="pinned")]
        built = {"is_cuda_build": False}
        tf.sysconfig.get_build_info = lambda: built
        answer.append(refused())
        built.update(is_cuda_build=True, cuda_version="12.5")
        built.update(cuda_compute_capabilities=["sm_80", "sm_90", "compute_90"])
        tf.config.list_physical_devices = lambda kind=None: []
        answer.append(refused())
        tf.config.list_physical_devices = lambda kind=None: ["GPU"]
        for capability in ((7, 5), (8, 6), (12, 0)):
            tf.config.experimental.get_device_details = lambda device: {"compute_capability": capability}
            answer.append(refused(precision="tf32"))
    """)
    words = [
        "tpu:0",
        "float32 and tf32 only",
        "placement pinned",
        "no CUDA code",
        "sees no GPU",
        "no kernels for",
        "",
        "",
    ]
    for (supported, reason), part in zip(said, words, strict=True):
        assert supported is (part == "")
        assert part in reason
    assert "--python tensorflow=" in said[3][1]
    assert "compute capability 7.5 (it has sm_80, sm_90, compute_90)" in said[5][1]
