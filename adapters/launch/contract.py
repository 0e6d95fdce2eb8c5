"""Checks of an adapter's answers against the contract of base.py.

A violation is one line, not a crash somewhere later. Adapters may live outside this project (see
docs/how-to/add-a-framework.md), and the messages are for their authors.
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
from ..protocol import OUTSIDE, Launch, Profile
from .batches import Block, RmsProp


class ContractBroken(Exception):  # noqa: N818 - a finding about the adapter
    """The adapter answered something that the contract in base.py does not allow."""


def _package(launch: Launch) -> str:
    """Return the name of the adapter's package, which can be imported from then on.

    Its ``from ..base`` finds ours.
    """
    guest = str(__package__).rpartition(".")[0]  # the package of the whole guest
    name = launch.cell.adapter
    if launch.adapter_directory is None:
        return guest + "." + name
    # No module of ours can have this name.
    if not name.startswith(OUTSIDE):
        name = OUTSIDE + name
    name = guest + "." + name
    start = os.path.join(launch.adapter_directory, "__init__.py")
    places = [launch.adapter_directory]
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
    """Import the adapter and its framework, and create the adapter.

    Raises ContractBroken where there is none.
    """
    package = _package(launch)
    if importlib.util.find_spec(package + ".adapter") is None:
        raise ContractBroken("its folder has no adapter.py")
    kind = getattr(importlib.import_module(package + ".adapter"), "ADAPTER", None)
    if not (isinstance(kind, type) and issubclass(kind, Adapter)):
        raise ContractBroken("adapter.py binds no subclass of Adapter to the name ADAPTER")
    adapter: Adapter = kind(launch.cell, launch.settings, launch.cache_directory)
    return adapter


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 0


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_integer_or_none(value: Any) -> bool:
    return value is None or isinstance(value, int)


def _is_count_or_none(value: Any) -> bool:
    return value is None or _is_count(value)


def _is_probe_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, Probe) and all(map(callable, value)))


def _is_profile_or_none(value: Any) -> bool:
    return value is None or isinstance(value, Profile)


def _is_description(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("framework"), str) and isinstance(value.get("version"), str)


def _is_capabilities(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_pair, value.values()))


#: By method: the check of an answer, and a description of allowed ones.
ANSWERS: Dict[str, Tuple[Callable[[Any], bool], str]] = {
    "supports": (_is_pair, "(bool, reason)"),
    "effective_threads": (_is_integer_or_none, "a whole number or None"),
    "device_name": (_is_name, "a name"),
    "event_nanoseconds": (_is_count, "nanoseconds as a whole number"),
    "device_peak_memory": (_is_count_or_none, "bytes as a whole number or None"),
    "device_probe": (_is_probe_or_none, "a Probe of two calls or None"),
    "profile": (_is_profile_or_none, "a Profile or None"),
    "refuses_training": (_is_text, "a reason"),
    "describe": (_is_description, "a dictionary with 'framework' and 'version' as texts"),
    "capabilities": (_is_capabilities, "a dictionary of (bool, how it was found out)"),
}


def ask(adapter: Adapter, method: str, *arguments: Any) -> Any:
    """Call a method of the adapter and return its answer.

    Raises ContractBroken for an answer that is not allowed.
    """
    answer = getattr(adapter, method)(*arguments)
    allowed, words = ANSWERS[method]
    _expect(allowed(answer), method + "() returned %.80r, not " + words, answer)
    return answer


def _expect(right: bool, words: str, value: Any) -> None:
    if not right:
        raise ContractBroken(words % (value,))


def supports(adapter: Adapter, network: Network) -> Tuple[bool, str]:
    """Return whether the adapter builds the family, and then its answer to ``supports``.

    A refusal gives its reason.
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
    words = "last_loss() returned an array of shape %s, not the mean loss"
    _expect(np.ndim(value) == 0, words, np.shape(value))
    try:
        return float(value)
    except (TypeError, ValueError):
        name = type(value).__name__
        raise ContractBroken("last_loss() returned %s, not a number" % name) from None


def outputs(adapter: Adapter, batch_size: int) -> np.ndarray:
    """Return the outputs of the last forward pass, (batch, rows of an example, outputs)."""
    value = np.asarray(adapter.outputs())
    right = value.ndim == 3 and len(value) == batch_size and value.dtype.kind == "f"
    words = "outputs() returned %s of shape %s, not floating-point numbers (batch, rows, outputs)"
    if not right:
        raise ContractBroken(words % (value.dtype, value.shape))
    return value


def current_parameters(adapter: Adapter, network: Network) -> Iterator[Tuple[str, np.ndarray]]:
    """Yield every parameter of the network as the adapter holds it now, each once.

    They are in canonical layout.
    """
    expected = {parameter.name: parameter.shape for parameter in network.family.parameters()}
    missing = dict(expected)
    for item in adapter.parameters():
        is_pair = isinstance(item, tuple) and len(item) == 2
        _expect(is_pair, "parameters() yielded %.80r, not (name, array)", item)
        name = item[0]
        value = np.asarray(item[1])
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
        yield [float(value) for value in losses]


def described(adapter: Adapter, key: str) -> str:
    """Return a text of the adapter's description; empty where only ``prepare`` makes it known."""
    try:
        return str(ask(adapter, "describe")[key])
    except Exception:
        return ""


def capabilities(
    adapter: Adapter, module: str, networks: Iterable[Network]
) -> Dict[str, List[Any]]:
    """Return [answer, how it was found out] for each capability and each of these networks.

    The capabilities are the adapter's own, and those that the framework's build shows. ``module``
    is its module's name. A network's key is "network:" and its name. Its text is the reason where
    the answer is no.
    """
    capabilities = dict(inventory.answers(module), **ask(adapter, "capabilities"))
    answers = {str(key): [bool(can), how] for key, (can, how) in capabilities.items()}
    for network in networks:
        answers["network:" + network.name] = list(supports(adapter, network))
    return answers
