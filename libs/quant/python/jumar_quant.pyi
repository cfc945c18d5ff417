"""Number formats of 8 and 4 bits, scale rules by name, quantised rows and packed KV rows. libs/quant's README has the tables.

Numbers are arrays of float32, float16 or ml_dtypes.bfloat16; codes are uint8, 4-bit ones two per byte, the first in the low half.
`block` is the shape of the elements that share a scale, 0 for all: (1, 0) rows (tokens), (0, 1) columns, (0, 0) the tensor, (1, 128)
groups, (128, 128) blocks.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

class Format:
    name: str
    bits: int
    emax: int  # exponent of the largest finite number
    max: float
    min_positive: float
    has_nan: bool
    has_inf: bool

FORMATS: dict[str, Format]  # e4m3, e5m2, e8m0, e2m1, hif8, int8, int4

class ScaleRule:
    name: str
    formula: str
    clamps: str
    used_by: str
    is_power_of_two: bool
    def scale(self, format: str, absmax: float) -> float:
        """The scale of a group; NaN if absmax is NaN or infinite."""

RULES: dict[str, ScaleRule]

def encode(format: str, numbers: NDArray, *, overflow: str) -> NDArray[np.uint8]:
    """Codes of numbers, rounded to nearest (ties to even; hif8: away from zero).

    overflow: "saturate" or "to_nan_or_inf". ValueError for an unknown name, or an odd last axis of several with a 4-bit format; TypeError
    for another dtype.
    """

def decode(format: str, codes: NDArray[np.uint8], dtype: DTypeLike = "float32") -> NDArray:
    """What codes are worth. Of a 4-bit format, the last axis doubles."""

def quantize(matrix: NDArray, format: str, rule: str, block: Sequence[int], *, e8m0: bool = False) -> tuple[NDArray[np.uint8], NDArray]:
    """Codes and scales [block rows, block columns] of a 2-axis matrix: float32, or uint8 codes of e8m0 (rules of powers of two).

    KeyError for an unknown rule, ValueError for what doesn't fit.
    """

def quantize_with_scales(matrix: NDArray, format: str, scales: NDArray, block: Sequence[int]) -> NDArray[np.uint8]:
    """Codes by scales that are given (static quantisation); uint8 scales are e8m0."""

def quantize_asymmetric(
    matrix: NDArray, format: str, rule: str, block: Sequence[int]
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """Signed codes, scales and offsets of int8 or int4, per row or group. rule: "cann" or "compressed_tensors"."""

def dequantize(
    codes: NDArray[np.uint8], scales: NDArray, format: str, block: Sequence[int], dtype: DTypeLike = "float32", *,
    offsets: NDArray | None = None, cols: int | None = None,
) -> NDArray:
    """(decode(codes) - offsets) * scales. cols: of a matrix whose 4-bit rows end in half a byte."""

class RowCodec:
    """Writer and reader of packed KV rows.

    layout: packed656 (rope before scales, vllm-ascend), packed656_flash_mla (scales before rope), packed640, split584, indexer132,
    indexer130. KeyError for an unknown rule, ValueError for an unknown layout or a rule that its scales can't hold.
    """

    page_bytes: int
    dims: int
    groups: int
    rope_dims: int
    def __init__(self, layout: str, block_size: int, rule: str) -> None: ...
    def write(self, values: NDArray, rope: NDArray | None, slots: ArrayLike, cache: NDArray[np.uint8]) -> None:
        """values [n, dims], rope [n, rope_dims] bfloat16 (or None: not written) to slots [n] (-1: nowhere) of cache [blocks, page_bytes].

        ValueError names a slot that is outside; nothing is written then.
        """
    def read(self, cache: NDArray[np.uint8], slots: ArrayLike, dtype: DTypeLike = "float32") -> tuple[NDArray, NDArray[np.uint16]]:
        """values [n, dims] and rope [n, rope_dims] as bits of bfloat16; zeros where a slot is -1."""
