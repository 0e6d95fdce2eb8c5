"""What an adapter must keep to, checked where it answers: a breach is told in one line, not as a crash somewhere later.

Adapters live outside this project too (see TUTORIAL.md); the words are for whoever writes one.
"""

import importlib
import importlib.util
import os
import sys
import types
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from ..base import Adapter
from ..libraries.gpus import Probe
from ..networks import Network
from ..protocol import Launch, Profile
from .batches import Block, RmsProp

OUTSIDE = "outside_"


class ContractBroken(Exception):  # noqa: N818 - a finding about the adapter
    """The adapter answered something that the contract in base.py does not allow."""


def _package(launch: Launch) -> str:
    """Return the name of the adapter's package, importable from here on, so that its ``from ..base`` finds ours."""
    here = str(__package__).rpartition(".")[0]  # the package of the whole guest
    if launch.adapter_directory is None:
        return here + "." + launch.cell.adapter
    name = launch.cell.adapter
    if not name.startswith(OUTSIDE):
        name = OUTSIDE + name  # no module of ours can have this name
    name = here + "." + name
    start = os.path.join(launch.adapter_directory, "__init__.py")
    if os.path.exists(start):
        spec = importlib.util.spec_from_file_location(
            name, start, submodule_search_locations=[launch.adapter_directory]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[name] = package
        spec.loader.exec_module(package)
    else:
        package = types.ModuleType(name)
        package.__path__ = [launch.adapter_directory]
        sys.modules[name] = package
    return name


def load(launch: Launch) -> Adapter:
    """Import the adapter, and with it the framework, and make it; raises ContractBroken where there is none."""
    package = _package(launch)
    if importlib.util.find_spec(package + ".adapter") is None:
        raise ContractBroken("its folder has no adapter.py")
    module = importlib.import_module(package + ".adapter")
    made = getattr(module, "ADAPTER", None)
    if not (isinstance(made, type) and issubclass(made, Adapter)):
        raise ContractBroken("adapter.py binds no subclass of Adapter to the name ADAPTER")
    adapter: Adapter = made(launch.cell, launch.settings, launch.cache_directory)
    return adapter


def supports(adapter: Adapter, network: Network) -> Tuple[bool, str]:
    """Return whether the adapter builds the family, and then its answer to ``supports``; a refusal gives its reason."""
    refused = adapter.refuses_family(network)
    if refused:
        return False, refused
    answer: Any = adapter.supports(network)
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], str):
        raise ContractBroken("supports() returned %.80r, not (bool, reason)" % (answer,))
    if not answer[0] and not answer[1].strip():
        raise ContractBroken("supports() refused without a reason")
    return bool(answer[0]), "" if answer[0] else answer[1]


def loss(adapter: Adapter) -> float:
    """Return the loss of the last step."""
    value: Any = adapter.last_loss()
    if np.ndim(value) != 0:
        raise ContractBroken("last_loss() returned an array of shape %s, not the mean loss" % (np.shape(value),))
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ContractBroken("last_loss() returned %s, not a number" % type(value).__name__) from None


def learnt(adapter: Adapter, network: Network) -> Iterator[Tuple[str, np.ndarray]]:
    """Yield every parameter of the network as the adapter holds it now, each once and in canonical layout."""
    expected = {parameter.name: parameter.shape for parameter in network.family.parameters()}
    missing = dict(expected)
    for item in adapter.parameters():
        _expect(isinstance(item, tuple) and len(item) == 2, "parameters() yielded %.80r, not (name, array)", item)
        name, value = item[0], np.asarray(item[1])
        _expect(name in expected, "parameters() yielded %r, which the network does not have", name)
        _expect(missing.pop(name, None) is not None, "parameters() yielded %s twice", name)
        if value.shape != expected[name]:
            raise ContractBroken("%s has shape %s, the network's is %s" % (name, value.shape, expected[name]))
        if value.dtype.kind != "f":
            raise ContractBroken("%s holds %s, not floating-point numbers" % (name, value.dtype))
        yield name, value
    _expect(not missing, "parameters() did not yield %s", ", ".join(list(missing)[:5]))


def _expect(right: bool, words: str, value: Any) -> None:
    if not right:
        raise ContractBroken(words % (value,))


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 0


def threads(adapter: Adapter) -> Optional[int]:
    """Return how many threads the framework says it uses."""
    value: Any = adapter.effective_threads()
    right = value is None or isinstance(value, int)
    _expect(right, "effective_threads() returned %.80r, not a whole number or None", value)
    return value


def device_name(adapter: Adapter) -> str:
    """Return what the framework calls its device."""
    name: Any = adapter.device_name()
    _expect(isinstance(name, str) and bool(name.strip()), "device_name() returned %.80r, not a name", name)
    return name


def event_nanoseconds(adapter: Adapter, marks: Iterable[Tuple[Any, Any]]) -> List[int]:
    """Return the nanoseconds of the device's clock between the marks of each pair."""
    found: List[Any] = [adapter.event_nanoseconds(earlier, later) for earlier, later in marks]
    for value in found:
        _expect(_is_count(value), "event_nanoseconds() returned %.80r, not nanoseconds as a whole number", value)
    return [int(value) for value in found]


def device_peak_memory(adapter: Adapter) -> Optional[int]:
    """Return the bytes that the framework's allocator on the device gave out at most."""
    value: Any = adapter.device_peak_memory()
    right = value is None or _is_count(value)
    _expect(right, "device_peak_memory() returned %.80r, not bytes as a whole number or None", value)
    return None if value is None else int(value)


def device_probe(adapter: Adapter, name: str, size: int) -> Optional[Probe]:
    """Return how the adapter does what this name says, with arrays of so many bytes."""
    found: Any = adapter.device_probe(name, size)
    right = found is None or (isinstance(found, Probe) and callable(found.start) and callable(found.wait))
    _expect(right, "device_probe() returned %.80r, not a Probe of two calls or None", found)
    return found


def profile(adapter: Adapter, steps: int) -> Optional[Profile]:
    """Return the profile of so many steps more."""
    found: Any = adapter.profile(steps)
    right = found is None or isinstance(found, Profile)
    _expect(right, "profile() returned %s, not a Profile or None", type(found).__name__)
    return found


def refuses_training(adapter: Adapter, network: Network) -> str:
    """Return why the adapter does not train the network on a text; empty where it does."""
    found: Any = adapter.refuses_training(network)
    _expect(isinstance(found, str), "refuses_training() returned %.80r, not words", found)
    return found


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
            raise ContractBroken("train_on_text() yielded %.80r, not the losses of the steps of a block" % (losses,))
        yield [float(each) for each in losses]


def description(adapter: Adapter) -> Dict[str, Any]:
    """Return the adapter's description of itself."""
    found: Any = adapter.describe()
    named = isinstance(found, dict) and all(isinstance(found.get(key), str) for key in ("framework", "version"))
    _expect(named, "describe() returned %.80r, no dictionary with 'framework' and 'version' as texts", found)
    return found


def version(adapter: Adapter) -> str:
    """Return the framework's version as the adapter tells it; empty where only a prepared one can."""
    try:
        return str(description(adapter)["version"])
    except Exception:  # `prepare` is promised to come first
        return ""


def capabilities(adapter: Adapter, networks: Iterable[Network]) -> Dict[str, List[Any]]:
    """Return [answer, words] for whatever the adapter's ``capabilities`` tells, and for each of these networks.

    A network's key is "network:" and its name; its words are the reason where the answer is no.
    """
    found: Dict[str, List[Any]] = {}
    told: Any = adapter.capabilities()
    if not isinstance(told, dict):
        raise ContractBroken("capabilities() returned no dictionary")
    for key, answer in told.items():
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], str):
            raise ContractBroken("capabilities() tells %.80r of %r, not (bool, words)" % (answer, key))
        found[str(key)] = [bool(answer[0]), answer[1]]
    for network in networks:
        found["network:" + network.name] = list(supports(adapter, network))
    return found
