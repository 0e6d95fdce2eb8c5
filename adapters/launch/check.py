"""The parity check of a launch: a few further steps of the very step that was timed, from weights known to the host.

The guest only carries it out and tells what came of it: losses, and the updates of sampled entries. Reference and
verdict are the host's. What is checked is data that the timed steps never saw (``Adapter.reset``), after as many steps
as the host asks for once they are over.
"""

import json
import math
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from .. import networks
from ..base import Adapter
from ..networks import Network
from ..protocol import END, HOST_LINE, READ, RESET, STEPS, Launch, ParitySample
from . import batches, contract, parity

# The guest's end of the line to the host: what is told at which moment, and what is answered.
#
# At each mark the guest tells a word and waits for the host's line: meanwhile the host reads its own clock and the
# CPU time of all processes of the launch, so that both stand beside what the guest itself tells. After the timed
# samples the host's line says which parity check to carry out; nobody in the guest knows before.

_LONGEST = 4096


class Order(NamedTuple):
    """Which parity check the host asks for."""

    steps: int  # of each round, from the weights that ``reset`` put in place
    rounds: int


class Host:
    """The line to the host; where there is none, nothing is told and no check is asked for."""

    def __init__(self) -> None:
        told = os.environ.pop(HOST_LINE, "")
        self._line = int(told) if told.isdigit() else None
        if self._line is not None:
            os.set_inheritable(self._line, False)

    def mark(self, word: str) -> Dict[str, Any]:
        """Tell the host that the launch came to a mark, and return its answer: empty where nobody listens."""
        if self._line is None:
            return {}
        try:
            os.write(self._line, word.encode("ascii") + b"\n")
            answer = b""
            while not answer.endswith(b"\n") and len(answer) < _LONGEST:
                more = os.read(self._line, _LONGEST)
                if not more:
                    break
                answer += more
        except OSError:
            self._line = None  # the host is gone, and this launch with it
            return {}
        found = json.loads(answer.decode("ascii") or "{}")
        return found if isinstance(found, dict) else {}

    def end(self, steps: int) -> Optional[Order]:
        """Tell that so many steps were timed, and return the check that is asked for."""
        return _order(self.mark("%s %d" % (END, steps)))

    def read(self) -> Optional[Order]:
        """Tell that the parameters were read; return a further check, where the host asks for one."""
        return _order(self.mark(READ))


def _order(answer: Dict[str, Any]) -> Optional[Order]:
    return Order(int(answer["steps"]), int(answer["rounds"])) if "steps" in answer else None


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


def carry_out_check(
    adapter: Adapter, step: Callable[[], None], launch: Launch, host: Host, order: Order
) -> ParitySample:
    """Carry out the checks of the timed ``step`` that the host asks for; return what the last one showed."""
    network = networks.from_data(launch.network or {})
    weights, batch = Weights(network), batches.of_launch(network, launch)
    adapter.set_learning_rate(network.parity.learning_rate)
    further: Optional[Order] = order
    while further is not None:
        losses = _rounds(adapter, step, (weights, batch), host, further)
        found = parity.observe(contract.learnt(adapter, network), weights.entries, losses)
        further = host.read()
    finite = all(math.isfinite(each) for each in losses)
    updates = {name: _plain(update) for name, update in found.updates.items()}
    return ParitySample(losses if finite else None, updates, found.parameter_count)


def _rounds(
    adapter: Adapter, step: Callable[[], None], data: Tuple[Weights, batches.Batch], host: Host, order: Order
) -> List[float]:
    """Carry out the rounds of a check, each from these weights on this mini-batch; return the losses of the last."""
    losses: List[float] = []
    for _ in range(order.rounds):
        adapter.reset(*data)
        adapter.synchronize()
        host.mark(RESET)
        losses = []
        for _ in range(order.steps):
            step()
            losses.append(contract.loss(adapter))
        adapter.synchronize()
        host.mark(STEPS)
    return losses


def _plain(update: np.ndarray) -> Optional[List[float]]:
    return [float(each) for each in update] if np.isfinite(update).all() else None


def save_reference(adapter: Adapter, network: Network, path: str, before: Dict[str, np.ndarray]) -> None:
    """Carry out the recipe's steps and write what each of them showed as the reference file."""
    adapter.set_learning_rate(network.parity.learning_rate)
    losses: List[float] = []
    shown = []
    for _ in range(network.parity.steps):
        adapter.step()
        adapter.synchronize()
        losses.append(contract.loss(adapter))
        shown.append(parity.observe(contract.learnt(adapter, network), before, list(losses)))
    parity.save(path, shown[-1], shown[:-1])
