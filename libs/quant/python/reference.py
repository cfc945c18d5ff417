"""What libs/quant should give, from numpy and ml_dtypes alone: formats by casts, scales by frexp, rows by loops."""

import math

import ml_dtypes
import numpy as np

BF16 = ml_dtypes.bfloat16
CASTS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e8m0": ml_dtypes.float8_e8m0fnu, "e2m1": ml_dtypes.float4_e2m1fn}
LARGEST = {"e4m3": 448, "e5m2": 57344, "e8m0": 2.0**127, "e2m1": 6, "hif8": 32768, "int8": 127, "int4": 7}
EMAX = {"e4m3": 8, "e5m2": 15, "e2m1": 2, "hif8": 15, "int8": 6, "int4": 2}
INTEGERS = {"int8": (-128, 127), "int4": (-8, 7)}


def hif8_values():
    """arXiv 2409.16626, table by table: dot field (prefix code), exponent in sign and magnitude without its first bit, mantissa."""
    values = np.full(256, np.nan)
    values[0] = 0
    for m in range(1, 8):  # denormal, dot 0000
        values[m] = 2.0 ** (m - 23)
    for m in range(8):  # dot 0001: no exponent
        values[0b0001_000 + m] = 1 + m / 8
    for dot, width, bits in ((0b001, 1, 3), (0b01, 2, 3), (0b10, 3, 2), (0b11, 4, 1)):
        for sign in (0, 1):
            for rest in range(2 ** (width - 1)):
                exponent = 2 ** (width - 1) + rest
                for m in range(2**bits):
                    code = ((dot << width | sign << (width - 1) | rest) << bits) | m
                    values[code] = 2.0 ** (-exponent if sign else exponent) * (1 + m / 2**bits)
    values[0b0110_1111] = np.inf  # in place of 1.5 * 2^15
    values[129:] = -values[1:128]
    return values


HIF8 = hif8_values()


def hif8_encode(x, overflow):
    """Nearest value, ties away from zero; infinity counts as the value 1.5 * 2^15 that it displaces."""
    order = np.concatenate([np.arange(128)])
    magnitudes = np.where(np.isinf(HIF8[order]), 49152.0, HIF8[order])
    order = order[np.argsort(magnitudes)]
    magnitudes = np.sort(magnitudes)
    middles = (magnitudes[1:] + magnitudes[:-1]) / 2
    code = order[np.searchsorted(middles, np.abs(x).astype(np.float64), side="right")]
    if overflow == "saturate":
        code = np.where(code == 0x6F, 0x6E, code)
    code = np.where((x < 0) & (code != 0), code | 0x80, code)
    return np.where(np.isnan(x), 0x80, code).astype(np.uint8)


def encode(fmt, x, overflow="saturate"):
    """Codes of an array, one to a byte."""
    if fmt in INTEGERS:
        low, high = INTEGERS[fmt]
        whole = np.rint(np.clip(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=1e9, neginf=-1e9), low, high)).astype(np.int8)
        return whole.view(np.uint8) & (15 if fmt == "int4" else 255)
    if fmt == "hif8":
        return hif8_encode(x.astype(np.float32), overflow)
    if overflow == "saturate":
        most = x.dtype.type(LARGEST[fmt])
        x = np.where(x > most, most, x)
        if fmt != "e8m0":
            x = np.where(x < -most, -most, x)
    with np.errstate(all="ignore"):
        return x.astype(CASTS[fmt]).view(np.uint8)


def decode(fmt, codes):
    """What codes (one to a byte) are worth, fp32."""
    if fmt == "int8":
        return codes.view(np.int8).astype(np.float32)
    if fmt == "int4":
        return ((codes.astype(np.int16) ^ 8) - 8).astype(np.float32)
    if fmt == "hif8":
        return HIF8[codes].astype(np.float32)
    return codes.view(CASTS[fmt]).astype(np.float32)


def pack(codes):
    """Two to a byte, the first in the low half."""
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], 1), np.uint8)], -1)
    return codes[..., ::2] | codes[..., 1::2] << 4


def power(exponent):
    return np.float32(math.ldexp(1.0, min(max(exponent, -127), 127)))


def ceil_power(x):
    mantissa, exponent = math.frexp(float(x))
    return power(-127 if x == 0 else exponent - 1 if mantissa == 0.5 else exponent)


def floor_log2(x):
    return -1000 if x == 0 else math.frexp(float(x))[1] - 1


def scale(rule, fmt, absmax):
    a, most = np.float32(absmax), np.float32(LARGEST[fmt])
    if not np.isfinite(a):
        return np.float32(np.nan)
    half = np.float32(LARGEST[fmt] + (0.5 if fmt in INTEGERS else 0))
    with np.errstate(under="ignore", over="ignore"):
        if rule == "cann_dynamic":
            return a / most
        if rule == "vllm_group":
            return max(a, np.float32(1e-10)) / most
        if rule == "vllm_group_ue8m0":
            return ceil_power(max(a, np.float32(1e-10)) / most)
        if rule == "vllm_token":
            return max(a / most, np.float32(1 / 512) / most)
        if rule == "deepseek":
            return max(a, np.float32(1e-4)) / most
        if rule == "deepseek_ue8m0":
            return ceil_power(max(a, np.float32(1e-4)) / most)
        if rule == "compressed_tensors":
            return a / half or np.float32(2.0**-23)
        if rule == "ocp_mx":
            return power(floor_log2(a) - EMAX[fmt])
        if rule == "mx_ceil":
            return ceil_power(a / most)
        if rule == "mx_round":
            return power(floor_log2(float(a) + (0 if a == 0 else 2.0 ** (floor_log2(a) - 2))) - EMAX[fmt])
    raise KeyError(rule)


def blocks(shape, block):
    rows, cols = shape
    br, bc = block[0] or rows, block[1] or cols
    for r in range(0, rows, br):
        for c in range(0, cols, bc):
            yield (r // br, c // bc), (slice(r, min(rows, r + br)), slice(c, min(cols, c + bc)))


def quantize(x, fmt, rule, block):
    """Codes, one to a byte, and fp32 scales."""
    x = x.astype(np.float32)
    grid = [at for at, _ in blocks(x.shape, block)][-1]
    scales = np.zeros((grid[0] + 1, grid[1] + 1), np.float32)
    codes = np.zeros(x.shape, np.uint8)
    for at, part in blocks(x.shape, block):
        s = scales[at] = scale(rule, fmt, np.max(np.abs(x[part])))  # numpy's maximum keeps a NaN
        if np.isnan(s):
            quotient = np.full_like(x[part], s if fmt not in INTEGERS and fmt != "e2m1" else 0)
        else:
            quotient = np.zeros_like(x[part]) if s == 0 else x[part] / s
        codes[part] = encode(fmt, quotient)
    return codes, scales
