"""What is particular to ONNX Runtime's training interface, looked at inside its own interpreter."""

import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "onnxruntime"

#: The training session and the SGD session.
SESSIONS = "adapter.module._model, adapter.optimizer._optimizer"


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
