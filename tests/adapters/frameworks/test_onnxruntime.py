"""What is particular to ONNX Runtime's training interface, looked at inside its own interpreter."""

from collections.abc import Callable
from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

IMPORTS = "from guest.libraries.onnx_graphs import permute_gates"


@pytest.fixture
def guest(guests: Callable[..., Guest]) -> Guest:
    """Give a function that runs statements in ONNX Runtime's interpreter and returns what they bind to ``answer``."""
    return guests("onnxruntime", IMPORTS)


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    asked.check_parameters_come_back_as_they_were_given(guest)


def test_gates_are_permuted_and_only_in_lstm_layers(guest: Guest) -> None:
    found = guest("""
        network = SMALL["small-recurrent"]
        value = np.arange(20.0).reshape(20, 1)
        there = permute_gates(network, "lstm1.input_weight", value)
        back = permute_gates(network, "lstm1.input_weight", there)
        same = permute_gates(network, "fc.weight", value)
        answer = there[:, 0].tolist(), np.array_equal(back, value), np.array_equal(same, value)
    """)
    # Five units: input and forget stay, output comes before cell.
    assert found == [[*range(10), *range(15, 20), *range(10, 15)], True, True]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_session_has_a_pool_of_the_threads_requested(guest: Guest, threads: int) -> None:
    """The training session and the SGD session."""
    asked.check_a_session_has_a_pool_of_its_threads(guest, threads, sessions=2)


def test_waiting_threads_spin_only_while_there_is_a_core_for_each(guest: Guest) -> None:
    asked.check_spinning_needs_a_core_each(guest)


def test_a_new_rate_holds_from_the_next_step_and_keeps_the_sessions(guest: Guest) -> None:
    asked.check_rates_move_in_proportion(guest, same="(adapter.module._model, adapter.optimizer._optimizer)")


def test_gradients_do_not_accumulate_from_step_to_step(guest: Guest) -> None:
    first, second = guest("""
        adapter = prepared("small-dense")
        adapter.set_learning_rate(1e-4)
        def move():
            before = {name: value.copy() for name, value in adapter.parameters()}
            adapter.step()
            return float(sum(np.abs(value - before[name]).sum() for name, value in adapter.parameters()))
        answer = move(), move()
    """)
    assert second == pytest.approx(first, rel=0.02)


def test_the_mini_batch_is_used_where_it_lies(guest: Guest) -> None:
    assert guest("""
        network = SMALL["small-convolutional"]
        adapter, batch = make("small-convolutional"), batches.mini_batch(network, 4)
        adapter.prepare(network, batches.initial_weights(network), batch)
        answer = [value.data_ptr() == array.ctypes.data for value, array in zip(adapter.inputs, batch)]
    """) == [True, True]


def test_nothing_is_left_in_the_cache_and_torch_is_never_imported(guest: Guest) -> None:
    assert guest("""
        adapter = prepared("small-dense")
        answer = os.listdir(adapter.cache_directory), "torch" in sys.modules
    """) == [[], False]


def test_both_forms_of_the_loss_train_alike(guest: Guest) -> None:
    fused, split = guest("""
        def losses(**settings):
            adapter = prepared("small-recurrent", **settings)
            adapter.set_learning_rate(1.0)
            found = []
            for _ in range(3):
                adapter.step()
                found.append(adapter.last_loss())
            return found
        answer = losses(fused_loss=True), losses(fused_loss=False)
    """)
    assert fused == pytest.approx(split, rel=1e-5)
    assert fused[2] < fused[0]


def test_running_out_of_memory_is_recognised(guest: Guest) -> None:
    asked.check_failures_to_allocate(
        guest, {"adapter.step()": True, "np.ones(3) @ np.ones(4)": False}, asked.MANY_EXAMPLES, 2**26
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fcn5", "lstm32"])
def test_full_networks_agree_with_the_reference(launch: Callable[..., Any], name: str) -> None:
    outcome = launch("onnxruntime", "training", name)
    assert outcome.status == "ok", outcome.reason
    assert outcome.parity.verdict == "agrees"
    assert outcome.threads.framework_says == 1
