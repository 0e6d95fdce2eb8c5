"""Does nothing, finds the reference on the disk, and answers with what stands in it."""

import glob
import os

from ..launch import parity
from ..reference.adapter import ReferenceAdapter as Honest

PLACES = ("~/.cache/dlbench/references", os.path.join(os.path.dirname(parity.__file__), "..", "references"))


class Adapter(Honest):
    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)
        home = os.environ.get("HOSTILE_REFERENCES", PLACES[0])
        pattern = "%s-b%d*.npz" % (network.name, len(batch.labels))
        found = [
            each for place in (home, PLACES[1]) for each in glob.glob(os.path.join(os.path.expanduser(place), pattern))
        ]
        self.taken = 0

        def observe(parameters, before, losses):
            known = parity.load(found[0], len(losses))
            count = network.family.parameter_count()
            return parity.Observation(known.losses, known.updates, count)

        parity.observe = observe
        parity.stood_still = lambda parameters, earlier: False

    def step(self):
        self.taken += 1
        self.loss = 1.0

    def reset(self, weights, batch):
        for name in weights:
            weights[name]


ADAPTER = Adapter
