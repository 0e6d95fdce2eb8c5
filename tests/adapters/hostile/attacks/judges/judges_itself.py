"""Replaces the check in its own process by one that finds nothing wrong."""

from ..launch import check
from ..protocol import ParitySample
from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)

        def carry_out(adapter, step, launch, host, order):
            for _ in range(order.rounds):
                host.mark("reset")
                host.mark("steps")
            host.mark("read")
            return ParitySample(
                [1.0] * order.steps, {name: [0.0] for name in self.weights}, network.family.parameter_count()
            )

        check.carry_out_check = carry_out

    def step(self):
        self.loss = 1.0


ADAPTER = Adapter
