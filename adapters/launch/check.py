"""The parity check of a launch: a few further steps of the very step that was timed, from weights known to the host.

The guest runs it and returns losses and the updates of sampled entries; reference and verdict are the host's. It runs
on data that the timed steps never saw (``Adapter.reset``), for as many steps as the host asks for once they are over.
"""

import json
import math
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional

import numpy as np

from .. import networks
from ..base import Adapter
from ..networks import Network
from ..protocol import END, HOST_LINE, READ, RESET, STEPS, Launch, ParitySample
from . import batches, contract, parity

_LONGEST = 4096


class CheckRequest(NamedTuple):
    """The parity check that the host asks for."""

    steps: int  # of each round, from the weights that ``reset`` put in place
    rounds: int


class Host:
    """The line to the host; without one nothing is sent and no check is asked for.

    At each mark the guest sends a word and waits for the host's line: meanwhile the host reads its own clock and the
    CPU time of all processes of the launch. After the timed samples its line says which parity check to run; no one in
    the guest knows before.
    """

    def __init__(self) -> None:
        descriptor = os.environ.pop(HOST_LINE, "")
        self._line = int(descriptor) if descriptor.isdigit() else None
        if self._line is not None:
            os.set_inheritable(self._line, False)

    def mark(self, word: str) -> Dict[str, Any]:
        """Send a mark to the host, and return its answer: empty without a host."""
        if self._line is None:
            return {}
        try:
            os.write(self._line, word.encode("ascii") + b"\n")
            line = b""
            while not line.endswith(b"\n") and len(line) < _LONGEST:
                more = os.read(self._line, _LONGEST)
                if not more:
                    break
                line += more
        except OSError:
            self._line = None  # the host is gone, and this launch with it
            return {}
        answer = json.loads(line.decode("ascii") or "{}")
        return answer if isinstance(answer, dict) else {}

    def end(self, steps: int) -> Optional[CheckRequest]:
        """Send that so many steps were timed, and return the check that is asked for."""
        return _request(self.mark("%s %d" % (END, steps)))

    def read(self) -> Optional[CheckRequest]:
        """Send that the parameters were read; return a further check, where the host asks for one."""
        return _request(self.mark(READ))


def _request(answer: Dict[str, Any]) -> Optional[CheckRequest]:
    return CheckRequest(int(answer["steps"]), int(answer["rounds"])) if "steps" in answer else None


class Weights(Mapping[str, np.ndarray]):
    """The check's weights, each drawn when it is looked up: all at once they would be as large as the framework's."""

    def __init__(self, network: Network) -> None:
        self._parameters = {parameter.name: parameter for parameter in network.family.parameters()}
        self._network = network
        self.entries: Dict[str, np.ndarray] = {}  # the sampled ones of what was looked up

    def __getitem__(self, name: str) -> np.ndarray:
        value = batches.weight(self._network, self._parameters[name])
        self.entries[name] = parity.entries_of(name, value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)


def run_check(
    adapter: Adapter, step: Callable[[], None], launch: Launch, host: Host, request: CheckRequest
) -> ParitySample:
    """Run the checks of the timed ``step`` that the host asks for; return what the last one showed."""
    network = networks.from_data(launch.network or {})
    weights, batch = Weights(network), batches.of_launch(network, launch)
    adapter.set_learning_rate(network.parity.learning_rate)
    losses: List[float] = []
    further: Optional[CheckRequest] = request
    while further is not None:
        for _ in range(further.rounds):
            adapter.reset(weights, batch)
            adapter.synchronize()
            host.mark(RESET)
            losses = []
            for _ in range(further.steps):
                step()
                losses.append(contract.loss(adapter))
            adapter.synchronize()
            host.mark(STEPS)
        seen = parity.observe(contract.current_parameters(adapter, network), weights.entries, losses)
        further = host.read()
    updates = {name: _finite(update) for name, update in seen.updates.items()}
    return ParitySample(_finite(losses), updates, seen.parameter_count)


def _finite(values: Any) -> Optional[List[float]]:
    numbers = [float(value) for value in values]
    return numbers if all(map(math.isfinite, numbers)) else None


def save_reference(adapter: Adapter, network: Network, path: str, before: Dict[str, np.ndarray]) -> None:
    """Run the recipe's steps and write what each of them showed as the reference file."""
    adapter.set_learning_rate(network.parity.learning_rate)
    losses: List[float] = []
    shown = []
    for _ in range(network.parity.steps):
        adapter.step()
        adapter.synchronize()
        losses.append(contract.loss(adapter))
        shown.append(parity.observe(contract.current_parameters(adapter, network), before, list(losses)))
    parity.save(path, shown[-1], shown[:-1])
