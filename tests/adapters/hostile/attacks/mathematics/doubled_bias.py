"""An honest mistake: both biases of an LSTM are trained, so that its bias moves twice as far."""

from ..pytorch.adapter import TorchAdapter as Honest


class Adapter(Honest):
    def prepare(self, network, weights, batch):
        self._start = {name: value.copy() for name, value in weights.items() if name.endswith(".bias")}
        super().prepare(network, weights, batch)

    def reset(self, weights, batch):
        super().reset(weights, batch)
        self._start = {name: weights[name].copy() for name in self._start}

    def parameters(self):
        for name, value in super().parameters():
            # What the mistake does to first order: the bias stands where two trained biases would have taken it.
            yield name, value if name not in self._start else 2 * value - self._start[name]


ADAPTER = Adapter
