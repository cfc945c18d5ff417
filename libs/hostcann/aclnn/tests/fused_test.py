"""Matrix products, normalisation, gated activations, rotary embedding, format casts, top-k/top-p."""

import math

import pytest
import torch
import torch_npu

from oracle import EPS, FLOATS, call, close, covers, floats, ints, near, same

NZ, ND = 29, 2
HALVES = (torch.float16, torch.bfloat16)


def product_bound(a, b):
    """k fp32 products, summed in any order: (k + 1) eps32 sum|a b| (Higham, chapter 3; eps32 = 2 u)."""
    return (a.shape[-1] + 1) * EPS[torch.float32] * (a.double().abs() @ b.double().abs())


def check_product(got, a, b, bias=None):
    want, bound = a.double() @ b.double(), product_bound(a, b)
    if bias is not None:
        want, bound = want + bias.double(), bound + EPS[torch.float32] * bias.double().abs()
    close(got.cpu(), want, absolute=bound)  # and half an ulp of the result's type: 0.5 < the default of 1


@pytest.mark.parametrize("dtype", FLOATS)
@covers("Matmul", "Mm", "BatchMatMul", "Mv", "Dot")
def test_matmul(dtype):
    for m, k, n in ((1, 64, 48), (5, 17, 33), (64, 128, 96), (3, 1, 5), (2, 7, 1), (0, 8, 4), (4, 0, 3)):
        a, w = floats(m, k, dtype=dtype), floats(n, k, dtype=dtype, seed=1)
        check_product(a.npu() @ w.npu().t(), a, w.t())  # a Linear weight
        b = w.t().contiguous()
        check_product(torch.matmul(a.npu(), b.npu()), a, b)
        check_product(torch.mm(a.npu(), b.npu()), a, b)
    a, b = floats(6, 40, dtype=dtype), floats(40, 24, dtype=dtype, seed=1)
    check_product(a.npu()[::2, 4:36] @ b.npu()[4:36], a[::2, 4:36], b[4:36])  # rows of a wider matrix
    check_product(a.npu().t() @ a.npu(), a.t(), a)  # columns: not for the kernel
    x, y = floats(3, 5, 16, dtype=dtype), floats(3, 16, 9, dtype=dtype, seed=1)
    check_product(torch.bmm(x.npu(), y.npu()), x, y)
    check_product(torch.bmm(x.npu(), y.npu().transpose(1, 2).contiguous().transpose(1, 2)), x, y)
    q, kv = floats(2, 4, 6, 16, dtype=dtype), floats(2, 4, 10, 16, dtype=dtype, seed=1)
    check_product(q.npu() @ kv.npu().transpose(-1, -2), q, kv.transpose(-1, -2))
    check_product(q.npu() @ kv[0, 0].npu().t(), q, kv[0, 0].t())
    v = floats(16, dtype=dtype, seed=2)
    check_product(torch.mv(x[0].npu(), v.npu()), x[0], v)
    check_product(torch.dot(v.npu(), v.npu()), v, v)


@pytest.mark.parametrize("dtype", FLOATS)
@covers("Addmm", "InplaceAddmm", "Baddbmm", "Addbmm", "Addmv")
def test_add_products(dtype):
    a, w, bias = floats(5, 40, dtype=dtype), floats(24, 40, dtype=dtype, seed=1), floats(24, dtype=dtype, seed=2)
    check_product(torch.nn.functional.linear(a.npu(), w.npu(), bias.npu()), a, w.t(), bias)
    check_product(torch.addmm(bias.npu(), a.npu(), w.npu().t()), a, w.t(), bias)
    matrix = floats(5, 24, dtype=dtype, seed=3)
    check_product(torch.addmm(matrix.npu(), a.npu(), w.npu().t()), a, w.t(), matrix)
    half = dtype != torch.float32
    # ATen's fallbacks round the product before they add the rest: one more rounding of either.
    magnitude = (a.double().abs() @ w.double().abs().t()) * 2 + matrix.double().abs() * 3
    slack = magnitude * (EPS[dtype] if half else 41 * EPS[torch.float32])
    close(torch.addmm(matrix.npu(), a.npu(), w.npu().t(), beta=3, alpha=2).cpu(), 3 * matrix.double() + 2 * (a.double() @ w.double().t()), absolute=slack)
    close(matrix.npu().addmm_(a.npu(), w.npu().t()).cpu(), matrix.double() + a.double() @ w.double().t(), absolute=slack)
    x, y, z = floats(3, 5, 16, dtype=dtype), floats(3, 16, 9, dtype=dtype, seed=1), floats(3, 5, 9, dtype=dtype, seed=2)
    bound = (x.double().abs() @ y.double().abs() + z.double().abs()) * (EPS[dtype] if half else 17 * EPS[torch.float32])
    close(torch.baddbmm(z.npu(), x.npu(), y.npu()).cpu(), z.double() + x.double() @ y.double(), absolute=bound)
    close(torch.addbmm(z[0].npu(), x.npu(), y.npu()).cpu(), z[0].double() + (x.double() @ y.double()).sum(0), absolute=3 * bound.sum(0))
    v = floats(16, dtype=dtype, seed=3)
    bound = (x[0].double().abs() @ v.double().abs() * 2 + 3 * z[0, :, 0].double().abs()) * (EPS[dtype] if half else 17 * EPS[torch.float32])
    close(torch.addmv(z[0, :, 0].contiguous().npu(), x[0].npu(), v.npu(), beta=3, alpha=2).cpu(), 3 * z[0, :, 0].double() + 2 * (x[0].double() @ v.double()), absolute=bound)


@covers("LinalgCross", "Addr", "InplaceAddr")
def test_cross_and_outer_product():
    same(lambda t, p, q: torch.addr(t, p, q, beta=2, alpha=3), floats(4, 5), floats(4, seed=1), floats(5, seed=2))
    same(lambda t, p, q: t.clone().addr_(p, q), floats(4, 5), floats(4, seed=1), floats(5, seed=2))
    same(lambda a, b: torch.linalg.cross(a, b), floats(5, 3), floats(5, 3, seed=1))


@pytest.mark.parametrize("dtype", HALVES)
@covers("MatmulWeightNz", "AddmmWeightNz", "NpuFormatCast")
def test_weights_in_fractal_nz(dtype):
    for m, k, n in ((1, 64, 48), (7, 50, 35), (33, 128, 17)):
        a, w, bias = floats(m, k, dtype=dtype), floats(n, k, dtype=dtype, seed=1), floats(n, dtype=dtype, seed=2)
        nz = torch_npu.npu_format_cast(w.npu(), NZ)
        assert torch_npu.get_npu_format(nz) == NZ
        got = torch.matmul(a.npu(), nz.t())
        check_product(got, a, w.t())
        assert torch.equal(got, torch.matmul(a.npu(), w.npu().t())), "FRACTAL_NZ and ND sum in the same order"
        check_product(torch.nn.functional.linear(a.npu(), nz, bias.npu()), a, w.t(), bias)
        check_product(torch.nn.functional.linear(a.npu()[None], nz), a[None], w.t())
        transposed = torch_npu.npu_format_cast(w.t().contiguous().npu(), NZ)  # the [k, n] matrix itself
        check_product(torch.matmul(a.npu(), transposed), a, w.t())


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int8))
@covers("NpuFormatCast")
def test_format_cast_round_trip(dtype):
    for shape in ((16, 16), (33, 50), (1, 7), (2, 3, 40, 20)):
        x = ints(*shape, dtype=dtype) if dtype == torch.int8 else floats(*shape, dtype=dtype)
        nz = torch_npu.npu_format_cast(x.npu(), NZ)
        c0 = 32 if dtype == torch.int8 else 16
        assert tuple(nz.shape) == shape and torch_npu.get_npu_format(nz) == NZ
        want = torch.zeros(*shape[:-2], -(-shape[-1] // c0) * c0, -(-shape[-2] // 16) * 16, dtype=dtype)
        want[..., : shape[-1], : shape[-2]] = x.transpose(-1, -2)
        want = want.unflatten(-2, (-1, c0)).unflatten(-1, (-1, 16)).movedim(-3, -1).contiguous()  # [.., n1, m1, 16, c0]
        storage = torch_npu.get_storage_size(nz)
        assert storage == want.numel()
        assert torch.equal(torch_npu.npu_format_cast(nz, ND).cpu(), x)
        assert torch.equal(nz.cpu(), x)


@pytest.mark.parametrize("name", ("Silu", "InplaceCopy", "Embedding", "Matmul", "SwiGlu", "RmsNorm"))
def test_fractal_nz_is_refused_where_it_would_be_misread(name):
    # Through torch_npu such a call goes to the legacy path (or to MatmulWeightNz), which never reaches these.
    x, index = floats(32, 32).npu(), ints(32, low=0, high=32).npu()
    arguments = {"Silu": ((x, NZ), x), "InplaceCopy": (x, (x, NZ)), "Embedding": ((x, NZ), index, x), "Matmul": (x, (x, NZ), x, 0), "SwiGlu": ((x, NZ), -1, x),
                 "RmsNorm": ((x, NZ), x[0], 1e-6, x, x)}[name]
    with pytest.raises(RuntimeError, match=rf"aclnn{name}: .*FRACTAL_NZ \(29\)"):
        call(name, *arguments)


# ---- normalisation

def rms_norm(x, weight, epsilon):
    x = x.double()
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight.double()


@pytest.mark.parametrize("dtype", FLOATS)
@covers("RmsNorm", "AddRmsNorm", "InplaceAddRmsNorm", "GemmaRmsNorm")
def test_rms_norm(dtype):
    for rows, cols in ((1, 64), (5, 576), (3, 33)):
        x, y, weight = floats(rows, cols, dtype=dtype), floats(rows, cols, dtype=dtype, seed=1), floats(cols, dtype=dtype, seed=2)
        # mean of squares: cols eps32; root and two products: a few more.
        ulps = 1.0 if dtype != torch.float32 else cols / 2 + 8
        got, rstd = torch_npu.npu_rms_norm(x.npu(), weight.npu(), 1e-5)
        close(got.cpu(), rms_norm(x, weight, 1e-5), ulps=ulps)
        close(rstd.cpu(), torch.rsqrt((x.double() ** 2).mean(-1, keepdim=True) + 1e-5), ulps=cols / 2 + 8)
        got, _, total = torch_npu.npu_add_rms_norm(x.npu(), y.npu(), weight.npu(), 1e-6)
        assert torch.equal(total.cpu(), x + y), "the sum is rounded to the tensor's type"
        close(got.cpu(), rms_norm(x + y, weight, 1e-6), ulps=ulps)
        first, second = x.npu(), y.npu()
        torch_npu.npu_add_rms_norm_v2(first, second, weight.npu(), 1e-6)
        assert torch.equal(second.cpu(), x + y)
        close(first.cpu(), rms_norm(x + y, weight, 1e-6), ulps=ulps)
        close(torch_npu.npu_gemma_rms_norm(x.npu(), weight.npu(), 1e-6)[0].cpu(), rms_norm(x, weight.double() + 1, 1e-6), ulps=ulps)
    x, weight = floats(2, 3, 4, 32, dtype=dtype), floats(32, dtype=dtype, seed=2)
    ulps = 1.0 if dtype != torch.float32 else 40
    close(torch_npu.npu_rms_norm(x.npu(), weight.npu())[0].cpu(), rms_norm(x, weight, 1e-6), ulps=ulps)
    close(torch_npu.npu_rms_norm(x.npu()[:, :, ::2], weight.npu())[0].cpu(), rms_norm(x[:, :, ::2], weight, 1e-6), ulps=ulps)
    # A head of a wider projection, as a norm of q and k sees it; and an fp32 weight.
    wide = floats(6, 96, dtype=dtype)
    close(torch_npu.npu_rms_norm(wide.npu()[:, 32:64], weight.npu())[0].cpu(), rms_norm(wide[:, 32:64], weight, 1e-6), ulps=ulps)
    close(torch_npu.npu_rms_norm(x.npu(), weight.float().npu())[0].cpu(), rms_norm(x, weight, 1e-6), ulps=ulps)


@pytest.mark.parametrize("dtype", FLOATS)
@covers("LayerNorm", "FastLayerNorm")
def test_layer_norm(dtype):
    x, weight, bias = floats(5, 96, dtype=dtype), floats(96, dtype=dtype, seed=1), floats(96, dtype=dtype, seed=2)
    want = torch.nn.functional.layer_norm(x.double(), (96,), weight.double(), bias.double())
    bound = (want.abs() + bias.double().abs()) * (96 * EPS[torch.float32] if dtype == torch.float32 else EPS[dtype])
    close(torch.nn.functional.layer_norm(x.npu(), (96,), weight.npu(), bias.npu()).cpu(), want, absolute=bound)
    near(lambda t: torch.nn.functional.layer_norm(t, (5, 96)), x, ulps=1.0 if dtype != torch.float32 else 480)
    # The compatible mode of torch_npu calls the other name.
    y, mean, rstd = torch.empty_like(x, device="npu"), torch.empty(5, 1, device="npu"), torch.empty(5, 1, device="npu")
    from ctypes import c_int64, c_uint64, c_void_p

    from oracle import opapi

    opapi().aclCreateIntArray.restype = c_void_p
    shape = c_void_p(opapi().aclCreateIntArray((c_int64 * 1)(96), c_uint64(1)))
    call("FastLayerNorm", x.npu(), shape, weight.npu(), bias.npu(), 1e-5, y, mean, rstd)
    close(y.cpu(), want, absolute=bound)


@covers("GroupNorm")
def test_group_norm():
    same(lambda t, w, b: torch.nn.functional.group_norm(t, 3, w, b), floats(2, 6, 4, 4), floats(6, seed=1), floats(6, seed=2))


# ---- activations

@pytest.mark.parametrize("dtype", FLOATS)
@covers("SwiGlu", "GeluMul", "GeGluV3", "ClippedSwiglu")
def test_gated_activations(dtype):
    functional = torch.nn.functional
    # exp errs by about |x| eps32 relatively, a few operations on top.
    ulps = 1.0 if dtype != torch.float32 else 16
    for shape in ((1, 64), (5, 1152), (2, 3, 66), (0, 64)):
        x = floats(*shape, dtype=dtype)
        gate, up = x.double().chunk(2, -1)
        close(torch_npu.npu_swiglu(x.npu()).cpu(), functional.silu(gate) * up, ulps=ulps)
    x = floats(6, 40, dtype=dtype)
    gate, up = x.double().chunk(2, 0)
    close(torch_npu.npu_swiglu(x.npu(), 0).cpu(), functional.silu(gate) * up, ulps=ulps)
    gate, up = x.double().chunk(2, -1)
    slack = (gate * up).abs() * 4 * EPS[torch.float32]  # where gelu's factor cancels
    for mode in ("none", "tanh"):
        close(torch_npu.npu_gelu_mul(x.npu(), approximate=mode).cpu(), functional.gelu(gate, approximate=mode) * up, ulps=ulps, absolute=slack)
    got, gelu = torch_npu.npu_geglu(x.npu(), -1, 1)
    close(gelu.cpu(), functional.gelu(up, approximate="tanh"), ulps=ulps, absolute=up.abs() * 4 * EPS[torch.float32])
    close(got.cpu(), functional.gelu(up, approximate="tanh") * gate, ulps=ulps, absolute=slack)
    wide = floats(6, 40, dtype=dtype, low=-10, high=10)
    a, b = wide.double()[:, ::2].clamp(max=7), wide.double()[:, 1::2].clamp(-7, 7)
    close(torch_npu.npu_clipped_swiglu(wide.npu()).cpu(), a * torch.sigmoid(1.702 * a) * (b + 1), ulps=ulps, absolute=a.abs() * 2 * EPS[torch.float32])


# ---- rotary embedding

def rotate(x, interleaved):
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def check_rope(got, x, cos, sin, interleaved=False, dtype=None):
    x, cos, sin = x.double(), cos.double(), sin.double()
    want = x * cos + rotate(x, interleaved) * sin
    # Two products and a sum in fp32: 3 u of their magnitudes.
    close(got.cpu(), want, absolute=1.5 * EPS[torch.float32] * ((x * cos).abs() + (rotate(x, interleaved) * sin).abs()))


@pytest.mark.parametrize("dtype", FLOATS)
@covers("RotaryPositionEmbeddingV2", "ApplyRotaryPosEmbV2", "InterleaveRope", "RotaryPositionEmbedding", "ApplyRotaryPosEmb")
def test_rotary_mul(dtype):
    for mode, interleaved in (("half", False), ("interleave", True)):
        for shape, table in (((2, 5, 3, 64), (1, 5, 1, 64)), ((2, 5, 3, 64), (2, 5, 1, 64)), ((2, 3, 5, 64), (1, 1, 5, 64)), ((1, 7, 4, 32), (1, 7, 1, 32))):
            x, cos, sin = floats(*shape, dtype=dtype), floats(*table, dtype=dtype, seed=1, low=-1, high=1), floats(*table, dtype=dtype, seed=2, low=-1, high=1)
            check_rope(torch_npu.npu_rotary_mul(x.npu(), cos.npu(), sin.npu(), mode), x, cos, sin, interleaved)
    q, k = floats(2, 5, 4, 128, dtype=dtype), floats(2, 5, 2, 128, dtype=dtype, seed=3)
    cos, sin = floats(2, 5, 1, 128, dtype=dtype, seed=1, low=-1, high=1), floats(2, 5, 1, 128, dtype=dtype, seed=2, low=-1, high=1)
    got_q, got_k = torch_npu.npu_apply_rotary_pos_emb(q.npu(), k.npu(), cos.npu(), sin.npu(), layout="BSND")
    check_rope(got_q, q, cos, sin)
    check_rope(got_k, k, cos, sin)
    got_q, got_k = torch_npu.npu_apply_rotary_pos_emb(q[0].npu(), k[0].npu(), cos[0].npu(), sin[0].npu(), layout="TND")
    check_rope(got_q, q[0], cos[0], sin[0])
    x, one = floats(2, 3, 5, 64, dtype=dtype), floats(2, 1, 5, 64, dtype=dtype, seed=1)
    halves = x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    check_rope(torch_npu.npu_interleave_rope(x.npu(), one.npu(), one.flip(0).npu()), halves, one, one.flip(0))
    # What torch_npu calls when it doesn't find the newer names.
    out = torch.empty_like(x, device="npu")
    call("RotaryPositionEmbedding", x.npu(), one.npu(), one.flip(0).npu(), 0, out)
    check_rope(out, x, one, one.flip(0))
    in_place = q.npu(), k.npu()
    call("ApplyRotaryPosEmb", *in_place, cos.npu(), sin.npu(), 1)
    check_rope(in_place[0], q, cos, sin)


@pytest.mark.parametrize("dtype", FLOATS)
@covers("RopeWithSinCosCacheV2", "RopeWithSinCosCache")
def test_rope_with_cache(dtype):
    tokens, heads, kv_heads, size = 7, 4, 2, 64
    for rotary in (64, 32):
        cache = floats(100, rotary, dtype=dtype, low=-1, high=1)
        q, k = floats(tokens, heads * size, dtype=dtype), floats(tokens, kv_heads * size, dtype=dtype, seed=1)
        positions = ints(tokens, low=0, high=100)
        for mode, interleaved in (("half", False), ("interleave", True)):
            for p in (positions, positions.int()):
                got = torch_npu.npu_mrope(p.npu(), q.npu(), k.npu(), cache.npu(), size, mrope_section=[0, 0, 0], rotary_mode=mode)
                for g, x, n in zip(got, (q, k), (heads, kv_heads)):
                    x = x.view(tokens, n, size)
                    cos, sin = cache[positions].chunk(2, -1)
                    cos, sin = (t.repeat_interleave(2, -1) if interleaved else t.repeat(1, 2) for t in (cos, sin))
                    check_rope(g.view(tokens, n, size)[..., :rotary], x[..., :rotary], cos[:, None], sin[:, None], interleaved)
                    assert torch.equal(g.cpu().view(tokens, n, size)[..., rotary:], x[..., rotary:])
    cache = floats(100, 64, dtype=dtype, low=-1, high=1)
    q, k = floats(tokens, heads * size, dtype=dtype), floats(tokens, kv_heads * size, dtype=dtype, seed=1)
    three = ints(3, tokens, low=0, high=100)
    got = torch_npu.npu_mrope(three.npu(), q.npu(), k.npu(), cache.npu(), size, mrope_section=[8, 12, 12], rotary_mode="half")
    parts = [p.chunk(2, -1) for p in cache[three]]
    cos, sin = (torch.cat([parts[r][i].split([8, 12, 12], -1)[r] for r in range(3)], -1).repeat(1, 2) for i in range(2))
    check_rope(got[0].view(tokens, heads, size), q.view(tokens, heads, size), cos[:, None], sin[:, None])
    # The older name, without the mode of the table.
    out_q, out_k = torch.empty_like(q, device="npu"), torch.empty_like(k, device="npu")
    call("RopeWithSinCosCache", positions.npu(), q.npu(), k.npu(), cache.npu(), None, size, True, out_q, out_k)
    cos, sin = (t.repeat(1, 2) for t in cache[positions].chunk(2, -1))
    check_rope(out_k.view(tokens, kv_heads, size), k.view(tokens, kv_heads, size), cos[:, None], sin[:, None])


# ---- sampling

def top_k_top_p(logits, p, k):
    """The documented steps, in float64."""
    values, order = logits.double().sort(dim=-1, stable=True)
    if k is not None:
        threshold = values.gather(1, (logits.shape[1] - k.long())[:, None])
        values = values.masked_fill(values < threshold, -math.inf)
    if p is not None:
        hidden = values.softmax(-1).cumsum(-1) <= 1 - p.double()[:, None]
        hidden[:, -1] = False
        values = values.masked_fill(hidden, -math.inf)
    return torch.empty_like(values).scatter_(1, order, values).to(logits.dtype)


@covers("ApplyTopKTopP")
def test_top_k_top_p():
    for dtype in FLOATS:
        # Distinct logits, so that neither order nor rounding decides.
        logits = torch.stack([torch.randperm(200, generator=torch.Generator().manual_seed(i)) for i in range(6)]).to(dtype) / 16
        k = torch.tensor([1, 5, 50, 200, 3, 17], dtype=torch.int32)
        p = torch.tensor([0.9, 0.5, 0.99, 0.95, 0.3, 1.0]).to(dtype)
        for pp, kk in ((p, k), (None, k), (p, None)):
            got = torch_npu.npu_top_k_top_p(logits.npu(), None if pp is None else pp.npu(), None if kk is None else kk.npu()).cpu()
            assert torch.equal(got, top_k_top_p(logits, pp, kk))
    equal = torch.zeros(1, 8)
    assert (torch_npu.npu_top_k_top_p(equal.npu(), None, torch.tensor([3], dtype=torch.int32).npu()).cpu() == 0).all(), "ties with the k-th stay"
