"""Products with compact weights (int8, int4, float8, HiFloat8, MX) by the kernel, and quantisation by blocks."""

import ctypes
import math

import pytest
import torch
import torch_npu
from int4_test import near_product
from oracle import ACL_DTYPES, call, close, covers, floats, ints, strict_refuses

E4M3, E5M2, E8M0, FP4, HIF8 = torch.float8_e4m3fn, torch.float8_e5m2, torch_npu.float8_e8m0fnu, torch_npu.float4_e2m1fn_x2, torch_npu.hifloat8
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
LARGEST = {E4M3: 448, E5M2: 57344, FP4: 6}
EMAX = {E4M3: 8, E5M2: 15, FP4: 2}


def codes(*shape, seed=0):
    return ints(*shape, dtype=torch.uint8, seed=seed, high=256)


def from_fp4(packed: torch.Tensor) -> torch.Tensor:
    """Numbers of bytes that hold two, the first in the lower half."""
    packed = packed.cpu()
    return E2M1[torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()]


def from_e8m0(code: torch.Tensor) -> torch.Tensor:
    return torch.exp2(code.cpu().double() - 127)


def from_hif8(code: torch.Tensor) -> torch.Tensor:
    """HiFloat8 as arXiv 2409.16626 has it: a sign, how many bits the exponent has (a prefix code), exponent, mantissa."""

    def number(bits: int) -> float:
        sign, rest = -1.0 if bits & 128 else 1.0, bits & 127
        if rest < 8:  # denormal
            return sign * 2.0 ** (rest - 23) if rest else 0.0 if sign > 0 else math.nan
        if rest == 0x6F:
            return sign * math.inf
        width, left = (4, 5) if rest >= 96 else (3, 5) if rest >= 64 else (2, 5) if rest >= 32 else (1, 4) if rest >= 16 else (0, 3)
        mantissa_bits = left - width
        exponent_field, mantissa = rest >> mantissa_bits & (1 << width) - 1, rest & (1 << mantissa_bits) - 1
        magnitude = exponent_field & (1 << width) - 1 >> 1 | 1 << width - 1 if width else 0
        exponent = -magnitude if width and exponent_field >> width - 1 else magnitude
        return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0**exponent

    return torch.tensor([number(b) for b in range(256)], dtype=torch.float64)[code.cpu().view(torch.uint8).long()]


def spread(scale, block, size, dim=-1):
    return scale.double().repeat_interleave(block, dim).narrow(dim, 0, size)


def near_scaled(got, x, weight):
    """As near_product for float64 operands whose scales are applied to segments of the sum."""
    close(got.cpu(), x @ weight, ulps=1, absolute=(x.shape[-1] + 16) * 2.0**-23 * (x.abs() @ weight.abs()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("m", [1, 5])
@covers("WeightQuantBatchMatmulV2", "WeightQuantBatchMatmulV3")
def test_weights_along_k(dtype, m):
    x = floats(m, 192, dtype=dtype)
    w8, w4 = ints(48, 192, dtype=torch.int8, low=-128, high=128), ints(48, 192, dtype=torch.int32, low=-8, high=8, seed=1)
    packed = torch_npu.npu_convert_weight_to_int4pack(w4.npu()).t()
    scale, offset, bias = floats(48, dtype=dtype, seed=2, low=0.01, high=0.1), floats(48, dtype=dtype, seed=3), floats(48, dtype=torch.float32 if dtype == torch.bfloat16 else dtype, seed=4)
    for by in (scale, scale[None], scale[:1]):
        got = torch_npu.npu_weight_quant_batchmatmul(x.npu(), w8.npu().t(), by.npu(), bias=bias.npu())
        near_product(got, x, w8.t().double() * by.double(), bias.double())
    got = torch_npu.npu_weight_quant_batchmatmul(x.npu(), packed, scale.npu(), offset.npu(), inner_precise=1)
    near_product(got, x, (w4.t().double() + offset.double()) * scale.double())
    groups, offsets = floats(6, 48, dtype=dtype, seed=5, low=0.01, high=0.1), ints(6, 48, seed=6, low=-8, high=8).to(dtype)
    rows = lambda t: t.double().repeat_interleave(32, 0)  # noqa: E731
    for layout in (lambda t: t.npu(), lambda t: t.t().contiguous().npu().t()):
        got = torch_npu.npu_weight_quant_batchmatmul(x.npu(), packed, layout(groups), layout(offsets), antiquant_group_size=32)
        near_product(got, x, (w4.t().double() + rows(offsets)) * rows(groups))


@covers("WeightQuantBatchMatmulV2")
def test_a_graph_reads_weights_and_scales_when_it_is_replayed():
    x, w, scale = (t.npu() for t in (floats(2, 64, dtype=torch.float16), ints(16, 64, dtype=torch.int8), floats(16, dtype=torch.float16, low=0.01, high=0.1)))
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = torch_npu.npu_weight_quant_batchmatmul(x, w.t(), scale)
    w.copy_(ints(16, 64, dtype=torch.int8, seed=1))
    scale.mul_(2)
    graph.replay()
    torch.npu.synchronize()
    near_product(y, x.cpu(), w.cpu().t().double() * scale.cpu().double())


@pytest.mark.parametrize("weight_type", [E4M3, E5M2])
@covers("WeightQuantBatchMatmulV2")
def test_weights_of_float8(weight_type):
    x, w = floats(3, 96, dtype=torch.bfloat16), floats(32, 96, seed=1).to(weight_type)
    scale = floats(32, dtype=torch.bfloat16, seed=2, low=0.01, high=0.1)
    near_product(torch_npu.npu_weight_quant_batchmatmul(x.npu(), w.npu().t(), scale.npu()), x, w.double().t() * scale.double())


@covers("WeightQuantBatchMatmulV2")
def test_weights_of_mxfp4():
    x, w, exponents = floats(3, 128, dtype=torch.bfloat16), codes(32, 64), ints(4, 32, dtype=torch.uint8, low=120, high=130)
    words = w.view(torch.float32).npu().t()  # eight codes in each
    got = torch_npu.npu_weight_quant_batchmatmul(x.npu(), words, exponents.npu().view(torch.float8_e8m0fnu), antiquant_group_size=32)
    near_scaled(got, x.double(), from_fp4(w).t() * spread(from_e8m0(exponents), 32, 128, 0))


@pytest.mark.parametrize("m", [1, 6])
@covers("QuantMatmulV5")
def test_float8_by_float8(m):
    a, w = floats(m, 320).to(E4M3), floats(144, 320, seed=1).to(E4M3)
    x, weight = a.double(), w.double().t()
    scale, token, bias = floats(144, seed=2, low=0.5, high=1.5), floats(m, seed=3, low=0.5, high=1.5), floats(144, seed=4)
    got = torch_npu.npu_quant_matmul(a.npu(), w.npu().t(), scale.npu(), pertoken_scale=token.npu(), bias=bias.npu(), output_dtype=torch.bfloat16)
    want = (x * token.double()[:, None]) @ (weight * scale.double()) + bias
    close(got.cpu(), want, absolute=340 * 2.0**-23 * (x.abs() @ weight.abs()) * 2.3)
    blocks, rows = floats(2, 3, seed=5, low=0.5, high=1.5), floats(m, 3, seed=6, low=0.5, high=1.5)  # DeepSeek's
    got = torch_npu.npu_quant_matmul(a.npu(), w.npu().t(), blocks.npu().t(), pertoken_scale=rows.npu(), output_dtype=torch.bfloat16, group_sizes=[1, 128, 128])
    near_scaled(got, x * spread(rows, 128, 320), weight * spread(spread(blocks, 128, 320), 128, 144, 0).t())


@pytest.mark.parametrize("m", [1, 6])
@covers("QuantMatmulV5")
def test_products_of_mx(m):
    k, n = 192, 40
    left, right = ints(m, k // 64, 2, dtype=torch.uint8, seed=1, low=120, high=130), ints(n, k // 64, 2, dtype=torch.uint8, seed=2, low=120, high=130)
    by_row, by_column = spread(from_e8m0(left).flatten(1), 32, k), spread(from_e8m0(right).flatten(1), 32, k).t()
    mx = {"pertoken_scale": left.npu(), "scale_dtype": E8M0, "pertoken_scale_dtype": E8M0, "output_dtype": torch.bfloat16, "group_sizes": [1, 1, 32]}
    a, w = floats(m, k).to(E4M3), floats(n, k, seed=3).to(E4M3)
    got = torch_npu.npu_quant_matmul(a.npu(), w.npu().t(), right.npu().transpose(0, 1), **mx)
    near_scaled(got, a.double() * by_row, w.double().t() * by_column)
    got = torch_npu.npu_quant_matmul(a.npu(), w.t().contiguous().npu(), right.transpose(0, 1).contiguous().npu(), **mx)
    near_scaled(got, a.double() * by_row, w.double().t() * by_column)
    a, w = codes(m, k // 2, seed=4), codes(n, k // 2, seed=5)
    got = torch_npu.npu_quant_matmul(a.npu(), w.npu().t(), right.npu().transpose(0, 1), x1_dtype=FP4, x2_dtype=FP4, **mx)
    near_scaled(got, from_fp4(a) * by_row, from_fp4(w).t() * by_column)


@covers("QuantMatmulV5")
def test_products_of_hifloat8():
    """Codes 0x08 to 0x0F are 1, 1.125, ... 1.875; the highest bit is the sign."""
    a, w = ints(3, 64, dtype=torch.uint8, high=8) + 8, ints(20, 64, dtype=torch.uint8, high=8, seed=1) + 0x88
    scale, token = floats(20, seed=2, low=0.5, high=1.5), floats(3, seed=3, low=0.5, high=1.5)
    got = torch_npu.npu_quant_matmul(a.npu(), w.npu().t(), scale.npu(), pertoken_scale=token.npu(), x1_dtype=HIF8, x2_dtype=HIF8, output_dtype=torch.bfloat16)
    near_scaled(got, (a.double() / 8) * token.double()[:, None], -((w & 127).double() / 8).t() * scale.double())


@covers("GroupedMatmulV5")
def test_experts_with_compact_weights():
    x, ends = floats(7, 128, dtype=torch.bfloat16), torch.tensor([2, 2, 7])
    w = ints(3, 32, 128, dtype=torch.int32, low=-8, high=8)
    packed = torch_npu.npu_convert_weight_to_int4pack(w.flatten(0, 1).npu()).view(3, 32, 16).transpose(1, 2)
    scale, offset = floats(3, 4, 32, dtype=torch.bfloat16, seed=1, low=0.01, high=0.1), ints(3, 4, 32, seed=2, low=-8, high=8).bfloat16()
    common = {"group_list": ends.npu(), "split_item": 3, "group_type": 0}
    (got,) = torch_npu.npu_grouped_matmul([x.npu()], [packed], antiquant_scale=[scale.npu()], antiquant_offset=[offset.npu()], **common)
    dense = (w.double().transpose(1, 2) + spread(offset, 32, 128, 1)) * spread(scale, 32, 128, 1)
    for e, (begin, end) in enumerate(((0, 2), (2, 2), (2, 7))):
        near_product(got[begin:end], x[begin:end], dense[e])


@covers("GroupedMatmulV5")
def test_experts_of_float8():
    a, w, ends = floats(7, 128).to(E4M3), floats(3, 32, 128, seed=1).to(E4M3), torch.tensor([2, 2, 7])
    scale, token = floats(3, 32, seed=2, low=0.5, high=1.5), floats(7, seed=3, low=0.5, high=1.5)
    (got,) = torch_npu.npu_grouped_matmul([a.npu()], [w.npu().transpose(1, 2)], scale=[scale.npu()], per_token_scale=[token.npu()], group_list=ends.npu(), split_item=3, group_type=0,
                                          output_dtype=torch.bfloat16)
    for e, (begin, end) in enumerate(((0, 2), (2, 2), (2, 7))):
        near_scaled(got[begin:end], a[begin:end].double() * token[begin:end, None].double(), w[e].double().t() * scale[e].double())


def mx_scales(x, target, scale_alg):
    """Exponents of the blocks of 32 along the last axis."""
    amax = torch.nn.functional.pad(x.double().abs(), (0, -x.shape[-1] % 32)).unflatten(-1, (-1, 32)).amax(-1)
    if scale_alg == 0:
        return torch.floor(torch.log2(amax)) - EMAX[target]
    return torch.ceil(torch.log2(amax / LARGEST[target]))


@pytest.mark.parametrize("target, scale_alg", [(E4M3, 0), (E4M3, 1), (E5M2, 0), (E5M2, 1), (FP4, 0), (FP4, 2)])
@covers("DynamicMxQuantV3")
def test_mx_quantisation(target, scale_alg):
    for shape in ((3, 128), (2, 3, 96), (5, 40)):
        x = floats(*shape, dtype=torch.bfloat16, seed=len(shape))
        y, scale = torch_npu.npu_dynamic_mx_quant(x.npu(), dst_type=target, scale_alg=scale_alg)
        want = mx_scales(x, target, scale_alg)
        blocks = want.shape[-1]
        assert scale.shape == (*shape[:-1], (blocks + 1) // 2, 2) and scale.dtype == torch.uint8
        got = scale.cpu().flatten(-2)
        assert torch.equal(got[..., :blocks].double() - 127, want)
        assert not got[..., blocks:].any(), "what follows an odd number of blocks is zero"
        exact = (x.double() / torch.exp2(spread(want, 32, shape[-1]))).clamp(-LARGEST[target], LARGEST[target])
        if target == FP4:
            nearest = (exact[..., None] - E2M1).abs().amin(-1)
            assert torch.equal((from_fp4(y) - exact).abs(), nearest)
        else:
            assert torch.equal(y.cpu().view(target).double(), exact.float().to(target).double())
    if target != FP4:  # along another axis
        x = floats(70, 6, dtype=torch.float16)
        y, scale = torch_npu.npu_dynamic_mx_quant(x.npu(), axis=0, dst_type=target, scale_alg=scale_alg)
        turned, by = torch_npu.npu_dynamic_mx_quant(x.t().contiguous().npu(), dst_type=target, scale_alg=scale_alg)
        assert scale.shape == (2, 6, 2) and torch.equal(scale.cpu(), by.cpu().transpose(0, 1))
        assert torch.equal(y.cpu().view(torch.uint8), turned.cpu().view(torch.uint8).t())


@covers("DynamicMxQuant", "DynamicMxQuantV2")
def test_mx_quantisation_as_it_was():
    x = floats(4, 64, dtype=torch.bfloat16).npu()
    want, scales = torch_npu.npu_dynamic_mx_quant(x, dst_type=E4M3)
    for version, further in (("", ()), ("V2", (0.0,))):
        y, scale = torch.zeros(4, 64, dtype=torch.uint8, device="npu"), torch.zeros(4, 1, 2, dtype=torch.uint8, device="npu")
        typed(f"DynamicMxQuant{version}", x, -1, b"rint", ctypes.c_int32(36), 32, 0, *further, (y, 36), (scale, 37))
        assert torch.equal(y.cpu(), want.cpu().view(torch.uint8)) and torch.equal(scale.cpu(), scales.cpu())


def typed(name, *arguments):
    """`call` with two tensors of bytes that stand for another aclDataType: (tensor, type)."""
    first, second = (a for a in arguments if isinstance(a, tuple))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ACL_DTYPES, torch.uint8, first[1])
        patch.setitem(ACL_DTYPES, torch.bool, second[1])
        call(name, *(first[0] if a is first else second[0].view(torch.bool) if a is second else a for a in arguments))


@pytest.mark.parametrize("target", [torch.int8, E4M3, E5M2])
@pytest.mark.parametrize("block", [(1, 128), (128, 128)])
@strict_refuses("float8|page", when=lambda target, **_: target != torch.int8)
@covers("DynamicBlockQuantV2")
def test_block_quantisation(target, block):
    for shape in ((3, 200), (130, 256), (2, 130, 140)):
        x = floats(*shape, dtype=torch.bfloat16, seed=len(shape))
        kind = {torch.int8: 1, E4M3: E4M3, E5M2: E5M2}[target]
        y, scale = torch_npu.npu_dynamic_block_quant(x.npu(), dst_type=kind, row_block_size=block[0], col_block_size=block[1])
        padded = torch.nn.functional.pad(x.float().abs(), (0, -shape[-1] % block[1], 0, -shape[-2] % block[0]))
        largest = 127 if target == torch.int8 else LARGEST[target]
        want = padded.unflatten(-1, (-1, block[1])).unflatten(-3, (-1, block[0])).amax((-3, -1)) / largest
        close(scale.cpu(), want, ulps=2)
        by = spread(spread(scale.cpu(), block[1], shape[-1]), block[0], shape[-2], -2)
        exact = (x.double() / by).clamp(-largest, largest)
        if target == torch.int8:
            assert ((y.cpu().double() - exact).abs() <= 0.51).all()
        else:
            got = y.cpu().view(target).double()
            assert ((got - exact).abs() <= exact.abs() * torch.finfo(target).eps * 0.51 + 2.0**-9).all()


@covers("DynamicBlockQuant")
def test_block_quantisation_as_it_was():
    x = floats(130, 256, dtype=torch.bfloat16).npu()
    want, scales = torch_npu.npu_dynamic_block_quant(x, dst_type=1, row_block_size=128)
    y, scale = torch.zeros(130, 256, dtype=torch.int8, device="npu"), torch.zeros(2, 2, device="npu")
    call("DynamicBlockQuant", x, 0.0, b"rint", ctypes.c_int32(2), 128, 128, y, scale)
    assert torch.equal(y.cpu(), want.cpu()) and torch.equal(scale.cpu(), scales.cpu())


def gated(x, clamp=None):
    gate, up = x.double().chunk(2, -1)
    if clamp:
        gate, up = gate.clamp(max=clamp), up.clamp(-clamp, clamp)
    return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize("target", [E4M3, E5M2])
@pytest.mark.parametrize("power", [False, True])
@covers("SwigluGroupQuant")
def test_swiglu_by_blocks(target, power):
    x, weight = floats(2, 5, 512, dtype=torch.bfloat16), floats(10, seed=1, low=0.5, high=2)
    x[0, 1], x[1, 3, 300], x[1, 2, 7] = 0, torch.inf, torch.nan  # columns 300 and 7: the gate of 7, and what 44 is multiplied with
    want = gated(x, 2.5).flatten(0, 1) * weight.double()[:, None]
    finite = want.isfinite()
    for mx in (False, True) if power else (False,):
        block, y = 32 if mx else 128, torch.full((2, 5, 256), 0x55, dtype=torch.uint8).npu().view(target)
        scale = torch.zeros(2, 5, *((4, 2) if mx else (2,)), dtype=torch.uint8 if mx else torch.float32, device="npu")
        group = torch.tensor([4, 0, 4]).npu()
        arguments = (ctypes.c_int32(36 if target == E4M3 else 35), int(mx), 0, power, 2.5, 15.0, False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(ACL_DTYPES, torch.uint8, 37)
            patch.setitem(ACL_DTYPES, target, arguments[0].value)
            call("SwigluGroupQuant", x.npu(), weight.npu(), group, None, *arguments, y, scale, torch.zeros(0, dtype=x.dtype, device="npu"))
        torch.npu.synchronize()
        got, by = y.cpu().flatten(0, 1), scale.cpu().flatten(0, 1).flatten(1)
        assert (got[8:].view(torch.uint8) == 0x55).all() and not by[8:].any(), "rows of no group are left alone"
        largest = want.where(finite, 0).abs().unflatten(1, (-1, block)).amax(-1).clamp(min=1e-4)[:8] / LARGEST[target]
        by = from_e8m0(by[:8]) if mx else by[:8].double()
        if power:
            assert ((by.log2() % 1 == 0) & (by >= largest * (1 - 1e-6)) & (by < 2 * largest * (1 + 1e-6))).all()
        else:
            close(by.float(), largest, ulps=8)
        exact = want[:8] / spread(by, block, 256)
        error = (got[:8].double() - exact).abs()
        near = error <= exact.abs() * torch.finfo(target).eps * 0.51 + torch.finfo(target).smallest_normal * torch.finfo(target).eps
        assert near[finite[:8]].all()
        assert not got[:8].double()[~finite[:8]].isfinite().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("grouped", [False, True])
@covers("SwigluGroupQuant")
def test_swiglu_to_hifloat8(dtype, grouped):
    x, weight = floats(6, 256, dtype=dtype), floats(6, seed=1, low=0.5, high=2)
    counts = torch.tensor([2, 0, 9] if grouped else [6])  # more than there are: cut off
    rows = torch.tensor([0, 0, 2, 2, 2, 2] if grouped else [0] * 6)
    inverse = floats(len(counts), seed=2, low=0.5, high=2)
    group = {"group_index": counts.npu()} if grouped else {}
    want = gated(x) * weight.double()[:, None]
    y, _, origin = torch_npu.npu_swiglu_group_quant(x.npu(), weight=weight.npu(), scale=inverse.npu(), quant_mode=2, output_origin=True, **group)
    close(origin.cpu(), gated(x), ulps=4)
    static = from_hif8(y)
    assert ((static - want * inverse[rows].double()[:, None]).abs() <= static.abs() / 4 + 2.0**-22).all()
    y, scale, _ = torch_npu.npu_swiglu_group_quant(x.npu(), weight=weight.npu(), quant_mode=3, **group)
    for g, count in enumerate(counts):
        top = want[rows == g].abs().max() if count else torch.tensor(1e-4, dtype=torch.float64)
        close(scale.cpu()[g], top / 15, ulps=8)
    dynamic = from_hif8(y)
    assert ((dynamic - want / scale.cpu()[rows].double()[:, None]).abs() <= dynamic.abs() / 4 + 2.0**-22).all()
    with pytest.raises(RuntimeError, match="groups|scales of float32|hifloat8"):
        torch_npu.npu_swiglu_group_quant(x.npu(), quant_mode=2, **group)
        torch.npu.synchronize()


def test_what_the_kernel_does_not_take_is_named():
    with pytest.raises(RuntimeError, match="of hifloat8 hostcann takes|hifloat8|page"):
        a, w = codes(4, 64).npu(), codes(16, 64).npu().t()
        torch_npu.npu_quant_matmul(a, w, floats(3).npu(), pertoken_scale=floats(4).npu(), x1_dtype=HIF8, x2_dtype=HIF8, output_dtype=torch.bfloat16)
        torch.npu.synchronize()
    with pytest.raises(RuntimeError, match="blocksize is 48|block_size"):
        torch_npu.npu_dynamic_mx_quant(floats(4, 96, dtype=torch.float16).npu(), dst_type=E4M3, block_size=48)
