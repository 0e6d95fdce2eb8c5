"""What is particular to PaddlePaddle, shown by the guest in PaddlePaddle's own interpreter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

#: The settings of every mode, so that each is held against the reference.
SETTINGS: list[dict[str, Any]] = [{}, {"widest_kernels": True}]


def threads_of(count: int) -> dict[str, str]:
    return {name: str(count) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


@pytest.fixture
def guest(guests: Callable[..., Guest]) -> Guest:
    """Give a function that runs statements in PaddlePaddle's interpreter and returns what they bind to ``answer``."""
    return guests("paddle", "import paddle", "dynamic", **threads_of(1))


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    asked.check_parameters_come_back_as_they_were_given(guest)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_small_networks_train_as_the_reference_does(guest: Guest, settings: dict[str, Any]) -> None:
    asked.check_small_networks_agree_with_the_reference(guest, **settings)


def test_one_bias_per_gate_is_trained(guest: Guest) -> None:
    second, left = guest("""
        adapter = prepared("small-recurrent")
        for _ in range(3):
            adapter.step()
        found = [getattr(adapter.built.layer.lstm, "bias_hh_l%d" % layer) for layer in range(2)]
        gradients = [value.grad for value in adapter.built.layer.parameters()]
        answer = [float(abs(bias.numpy()).max()) for bias in found], sum(value is not None for value in gradients)
    """)
    assert second == [0.0, 0.0]
    assert left == 0, "gradients that are not cleared add up"


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_its_libraries_tell_their_threads(guest: Guest, threads: int) -> None:
    says = guest(f"answer = make('small-dense', threads={threads}).effective_threads()", **threads_of(threads))
    assert says == threads


def test_a_knob_that_did_nothing_is_told(guest: Guest) -> None:
    """The framework's word is what it does, not what the cell asked for."""
    assert guest("answer = make('small-dense', threads=4).effective_threads()", **threads_of(3)) == 3


def test_a_new_rate_takes_effect_at_the_next_step(guest: Guest) -> None:
    asked.check_a_new_rate_takes_effect(guest)


def test_mkl_takes_the_kernels_it_is_told(guest: Guest) -> None:
    """Other kernels add up in another order: the last bits of a large product differ."""
    products = [
        guest(f"""
            make("small-dense", widest_kernels={widest}).supports(SMALL["small-dense"])
            random = np.random.RandomState(0)
            left, right = (paddle.to_tensor(random.rand(300, 300).astype("float32")) for _ in range(2))
            answer = paddle.matmul(left, right).numpy().ravel().tolist()
        """)
        for widest in (False, True)
    ]
    vendor = Path("/proc/cpuinfo").read_text()
    assert products[0] == pytest.approx(products[1], rel=1e-5)
    if "AuthenticAMD" in vendor and "avx2" in vendor:
        assert products[0] != products[1]


def test_a_failed_allocation_is_recognised(guest: Guest) -> None:
    provoked = {
        "paddle.zeros([1 << 14, 1 << 15]).numpy()": True,
        "np.empty(1 << 50)": True,
        "paddle.matmul(paddle.ones([3, 3]), paddle.ones([4, 4]))": False,
    }
    asked.check_failures_to_allocate(guest, provoked, further_bytes=256 << 20)


def test_capabilities_are_asked_of_the_framework(guest: Guest) -> None:
    asked.check_capabilities(guest, gpu=False, automatic_gradients=True, several_processes=True)


def test_the_description_names_what_decides_speed(guest: Guest) -> None:
    described = guest('answer = make("small-dense").describe()', **threads_of(2))
    assert described["version"] == "3.3.1"
    assert described["mkl_kernels"] == "MKL's own choice"
    assert described["openmp_threads"] == described["mkl_threads"] == 2
    assert {"commit", "blas", "execution", "optimizer"} <= set(described)
