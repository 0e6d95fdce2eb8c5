"""What is particular to PaddlePaddle, shown by the guest in PaddlePaddle's own interpreter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inside import Guest, check_parameters_come_back_as_they_were_given, guest_of

pytestmark = pytest.mark.framework

#: The settings of every mode, so that each is held against the reference.
SETTINGS: list[dict[str, Any]] = [{}, {"onednn": True}, {"static": True}]


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


@pytest.mark.parametrize("settings", SETTINGS[::2], ids=["dynamic", "static"])
def test_one_bias_per_gate_is_trained(guest: Guest, settings: dict[str, Any]) -> None:
    second, left = guest(f"""
        adapter = prepared("small-recurrent", **{settings!r})
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


@pytest.mark.parametrize("settings", SETTINGS[::2], ids=["dynamic", "static"])
def test_a_new_rate_takes_effect_at_the_next_step_and_traces_nothing(guest: Guest, settings: dict[str, Any]) -> None:
    moved, traced = guest(f"""
        from paddle.nn import functional
        traced, original = [], functional.cross_entropy
        functional.cross_entropy = lambda *given: traced.append(1) or original(*given)
        adapter = prepared("small-dense", **{settings!r})
        moved = []
        for rate in (0.0, 0.5, 0.0):
            before = {{name: value.copy() for name, value in adapter.parameters()}}
            adapter.set_learning_rate(rate)
            adapter.step()
            moved.append(any((value != before[name]).any() for name, value in adapter.parameters()))
        answer = moved, len(traced)
    """)
    assert moved == [False, True, False]
    assert traced == (1 if settings else 3)


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
    described = guest('answer = make("small-dense", onednn=True).describe()', **threads_of(2))
    assert described["version"] == "3.3.1"
    assert described["onednn_enabled"] is True
    assert described["openmp_threads"] == described["mkl_threads"] == 2
    assert {"commit", "blas", "execution", "optimizer"} <= set(described)
