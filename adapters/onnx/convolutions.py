"""The two gradients of a convolution in ordinary ONNX operators.

Images are (batch, channels, height, width), weights (outputs, channels, kernel, kernel), as in ONNX's Conv. A
convolution whose stride does not divide leaves the last rows and columns, ``remainder`` of them, unused.
"""

from typing import Any, Dict, List, NamedTuple, Sequence

from .graph import Graph, Shape


class Geometry(NamedTuple):
    """The numbers of one square convolution with symmetric padding."""

    batch: int
    channels: int
    outputs: int
    sides: Sequence[int]  # height and width of the images
    kernel: int
    stride: int
    padding: int

    @classmethod
    def of(cls, images: Shape, weight: Shape, attributes: Dict[str, Any]) -> "Geometry":
        """Read a Conv node's geometry; raises NotImplementedError for one that these gradients do not cover."""
        strides, pads = attributes["strides"], attributes["pads"]
        others = set(attributes) - {"strides", "pads", "kernel_shape"}
        if others or weight[2] != weight[3] or len(set(strides)) > 1 or len(set(pads)) > 1:
            raise NotImplementedError("the gradient of Conv with %s" % attributes)
        return cls(images[0], images[1], weight[0], images[2:], weight[2], strides[0], pads[0])

    @property
    def output_sides(self) -> List[int]:
        """Height and width of the convolution's output."""
        return [(side + 2 * self.padding - self.kernel) // self.stride + 1 for side in self.sides]

    @property
    def remainders(self) -> List[int]:
        """Rows and columns, of the padded images, that no window reaches."""
        return [(side + 2 * self.padding - self.kernel) % self.stride for side in self.sides]


def by_images(graph: Graph, geometry: Geometry, weight: str, gradient: str) -> str:
    """Return the gradient by the images: the transposed convolution."""
    kernel, stride, padding = geometry.kernel, geometry.stride, geometry.padding
    if stride == 1 and padding < kernel:
        return _by_images_unstrided(graph, geometry, weight, gradient)
    return graph.node(
        "ConvTranspose",
        [gradient, weight],
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[padding] * 4,
        output_padding=geometry.remainders,
    )


def _by_images_unstrided(graph: Graph, geometry: Geometry, weight: str, gradient: str) -> str:
    """Return the same as a convolution with the weight turned round."""
    kernel = geometry.kernel
    turned = graph.node("Transpose", [weight], perm=[1, 0, 2, 3])
    if kernel > 1:
        last, beyond = kernel - 1, -kernel - 1
        turned = _slice(graph, turned, (last, last), (beyond, beyond), -1)
    pads = [kernel - 1 - geometry.padding] * 4
    return graph.node("Conv", [gradient, turned], kernel_shape=[kernel, kernel], strides=[1, 1], pads=pads)


def by_weight(graph: Graph, geometry: Geometry, images: str, gradient: str) -> str:
    """Return the gradient by the weight, in whichever of three ways the matrix product underneath is widest.

    Measured against each other (GFLOP/s at 1 thread, batch 16): a convolution with batch and channels exchanged
    multiplies matrices kernel * kernel wide, one product for each place in the kernel matrices ``channels`` wide:
    65 to 133 for 64 channels and 3 x 3, 84 to 18 for 3 channels and 7 x 7, 164 to 26 for 3 channels and 11 x 11.
    For 1 x 1, one product for each example, then summed, needs no image transposed: 220 to 147 for 64 to 256 channels
    of 56 x 56; but for many channels of few places, what is summed is larger than the images.
    """
    if geometry.kernel > 1 and geometry.kernel**2 > geometry.channels:
        return _by_weight_exchanged(graph, geometry, images, gradient)
    places = geometry.output_sides[0] * geometry.output_sides[1]
    channels, outputs = geometry.channels, geometry.outputs
    if geometry.kernel == 1 and geometry.padding == 0 and channels * outputs < (channels + outputs) * places:
        return _by_weight_each_example(graph, geometry, images, gradient)
    return _by_weight_each_place(graph, geometry, images, gradient)


def _slice(graph: Graph, value: str, starts: Sequence[int], ends: Sequence[int], step: int) -> str:
    """Add a cut of height and width."""
    return graph.node(
        "Slice",
        [value, graph.integers(*starts), graph.integers(*ends), graph.integers(2, 3), graph.integers(step, step)],
    )


def _channels_first(graph: Graph, value: str) -> str:
    return graph.node("Transpose", [value], perm=[1, 0, 2, 3])


def _by_weight_exchanged(graph: Graph, geometry: Geometry, images: str, gradient: str) -> str:
    """Convolve the images, channels as examples, with the gradient, its places a stride apart."""
    padding = geometry.padding
    rows, columns = geometry.remainders
    if max(rows, columns) > padding:  # a convolution cannot be told to leave out rows: cut them off
        height, width = geometry.sides
        images = _slice(graph, images, (0, 0), (height - rows, width - columns), 1)
        rows = columns = 0
    exchanged = graph.node(
        "Conv",
        [_channels_first(graph, images), _channels_first(graph, gradient)],
        kernel_shape=geometry.output_sides,
        strides=[1, 1],
        dilations=[geometry.stride, geometry.stride],
        pads=[padding, padding, padding - rows, padding - columns],
    )
    return _channels_first(graph, exchanged)


def _by_weight_each_example(graph: Graph, geometry: Geometry, images: str, gradient: str) -> str:
    """Multiply gradient and images of each example and sum over the examples; for 1 x 1 kernels without padding."""
    batch, stride = geometry.batch, geometry.stride
    if stride > 1:
        images = _slice(graph, images, (0, 0), tuple(geometry.sides), stride)
    columns = graph.node("Transpose", [graph.reshape(images, (batch, geometry.channels, -1))], perm=[0, 2, 1])
    products = graph.node("MatMul", [graph.reshape(gradient, (batch, geometry.outputs, -1)), columns])
    total = graph.node("ReduceSum", [products, graph.integers(0)], keepdims=0)
    return graph.reshape(total, (geometry.outputs, geometry.channels, 1, 1))


def _by_weight_each_place(graph: Graph, geometry: Geometry, images: str, gradient: str) -> str:
    """Multiply the gradient, for each place in the kernel, by what that place has seen of the images."""
    kernel, stride, padding = geometry.kernel, geometry.stride, geometry.padding
    channels, outputs = geometry.channels, geometry.outputs
    height, width = geometry.output_sides
    seen = _channels_first(graph, images)
    if padding:
        seen = graph.node("Pad", [seen, graph.integers(0, 0, padding, padding, 0, 0, padding, padding)])
    flat = graph.reshape(_channels_first(graph, gradient), (outputs, -1))
    products = []
    for place in range(kernel * kernel):
        row, column = divmod(place, kernel)
        ends = (row + stride * (height - 1) + 1, column + stride * (width - 1) + 1)
        part = graph.reshape(_slice(graph, seen, (row, column), ends, stride), (channels, -1))
        products.append(graph.reshape(graph.node("Gemm", [flat, part], transB=1), (1, outputs, channels)))
    if kernel == 1:
        return graph.reshape(products[0], (outputs, channels, 1, 1))
    places = graph.reshape(graph.node("Concat", products, axis=0), (kernel, kernel, outputs, channels))
    return graph.node("Transpose", [places], perm=[2, 3, 0, 1])
