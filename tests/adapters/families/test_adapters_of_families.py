"""A family that an adapter does not build is refused for it, with a reason, before it is asked anything."""

import ast
from typing import Any

import pytest
from known_networks import NETWORKS

from dlbench.adapters.base import Adapter
from dlbench.adapters.families import FAMILIES, Family
from dlbench.adapters.launch import contract
from dlbench.adapters.networks import Network, of_family
from dlbench.adapters.null.adapter import NullAdapter
from dlbench.adapters.protocol import Cell
from dlbench.adapters.reference.adapter import ReferenceAdapter
from dlbench.suites.planning.framework import GUEST_DIRECTORY

ADAPTERS = sorted(path.parent.name for path in GUEST_DIRECTORY.glob("*/adapter.py"))
CELL = Cell("any", "any", "any", "any", "cpu", 1, 4)


class MadeUp(Family):
    """A family that nobody knows."""

    name = "made-up"


def made_up() -> Network:
    return NETWORKS["fcn5"]._replace(name="made-up", family=MadeUp())


def told_by(folder: str) -> dict[str, Any]:
    """Return what the adapter's class binds to the names of the contract that the refusal rests on, read, not run."""
    tree = ast.parse((GUEST_DIRECTORY / folder / "adapter.py").read_text(encoding="utf-8"))
    (bound,) = (
        node.value.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Name)
        and any(isinstance(target, ast.Name) and target.id == "ADAPTER" for target in node.targets)
    )
    (adapter,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == bound)
    found: dict[str, Any] = {}
    for node in adapter.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = node
    return found


@pytest.mark.parametrize("folder", [name for name in ADAPTERS if name not in ("null", "reference")])
def test_every_adapter_says_which_families_it_builds_and_so_refuses_a_made_up_one(folder):
    told = told_by(folder)
    families = ast.literal_eval(told["families"])
    assert families
    assert set(families) <= set(FAMILIES)
    assert "refuses_family" not in told

    class Asked(Adapter):
        def supports(self, network):
            raise AssertionError("asked although the family is refused")

    Asked.families = families
    supported, reason = contract.supports(Asked(CELL, {}, ""), made_up())
    assert not supported
    assert reason == f"no network of the family made-up: this adapter builds {', '.join(families)}"


@pytest.mark.parametrize("kind", [NullAdapter, ReferenceAdapter])
def test_what_runs_in_any_interpreter_refuses_a_made_up_family_and_builds_all_known_ones(kind):
    adapter = kind(CELL, {}, "")
    supported, reason = contract.supports(adapter, made_up())
    assert not supported
    assert "no network of the family made-up" in reason
    assert set(kind.families) == set(FAMILIES)
    for network in NETWORKS.values():
        assert contract.supports(adapter, of_family(network.name, network.family)) == (True, "")


def test_an_adapter_that_says_nothing_builds_the_families_there_were_before_it_could():
    assert Adapter.families == ("feedforward", "convolutional", "residual", "recurrent")
