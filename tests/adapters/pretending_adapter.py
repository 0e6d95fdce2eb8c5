"""An adapter that computes nothing, and a launch of it carried out in this process."""

import json

from known_networks import NETWORKS

from dlbench.adapters import protocol
from dlbench.adapters.base import Adapter
from dlbench.adapters.launch import worker
from dlbench.adapters.networks import to_data
from dlbench.adapters.protocol import Cell, Launch, Protocol


class Pretender(Adapter):
    """An adapter that computes nothing and notes what is called, and in which phase."""

    computes = False
    parity_reason = "it only pretends"

    def __init__(self, folder, **failures):
        self.folder, self.failures = folder, failures
        self.calls, self.phases, self.rates, self.loss = [], [], [], 2.5

    def note(self, call):
        self.calls.append(call)
        self.phases.append(json.loads((self.folder / protocol.PHASE_FILE).read_text())["phase"])
        error = self.failures.get(call)
        if error is not None:
            raise error

    def supports(self, network):
        self.note("supports")
        return self.failures.get("unsupported") is None, self.failures.get("unsupported", "")

    def prepare(self, network, weights, batch):
        self.note("prepare")

    def reset(self, weights, batch):
        self.note("reset")

    def step(self):
        self.note("step")

    def set_learning_rate(self, rate):
        self.rates.append((rate, self.calls.count("step")))

    def last_loss(self):
        self.note("last_loss")
        return self.loss

    def parameters(self):
        return iter(())

    def effective_threads(self):
        return 3

    def describe(self):
        return {"framework": "a pretender", "version": "1"}

    def is_out_of_memory(self, error):
        return "no memory" in str(error)


def launch_of(folder, network="fcn5", settings=None, device="cpu", launch_fields=None, **numbers):
    """Return a launch with these further fields, and these numbers of its protocol."""
    measured = Protocol(
        **{"warmup_steps": 3, "steps": 4, "minimum_steps": 2, "seconds": 0.1, **numbers}
    )
    cell = Cell("null", "null", "null", network, device, 2, 8)
    data = to_data(NETWORKS[network]) if network in NETWORKS else None
    return Launch(cell, measured, settings or {}, str(folder), network=data)._replace(
        **(launch_fields or {})
    )


def run(folder, adapter=None, load=None, **options):
    protocol.write_launch(str(folder), launch_of(folder, **options))
    assert worker.run(str(folder), load or (lambda launch: adapter)) == 0
    return protocol.read_answer(str(folder))
