"""What is particular to MXNet, shown by the guest in MXNet's own interpreter."""

from collections.abc import Callable
from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework


@pytest.fixture
def guest(guests: Callable[..., Guest]) -> Guest:
    """Give a function that runs statements in MXNet's interpreter and returns what they bind to ``answer``."""
    return guests("mxnet", "import mxnet as mx", OMP_NUM_THREADS="1")


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    asked.check_parameters_come_back_as_they_were_given(guest)


@pytest.mark.parametrize("settings", [{"static": False}, {"fused_norm": False}], ids=str)
def test_settings_do_not_change_the_mathematics(guest: Guest, settings: dict[str, Any]) -> None:
    asked.check_settings_agree(guest, settings, {})


def test_one_bias_per_gate_is_trained(guest: Guest) -> None:
    second = guest("""
        adapter = prepared("small-recurrent")
        adapter.step()
        found = adapter.block.collect_params(".*h2h_bias")
        answer = [float(abs(parameter.data()).max().asscalar()) for parameter in found.values()]
    """)
    assert second == [0.0, 0.0]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_engines_worker_tells_its_threads(guest: Guest, threads: int) -> None:
    says = guest(f"answer = make('small-dense', threads={threads}).effective_threads()", OMP_NUM_THREADS=str(threads))
    assert says == threads


def test_a_knob_that_did_nothing_is_told(guest: Guest) -> None:
    """The framework's word is what it does, not what the cell asked for."""
    assert guest("answer = make('small-dense', threads=4).effective_threads()", OMP_NUM_THREADS="3") == 3


def test_a_new_rate_takes_effect_at_the_next_step_in_the_same_graph(guest: Guest) -> None:
    asked.check_a_new_rate_takes_effect(guest, same="id(adapter.block._cached_op)")


def test_a_step_is_queued_and_synchronise_waits_for_it(guest: Guest) -> None:
    asked.check_step_is_queued(guest)


def test_a_failed_allocation_is_recognised(guest: Guest) -> None:
    provoked = {
        "mx.nd.zeros((1 << 14, 1 << 15)).wait_to_read()": True,
        "mx.nd.dot(mx.nd.ones((3, 3)), mx.nd.ones((4, 4))).wait_to_read()": False,
    }
    asked.check_failures_to_allocate(guest, provoked, further_bytes=256 << 20)


def test_the_description_names_what_decides_speed(guest: Guest) -> None:
    described = guest("""
        adapter = prepared("small-dense")
        adapter.step()
        answer = adapter.describe()
    """)
    assert described["version"] == "1.9.1"
    assert described["dense_products"] == "oneDNN"
    assert described["blas"]["threads"] == 1
    assert {"features", "blas", "execution", "optimizer", "engine"} <= set(described)


def test_a_gpu_is_refused_in_mxnets_own_terms(guest: Guest) -> None:
    said = guest("""
        from guest.mxnet import devices
        asked = [{"device": "rocm:0"}, {"precision": "tf32"}, {"placement": "pinned"}, {}]
        network = SMALL["small-dense"]
        answer = [list(make(network.name, **{"device": "cuda:0", **each}).supports(network)) for each in asked]
        # A build that says it has CUDA, on a machine where nothing answers.
        mx.runtime.Features.is_enabled = lambda self, name: True
        answer.append(list(make(network.name, device="cuda:0").supports(network)))
        answer.append([str(devices.context(Cell("mxnet", "mxnet", "hybrid", "fcn5", "cuda:0", 1, 4))),
                       os.environ["NVIDIA_TF32_OVERRIDE"]])
    """)
    words = [
        "device rocm:0: MXNet is driven here on the CPU and on CUDA GPUs only",
        "precision tf32",
        "placement pinned",
        "this build was made without CUDA",
        "cannot use the GPU: ",
    ]
    asked.check_reasons(said[:-1], words)
    assert "--python mxnet=" in said[3][1]
    assert said[-1] == ["gpu(0)", "0"]
