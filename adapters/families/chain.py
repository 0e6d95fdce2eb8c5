"""What the families have in common whose networks are a chain of layers: each reads what the one before it gives."""

import math
from typing import List, Tuple

from .family import LEARNING_RATE, Drawn, Family, ParityRecipe
from .layers import Convolution, Dense, Layer, MaxPool, Parameter, convolution_weight, output_side


class Chain(Family):
    """A chain of layers that ends in a dense one, the logits; loss: softmax cross-entropy, mean over the batch."""

    __slots__ = ()

    @property
    def input_scale(self) -> float:
        """Half-width of the uniform distribution of the synthetic inputs."""
        raise NotImplementedError

    @property
    def input_shape(self) -> Tuple[int, ...]:
        """The shape of one example's inputs."""
        raise NotImplementedError

    @property
    def layers(self) -> Tuple[Layer, ...]:
        """The layers, in forward order."""
        raise NotImplementedError

    def parameters(self) -> List[Parameter]:
        """Return a weight and a bias for each layer but pools."""
        found = []
        for layer in self.layers:
            if isinstance(layer, Convolution):
                found.append(convolution_weight(layer.name, layer.out_channels, layer.in_channels, layer.kernel))
                found.append(Parameter(layer.name + ".bias", (layer.out_channels,), 0.01))
            elif isinstance(layer, Dense):
                # ReLU layers after He et al. 2015, the others after Glorot and Bengio 2010, eq. 16.
                fans = layer.inputs if layer.activation == "relu" else layer.inputs + layer.outputs
                found.append(Parameter(layer.name + ".weight", (layer.outputs, layer.inputs), math.sqrt(6.0 / fans)))
                found.append(Parameter(layer.name + ".bias", (layer.outputs,), 0.01))
        return found

    def multiply_adds(self) -> List[int]:
        """Return those of each layer but pools."""
        products, side = [], self.input_shape[-1]
        for layer in self.layers:
            if isinstance(layer, (Convolution, MaxPool)):
                side = output_side(side, layer.kernel, layer.stride, layer.padding)
            if isinstance(layer, Convolution):
                products.append(layer.out_channels * layer.in_channels * layer.kernel**2 * side**2)
            elif isinstance(layer, Dense):
                products.append(layer.inputs * layer.outputs)
        return products

    def drawn_inputs(self) -> Drawn:
        """Return uniform numbers."""
        return Drawn(self.input_shape, None, self.input_scale)

    def drawn_labels(self) -> Drawn:
        """Return one class."""
        last = self.layers[-1]
        assert isinstance(last, Dense)
        return Drawn((), last.outputs)

    def kinked(self) -> bool:
        """ReLUs and maxima have kinks."""
        return any(isinstance(layer, MaxPool) or getattr(layer, "activation", "") == "relu" for layer in self.layers)

    def parity(self) -> ParityRecipe:
        """Return one step at a low rate where there are kinks, or two at a high rate."""
        if self.kinked():
            why = "ReLU and max-pool ties make float32 trajectories part after it, and move single entries in it"
            return ParityRecipe(1, LEARNING_RATE, 3e-6, 5e-2, "one step: " + why)
        # Each further sigmoid layer shrinks the first layers' updates towards the rounding of the weights. Seen of the
        # reference's code in float32 at a mini-batch of 64: 1.2e-2 with 13 layers of 256, 4.2e-2 with 25 of 64.
        weights = len(self.multiply_adds())
        update = 2e-3 if weights <= 4 else min(0.5, 1e-2 * max(1.0, weights / 7.0) ** 3.5)
        why = "learning rate 1: at 0.01 the updates sink towards float32 resolution of the weights"
        return ParityRecipe(2, 1.0, 5e-5, update, why)

    def words(self) -> str:
        """Return the number of layers of each kind."""
        kinds = (("conv", Convolution), ("pool", MaxPool), ("dense", Dense))
        counts = [(sum(isinstance(layer, kind) for layer in self.layers), word) for word, kind in kinds]
        return ", ".join("%d %s" % (count, word) for count, word in counts if count)
