"""A family that an adapter does not build is refused for it, with a reason, before it is asked anything."""

import pytest
from known_networks import NETWORKS

from dlbench.adapters.base import Adapter
from dlbench.adapters.families import FAMILIES, Family
from dlbench.adapters.launch import contract
from dlbench.adapters.networks import Network, of_family
from dlbench.adapters.null.adapter import NullAdapter
from dlbench.adapters.protocol import Cell
from dlbench.adapters.reference.adapter import ReferenceAdapter

CELL = Cell("any", "any", "any", "any", "cpu", 1, 4)


class MadeUp(Family):
    """A family that nobody knows."""

    name = "made-up"


def made_up() -> Network:
    return NETWORKS["fcn5"]._replace(name="made-up", family=MadeUp())


class Asked(Adapter):
    """An adapter that would build whatever it is asked for."""

    def supports(self, network):
        raise AssertionError("asked although the family is refused")


@pytest.mark.parametrize("families", [("feedforward",), Adapter.families])
def test_a_made_up_family_is_refused_before_the_adapter_is_asked(monkeypatch, families):
    monkeypatch.setattr(Asked, "families", families)
    supported, reason = contract.supports(Asked(CELL, {}, ""), made_up())
    assert not supported
    assert reason == f"no network of the family made-up: this adapter builds {', '.join(families)}"


@pytest.mark.parametrize("kind", [NullAdapter, ReferenceAdapter])
def test_what_runs_in_any_interpreter_refuses_a_made_up_family_and_builds_all_known_ones(kind):
    adapter = kind(CELL, {}, "")
    supported, reason = contract.supports(adapter, made_up())
    assert not supported
    assert "no network of the family made-up" in reason
    assert set(kind.families) >= {name for name, family in FAMILIES.items() if family.specified}
    for network in NETWORKS.values():
        assert contract.supports(adapter, of_family(network.name, network.family)) == (True, "")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cell": "gru"}, "cell gru: this adapter builds recurrent layers of lstm"),
        ({"cell": "rnn", "embedding": 0}, "cell rnn: this adapter builds recurrent layers of lstm"),
        ({"embedding": 0}, "embedding 0: this adapter takes no one-hot symbols"),
    ],
)
def test_nor_does_it_build_another_cell_or_take_one_hot_symbols(changed, words):
    lstm = NETWORKS["lstm32"]
    assert Adapter(CELL, {}, "").refuses_family(lstm) == ""
    network = lstm._replace(family=lstm.family._replace(**changed))
    assert contract.supports(Asked(CELL, {}, ""), network) == (False, words)
    assert contract.supports(NullAdapter(CELL, {}, ""), network) == (True, "")
