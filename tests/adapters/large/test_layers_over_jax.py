"""What is particular to Flax NNX and Equinox, shown by the guest in their own interpreters."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest

from dlbench.suites.environments import environment
from dlbench.suites.planning.framework import find

pytestmark = pytest.mark.framework

PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "layers_over_jax.py"
QUESTIONS = asked.of_every_framework(
    asked.reference(),
    asked.rate("adapter._step._cache_size()"),
    asked.reset("adapter._step._cache_size()", only=["small-convolutional", "small-recurrent"]),
    asked.queue(),
    asked.no_word_on_threads(),
    asked.capabilities(gpu=False, automatic_gradients=True, several_processes=True),
    asked.description("recurrence", jax="0.1…", execution="one jitted step", donated_buffers="False"),
    asked.description(settings={"donate": True}, donated_buffers="True"),
)


@pytest.fixture(params=["flax", "equinox"])
def library(request: pytest.FixtureRequest) -> str:
    """Give the name of each library in turn."""
    return str(request.param)


@pytest.fixture
def guest(guests: Callable[..., Guest], library: str) -> Guest:
    """Give the guest in this library's interpreter."""
    return guests(library)


@QUESTIONS
def test_it_answers_as_every_framework_does(guest: Guest, check: asked.Check) -> None:
    check(guest)


def test_logits_by_one_product_agree_too(guests: Callable[..., Guest], tmp_path: Path) -> None:
    trained = """
        found = []
        for rows in (False, True):
            adapter = prepared(NAME, rows=rows)
            for _ in range(3):
                adapter.step(); adapter.synchronize()
            found.append([adapter.last_loss(), {name: value.sum().item() for name, value in adapter.parameters()}])
        answer = found
    """
    for name in ("small-recurrent", "small-attention"):
        mapped, at_once = guests("equinox")(trained.replace("NAME", repr(name)))
        assert mapped[0] == pytest.approx(at_once[0], rel=1e-5)
        assert mapped[1] == pytest.approx(at_once[1], rel=1e-3, abs=1e-3)


def test_what_cells_of_flax_and_equinox_lack_is_refused(guests: Callable[..., Guest]) -> None:
    said = guests("flax")("""
        leaky = SMALL["small-elman"]
        leaky = leaky._replace(family=leaky.family._replace(alpha=0.5))
        adapter = make("small-elman")
        answer = [adapter.supports(leaky), [not adapter.refuses_family(SMALL["one-hot-gru"]),
                  adapter.refuses_family(SMALL["one-hot-gru"])]]
    """)
    asked.check_reasons(said, ["alpha 0.5: Flax's SimpleCell has no leaky units", "cell gru"])
    said = guests("equinox")("""
        adapter = make("small-elman")
        answer = [[not (why := adapter.refuses_family(SMALL[name])), why] for name in ("one-hot-gru", "small-elman")]
    """)
    asked.check_reasons(said, ["cell gru", "no network of the family elman"])


def test_a_gpu_and_training_on_a_text_are_refused(guest: Guest) -> None:
    said = guest("""
        adapter = make("small-recurrent")
        answer = [make("small-dense", device="cuda:0").supports(SMALL["small-dense"]),
                  [not (why := adapter.refuses_training(SMALL["small-recurrent"])), why]]
    """)
    asked.check_reasons(said, ["drives the CPU only", "no training on a text"])


def programs(library: str, networks: str) -> Any:
    """Return XLA's programs of JAX alone and of the library, see `layers_over_jax.py`."""
    built = environment.locate(find(library))
    if built.interpreter is None:
        pytest.skip(built.reason)  # the environment is not built: large ones are built on request
    command = [built.interpreter, "-B", PROGRAMS, library, "--networks", networks, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_of_dense_layers_and_convolutions_flax_makes_the_operations_of_jax_alone() -> None:
    for network, found in programs("flax", "fcn5,alexnet").items():
        assert found["jax"]["operations"]["dot"] > 0
        assert found["flax"] == found["jax"], network


def test_lstms_and_attention_are_other_programs(library: str) -> None:
    for network, found in programs(library, "lstm32,gpt32").items():
        assert found[library]["operations"] != found["jax"]["operations"], network


def test_of_dense_layers_equinox_makes_the_products_of_jax_alone() -> None:
    found = programs("equinox", "fcn5")["fcn5"]
    for operation in ("dot", "fusion"):
        assert found["equinox"]["operations"][operation] == found["jax"]["operations"][operation]
