"""What is particular to Chainer, shown by the guest in Chainer's own interpreter."""

from collections.abc import Callable

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework


@pytest.fixture(params=[True, False], ids=["ideep", "numpy"])
def ideep(request: pytest.FixtureRequest) -> bool:
    """Give each mode's setting in turn."""
    return bool(request.param)


@pytest.fixture
def guest(guests: Callable[..., Guest]) -> Guest:
    """Give a function that runs statements in Chainer's interpreter and returns what they bind to ``answer``."""
    return guests("chainer", "import chainer", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    asked.check_parameters_come_back_as_they_were_given(guest)


def test_small_networks_agree_with_the_reference(guest: Guest, ideep: bool) -> None:
    asked.check_small_networks_agree_with_the_reference(guest, ideep=ideep)


def test_the_gates_order_is_turned_and_turned_back(guest: Guest) -> None:
    turned, back = guest("""
        import importlib
        own = importlib.import_module("guest.chainer.networks")
        canonical = np.array([b"i0", b"i1", b"f0", b"f1", b"g0", b"g1", b"o0", b"o1"])
        turned = own.to_chainer(canonical)
        answer = [name.decode() for name in turned], bool((own.from_chainer(turned) == canonical).all())
    """)
    assert turned == ["g0", "i0", "f0", "o0", "g1", "i1", "f1", "o1"]
    assert back


def test_a_new_rate_takes_effect_at_the_next_step(guest: Guest, ideep: bool) -> None:
    asked.check_a_new_rate_takes_effect(guest, network="small-convolutional", ideep=ideep)


def test_weights_are_ideeps_arrays_only_where_ideep_is_used(guest: Guest, ideep: bool) -> None:
    kinds = guest(f"""
        adapter = prepared("small-convolutional", ideep={ideep})
        adapter.step()
        answer = sorted({{type(parameter.array).__name__ for parameter in adapter.model.params()}})
    """)
    assert kinds == (["mdarray"] if ideep else ["ndarray"])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_library_that_computes_tells_its_threads(guest: Guest, ideep: bool, threads: int) -> None:
    own, other = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if ideep else ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    says = guest(
        f"answer = prepared('small-dense', threads={threads}, ideep={ideep}).effective_threads()",
        **{own: str(threads), other: "3"},
    )
    assert says == threads


def test_a_failed_allocation_is_recognised(guest: Guest, ideep: bool) -> None:
    setup = f"""
adapter, network = prepared("small-dense", ideep={ideep}), SMALL["small-dense"]
adapter.step()
wide = network._replace(family=families.Feedforward(64, (), 1 << 21, "relu"))
"""
    provoked = {
        'adapter.prepare(wide, {"fc1.weight": np.zeros((1 << 21, 64), "f")}, None)': True,
        'chainer.functions.matmul(np.ones((3, 3), "f"), np.ones((4, 4), "f"))': False,
    }
    asked.check_failures_to_allocate(guest, provoked, setup, further_bytes=256 << 20)


def test_the_description_names_what_decides_speed(guest: Guest, ideep: bool) -> None:
    described = guest(f"""
        adapter = prepared("small-dense", ideep={ideep})
        adapter.step()
        answer = adapter.describe()
    """)
    assert described["version"] == "7.8.1"
    assert described["ideep_available"] is True
    assert described["ideep"].startswith("2.0.0")
    assert described["use_ideep"] == ("auto" if ideep else "never")
    assert described["blas"]["threads"] == 1


def test_the_product_it_offers_runs(guest: Guest, ideep: bool) -> None:
    assert guest(f"""
        product = make("small-dense", ideep={ideep}).multiply(32)
        answer = list(np.array(product()).shape)
    """) == [32, 32]
