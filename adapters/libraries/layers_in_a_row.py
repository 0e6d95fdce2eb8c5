"""Networks out of a framework's own layer objects: those of a chain, of a convolution with its norm, of a block's body.

For frameworks that run a list of layers one after another. The subclass makes each layer and notes in ``parameters``
where the canonical parameters lie.
"""

from typing import Any, Callable, Dict, List

from ..base import Unsupported
from ..families import Bottleneck, Chain, Convolution, Dense, Flatten, MaxPool
from ..families.residual import NormalisedConvolution


class LayersInARow:
    """Makes a framework's layers, and knows where each canonical parameter lies."""

    title = ""
    activations: Dict[str, Callable[[], Any]] = {}
    flatten: Callable[[], Any]

    def __init__(self) -> None:
        self.parameters: Dict[str, Any] = {}

    def dense(self, name: str, inputs: int, outputs: int) -> Any:
        """Return a fully connected layer."""
        raise NotImplementedError

    def convolution(
        self, name: str, inputs: int, outputs: int, kernel: int, stride: int, padding: int, bias: bool = True
    ) -> Any:
        """Return a convolution with symmetric zero padding."""
        raise NotImplementedError

    def norm(self, name: str, channels: int, epsilon: float) -> Any:
        """Return a batch normalisation."""
        raise NotImplementedError

    def pool(self, kernel: int, stride: int, padding: int) -> Any:
        """Return a max-pool."""
        raise NotImplementedError

    def chain(self, family: Chain) -> List[Any]:
        """Return the layers of a chain, with their activations."""
        made: List[Any] = []
        for layer in family.layers:
            if isinstance(layer, Dense):
                made.append(self.dense(layer.name, layer.inputs, layer.outputs))
            elif isinstance(layer, Convolution):
                sizes = (layer.in_channels, layer.out_channels, layer.kernel, layer.stride, layer.padding)
                made.append(self.convolution(layer.name, *sizes))
            elif isinstance(layer, MaxPool):
                made.append(self.pool(layer.kernel, layer.stride, layer.padding))
            elif isinstance(layer, Flatten):
                made.append(self.flatten())
            else:
                raise Unsupported("%s: no way to build a layer of type %s" % (self.title, type(layer).__name__))
            activation = getattr(layer, "activation", "none")
            if activation != "none":
                made.append(self.activations[activation]())
        return made

    def normalised(self, spec: NormalisedConvolution, epsilon: float) -> List[Any]:
        """Return a convolution without bias, and its batch normalisation."""
        sizes = (spec.inputs, spec.outputs, spec.kernel, spec.stride, spec.padding)
        return [self.convolution(spec.name, *sizes, bias=False), self.norm(spec.norm, spec.outputs, epsilon)]

    def body(self, block: Bottleneck, epsilon: float) -> List[Any]:
        """Return the layers of a residual block before the addition."""
        made: List[Any] = []
        for each in block.body:
            made += [*self.normalised(each, epsilon), self.activations["relu"]()]
        return made[:-1]
