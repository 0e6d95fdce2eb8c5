"""Which profiler explains a step of the user's own: that of the framework that computes it."""

import json
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from dlbench.adapters.axes import BLANK
from dlbench.adapters.libraries.profiles import PYTHON_PROFILER, Calls, profile
from dlbench.adapters.own_step import profilers
from dlbench.adapters.protocol import Profile


class Step:
    """What the profilers need of an adapter."""

    cell = BLANK._replace(device="cpu")

    def step(self) -> None:
        sum(range(1000))

    def synchronize(self) -> None:
        pass


def pretend(monkeypatch: pytest.MonkeyPatch, **shares: float | Exception) -> None:
    """Let these frameworks be imported; the operators of each take this share of a step, or its
    profiler fails."""
    takes: dict[str, Callable[..., Profile]] = {}
    for name, share in shares.items():

        def take(
            adapter: Any, steps: int, name: str = name, share: float | Exception = share
        ) -> Profile:
            if isinstance(share, Exception):
                raise share
            return profile(name, steps, 1.0 * steps, [Calls("mm", False, share * steps, steps)])

        takes[profilers.PROFILERS[name]] = take
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name in set(profilers.PROFILERS) - set(shares):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def take_profile(module: str, adapter: Any, steps: int) -> Profile:
        return takes[module](adapter, steps)

    monkeypatch.setattr(profilers, "_take_framework_profile", take_profile)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"torch": 0.9}, "torch"),
        ({"jax": 0.3}, "jax"),
        ({"torch": 0.01, "jax": 0.4}, "jax"),
        ({"torch": 0.9, "jax": RuntimeError("not asked")}, "torch"),
        ({"torch": RuntimeError("old release"), "tensorflow": 0.6}, "tensorflow"),
        ({"torch": 0.01}, PYTHON_PROFILER),
        ({}, PYTHON_PROFILER),
        (
            {"torch": RuntimeError("old release")},
            PYTHON_PROFILER + ", because that of torch: RuntimeError: old release",
        ),
    ],
    ids=str,
)
def test_the_profiler_that_explains_the_step_counts(
    monkeypatch: pytest.MonkeyPatch, shares: dict[str, float | Exception], expected: str
) -> None:
    pretend(monkeypatch, **shares)
    step: Any = Step()
    assert profilers.take_profile(step, 2).profiler.startswith(expected)


@pytest.mark.framework
@pytest.mark.parametrize(
    ("example", "profiler"),
    [
        ("torch", "torch.profiler"),
        # Each takes 15 to 20 s beside other tests; what chooses a profiler is tested above.
        pytest.param("jax", "jax.profiler", marks=pytest.mark.slow),
        pytest.param("tensorflow", "tf.profiler", marks=pytest.mark.slow),
    ],
)
def test_the_examples_are_explained_by_their_own_framework(
    command: Any,
    framework_python: Any,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    example: str,
    profiler: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("new", "step", "train_step.py", "--with", example)[0] == 0
    python = str(framework_python(example))
    words = [
        "--step",
        "train_step.py",
        "--python",
        python,
        "--threads",
        "1",
        "--batch-sizes",
        "8",
        "--json",
    ]
    code, printed, errors = command("explain", "train_step", *words)
    assert code == 0, errors
    content = json.loads(printed)
    assert content["profiler"] == profiler
    assert "matrix product" in [kind["name"] for kind in content["kinds"]]
