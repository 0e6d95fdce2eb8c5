"""What is particular to CNTK, shown by the guest in CNTK's own interpreter."""

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "cntk"


def test_padding_is_symmetric_whatever_the_stride(guest: Guest) -> None:
    layers = """
from guest.cntk import networks as ours
def evaluated(image, build):
    held = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    inputs = cntk.input_variable(held.shape[1:])
    return [build(inputs).eval({inputs: held}).transpose(0, 2, 3, 1)]
def convolved(image, weight, stride, padding):
    filters = np.ascontiguousarray(weight.transpose(3, 2, 0, 1))
    spec = types.SimpleNamespace(name="c", kernel=weight.shape[0], stride=stride, padding=padding)
    functions = ours.CntkFunctions(None, {"c.weight": filters})
    return evaluated(image, lambda inputs: functions.convolution(spec, inputs, False))
def pooled(image, kernel, stride, padding):
    return evaluated(image, lambda inputs: ours.max_pool(inputs, kernel, stride, padding))
"""
    cases = [(15, 5, 2, 2), (16, 3, 2, 1), (14, 3, 4, 1), (12, 7, 4, 3), (19, 11, 4, 2), (10, 4, 3, 1), (9, 2, 2, 0)]
    asked.check_padding_is_symmetric(guest, layers, cases)


def test_gates_change_places_and_back(guest: Guest) -> None:
    once, twice = guest("""
        from guest.cntk.networks import swap_gates
        rows = np.repeat(list("ifgo"), 2)
        answer = "".join(swap_gates(rows)), "".join(swap_gates(swap_gates(rows)))
    """)
    assert once == "iiggffoo"
    assert twice == "iiffggoo"


def test_threads_are_cntks_word_and_no_more_than_there_are_cpus(guest: Guest) -> None:
    """What was asked for and not given is seen in the framework's word."""
    said, cpus = guest("""
        answer = [make("small-dense", threads=asked).effective_threads() for asked in (1, 2, 4096)]
        answer = answer, len(os.sched_getaffinity(0))
    """)
    assert said == [min(asked, cpus) for asked in (1, 2, 4096)]


def test_the_rate_is_of_the_mean_gradient(guest: Guest) -> None:
    """The same mini-batch twice over moves the weights as far as once."""
    ratio = guest("""
        moves = []
        network = SMALL["small-recurrent"]
        batch = batches.mini_batch(network, 4)
        for times in (1, 2):
            adapter, weights = make("small-recurrent"), batches.initial_weights(network)
            doubled = batches.Batch(np.tile(batch.inputs, (times, 1)), np.tile(batch.labels, (times, 1)))
            adapter.prepare(network, weights, doubled)
            adapter.set_learning_rate(1.0)
            adapter.step()
            moves.append(dict(adapter.parameters())["fc.bias"] - weights["fc.bias"])
        answer = float(np.linalg.norm(moves[1] - moves[0]) / np.linalg.norm(moves[0]))
    """)
    assert ratio < 1e-4
