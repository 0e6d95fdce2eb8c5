"""Checks of an adapter's answers against the contract of base.py: a violation is one line, not a
crash somewhere later.

Adapters may live outside this project (see TUTORIAL.md); the messages are for their authors.
"""

import importlib
import importlib.util
import os
import sys
import types
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Tuple

import numpy as np

from ..base import Adapter
from ..libraries import inventory
from ..libraries.gpus import Probe
from ..networks import Network
from ..protocol import Launch, Profile
from .batches import Block, RmsProp

OUTSIDE = "outside_"


class ContractBroken(Exception):  # noqa: N818 - a finding about the adapter
    """The adapter answered something that the contract in base.py does not allow."""


def _package(launch: Launch) -> str:
    """Return the name of the adapter's package, importable from here on, so that its ``from
    ..base`` finds ours.
    """
    here = str(__package__).rpartition(".")[0]  # the package of the whole guest
    name = launch.cell.adapter
    if launch.adapter_directory is None:
        return here + "." + name
    # No module of ours can have this name.
    name = "%s.%s" % (here, name if name.startswith(OUTSIDE) else OUTSIDE + name)
    start, places = (
        os.path.join(launch.adapter_directory, "__init__.py"),
        [launch.adapter_directory],
    )
    if not os.path.exists(start):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = places
        return name
    spec: Any = importlib.util.spec_from_file_location(
        name, start, submodule_search_locations=places
    )
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return name


def load(launch: Launch) -> Adapter:
    """Import the adapter and its framework, and create the adapter; raises ContractBroken where
    there is none.
    """
    package = _package(launch)
    if importlib.util.find_spec(package + ".adapter") is None:
        raise ContractBroken("its folder has no adapter.py")
    made = getattr(importlib.import_module(package + ".adapter"), "ADAPTER", None)
    if not (isinstance(made, type) and issubclass(made, Adapter)):
        raise ContractBroken("adapter.py binds no subclass of Adapter to the name ADAPTER")
    adapter: Adapter = made(launch.cell, launch.settings, launch.cache_directory)
    return adapter


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 0


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str)


def _is_description(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(key), str) for key in ("framework", "version")
    )


#: By method: whether an answer is allowed, and what is.
ANSWERS: Dict[str, Tuple[Callable[[Any], bool], str]] = {
    "supports": (_is_pair, "(bool, reason)"),
    "effective_threads": (
        lambda value: value is None or isinstance(value, int),
        "a whole number or None",
    ),
    "device_name": (lambda value: isinstance(value, str) and bool(value.strip()), "a name"),
    "event_nanoseconds": (_is_count, "nanoseconds as a whole number"),
    "device_peak_memory": (
        lambda value: value is None or _is_count(value),
        "bytes as a whole number or None",
    ),
    "device_probe": (
        lambda value: value is None or (isinstance(value, Probe) and all(map(callable, value))),
        "a Probe of two calls or None",
    ),
    "profile": (lambda value: value is None or isinstance(value, Profile), "a Profile or None"),
    "refuses_training": (lambda value: isinstance(value, str), "a reason"),
    "describe": (_is_description, "a dictionary with 'framework' and 'version' as texts"),
    "capabilities": (
        lambda value: isinstance(value, dict) and all(map(_is_pair, value.values())),
        "a dictionary of (bool, how it was found out)",
    ),
}


def ask(adapter: Adapter, method: str, *arguments: Any) -> Any:
    """Call a method of the adapter and return its answer; raises ContractBroken for one that is not
    allowed.
    """
    answer = getattr(adapter, method)(*arguments)
    allowed, words = ANSWERS[method]
    _expect(allowed(answer), method + "() returned %.80r, not " + words, answer)
    return answer


def _expect(right: bool, words: str, value: Any) -> None:
    if not right:
        raise ContractBroken(words % (value,))


def supports(adapter: Adapter, network: Network) -> Tuple[bool, str]:
    """Return whether the adapter builds the family, and then its answer to ``supports``; a refusal
    gives its reason.
    """
    refused = adapter.refuses_family(network)
    if refused:
        return False, refused
    supported, reason = ask(adapter, "supports", network)
    if not supported and not reason.strip():
        raise ContractBroken("supports() refused without a reason")
    return bool(supported), "" if supported else reason


def loss(adapter: Adapter) -> float:
    """Return the loss of the last step."""
    value: Any = adapter.last_loss()
    _expect(
        np.ndim(value) == 0,
        "last_loss() returned an array of shape %s, not the mean loss",
        np.shape(value),
    )
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ContractBroken(
            "last_loss() returned %s, not a number" % type(value).__name__
        ) from None


def outputs(adapter: Adapter, batch_size: int) -> np.ndarray:
    """Return the outputs of the last forward pass, (batch, rows of an example, outputs)."""
    value = np.asarray(adapter.outputs())
    right = value.ndim == 3 and len(value) == batch_size and value.dtype.kind == "f"
    words = "outputs() returned %s of shape %s, not floating-point numbers (batch, rows, outputs)"
    if not right:
        raise ContractBroken(words % (value.dtype, value.shape))
    return value


def current_parameters(adapter: Adapter, network: Network) -> Iterator[Tuple[str, np.ndarray]]:
    """Yield every parameter of the network as the adapter holds it now, each once and in canonical
    layout.
    """
    expected = {parameter.name: parameter.shape for parameter in network.family.parameters()}
    missing = dict(expected)
    for item in adapter.parameters():
        _expect(
            isinstance(item, tuple) and len(item) == 2,
            "parameters() yielded %.80r, not (name, array)",
            item,
        )
        name, value = item[0], np.asarray(item[1])
        _expect(name in expected, "parameters() yielded %r, which the network does not have", name)
        _expect(missing.pop(name, None) is not None, "parameters() yielded %s twice", name)
        if value.shape != expected[name]:
            raise ContractBroken(
                "%s has shape %s, the network's is %s" % (name, value.shape, expected[name])
            )
        if value.dtype.kind != "f":
            raise ContractBroken("%s holds %s, not floating-point numbers" % (name, value.dtype))
        yield name, value
    _expect(not missing, "parameters() did not yield %s", ", ".join(list(missing)[:5]))


def block_losses(
    adapter: Adapter, weights: Mapping[str, np.ndarray], blocks: Iterable[Block], update: RmsProp
) -> Iterator[List[float]]:
    """Yield the losses of each block, as many as it has steps."""
    counts: List[int] = []

    def counted() -> Iterator[Block]:
        for block in blocks:
            counts.append(block.length)
            yield block

    for number, losses in enumerate(adapter.train_on_text(weights, counted(), update)):
        if number >= len(counts) or not isinstance(losses, list) or len(losses) != counts[number]:
            raise ContractBroken(
                "train_on_text() yielded %.80r, not the losses of the steps of a block" % (losses,)
            )
        yield [float(each) for each in losses]


def described(adapter: Adapter, key: str) -> str:
    """Return a text of the adapter's description; empty where it is known after ``prepare``
    only.
    """
    try:
        return str(ask(adapter, "describe")[key])
    except Exception:
        return ""


def capabilities(
    adapter: Adapter, module: str, networks: Iterable[Network]
) -> Dict[str, List[Any]]:
    """Return [answer, how it was found out] for each of the adapter's ``capabilities``, and for
    these networks.

    Also included are the capabilities that the framework's build shows; ``module`` is its module's
    name. A network's key is "network:" and its name; its text is the reason where the answer is no.
    """
    given = dict(inventory.answers(module), **ask(adapter, "capabilities"))
    answers = {str(key): [bool(can), how] for key, (can, how) in given.items()}
    answers.update(
        ("network:" + network.name, list(supports(adapter, network))) for network in networks
    )
    return answers
