"""Scale rules and quantised rows against the reference of numpy and ml_dtypes."""

import hypothesis
import jumar_quant
import ml_dtypes
import numpy as np
import pytest
import reference
from hypothesis import strategies as st

FORMATS = [f for f in jumar_quant.FORMATS if f != "e8m0"]
BLOCKS = [(0, 0), (1, 0), (0, 1), (1, 32), (1, 64), (1, 128), (128, 128), (4, 32)]


def same(got, want):
    np.testing.assert_array_equal(np.asarray(got, np.float32).view(np.uint32), np.asarray(want, np.float32).view(np.uint32))


@pytest.mark.parametrize("rule", jumar_quant.RULES)
@pytest.mark.parametrize("fmt", FORMATS)
def test_scales_are_exact(rule, fmt):
    random = np.random.default_rng(0)
    exponents = np.arange(-149, 128)
    absmaxes = np.concatenate([
        np.ldexp(np.float32(1), exponents),  # powers of two, subnormal ones too
        np.nextafter(np.ldexp(np.float32(1), exponents), np.float32(0)),
        np.nextafter(np.ldexp(np.float32(1), exponents), np.float32(np.inf)),
        np.float32(reference.LARGEST[fmt]) * np.ldexp(np.float32(1), np.arange(-60, 60)),
        np.ldexp(np.float32(1.75), np.arange(-126, 127)),
        random.integers(0, 0x7F800000, 2000, dtype=np.uint32).view(np.float32),
        np.float32([0, 1e-10, 1e-4, np.nextafter(np.float32(1e-4), np.float32(1)), 448, 6, 127, np.finfo(np.float32).max]),
    ]).astype(np.float32)
    same([jumar_quant.RULES[rule].scale(fmt, a) for a in absmaxes], [reference.scale(rule, fmt, a) for a in absmaxes])
    for broken in (np.nan, np.inf):
        assert np.isnan(jumar_quant.RULES[rule].scale(fmt, broken))


def matrix(seed, rows, cols, dtype):
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, cols)) * np.exp2(random.integers(-8, 8, (rows, 1)))
    x = x.astype(dtype)
    if rows > 3:
        x[1] = 0
        x[2, cols // 2] = np.nan
        x[3] = np.exp2(random.integers(-4, 4, cols).astype(np.float64)).astype(dtype)  # powers of two
    return x


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("rule", jumar_quant.RULES)
def test_quantized_matrices(rule, fmt):
    for i, block in enumerate(BLOCKS):
        dtype = (np.float32, np.float16, ml_dtypes.bfloat16)[i % 3]
        x = matrix(i, 6, 162, dtype)
        want_codes, want_scales = reference.quantize(x, fmt, rule, block)
        if jumar_quant.FORMATS[fmt].bits == 4:
            want_codes = reference.pack(want_codes)
        codes, scales = jumar_quant.quantize(x, fmt, rule, block)
        np.testing.assert_array_equal(codes, want_codes)
        np.testing.assert_array_equal(scales, want_scales)
        if jumar_quant.RULES[rule].is_power_of_two:
            codes, powers = jumar_quant.quantize(x, fmt, rule, block, e8m0=True)
            np.testing.assert_array_equal(codes, want_codes)
            np.testing.assert_array_equal(powers.view(ml_dtypes.float8_e8m0fnu).astype(np.float32), want_scales)


@hypothesis.given(
    seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 9), cols=st.integers(1, 90), group=st.sampled_from([0, 2, 16, 32]),
    fmt=st.sampled_from(FORMATS), rule=st.sampled_from(list(jumar_quant.RULES)),
)
@hypothesis.settings(deadline=None, max_examples=60, derandomize=True)
def test_padding_rows_change_no_other(seed, rows, cols, group, fmt, rule):
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, cols)).astype(np.float32)
    padded = np.full((2 * rows, cols), np.nan, np.float32)
    padded[::2] = x
    codes, scales = jumar_quant.quantize(x, fmt, rule, (1, group))
    padded_codes, padded_scales = jumar_quant.quantize(padded, fmt, rule, (1, group))
    np.testing.assert_array_equal(padded_codes[::2], codes)
    np.testing.assert_array_equal(padded_scales[::2], scales)
    assert np.isnan(padded_scales[1::2]).all()
    back = jumar_quant.dequantize(codes, scales, fmt, (1, group), cols=cols)
    want = reference.decode(fmt, reference.quantize(x, fmt, rule, (1, group))[0])
    wide = np.repeat(scales, group or cols, axis=1)[:, :cols]
    np.testing.assert_array_equal(back, want * wide)


@pytest.mark.parametrize("fmt", ["int8", "int4"])
def test_asymmetric(fmt):
    low, high = reference.INTEGERS[fmt]
    x = matrix(5, 8, 96, np.float32)
    x[2, 48] = 0  # no NaN here
    for rule in ("cann", "compressed_tensors"):
        codes, scales, offsets = jumar_quant.quantize_asymmetric(x, fmt, rule, (1, 32))
        back = jumar_quant.dequantize(codes, scales, fmt, (1, 32), offsets=offsets)
        step = np.repeat(scales, 32, axis=1)
        assert (np.abs(back - x) <= step * (0.501 if rule == "cann" else 1.01)).all()
        if rule == "compressed_tensors":
            assert ((offsets == np.rint(offsets)) & (offsets >= low) & (offsets <= high)).all()
            # x = 0 has a code of its own.
            zeros = jumar_quant.quantize_with_scales(np.zeros_like(x), fmt, scales, (1, 32))
            assert (zeros == 0).all()


def test_static_scales():
    x = matrix(7, 3, 64, ml_dtypes.bfloat16)
    codes = jumar_quant.quantize_with_scales(x, "int8", np.float32([[0.05]]), (0, 0))
    np.testing.assert_array_equal(codes, reference.encode("int8", x.astype(np.float32) / np.float32(0.05)))


def test_errors_name_the_argument():
    x = np.zeros((2, 8), np.float32)
    with pytest.raises(KeyError, match="none of cann_dynamic, vllm_group"):
        jumar_quant.quantize(x, "e4m3", "absmax", (1, 0))
    with pytest.raises(ValueError, match="deepseek gives scales that aren't powers of two"):
        jumar_quant.quantize(x, "e4m3", "deepseek", (1, 0), e8m0=True)
    with pytest.raises(ValueError, match=r"scales are \[1, 1\]; they must be \[2, 1\]"):
        jumar_quant.quantize_with_scales(x, "e4m3", np.ones((1, 1), np.float32), (1, 0))
    with pytest.raises(ValueError, match="matrix has 1 axes; it must have 2"):
        jumar_quant.quantize(x[0], "e4m3", "deepseek", (1, 0))
    with pytest.raises(ValueError, match="E8M0 has no zero"):
        jumar_quant.quantize(x, "e8m0", "deepseek", (1, 0))
