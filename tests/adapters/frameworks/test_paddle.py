"""What is particular to PaddlePaddle, shown by the guest in PaddlePaddle's own interpreter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inside import Guest, check_parameters_come_back_as_they_were_given, guest_of

pytestmark = pytest.mark.framework

#: The settings of every mode, so that each is held against the reference.
SETTINGS: list[dict[str, Any]] = [{}, {"widest_kernels": True}]


def threads_of(count: int) -> dict[str, str]:
    return {name: str(count) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


@pytest.fixture
def guest(framework_python: Callable[[str], Path], tmp_path: Path) -> Guest:
    """Give a function that runs statements in PaddlePaddle's interpreter and returns what they bind to ``answer``."""
    return guest_of(
        framework_python("paddle"), tmp_path, "paddle", "paddle", "dynamic", "import paddle", **threads_of(1)
    )


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    check_parameters_come_back_as_they_were_given(guest)


@pytest.mark.parametrize(
    "settings", SETTINGS, ids=lambda settings: ",".join(f"{key}={value}" for key, value in settings.items()) or "none"
)
def test_small_networks_train_as_the_reference_does(guest: Guest, settings: dict[str, Any]) -> None:
    errors = guest(f"""
        from guest.reference.adapter import ReferenceAdapter
        answer = {{}}
        for name, network in SMALL.items():
            cell = Cell("reference", "reference", "", name, "cpu", 1, 4)
            expected = small.parity_observation(parity, batches, ReferenceAdapter(cell, {{}}, ""), network, 4)
            found = small.parity_observation(parity, batches, make(name, **{settings!r}), network, 4)
            verdict = parity.judge(found, expected, network.parity)
            answer[name] = (verdict.verdict, verdict.reason)
    """)
    assert {verdict for verdict, _ in errors.values()} == {"agrees"}, errors


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
    moved = guest("""
        adapter = prepared("small-dense")
        answer = []
        for rate in (0.0, 0.5, 0.0):
            before = {name: value.copy() for name, value in adapter.parameters()}
            adapter.set_learning_rate(rate)
            adapter.step()
            answer.append(any((value != before[name]).any() for name, value in adapter.parameters()))
    """)
    assert moved == [False, True, False]


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
    recognised = guest("""
        import resource
        adapter, answer = prepared("small-dense"), []
        adapter.step(); adapter.synchronize()
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (256 << 20), resource.RLIM_INFINITY))
        for provoke in (
            lambda: paddle.zeros([1 << 14, 1 << 15]).numpy(),
            lambda: np.empty(1 << 50),
            lambda: paddle.matmul(paddle.ones([3, 3]), paddle.ones([4, 4])),
        ):
            try:
                provoke()
            except Exception as error:
                answer.append((type(error).__name__, str(error)[-300:], adapter.is_out_of_memory(error)))
    """)
    assert [memory for _, _, memory in recognised] == [True, True, False], recognised


def test_capabilities_are_asked_of_the_framework(guest: Guest) -> None:
    found: dict[str, Any] = guest('answer = make("small-dense").capabilities()')
    assert {key: answer for key, (answer, _) in found.items()} == {
        "gpu": False,
        "automatic_gradients": True,
        "several_processes": True,
    }
    assert all(how for _, how in found.values())


def test_the_description_names_what_decides_speed(guest: Guest) -> None:
    described = guest('answer = make("small-dense").describe()', **threads_of(2))
    assert described["version"] == "3.3.1"
    assert described["mkl_kernels"] == "MKL's own choice"
    assert described["openmp_threads"] == described["mkl_threads"] == 2
    assert {"commit", "blas", "execution", "optimizer"} <= set(described)
