"""Several workers of JAX that train together, shown by the guest in JAX's own interpreter."""

import textwrap
from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "jax"


#: Gives ``team(network, workers, examples)``, an adapter of so many workers, and ``trained``, what it then learnt. The
#: first one made in a process decides how many devices JAX makes of the CPU.
TEAMS = """
def team(name, workers, examples, threads=1, **further):
    cell = Cell("jax", "jax", "jit", name, "cpu", threads, examples, world_size=workers, **further)
    return ADAPTER(cell, {"keep_programs": False, "donate": True}, "")

def trained(name, workers, examples, repeated=None, label_sets=1, **further):
    network, adapter = SMALL[name], team(name, workers, examples, **further)
    batch = batches.mini_batch(network, examples, repeated, label_sets)
    return adapter, small.parity_observation(parity, batches, adapter, network, batch=batch)
"""


def of_workers(guest: Guest, statements: str, **variables: str) -> Any:
    """Carry out statements with the functions of `TEAMS` at hand."""
    return guest(TEAMS + textwrap.dedent(statements), **variables)


@pytest.mark.parametrize(
    ("workers", "names"),
    [
        pytest.param(2, ["small-residual"], marks=pytest.mark.slow),
        pytest.param(2, ["small-dense", "small-recurrent"], marks=pytest.mark.slow),
        pytest.param(2, ["small-convolutional", "wide-recurrent"], marks=pytest.mark.slow),
        pytest.param(3, ["small-dense", "small-residual", "small-recurrent"], marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_workers_train_together_as_one_does(guest: Guest, workers: int, names: list[str]) -> None:
    """Normalised networks get equal inputs in each part, and other labels: each worker normalises its own by itself."""
    verdicts = of_workers(
        guest,
        f"""
        answer = {{}}
        for name in {names!r}:
            parts = (2, {workers}) if name == "small-residual" else (None, 1)
            found = trained(name, {workers}, 2 * {workers}, *parts)[1]
            expected = trained(name, 1, 2 * {workers}, *parts)[1]
            verdict = parity.judge(found, expected, SMALL[name].parity)
            answer[name] = (verdict.verdict, verdict.reason)
        """,
    )
    assert list(verdicts) == names
    assert {verdict for verdict, _ in verdicts.values()} == {"agrees"}, verdicts


@pytest.mark.parametrize(
    ("workers", "placement"),
    [
        pytest.param(2, "resident", marks=pytest.mark.slow),
        *(pytest.param(2, placement, marks=pytest.mark.slow) for placement in ("pinned", "pageable")),
        *(pytest.param(1, placement, marks=pytest.mark.slow) for placement in ("resident", "pinned", "pageable")),
    ],
)
def test_workers_are_reset_to_their_parts(guest: Guest, workers: int, placement: str) -> None:
    made = f"team(name, {workers}, 4, placement={placement!r})"
    asked.reset("adapter._step._cache_size()", TEAMS, ["small-convolutional", "small-recurrent"], made)(guest)


def test_workers_without_a_device_or_a_way_to_train_together_are_refused(guest: Guest) -> None:
    said = of_workers(
        guest,
        """
        import types
        from guest.jax import devices
        small = SMALL["small-dense"]
        answer = [team("small-dense", 2, 4).supports(small)]
        devices.gpu_plugins = lambda: ["xla_cuda12"]
        gpu = types.SimpleNamespace(compute_capability="9.0")
        devices.find_devices = lambda name: [gpu]
        for workers in (1, 2):
            cell = Cell("jax", "jax", "jit", "small-dense", "cuda:0", 1, 4, world_size=workers)
            answer.append(ADAPTER(cell, {"keep_programs": False}, "").supports(small))
        del jax.shard_map
        answer.append(team("small-dense", 2, 4).supports(small))
        """,
    )
    assert [supported for supported, _ in said] == [True, True, False, False]
    assert said[2][1] == "world size 2: each worker needs its own device, and JAX sees 1"
    assert "JAX 0.1" in said[3][1]
    assert "jax.shard_map" in said[3][1]
