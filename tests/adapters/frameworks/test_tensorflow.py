"""What is particular to TensorFlow, shown by the guest in TensorFlow's own interpreter."""

from collections.abc import Callable
from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework


@pytest.fixture
def guest(guests: Callable[..., Guest]) -> Guest:
    """Give a function that runs statements in TensorFlow's interpreter and returns what they bind to ``answer``."""
    return guests("tensorflow", "import tensorflow as tf", TF_CPP_MIN_LOG_LEVEL="3")


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    asked.check_parameters_come_back_as_they_were_given(guest)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, marks=marks, id=",".join(f"{key}={value}" for key, value in settings.items()))
        for settings, marks in (
            ({"recurrence": "loop"}, pytest.mark.slow),
            ({"inter_op": 2}, pytest.mark.slow),
            ({"compile": True}, pytest.mark.slow),
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
    layers = """
from guest.tensorflow.networks import convolve, max_pool
def convolved(image, weight, stride, padding):
    return [convolve(tf.constant(image), tf.constant(weight), stride, padding).numpy()]
def pooled(image, kernel, stride, padding):
    return [max_pool(tf.constant(image), kernel, stride, padding).numpy()]
"""
    asked.check_padding_is_symmetric(guest, layers)


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
    counted = """
from guest.tensorflow import networks as built
traces, loss = [], built.Model.loss
built.Model.loss = lambda *given: traces.append(1) or loss(*given)
"""
    asked.check_a_new_rate_takes_effect(guest, same="len(traces)", setup=counted, **settings)


def test_a_failed_allocation_is_recognised(guest: Guest) -> None:
    provoked = {
        "tf.broadcast_to(wide, [1 << 20, 1 << 24])": True,
        "np.empty(1 << 50)": True,
        "tf.matmul(tf.ones([1, 3]), tf.ones([4, 1]))": False,
    }
    asked.check_failures_to_allocate(guest, provoked, 'adapter, wide = make("small-dense"), tf.ones([1 << 24])')


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
    asked.check_reasons(said, words)
    assert "--python tensorflow=" in said[3][1]
    assert "compute capability 7.5 (it has sm_80, sm_90, compute_90)" in said[5][1]
