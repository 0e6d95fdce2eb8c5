"""What is particular to Flax NNX and Equinox, shown by the guest in their own interpreters."""

from collections.abc import Callable

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework


@pytest.fixture(params=["flax", "equinox"])
def library(request: pytest.FixtureRequest) -> str:
    """Give the name of each library in turn."""
    return str(request.param)


@pytest.fixture
def guest(guests: Callable[..., Guest], library: str) -> Guest:
    """Give the guest in this library's interpreter."""
    return guests(library)


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
