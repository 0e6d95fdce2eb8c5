"""What is particular to ONNX Runtime's training interface, looked at inside its own interpreter."""

import asked_of_frameworks as asked
import pytest
from asked_of_onnx import onnx_sessions
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "onnxruntime"

#: The training session and the SGD session.
SESSIONS = "adapter.module._model, adapter.optimizer._optimizer"


@asked.of_every_framework(
    *onnx_sessions(2, f"({SESSIONS})"),
    # And the addresses of the parameters.
    asked.reset(f"({SESSIONS}, [each.data.ctypes.data for _, each in adapter.state.parameters])"),
)
def test_it_answers_as_every_framework_does(guest: Guest, check: asked.Check) -> None:
    check(guest)


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
