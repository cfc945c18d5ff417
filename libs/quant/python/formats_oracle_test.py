"""Formats against ml_dtypes (HiF8: the paper's table): every code, every midpoint with its neighbours, all 16-bit numbers."""

import jumar_quant
import ml_dtypes
import numpy as np
import pytest
import reference

FORMATS = list(jumar_quant.FORMATS)
OVERFLOWS = ("saturate", "to_nan_or_inf")


def codes_of(fmt, numbers, overflow):
    got = jumar_quant.encode(fmt, numbers, overflow=overflow)
    if jumar_quant.FORMATS[fmt].bits == 4:
        got = np.stack([got & 15, got >> 4], -1).reshape(-1)[: numbers.size]
    return got


def check(fmt, numbers, overflow):
    got, want = codes_of(fmt, numbers, overflow), reference.encode(fmt, numbers, overflow)
    wrong = np.flatnonzero(got != want)
    assert wrong.size == 0, [(numbers[i], hex(got[i]), hex(want[i])) for i in wrong[:5]]


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_code_is_worth_the_same(fmt):
    codes = np.arange(256 if jumar_quant.FORMATS[fmt].bits == 8 else 16, dtype=np.uint8)
    want = reference.decode(fmt, codes)
    packed = codes if jumar_quant.FORMATS[fmt].bits == 8 else reference.pack(codes)
    for dtype in (np.float32, ml_dtypes.bfloat16):
        got = jumar_quant.decode(fmt, packed, dtype)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.astype(np.float32), want)
    if fmt != "e8m0":  # whose range fp16 lacks
        np.testing.assert_array_equal(jumar_quant.decode(fmt, packed, np.float16).astype(np.float32), want)


@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_all_16_bit_numbers(fmt, overflow, dtype):
    numbers = np.arange(65536, dtype=np.uint16).view(dtype)
    if dtype is np.float16 and fmt in ("e8m0", "e5m2"):
        numbers = numbers.astype(np.float32)  # the clip of the reference: 2^127 isn't fp16's; the numbers are
        check(fmt, numbers, overflow)
        return
    check(fmt, numbers, overflow)


@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_midpoints_and_their_neighbours(fmt, overflow):
    codes = np.arange(256 if jumar_quant.FORMATS[fmt].bits == 8 else 16, dtype=np.uint8)
    values = np.unique(reference.decode(fmt, codes))
    values = values[np.isfinite(values)].astype(np.float64)
    largest = jumar_quant.FORMATS[fmt].max
    beyond = [largest * 1.0625, largest * 1.125, largest * 1.25, largest * 1.5] if fmt != "e8m0" else [1.5 * 2.0**127]
    middles = np.concatenate([(values[1:] + values[:-1]) / 2, values, beyond, [-b for b in beyond], [0.0, -0.0]]).astype(np.float32)
    numbers = np.concatenate([middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf)),
                              np.float32([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, -1e-45])])
    check(fmt, numbers, overflow)
    check(fmt, numbers.astype(ml_dtypes.bfloat16), overflow)


@pytest.mark.parametrize("fmt", FORMATS)
def test_random_fp32_bits(fmt):
    numbers = np.random.default_rng(1).integers(0, 2**32, 100000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    numbers = numbers[~np.isnan(numbers)]
    for overflow in OVERFLOWS:
        check(fmt, numbers, overflow)


def test_hif8_has_the_papers_binades():
    values = reference.HIF8[:128]
    exponents = np.floor(np.log2(values[1:][np.isfinite(values[1:])]))
    found, count = np.unique(exponents, return_counts=True)
    by_mantissa = {e: c for e, c in zip(found, count, strict=True)}
    assert [e for e, c in by_mantissa.items() if c == 8] == list(range(-3, 4))
    assert sum(c == 4 for c in by_mantissa.values()) == 8
    assert len(found) == 38


def test_arguments_are_refused_by_name():
    with pytest.raises(ValueError, match='format "e4m4" is none of e4m3, e5m2'):
        jumar_quant.encode("e4m4", np.zeros(1, np.float32), overflow="saturate")
    with pytest.raises(ValueError, match='overflow "wrap" is neither'):
        jumar_quant.encode("e4m3", np.zeros(1, np.float32), overflow="wrap")
    with pytest.raises(TypeError, match="numbers is float64; it must be float32"):
        jumar_quant.encode("e4m3", np.zeros(1), overflow="saturate")
    with pytest.raises(ValueError, match="last axis must be even"):
        jumar_quant.encode("int4", np.zeros((2, 3), np.float32), overflow="saturate")
    with pytest.raises(TypeError):
        jumar_quant.encode("e4m3", np.zeros(1, np.float32))
