"""What lies under Caffe, asked of the libraries that its extension module is linked to."""

import ctypes
from typing import Callable

import caffe
import numpy as np

# A handle of the extension module finds the symbols of every library it depends on: libcaffe, and Caffe's own BLAS.
LINKED = ctypes.CDLL(caffe._caffe.__file__)
_ROW_MAJOR, _NOT_TRANSPOSED = 101, 111  # CBLAS


def has_cublas() -> bool:
    """Tell whether this Caffe is linked to CUDA's BLAS, as every build with GPU code is."""
    return hasattr(LINKED, "cublasSgemm_v2")


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def product(size: int) -> Callable[[], object]:
    """Return a call of the BLAS routine that carries Caffe's dense layers and convolutions, on square matrices."""
    left, right = (np.full((size, size), value, dtype=np.float32) for value in (0.5, 0.25))
    out = np.zeros((size, size), dtype=np.float32)
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def multiply() -> np.ndarray:
        LINKED.cblas_sgemm(
            _ROW_MAJOR,
            _NOT_TRANSPOSED,
            _NOT_TRANSPOSED,
            size,
            size,
            size,
            one,
            _address(left),
            size,
            _address(right),
            size,
            zero,
            _address(out),
            size,
        )
        return out

    return multiply
