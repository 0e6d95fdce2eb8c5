"""What is particular to Chainer, shown by the guest in Chainer's own interpreter."""

import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "chainer"

SETUP = """
adapter, network = prepared("small-dense", ideep=%s), SMALL["small-dense"]
adapter.step()
wide = network._replace(family=families.Feedforward(64, (), 1 << 21, "relu"))
"""
PROVOKED = {
    'adapter.prepare(wide, {"fc1.weight": np.zeros((1 << 21, 64), "f")}, None)': True,
    'chainer.functions.matmul(np.ones((3, 3), "f"), np.ones((4, 4), "f"))': False,
}


@pytest.fixture(params=[True, False], ids=["ideep", "numpy"])
def ideep(request: pytest.FixtureRequest) -> bool:
    """Give each mode's setting in turn."""
    return bool(request.param)


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


def test_weights_are_ideeps_arrays_only_where_ideep_is_used(guest: Guest, ideep: bool) -> None:
    kinds = guest(f"""
        adapter = prepared("small-convolutional", ideep={ideep})
        adapter.step()
        answer = sorted({{type(parameter.array).__name__ for parameter in adapter.model.params()}})
    """)
    assert kinds == (["mdarray"] if ideep else ["ndarray"])
