"""Operators of a serving loop: sampling in one call, MLA's cache, batched products for MLA."""

import ctypes

import pytest
import torch
import torch_npu
from oracle import STRICT, call, close, covers, floats, ints
from quant_test import near_int8

HALVES = (torch.float16, torch.bfloat16)


def filtered(row, k, p, min_p, most_k, are_logits):
    """Indices and probabilities (float64) of what is left of a row, as the operator's page says."""
    values, order = row.double().sort(descending=True, stable=True)
    use_k = 1 <= k <= min(most_k, len(row))
    if use_k:
        values, order = values[:k], order[:k]
    probabilities = values.softmax(-1) if are_logits else values
    if p <= 0:
        values, order, probabilities = values[:1], order[:1], torch.ones(1) if are_logits else probabilities[:1]
    elif p < 1:
        keep = probabilities.cumsum(-1) - probabilities < p
        order, probabilities = order[keep], probabilities[keep]
    if min_p >= 1:
        order, probabilities = order[:1], probabilities[:1]
    elif min_p > 0:
        keep = probabilities >= probabilities.max() * min_p
        order, probabilities = order[keep], probabilities[keep]
    return order, probabilities


KS = [5, 0, 40, 1, 300, 7, 64, 3]
PS = [0.6, 0.9, 1.0, 0.5, 0.3, 0.0, 1.5, 0.99]


@pytest.mark.parametrize("are_logits", [True, False])
@pytest.mark.parametrize("with_min_p", [False, True])
@covers("TopKTopPSampleV2")
def test_sampling(are_logits, with_min_p):
    n, most_k = 257, 64
    x = floats(8, n, low=-4, high=4)
    x = x if are_logits else x.softmax(-1)
    min_p = [0.1, 0.3, 0.05, 0.0, 1.0, 0.5, -1.0, 0.2] if with_min_p else [-1.0] * 8
    k, p, m = torch.tensor(KS, dtype=torch.int32), torch.tensor(PS), torch.tensor(min_p).view(8, 1)
    q = floats(8, n, seed=1, low=0.01, high=3)
    arguments = {"is_need_logits": True, "ks_max": most_k, "input_is_logits": are_logits, "min_ps": m.npu() if with_min_p else None}
    for noise in (None, q):
        index, selected = torch_npu.npu_top_k_top_p_sample(x.npu(), k.npu(), p.npu(), None if noise is None else noise.npu(), **arguments)
        for r in range(8):
            order, probabilities = filtered(x[r], KS[r], PS[r], min_p[r], most_k, are_logits)
            nothing = not 1 <= KS[r] <= most_k and PS[r] >= 1 and min_p[r] < 1
            order, by_place = (order.sort()[0], probabilities[order.argsort()]) if nothing else (order, probabilities)
            scores = by_place if noise is None else by_place / (noise[r, : len(order)] + 1e-8)
            assert index[r].item() == order[scores.argmax()].item(), r
            want = torch.full((n,), -torch.inf if are_logits else 0.0)
            want[order] = x[r][order]
            assert torch.equal(selected[r].cpu(), want)
    draw = lambda: torch_npu.npu_top_k_top_p_sample(x.npu(), k.npu(), p.npu(), post_sample="multiNomial", **arguments)[0].cpu()  # noqa: E731
    draws = torch.stack([draw() for _ in range(20)])
    for r in range(8):
        left = set(filtered(x[r], KS[r], PS[r], min_p[r], most_k, are_logits)[0].tolist())
        assert set(draws[:, r].tolist()) <= left, "only what is left is drawn"


@pytest.mark.parametrize("dtype", HALVES)
@covers("TopKTopPSample")
def test_sampling_as_it_was(dtype):
    x, k, p = floats(8, 99, dtype=dtype), torch.tensor(KS, dtype=torch.int32), torch.tensor(PS, dtype=dtype)
    index, selected = torch.zeros(8, dtype=torch.int64, device="npu"), torch.zeros(8, 99, device="npu")
    call("TopKTopPSample", x.npu(), k.npu(), p.npu(), None, 1e-8, True, 32, index, selected)
    assert torch.equal(index.cpu(), x.float().argsort(dim=-1, descending=True, stable=True)[:, 0])
    for r in range(8):
        order, _ = filtered(x[r], KS[r], p[r].item(), -1, 1024, True)
        assert torch.equal((selected[r].cpu() > -torch.inf).nonzero().flatten(), order.sort()[0])


def rotated(k, cos, sin):
    k = torch.cat([k[..., ::2], k[..., 1::2]], -1)
    half = k.shape[-1] // 2
    return k * cos.double() + torch.cat([-k[..., half:], k[..., :half]], -1) * sin.double()


MODES = ["Norm", "PA", "PA_BNSD", "PA_NZ", "PA_BLK_BNSD", "PA_BLK_NZ"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("quantized", [False, True])
@covers("KvRmsNormRopeCache")
def test_cache_of_mla(mode, quantized):
    check_cache(mode, quantized, False)


@pytest.mark.parametrize("mode", MODES)
@covers("KvRmsNormRopeCacheV2")
def test_cache_with_values(mode):
    check_cache(mode, False, True)
    check_cache(mode, True, True)


def check_cache(mode, quantized, with_values):
    batch, tokens, block, dtype = 2, 5, 4, torch.bfloat16
    width, dk, dv = (192, 192, 128) if with_values else (576, 64, 512)
    kv = floats(batch, 1, tokens, width, dtype=dtype)
    cos, sin = floats(batch, 1, tokens, 64, dtype=dtype, seed=1), floats(batch, 1, tokens, 64, dtype=dtype, seed=2)
    gamma = floats(width if with_values else 512, dtype=dtype, seed=3)
    v = floats(batch, 1, tokens, 128, dtype=dtype, seed=4) if with_values else None
    wide = kv.double()
    norm = lambda x: x / (x.square().mean(-1, True) + 1e-5).sqrt() * gamma.double()  # noqa: E731
    if with_values:
        y = norm(wide)
        k, value = torch.cat([rotated(y[..., :64], cos, sin), y[..., 64:]], -1), v.double()
    else:
        k, value = rotated(wide[..., 512:], cos, sin), norm(wide[..., :512])
    if mode == "Norm":
        shape, index = (batch, 1, 8), torch.tensor([[7, 0, 1, -1, 3], [2, 3, 4, 5, 6]])
        slots = [7, 0, 1, -1, 3, 10, 11, 12, 13, 14]
    elif "BLK" in mode:
        shape, index = (6, block, 1), torch.tensor([8, 0, -1, 20])
        slots = [8, 9, 10, 11, 0, -1, -1, -1, -1, 20]
    else:
        shape, index = (6, block, 1), torch.tensor([3, 9, -1, 0, 23, 11, 12, 13, 2, 1])
        slots = index.tolist()
    kind = torch.int8 if quantized else dtype
    caches = [torch.full((*shape, d), 9, dtype=kind) for d in (dk, dv)]
    scales = [floats(d, seed=5 + i, low=5, high=20) if quantized else None for i, d in enumerate((dk, dv))]
    on_device = lambda t: None if t is None else t.npu()  # noqa: E731
    got = torch_npu.npu_kv_rmsnorm_rope_cache(
        kv.npu(), gamma.npu(), cos.npu(), sin.npu(), index.npu(), *[c.npu() for c in caches], k_rope_scale=on_device(scales[0]),
        c_kv_scale=on_device(scales[1]), v=on_device(v), epsilon=1e-5, cache_mode=mode, is_output_kv=True)
    for rows, cache, before, scale, out in zip((k, value), got[:2], caches, scales, got[2:]):
        close(out.cpu(), rows, ulps=1, absolute=1e-5)
        d = cache.shape[-1]
        cache = cache.cpu()
        if "NZ" in mode:
            width = 32 if quantized else 16
            cache = cache.view(6, d // width, block, width).permute(0, 2, 1, 3)
        cache = cache.reshape(-1, d)
        untouched = torch.ones(len(cache), dtype=torch.bool)
        for slot, row in zip(slots, rows.view(-1, d)):
            if slot < 0:
                continue
            untouched[slot] = False
            if quantized:
                near_int8(cache[slot], row * scale, slack=0.02)
            else:
                close(cache[slot], row, ulps=1, absolute=1e-5)
        assert (cache[untouched] == 9).all()


@pytest.mark.parametrize("dtype", HALVES)
@covers("TransposeBatchMatMul", "TransposeBatchMatMulWeightNz")
def test_transposed_batches(dtype):
    b, m, k, n = 4, 6, 64, 32
    x, w = floats(b, m, k, dtype=dtype), floats(b, k, n, dtype=dtype, seed=1)
    want, sizes = x.double() @ w.double(), x.double().abs() @ w.double().abs()
    slack = (k + 2) * 2.0**-23 * sizes.transpose(0, 1)
    want = want.transpose(0, 1)
    close(torch_npu.npu_transpose_batchmatmul(x.npu(), w.npu(), perm_y=(1, 0, 2)).cpu(), want, absolute=slack)
    got = torch_npu.npu_transpose_batchmatmul(x.transpose(0, 1).contiguous().npu(), w.npu(), perm_x1=(1, 0, 2), perm_y=(1, 0, 2))
    close(got.cpu(), want, absolute=slack)
    got = torch_npu.npu_transpose_batchmatmul(x.npu(), w.transpose(1, 2).contiguous().npu(), perm_x2=(0, 2, 1), perm_y=(1, 0, 2))
    close(got.cpu(), want, absolute=slack)
    got = torch_npu.npu_transpose_batchmatmul(x.npu(), w.npu(), perm_y=(1, 0, 2), batch_split_factor=2)
    halves = lambda t: t.reshape(m, 2, -1).transpose(0, 1)  # noqa: E731
    close(got.cpu(), halves(want), absolute=halves(slack))
    got = torch_npu.npu_transpose_batchmatmul(x.npu(), torch_npu.npu_format_cast(w.npu(), 29), perm_y=(1, 0, 2))
    close(got.cpu(), want, absolute=slack)


@pytest.mark.parametrize("dtype", HALVES)
@covers("BatchMatMulWeightNz")
def test_batches_of_weights_in_fractals(dtype):
    x, w = floats(3, 6, 64, dtype=dtype), floats(3, 64, 32, dtype=dtype, seed=1)
    got = torch.zeros(3, 6, 32, dtype=dtype, device="npu")  # torch_npu sends it to the legacy path on this SoC
    call("BatchMatMulWeightNz", x.npu(), (torch_npu.npu_format_cast(w.npu(), 29), 29, (3, 2, 4, 16, 16)), got, ctypes.c_int8(0))
    close(got.cpu(), x.double() @ w.double(), absolute=66 * 2.0**-23 * (x.double().abs() @ w.double().abs()))


@covers("InplaceQuantScatter", "InplaceQuantScatterV2")
def test_rows_quantised_into_a_cache():
    cache, updates = ints(4, 9, 32, dtype=torch.int8), floats(3, 2, 32, dtype=torch.float16)
    scales, zeros = floats(1, 1, 32, seed=1, low=0.02, high=0.1), ints(1, 1, 32, dtype=torch.int32, seed=2)
    exact = updates.double() / scales + zeros
    pairs = [(3, 1), (0, 7), (1, 0)]
    cases = [(torch.tensor([0, 7, 3]), [(0, 0), (1, 7), (2, 3)])] + ([] if STRICT else [(torch.tensor(pairs), pairs)])  # the page has no pairs
    for index, places in cases:
        index = index.int()
        got = torch_npu.npu_quant_scatter(cache.npu(), index.npu(), updates.npu(), scales.npu(), zeros.npu(), axis=1, quant_axis=2).cpu()
        again = cache.npu()
        call("InplaceQuantScatterV2", again, index.npu(), updates.npu(), scales.npu(), zeros.npu(), 1, 2, 1, b"rint")
        assert torch.equal(again.cpu(), got)
        untouched = torch.ones(4, 9, dtype=torch.bool)
        for part, (row, begin) in enumerate(places):
            near_int8(got[row, begin : begin + 2], exact[part])
            untouched[row, begin : begin + 2] = False
        assert torch.equal(got[untouched], cache[untouched])


@covers("ScatterList")
def test_rows_into_a_list_of_caches():
    caches, updates = [floats(2, 9, 8, seed=i) for i in range(3)], floats(3, 2, 1, 8, seed=7)
    index, mask = torch.tensor([4, 0, 8]), torch.tensor([1, 0, 1], dtype=torch.uint8)
    got = torch_npu.npu_scatter_list([c.npu() for c in caches], index.npu(), updates.npu(), mask.npu(), "update", -2)
    for i, cache in enumerate(caches):
        if mask[i]:
            cache[:, index[i]] = updates[i, :, 0]
        assert torch.equal(got[i].cpu(), cache)


@pytest.mark.parametrize("dtype", HALVES)
@covers("AttentionUpdate")
def test_parts_of_attention(dtype):
    parts, sums = [floats(6, 16, dtype=dtype, seed=i) for i in range(3)], [floats(6, seed=5 + i, low=-9, high=9) for i in range(3)]
    total = torch.stack(sums).double().logsumexp(0)
    want = sum(p.double() * (s.double() - total).exp()[:, None] for p, s in zip(parts, sums))
    out, lse = torch_npu.npu_attention_update([s.npu() for s in sums], [p.npu() for p in parts], 1)
    close(out.cpu(), want, absolute=1e-5)
    close(lse.cpu(), total, ulps=4)
    with pytest.raises(RuntimeError, match="there are 17 parts; the operator takes 16"):
        torch_npu.npu_attention_update([sums[0].npu()] * 17, [parts[0].npu()] * 17, 0)
        torch.npu.synchronize()
