"""Quantisation to int4 and float8, dynamic quantisation by column and by tensor, products with int4."""

import pytest
import torch
import torch_npu
from oracle import call, close, covers, floats, ints, strict_refuses
from quant_test import near_int8

HALVES = (torch.float16, torch.bfloat16)


def unpacked(t: torch.Tensor) -> torch.Tensor:
    """int4 numbers of int32 words or int8 bytes, lowest bits first."""
    bits = 8 * t.element_size()
    numbers = (t.cpu().long()[..., None] >> torch.arange(0, bits, 4)) & 15
    return (numbers - (numbers & 8) * 2).flatten(-2).to(torch.int8)


@covers("DynamicQuantV2", "AscendQuantV3", "SwiGluQuantV2", "AscendAntiQuant")
def test_int4():
    x = floats(4, 64, dtype=torch.float16)
    y, scale = torch_npu.npu_dynamic_quant(x.npu(), dst_type=torch.quint4x2)
    want = x.double().abs().amax(-1) / 7
    close(scale.cpu(), want, ulps=4)
    near_int8(unpacked(y), (x.double() / want[:, None]).clamp(-8, 7))
    y = torch_npu.npu_quantize(x.npu(), torch.full((64,), 4.0).npu(), torch.ones(64).npu(), torch.quint4x2, -1, False)
    near_int8(unpacked(y), (x.double() * 4 + 1).clamp(-8, 7))
    y, scale = torch_npu.npu_swiglu_quant(x.npu(), activate_left=True, quant_mode=1, dst_type=torch.quint4x2)
    value = torch.nn.functional.silu(x[:, :32].double()) * x[:, 32:].double()
    near_int8(unpacked(y), value / (value.abs().amax(-1, True) / 7))
    q = ints(4, 64, dtype=torch.int32, low=-8, high=8)
    words = torch_npu.npu_convert_weight_to_int4pack(q.npu())
    assert torch.equal(unpacked(words), q.to(torch.int8)), "it packs as we read"
    s = floats(64, seed=1)
    back = torch_npu.npu_anti_quant(words, s.npu(), dst_dtype=torch.float16, src_dtype=torch.quint4x2)
    close(back.cpu(), q.double() * s, ulps=2)


@pytest.mark.parametrize("mode", ["perchannel", "pertensor"])
@covers("DynamicQuantV4")
def test_dynamic_quantisation_by_column_and_tensor(mode):
    x = floats(6, 16, dtype=torch.float16)
    over = (0,) if mode == "perchannel" else (0, 1)
    want = x.double().abs().amax(over) / 127
    y, scale = torch_npu.npu_dynamic_quant(x.npu(), quant_mode=mode)
    close(scale.cpu().flatten(), want.flatten(), ulps=4)
    near_int8(y, x.double() / want)
    y, scale, offset = torch_npu.npu_dynamic_quant_asymmetric(x.npu(), quant_mode=mode)
    want = (x.double().amax(over) - x.double().amin(over)) / 255
    close(scale.cpu().flatten(), want.flatten(), ulps=4)
    near_int8(y, x.double() / want + 127 - x.double().amax(over) / want)


@covers("DynamicQuantV3")
def test_dynamic_quantisation_as_it_was():
    import ctypes

    x = floats(6, 16, dtype=torch.float16)
    y, scale = torch.zeros(6, 16, dtype=torch.int8, device="npu"), torch.zeros(6, device="npu")
    call("DynamicQuantV3", x.npu(), None, None, ctypes.c_int32(2), True, b"pertoken", y, scale, None)
    close(scale.cpu(), x.double().abs().amax(-1) / 127, ulps=4)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@strict_refuses("float8|page")
def test_float8(dtype):
    x = floats(4, 32, dtype=torch.float16)
    y, scale = torch_npu.npu_dynamic_quant(x.npu(), dst_type=dtype)
    want = x.double().abs().amax(-1) / torch.finfo(dtype).max
    close(scale.cpu(), want, ulps=4)
    got = y.cpu().view(torch.uint8).view(dtype).double()
    exact = x.double() / want[:, None]
    assert ((got - exact).abs() <= exact.abs() * torch.finfo(dtype).eps * 0.51 + 2.0**-9).all()


def near_product(got, x, weight, bias=0.0):
    """Sums in fp32, rounded once."""
    k = x.shape[-1]
    close(got.cpu(), x.double() @ weight + bias, ulps=1, absolute=(k + 2) * 2.0**-23 * (x.double().abs() @ weight.abs()))


@pytest.mark.parametrize("dtype", HALVES)
@covers("WeightQuantBatchMatmulV2", "WeightQuantBatchMatmulV3")
def test_weights_of_int4(dtype):
    x, w = floats(5, 64, dtype=dtype), ints(64, 32, dtype=torch.int32, low=-8, high=8)
    packed = torch_npu.npu_convert_weight_to_int4pack(w.npu())
    scale, offset = floats(32, dtype=dtype, seed=1, low=0.01, high=0.1), floats(32, dtype=dtype, seed=2)
    got = torch_npu.npu_weight_quant_batchmatmul(x.npu(), packed, scale.npu(), offset.npu())
    near_product(got, x, (w.double() + offset.double()) * scale.double())
    groups, offsets = floats(2, 32, dtype=dtype, seed=3, low=0.01, high=0.1), floats(2, 32, dtype=dtype, seed=4)
    rows = lambda t: t.double().repeat_interleave(32, 0)  # noqa: E731
    for precise in (0, 1):
        got = torch_npu.npu_weight_quant_batchmatmul(x.npu(), packed, groups.npu(), offsets.npu(), antiquant_group_size=32, inner_precise=precise)
        near_product(got, x, (w.double() + rows(offsets)) * rows(groups))
    across = torch_npu.npu_convert_weight_to_int4pack(w.t().contiguous().npu()).t()  # packed along k
    near_product(torch_npu.npu_weight_quant_batchmatmul(x.npu(), across, scale.npu(), offset.npu()), x, (w.double() + offset.double()) * scale.double())


@covers("WeightQuantBatchMatmulV2", "TransQuantParamV2")
def test_weights_of_int8_and_a_quantised_result():
    x, w = floats(5, 64, dtype=torch.float16), ints(64, 24, dtype=torch.int8)
    scale, by, zero = floats(24, dtype=torch.float16, seed=1, low=0.01, high=0.1), floats(24, seed=2, low=0.5, high=2), ints(24, seed=3).float()
    cut = (by.view(torch.int32) & -8192).view(torch.float32)
    got = torch_npu.npu_weight_quant_batchmatmul(x.npu(), w.npu(), scale.npu(), None, by.npu(), zero.npu())
    near_int8(got, (x.double() @ (w.double() * scale.double())) * cut + zero)
    words = torch_npu.npu_trans_quant_param(by.npu(), zero.npu())
    assert torch.equal(torch_npu.npu_weight_quant_batchmatmul(x.npu(), w.npu(), scale.npu(), None, words), got)
    groups = floats(2, 24, dtype=torch.float16, seed=3, low=0.01, high=0.1)
    near_product(torch_npu.npu_weight_quant_batchmatmul(x.npu(), w.npu(), groups.npu(), antiquant_group_size=32), x,
                 w.double() * groups.double().repeat_interleave(32, 0))


@covers("WeightQuantBatchMatmulNz")
def test_weights_in_fractals():
    """The wheel calls it on Ascend950 only."""
    import ctypes

    x, w = floats(5, 64, dtype=torch.float16), ints(64, 64, dtype=torch.int8)
    scale = floats(64, dtype=torch.float16, seed=1, low=0.01, high=0.1)
    out = torch.zeros(5, 64, dtype=torch.float16, device="npu")
    call("WeightQuantBatchMatmulNz", x.npu(), w.npu(), scale.npu(), None, None, None, None, ctypes.c_int32(0), out)
    near_product(out, x, w.double() * scale.double())


@covers("QuantMatmulV5")
def test_int4_by_int4():
    a, w = ints(6, 64, dtype=torch.int32, low=-8, high=8), ints(64, 32, dtype=torch.int32, seed=1, low=-8, high=8)
    pack = torch_npu.npu_convert_weight_to_int4pack
    scale, token = floats(32, seed=2, low=1e-3, high=1e-2), floats(6, seed=3, low=0.5, high=1.5)
    got = torch_npu.npu_quant_matmul(pack(a.npu()), pack(w.npu()), scale.npu(), pertoken_scale=token.npu(), output_dtype=torch.bfloat16)
    close(got.cpu(), (a.double() @ w.double()) * scale * token[:, None], ulps=2)


@pytest.mark.parametrize("dtype", HALVES)
@covers("RmsNormQuantV3", "GeluQuant", "GroupQuant", "DequantBias")
def test_others_that_quantise(dtype):
    x, gamma, beta = floats(6, 32, dtype=dtype), floats(32, dtype=dtype, seed=1), floats(32, dtype=dtype, seed=2)
    scale, zero = torch.tensor([0.05], dtype=dtype), torch.tensor([3], dtype=torch.int8)
    normed = x.double() * torch.rsqrt(x.double().square().mean(-1, True) + 1e-6) * gamma.double()
    y, _ = torch_npu.npu_rms_norm_quant_v2(x.npu(), gamma.npu(), scale.npu(), offset=zero.npu(), beta=beta.npu())
    near_int8(y, (normed + beta.double()) / scale.double() + 3)

    by, offset = floats(32, dtype=dtype, seed=3, low=5, high=20), floats(32, dtype=dtype, seed=4)
    for approximate in ("none", "tanh"):
        gelu = torch.nn.functional.gelu(x.double(), approximate=approximate)
        y, _ = torch_npu.npu_gelu_quant(x.npu(), input_scale=by.npu(), input_offset=offset.npu(), approximate=approximate, quant_mode="static")
        near_int8(y, gelu * by.double() + offset.double())
        y, s = torch_npu.npu_gelu_quant(x.npu(), input_scale=by.npu(), approximate=approximate, quant_mode="dynamic")
        want = (gelu * by.double()).abs().amax(-1) / 127
        close(s.cpu(), want, ulps=16)
        near_int8(y, gelu * by.double() / want[:, None])

    scales, ends = floats(3, 32, dtype=dtype, seed=5, low=5, high=20), torch.tensor([2, 2, 6])
    y = torch_npu.npu_group_quant(x.npu(), scales.npu(), ends.npu(), offset=torch.ones(1, dtype=dtype).npu())
    near_int8(y, x.double() * scales[torch.tensor([0, 0, 2, 2, 2, 2])].double() + 1)

    sums, w, a = ints(6, 32, dtype=torch.int32, low=-9999, high=9999), floats(32, seed=6, low=1e-4, high=1e-3), floats(6, seed=7, low=0.5, high=1.5)
    whole, real = ints(32, dtype=torch.int32, seed=8), floats(32, seed=9)
    by = w.double() * a[:, None].double()
    for bias, want in ((None, sums * by), (whole, (sums + whole) * by), (real, sums * by + real)):
        got = torch_npu.npu_dequant_bias(sums.npu(), w.npu(), a.npu(), None if bias is None else bias.npu(), output_dtype=dtype)
        close(got.cpu(), want, absolute=1e-5)


@covers("QuantMatmulV5", "GroupedMatmulV4")
def test_products_of_float8():
    a, w = floats(6, 64).to(torch.float8_e4m3fn), floats(64, 32, seed=1).to(torch.float8_e4m3fn)
    scale, token = floats(32, seed=2, low=0.5, high=1.5), floats(6, seed=3, low=0.5, high=1.5)
    x, weight = a.double(), w.double()
    slack = 66 * 2.0**-23 * (x.abs() @ weight.abs()) * 3
    got = torch_npu.npu_quant_matmul(a.npu(), w.npu(), scale.npu(), pertoken_scale=token.npu(), output_dtype=torch.bfloat16)
    close(got.cpu(), (x @ weight) * scale * token[:, None], absolute=slack)
    (got,) = torch_npu.npu_grouped_matmul([a.npu()], [torch.stack([w, w.flip(0)]).npu()], scale=[torch.stack([scale, scale]).npu()],
                                          per_token_scale=[token.npu()], group_list=torch.tensor([2, 6]).npu(), split_item=3, group_type=0,
                                          output_dtype=torch.bfloat16)
    want = torch.cat([x[:2] @ weight, x[2:] @ weight.flip(0)]) * scale * token[:, None]
    close(got.cpu(), want, absolute=66 * 2.0**-23 * 9 * 64 * 3)
    left, right = floats(6, 2, seed=4, low=0.5, high=1.5), floats(2, 2, seed=5, low=0.5, high=1.5)  # of blocks of 1 x 32 and 32 x 16
    got = torch_npu.npu_quant_matmul(a.npu(), w.npu(), right.npu(), pertoken_scale=left.npu(), output_dtype=torch.bfloat16, group_sizes=[1, 16, 32])
    want = (x * left.double().repeat_interleave(32, 1)) @ (weight * right.double().repeat_interleave(32, 0).repeat_interleave(16, 1))
    close(got.cpu(), want, absolute=slack)


def test_types_that_no_cpu_has():
    with pytest.raises(RuntimeError, match="hifloat8"):
        torch_npu.npu_dynamic_quant(floats(4, 32, dtype=torch.float16).npu(), dst_type=torch_npu.hifloat8)
