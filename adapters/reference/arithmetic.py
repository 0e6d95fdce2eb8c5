"""Forward and backward passes of single operations on NumPy arrays, written out by hand.

Images are (batch, channels, height, width). A backward pass takes the gradient of the loss by the
operation's output and returns the gradient by its input, and by its weights where it has any. The
element type is that of the arguments.
"""

from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import numpy as np

from ..families.family import output_side

CHUNK_BYTES = 64 * 2**20  # of unfolded windows held at once
ROWS_AT_ONCE = 1024  # of (rows, vocabulary) logits held at once

Loss = Callable[[np.ndarray, slice], Tuple[float, np.ndarray]]


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Return the logistic function; by tanh, which cannot overflow."""
    return 0.5 * np.tanh(0.5 * values) + 0.5


def _sigmoid_backward(gradient: Any, output: Any) -> Any:
    return gradient * output * (1.0 - output)


def _tanh_backward(gradient: Any, output: Any) -> Any:
    return gradient * (1.0 - output * output)


def _relu(values: Any) -> Any:
    return np.maximum(values, 0.0)


def _relu_backward(gradient: Any, output: Any) -> Any:
    return gradient * (output > 0.0)


def _unchanged(values: Any) -> Any:
    return values


def _unchanged_backward(gradient: Any, output: Any) -> Any:
    return gradient


#: By the name of an activation: it, and the gradient by its input from that by its output and its
#: output. The ReLU's at zero is zero.
ACTIVATIONS: Dict[str, Tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "sigmoid": (sigmoid, _sigmoid_backward),
    "tanh": (np.tanh, _tanh_backward),
    "relu": (_relu, _relu_backward),
    "none": (_unchanged, _unchanged_backward),
}


def cross_entropy(logits: np.ndarray, labels: np.ndarray, count: int) -> Tuple[float, np.ndarray]:
    """Return the softmax cross-entropy of (rows, classes), and its gradient.

    It is summed over rows / ``count``. ``labels`` are (rows,), or (sets, rows) for the mean over
    this many sets of them.
    """
    rows = np.arange(len(logits))
    sets = np.atleast_2d(labels)
    shifted = logits - logits.max(axis=1, keepdims=True)
    gradient = np.exp(shifted)
    totals = gradient.sum(axis=1, keepdims=True)
    right = sum(shifted[rows, label_set] for label_set in sets) / len(sets)
    loss = (np.log(totals[:, 0]) - right).sum() / count
    gradient /= totals
    for label_set in sets:
        gradient[rows, label_set] -= 1.0 / len(sets)
    gradient /= count
    return float(loss), gradient


def dense_softmax(
    rows: np.ndarray, weight: np.ndarray, bias: np.ndarray, loss: Loss
) -> Tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Run a dense layer and its softmax forward and backward together, a few rows at a time.

    The logits of all rows would be the largest array of all. ``loss`` is given logits and the rows'
    place, and returns their summed loss over the count of all rows, and its gradient. Returned are
    the loss, and its gradients by the weight, the bias and the rows.
    """
    by_weight = np.zeros_like(weight)
    by_bias = np.zeros_like(bias)
    by_rows = np.empty_like(rows)
    total = 0.0
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        part, gradient = loss(rows[some] @ weight.T + bias, some)
        total += part
        by_weight += gradient.T @ rows[some]
        by_bias += gradient.sum(axis=0)
        by_rows[some] = gradient @ weight
    return total, by_weight, by_bias, by_rows


def _padded(images: np.ndarray, padding: int, value: float = 0.0) -> np.ndarray:
    if padding == 0:
        return images
    widths = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return np.pad(images, widths, mode="constant", constant_values=value)


def _window(offset: int, stride: int, count: int) -> slice:
    return slice(offset, offset + stride * (count - 1) + 1, stride)


def _unfold(padded: np.ndarray, kernel: int, stride: int, height: int, width: int) -> np.ndarray:
    """Return a copy of all windows, (channels * kernel * kernel, batch * height * width)."""
    batch, channels = padded.shape[:2]
    by_image, by_channel, by_row, by_column = padded.strides
    windows = np.lib.stride_tricks.as_strided(
        padded,
        (channels, kernel, kernel, batch, height, width),
        (by_channel, by_row, by_column, by_image, stride * by_row, stride * by_column),
        writeable=False,
    )
    return windows.reshape(channels * kernel * kernel, batch * height * width)


def _fold(
    columns: np.ndarray, padded: np.ndarray, kernel: int, stride: int, height: int, width: int
) -> None:
    """Add every window back to the place from which ``_unfold`` took it."""
    batch, channels = padded.shape[:2]
    windows = columns.reshape(channels, kernel, kernel, batch, height, width)
    for row in range(kernel):
        for column in range(kernel):
            target = padded[:, :, _window(row, stride, height), _window(column, stride, width)]
            target += windows[:, row, column].transpose(1, 0, 2, 3)


def _chunks(batch: int, example_bytes: int) -> Iterator[slice]:
    size = max(1, CHUNK_BYTES // example_bytes)
    for start in range(0, batch, size):
        yield slice(start, min(batch, start + size))


def convolution(images: np.ndarray, weight: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """Return the convolution, without bias, with (outputs, inputs, kernel, kernel) weights."""
    outputs, _, kernel, _ = weight.shape
    batch = len(images)
    height = output_side(images.shape[2], kernel, stride, padding)
    width = output_side(images.shape[3], kernel, stride, padding)
    matrix = weight.reshape(outputs, -1)
    result = np.empty((batch, outputs, height, width), images.dtype)
    for some in _chunks(batch, matrix.shape[1] * height * width * images.itemsize):
        columns = _unfold(_padded(images[some], padding), kernel, stride, height, width)
        product = (matrix @ columns).reshape(outputs, -1, height, width)
        result[some] = product.transpose(1, 0, 2, 3)
    return result


def convolution_backward(
    gradient: np.ndarray,
    images: np.ndarray,
    weight: np.ndarray,
    stride: int,
    padding: int,
    learns_images: bool,
) -> Tuple[np.ndarray, Optional[np.ndarray]]:
    """Return the gradients by the weights and, where it is needed, by the images."""
    outputs, _, kernel, _ = weight.shape
    batch, _, height, width = gradient.shape
    rows, columns = images.shape[2:]
    matrix = weight.reshape(outputs, -1)
    by_weight = np.zeros_like(matrix)
    by_images = np.empty_like(images) if learns_images else None
    for some in _chunks(batch, matrix.shape[1] * height * width * images.itemsize):
        flat = gradient[some].transpose(1, 0, 2, 3).reshape(outputs, -1)
        padded = _padded(images[some], padding)
        by_weight += flat @ _unfold(padded, kernel, stride, height, width).T
        if by_images is not None:
            folded = np.zeros_like(padded)
            _fold(matrix.T @ flat, folded, kernel, stride, height, width)
            by_images[some] = folded[:, :, padding : padding + rows, padding : padding + columns]
    return by_weight.reshape(weight.shape), by_images


def max_pool(
    images: np.ndarray, kernel: int, stride: int, padding: int
) -> Tuple[np.ndarray, np.ndarray]:
    """Return the maxima, and the place of each in its window.

    It is the first in reading order where several tie.
    """
    height = output_side(images.shape[2], kernel, stride, padding)
    width = output_side(images.shape[3], kernel, stride, padding)
    padded = _padded(images, padding, -np.inf)
    maxima = np.full(images.shape[:2] + (height, width), -np.inf, images.dtype)
    places = np.zeros(maxima.shape, np.int16)
    for place in range(kernel * kernel):
        row, column = divmod(place, kernel)
        shifted = padded[:, :, _window(row, stride, height), _window(column, stride, width)]
        larger = shifted > maxima
        maxima[larger] = shifted[larger]
        places[larger] = place
    return maxima, places


def max_pool_backward(
    gradient: np.ndarray,
    places: np.ndarray,
    shape: Tuple[int, ...],
    kernel: int,
    stride: int,
    padding: int,
) -> np.ndarray:
    """Return the gradient by the images of this shape: all of it goes to the maximum's place."""
    height, width = gradient.shape[2:]
    batch, channels, rows, columns = shape
    padded_shape = (batch, channels, rows + 2 * padding, columns + 2 * padding)
    padded = np.zeros(padded_shape, gradient.dtype)
    for place in range(kernel * kernel):
        row, column = divmod(place, kernel)
        target = padded[:, :, _window(row, stride, height), _window(column, stride, width)]
        target += gradient * (places == place)
    return padded[:, :, padding : padding + rows, padding : padding + columns]


def batch_normalise(
    values: np.ndarray, gamma: np.ndarray, beta: np.ndarray, epsilon: float
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scaled values, normalised values and 1 / standard deviation.

    Mean and deviation are the batch's own statistics.
    """
    axes = (0, 2, 3)
    centred = values - values.mean(axis=axes, keepdims=True)
    inverse = 1.0 / np.sqrt(
        (centred * centred).mean(axis=axes, keepdims=True) + values.dtype.type(epsilon)
    )
    centred *= inverse
    return centred * gamma[:, None, None] + beta[:, None, None], centred, inverse


def batch_normalise_backward(
    gradient: np.ndarray, normalised: np.ndarray, inverse: np.ndarray, gamma: np.ndarray
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients by the values, by gamma and by beta."""
    count = gradient.size // gradient.shape[1]
    by_gamma = (gradient * normalised).sum(axis=(0, 2, 3))
    by_beta = gradient.sum(axis=(0, 2, 3))
    by_values = gradient - (by_beta / count)[:, None, None]
    by_values -= normalised * (by_gamma / count)[:, None, None]
    by_values *= gamma[:, None, None] * inverse
    return by_values, by_gamma, by_beta
