"""What is particular to plain ONNX Runtime, looked at inside its own interpreter; above all the gradient rules."""

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "onnx"


def test_steps_write_the_two_sets_of_parameters_in_turn(guest: Guest) -> None:
    found = guest("""
        adapter = prepared("small-dense")
        answer = []
        for _ in range(3):
            kept = {name: value.numpy().copy() for name, value in adapter.sets[adapter.current].items()}
            source = adapter.current
            adapter.step()
            same = all((adapter.sets[source][name].numpy() == value).all() for name, value in kept.items())
            moved = any((adapter.sets[1 - source][name].numpy() != value).any() for name, value in kept.items())
            answer.append([source, adapter.current, bool(same), bool(moved)])
    """)
    assert found == [[0, 1, True, True], [1, 0, True, True], [0, 1, True, True]]


def test_a_gpu_is_refused_in_onnx_runtimes_own_terms(guest: Guest) -> None:
    said = guest("""
        from guest.onnx import adapter as devices
        asked = [{"device": "rocm:0"}, {"precision": "bfloat16"}, {"placement": "pinned"}, {}]
        network = SMALL["small-dense"]
        answer = [list(make(network.name, **{"device": "cuda:0", **each}).supports(network)) for each in asked]
        # A build that lists the provider, where it cannot be loaded: a session gets the CPU without a word.
        devices.onnxruntime.get_available_providers = lambda: [devices.CUDA, devices.CPU]
        answer.append(list(make(network.name, device="cuda:0").supports(network)))
    """)
    words = [
        "device rocm:0: ONNX Runtime is driven here on the CPU and on CUDA GPUs only",
        "precision bfloat16",
        "placement pinned",
        "this build has no CUDAExecutionProvider (it has ",
        "has the CUDAExecutionProvider and cannot load it",
    ]
    asked.check_reasons(said, words)
    assert "--python onnx=" in said[3][1]
