"""What is particular to PyTorch, shown by the guest in PyTorch's own interpreter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inside import Guest, check_parameters_come_back_as_they_were_given, guest_of

from dlbench.suites.framework import catalogue

pytestmark = pytest.mark.framework


@pytest.fixture
def guest(framework_python: Callable[[str], Path], tmp_path: Path) -> Guest:
    """Give a function that runs statements in PyTorch's interpreter and returns what they bind to ``answer``."""
    return guest_of(framework_python("torch"), tmp_path, "torch", "pytorch", "eager", "import torch")


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    check_parameters_come_back_as_they_were_given(guest)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "fused"},
        {"optimizer": "foreach", "channels_last": False},
        {"optimizer": "single", "flush_denormal": True},
        {"dense": "onednn"},
    ],
    ids=lambda settings: ",".join(f"{key}={value}" for key, value in settings.items()),
)
def test_settings_do_not_change_the_mathematics(guest: Guest, settings: dict[str, Any]) -> None:
    errors = guest(f"""
        answer = {{}}
        for name, network in SMALL.items():
            plain = dict(optimizer="single", channels_last=False)
            found, expected = [
                small.parity_observation(parity, batches, make(name, **chosen), network, 4)
                for chosen in ({settings!r}, plain)
            ]
            verdict = parity.judge(found, expected, network.parity)
            answer[name] = (verdict.verdict, verdict.reason)
    """)
    assert {verdict for verdict, _ in errors.values()} == {"agrees"}, errors


def test_one_bias_per_gate_is_trained(guest: Guest) -> None:
    second = guest("""
        adapter = prepared("small-recurrent")
        adapter.step()
        module = adapter._training.module
        answer = [float(value.abs().max()) for name, value in module.lstm.named_parameters() if "bias_hh" in name]
    """)
    assert second == [0.0, 0.0]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_are_the_cells_whatever_the_environment_says(guest: Guest, threads: int) -> None:
    says = guest(f"answer = make('small-dense', threads={threads}).effective_threads()", OMP_NUM_THREADS="3")
    assert says == threads


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


@pytest.mark.slow
def test_a_compiled_step_agrees_and_a_new_rate_compiles_nothing(guest: Guest) -> None:
    answer = guest("""
        from torch._dynamo.utils import counters
        supported, reason = make("small-convolutional", mode="compile", compile=True).supports(None)
        answer = {"unsupported": reason}
        if supported:
            network = SMALL["small-convolutional"]
            adapter = make("small-convolutional", mode="compile", compile=True)
            found = small.parity_observation(parity, batches, adapter, network, 4)
            graphs = counters["stats"]["unique_graphs"]
            before = dict((name, value.copy()) for name, value in adapter.parameters())
            adapter.set_learning_rate(0.0)
            adapter.step()
            still = all((value == before[name]).all() for name, value in adapter.parameters())
            expected = small.parity_observation(parity, batches, make("small-convolutional"), network, 4)
            verdict = parity.judge(found, expected, network.parity)
            answer = {"graphs": graphs, "after": counters["stats"]["unique_graphs"], "still": still,
                      "verdict": verdict.verdict, "reason": verdict.reason,
                      "cached": os.path.isdir(os.environ["TORCHINDUCTOR_CACHE_DIR"])}
    """)
    if "unsupported" in answer:
        pytest.skip(answer["unsupported"])
    assert answer["graphs"] == answer["after"] == 1
    assert answer["still"]
    assert answer["verdict"] == "agrees", answer["reason"]
    assert answer["cached"]


def test_without_a_compiler_the_cell_is_unsupported_and_the_reason_says_what_to_do(guest: Guest) -> None:
    supported, reason = guest(
        "answer = make('small-dense', compile=True).supports(SMALL['small-dense'])", CXX="no-such-compiler"
    )
    assert not supported
    assert "no-such-compiler" in reason
    assert "install g++ or set CXX" in reason


def test_a_failed_allocation_is_recognised(guest: Guest) -> None:
    recognised = guest("""
        adapter, answer = make("small-dense"), []
        for provoke in (lambda: torch.empty(1 << 50), lambda: torch.empty(3) @ torch.empty(4)):
            try:
                provoke()
            except Exception as error:
                answer.append((type(error).__name__, str(error)[:80], adapter.is_out_of_memory(error)))
    """)
    assert [memory for _, _, memory in recognised] == [True, False], recognised


def test_the_description_names_what_decides_speed(guest: Guest) -> None:
    described = guest("""
        adapter = prepared("small-dense", threads=2)
        adapter.step()
        answer = adapter.describe()
    """)
    assert described["version"].startswith("2.")
    assert described["intra_op_threads"] == 2
    assert {"blas", "onednn_enabled", "cpu_capability", "execution", "dense_layers"} <= set(described)


def test_the_first_mode_is_what_a_program_gets_that_says_nothing() -> None:
    torch = catalogue()["torch"]
    assert [name for name, mode in torch.modes.items() if mode.default] == ["eager"]
    assert torch.modes["eager"].settings.get("dense", "mkl") == "mkl"
