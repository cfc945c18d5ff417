"""The bytes of packed rows against offsets and casts written out here: nothing is shared with libs/memory/kv or the codec."""

import jumar_quant
import ml_dtypes
import numpy as np
import pytest
import reference

E8M0, E4M3, BF16 = ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
SIZE = 4  # tokens in a page


def codes_and_scales(x, rule, group):
    scales = np.array([reference.scale(rule, "e4m3", np.abs(g).max()) for g in x.reshape(-1, group)], np.float32)
    quotient = (x.reshape(-1, group) / scales[:, None]).astype(np.float32)
    return np.clip(quotient, -448, 448).astype(E4M3).view(np.uint8).reshape(-1), scales


def page_656(page, t, x, rope, scales_first):
    codes, scales = codes_and_scales(x, "deepseek", 128)
    row = page[t * 656:(t + 1) * 656]
    row[:512] = codes
    at_scales, at_rope = (512, 528) if scales_first else (640, 512)
    row[at_scales:at_scales + 16] = scales.view(np.uint8)
    row[at_rope:at_rope + 128] = rope.view(np.uint8)


def page_640(page, t, x, rope):
    codes, scales = codes_and_scales(x, "deepseek_ue8m0", 64)
    row = page[t * 640:(t + 1) * 640]
    row[:128], row[128:576], row[576:583] = rope.view(np.uint8), codes, scales.astype(E8M0).view(np.uint8)


def page_584(page, t, x, rope):
    codes, scales = codes_and_scales(x, "deepseek_ue8m0", 64)
    page[t * 576:t * 576 + 448], page[t * 576 + 448:(t + 1) * 576] = codes, rope.view(np.uint8)
    page[SIZE * 576 + t * 8:SIZE * 576 + t * 8 + 7] = scales.astype(E8M0).view(np.uint8)


def page_132(page, t, x, rope):
    codes, scales = codes_and_scales(x, "deepseek", 128)
    page[t * 128:(t + 1) * 128] = codes
    page[SIZE * 128 + t * 4:SIZE * 128 + t * 4 + 4] = scales.view(np.uint8)


CASES = {
    "packed656": ("deepseek", 512, 4 * 656, lambda *a: page_656(*a, scales_first=False)),
    "packed656_flash_mla": ("deepseek", 512, 4 * 656, lambda *a: page_656(*a, scales_first=True)),
    "packed640": ("deepseek_ue8m0", 448, 4 * 640, page_640),
    "split584": ("deepseek_ue8m0", 448, (4 * 584 + 575) // 576 * 576, page_584),
    "indexer132": ("deepseek", 128, 4 * 132, page_132),
}


@pytest.mark.parametrize("layout", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_bytes(layout, dtype):
    rule, dims, page_bytes, write = CASES[layout]
    codec = jumar_quant.RowCodec(layout, SIZE, rule)
    assert (codec.page_bytes, codec.dims) == (page_bytes, dims)
    random = np.random.default_rng(2)
    x = (random.standard_normal((9, dims)) * np.exp2(random.integers(-6, 6, (9, 1)))).astype(dtype)
    x[3] = 0
    x[4] = np.exp2(random.integers(-5, 5, dims)).astype(dtype)
    rope = random.standard_normal((9, 64)).astype(BF16)
    slots = np.array([0, 5, -1, 11, 2, 3, 4, 10, 7])
    want = np.full((3, page_bytes), 0xEE, np.uint8)
    for i, slot in enumerate(slots):
        if slot >= 0:
            write(want[slot // SIZE], slot % SIZE, x[i].astype(np.float32), rope[i])
    cache = np.full_like(want, 0xEE)
    codec.write(x, rope if codec.rope_dims else None, slots, cache)
    np.testing.assert_array_equal(cache, want)

    values, bits = codec.read(cache, slots)
    for i, slot in enumerate(slots):
        if slot < 0:
            assert not values[i].any()
            continue
        group = dims // codec.groups
        codes, scales = codes_and_scales(x[i].astype(np.float32), rule, group)
        np.testing.assert_array_equal(values[i], codes.view(E4M3).astype(np.float32) * np.repeat(scales, group))
        if codec.rope_dims:
            np.testing.assert_array_equal(bits[i].view(BF16), rope[i])


def test_int8_keys_of_910():
    codec = jumar_quant.RowCodec("indexer130", SIZE, "cann_dynamic")
    x = np.random.default_rng(3).standard_normal((4, 128)).astype(np.float32)
    cache = np.zeros((1, codec.page_bytes), np.uint8)
    codec.write(x, None, range(4), cache)
    scales = (np.abs(x).max(1) / np.float32(127)).astype(np.float16)
    np.testing.assert_array_equal(cache[0, 512:].view(np.float16), scales)
    want = np.clip(np.rint(x / scales.astype(np.float32)[:, None]), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(cache[0, :512].view(np.int8).reshape(4, 128), want)


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match='layout "packed600" is none of'):
        jumar_quant.RowCodec("packed600", 4, "deepseek")
    with pytest.raises(ValueError, match="rule deepseek gives other than powers of two"):
        jumar_quant.RowCodec("packed640", 4, "deepseek")
    codec = jumar_quant.RowCodec("indexer132", 4, "deepseek")
    cache = np.zeros((2, codec.page_bytes), np.uint8)
    with pytest.raises(ValueError, match="slot 8 of row 0 is outside"):
        codec.write(np.zeros((1, 128), np.float32), None, [8], cache)
    with pytest.raises(ValueError, match="pages have 100 bytes"):
        codec.write(np.zeros((1, 128), np.float32), None, [0], cache[:, :100])
    with pytest.raises(ValueError, match="stride is 64; a row has 128 values"):
        codec.write(np.zeros((1, 64), np.float32), None, [0], cache)
    cache.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        codec.write(np.zeros((1, 128), np.float32), None, [0], cache)
