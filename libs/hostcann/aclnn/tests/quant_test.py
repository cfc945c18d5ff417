"""Quantisation to int8, products of int8 matrices, and the routing of tokens to experts and back."""

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from oracle import call, close, covers, floats, ints

HALVES = (torch.float16, torch.bfloat16)


def quantized(x: torch.Tensor) -> torch.Tensor:
    return x.round().clamp(-128, 127).to(torch.int8)


def near_int8(got: torch.Tensor, exact: torch.Tensor, slack: float = 0.01) -> None:
    """A value that lies on the border of two integers may be rounded to either."""
    assert got.dtype == torch.int8
    assert ((got.cpu().double() - exact.clamp(-128, 127)).abs() <= 0.5 + slack).all()


@pytest.mark.parametrize("dtype", HALVES)
@covers("DynamicQuant", "DynamicQuantV2")
def test_dynamic_quantisation(dtype):
    x, smooth = floats(4, 5, 32, dtype=dtype), floats(32, dtype=dtype, seed=1)
    for s in (None, smooth):
        value = x.double() if s is None else x.double() * s.double()
        scale = value.abs().amax(-1) / 127
        y, got = torch_npu.npu_dynamic_quant(x.npu(), smooth_scales=None if s is None else s.npu())
        close(got.cpu(), scale, ulps=4)
        near_int8(y, value / scale[..., None])
    y, got = torch.zeros(4, 5, 32, dtype=torch.int8, device="npu"), torch.zeros(4, 5, device="npu")
    call("DynamicQuant", x.npu(), None, y, got)
    near_int8(y, x.double() / (x.double().abs().amax(-1, True) / 127))
    y, scale = torch_npu.npu_dynamic_quant(torch.zeros(2, 8, dtype=dtype, device="npu"))
    assert not y.cpu().any() and not scale.cpu().any(), "a row of zeros stays zeros"
    y, scale, offset = torch_npu.npu_dynamic_quant_asymmetric(x.npu())
    value = x.double()
    want = (value.amax(-1) - value.amin(-1)) / 255
    close(scale.cpu(), want, ulps=4)
    near_int8(y, value / want[..., None] + (127 - value.amax(-1) / want)[..., None])


@covers("AscendQuant", "AscendQuantV3", "Quantize", "AscendAntiQuant")
def test_static_quantisation():
    x, scale, offset = floats(6, 8), floats(8, seed=1, low=5, high=40), ints(8, dtype=torch.int8, seed=2)
    y = torch_npu.npu_quantize(x.npu(), scale.npu(), offset.float().npu(), torch.qint8, -1, False)
    near_int8(y.view(torch.int8) if y.dtype != torch.int8 else y, x.double() * scale + offset)
    y = torch_npu.npu_quantize(x.npu(), scale.reciprocal().npu(), offset.npu(), torch.qint8, 1, True)
    near_int8(y.view(torch.int8) if y.dtype != torch.int8 else y, x.double() * scale + offset)
    y = torch.zeros(6, 8, dtype=torch.int8, device="npu")
    call("AscendQuant", x.npu(), scale.npu(), offset.float().npu(), False, b"round", 2, y)
    near_int8(y, x.double() * scale + offset)
    q, s, o = ints(6, 8, dtype=torch.int8), floats(8, seed=1), floats(8, seed=2)
    close(torch_npu.npu_anti_quant(q.npu(), s.npu(), offset=o.npu(), dst_dtype=torch.float16).cpu(), (q.double() + o) * s, ulps=2)


@covers("QuantMatmulV5", "QuantMatmulWeightNz", "TransQuantParamV2", "TransQuantParamV3")
def test_product_of_int8():
    for m, k, n in ((1, 64, 48), (7, 50, 35), (33, 128, 17)):
        a, w = ints(m, k, dtype=torch.int8, low=-128, high=128), ints(n, k, dtype=torch.int8, seed=1, low=-128, high=128)
        scale, token = floats(n, seed=2, low=1e-4, high=1e-3), floats(m, seed=3, low=0.5, high=1.5)
        exact = a.double() @ w.double().t()
        weight = w.npu().t()
        got = torch_npu.npu_quant_matmul(a.npu(), weight, scale.npu(), pertoken_scale=token.npu(), output_dtype=torch.float16)
        close(got.cpu(), exact * scale * token[:, None], ulps=2)
        nz = torch_npu.npu_format_cast(w.npu(), 29).t()
        assert torch.equal(torch_npu.npu_quant_matmul(a.npu(), nz, scale.npu(), pertoken_scale=token.npu(), output_dtype=torch.float16), got)
        bias = ints(n, dtype=torch.int32, seed=4)
        cut = (scale.view(torch.int32) & -8192).view(torch.float32)  # 19 bits of a scale reach the hardware
        got = torch_npu.npu_quant_matmul(a.npu(), weight, scale.npu(), bias=bias.npu(), output_dtype=torch.float16)
        close(got.cpu(), (exact + bias) * cut, ulps=2)
        got = torch_npu.npu_quant_matmul(a.npu(), weight, scale.npu(), offset=torch.full((n,), -3.0).npu())
        near_int8(got, exact * cut - 3)
    word = torch_npu.npu_trans_quant_param(torch.tensor([1.5]).npu(), torch.tensor([-3.0]).npu()).cpu().view(torch.int64)
    assert word.item() == 0x3FC00000 | 1 << 46 | (-3 & 0x1FF) << 37
    old = torch.zeros(1, dtype=torch.int64, device="npu")
    call("TransQuantParamV2", torch.tensor([1.5]).npu(), torch.tensor([-3.0]).npu(), old)
    assert torch.equal(old.cpu(), word)
    scale = floats(64, seed=9, low=-3, high=3)
    words = torch_npu.npu_trans_quant_param(scale.npu(), round_mode=1).cpu().view(torch.int64)
    rounded = (words & 0xFFFFFFFF).to(torch.int32).view(torch.float32)
    assert ((rounded.view(torch.int32) & 0x1FFF) == 0).all() and ((rounded / scale - 1).abs() <= 2.0**-11).all()  # 10 bits of mantissa


def int8_rows(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Dynamic quantisation of fp32 rows, each operation rounded once."""
    scale = value.abs().amax(-1) / 127
    codes = (value / scale[..., None]).round().clamp(-128, 127)
    return torch.where(codes.isnan(), 0, codes).to(torch.int8), scale


@pytest.mark.parametrize("dtype", HALVES)
@covers("DynamicQuantV2")
def test_dynamic_quantisation_bit_for_bit(dtype):
    for rows, cols in ((1, 7), (5, 33), (300, 576)):
        x, smooth = floats(rows, cols, dtype=dtype), floats(cols, dtype=dtype, seed=1)
        x[0, 3:] = 0
        x[-1, 0] = float("nan")
        for s in (None, smooth):
            y, scale = torch_npu.npu_dynamic_quant(x.npu(), smooth_scales=None if s is None else s.npu())
            want, want_scale = int8_rows(x.float() if s is None else x.float() * s.float())
            assert torch.equal(y.cpu(), want) and torch.equal(scale.cpu().nan_to_num(-1), want_scale.nan_to_num(-1))


@pytest.mark.parametrize("m", [1, 3, 13, 60])
@covers("QuantMatmulV5", "QuantMatmulWeightNz")
def test_int8_weights_of_every_layout_give_exact_sums(m):
    for k, n in ((64, 32), (70, 45), (520, 100)):
        a, w = ints(m, k, dtype=torch.int8, low=-128, high=128), ints(n, k, dtype=torch.int8, seed=1, low=-128, high=128)
        scale, token = floats(n, seed=2, low=1e-4, high=1e-3), floats(m, seed=3, low=0.5, high=1.5)
        exact = a.long() @ w.long().t()
        want = (exact.float() * scale * token[:, None]).bfloat16()
        across = w.t().contiguous().npu()
        for weight in (w.npu().t(), across, torch_npu.npu_format_cast(w.npu(), 29).t(), torch_npu.npu_format_cast(across, 29)):
            got = torch_npu.npu_quant_matmul(a.npu(), weight, scale.npu(), pertoken_scale=token.npu(), output_dtype=torch.bfloat16)
            assert torch.equal(got.cpu(), want)
            got = torch_npu.npu_quant_matmul(a.npu(), weight, scale.npu(), output_dtype=torch.int32)
            assert torch.equal(got.cpu().long(), exact)


@covers("DynamicQuantV2", "QuantMatmulV5")
def test_a_replayed_graph_quantises_what_is_there_now():
    x, w, scale = torch.zeros(3, 64, dtype=torch.bfloat16, device="npu"), ints(32, 64, dtype=torch.int8).npu(), floats(32, low=1e-3, high=1e-2).npu()

    def layer():
        y, token = torch_npu.npu_dynamic_quant(x)
        return torch_npu.npu_quant_matmul(y, w.t(), scale, pertoken_scale=token, output_dtype=torch.bfloat16)

    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = layer()
    for seed in range(3):
        x.copy_(floats(3, 64, dtype=torch.bfloat16, seed=seed))
        graph.replay()
        assert torch.equal(out.cpu(), layer().cpu())


@pytest.mark.parametrize("dtype", HALVES)
@covers("WeightQuantBatchMatmulV2", "WeightQuantBatchMatmulV3")
def test_product_with_int8_weights(dtype):
    x, w = floats(5, 64, dtype=dtype), ints(64, 24, dtype=torch.int8)
    scale, offset, bias = floats(24, dtype=dtype, seed=1, low=0.01, high=0.1), floats(24, dtype=dtype, seed=2), floats(24, seed=3).to(
        torch.float16 if dtype == torch.float16 else torch.float32)
    got = torch_npu.npu_weight_quant_batchmatmul(x.npu(), w.npu(), scale.npu(), offset.npu(), None, None, bias.npu())
    value = (w.double() + offset.double()) * scale.double()
    # 64 products summed in fp32, then rounded once.
    close(got.cpu(), x.double() @ value + bias.double(), ulps=1, absolute=65 * 2.0**-24 * (x.double().abs() @ value.abs()))
    out = torch.zeros(5, 24, dtype=dtype, device="npu")
    call("WeightQuantBatchMatmulV3", x.npu(), w.npu(), scale.npu(), offset.npu(), None, None, bias.npu(), 0, 0, out)
    assert torch.equal(out, got)


@pytest.mark.parametrize("dtype", HALVES)
@covers("RmsNormQuant", "AddRmsNormQuantV2", "AddRmsNormQuant", "AddRmsNormDynamicQuantV2", "AddRmsNormDynamicQuant", "AddRmsNormCast")
def test_normalised_and_quantised(dtype):
    a, b, gamma, beta = floats(4, 32, dtype=dtype), floats(4, 32, dtype=dtype, seed=1), floats(32, dtype=dtype, seed=2), floats(32, dtype=dtype, seed=3)
    norm = lambda x: x * torch.rsqrt(x.square().mean(-1, True) + 1e-6) * gamma.double()  # noqa: E731
    scale, zero = torch.tensor([20.0], dtype=dtype), torch.tensor([5], dtype=torch.int8)
    y = torch_npu.npu_rms_norm_quant(a.npu(), gamma.npu(), beta.npu(), scale.npu(), zero.npu())
    near_int8(y, (norm(a.double()) + beta.double()) * 20 + 5)
    scales, zeros = floats(32, dtype=torch.float32, seed=4, low=0.02, high=0.1), ints(32, dtype=torch.int32, seed=5)
    y, _, x = torch_npu.npu_add_rms_norm_quant(a.npu(), b.npu(), gamma.npu(), scales.npu(), zeros.npu())[:3]
    total = a.double() + b.double()
    close(x.cpu(), total, ulps=1)
    near_int8(y, norm(total) / scales + zeros)
    y, _, x, s, _ = torch_npu.npu_add_rms_norm_dynamic_quant(a.npu(), b.npu(), gamma.npu())
    want = norm(total).abs().amax(-1) / 127
    close(s.cpu(), want, ulps=16)
    near_int8(y, norm(total) / want[:, None])
    empty = lambda kind, *shape: torch.zeros(*shape, dtype=kind, device="npu")  # noqa: E731
    y, x = empty(torch.int8, 4, 32), empty(dtype, 4, 32)
    call("AddRmsNormQuant", a.npu(), b.npu(), gamma.npu(), scales.npu(), None, zeros.npu(), None, -1, 1e-6, True, y, None, x)
    near_int8(y, norm(total) / scales + zeros)
    y, s = empty(torch.int8, 4, 32), empty(torch.float32, 4)
    call("AddRmsNormDynamicQuant", a.npu(), b.npu(), gamma.npu(), None, None, 1e-6, y, torch.zeros_like(y), x, s, torch.zeros_like(s))
    close(s.cpu(), want, ulps=16)
    near_int8(y, norm(total) / want[:, None])
    wide, y, rstd, x = torch_npu.npu_add_rms_norm_cast(a.npu(), b.npu(), gamma.npu())
    close([wide.cpu(), y.cpu(), x.cpu()], [norm(total), norm(total), total], ulps=8, absolute=1e-6)
    close(rstd.cpu().flatten(), torch.rsqrt(total.square().mean(-1) + 1e-6), ulps=8)


@covers("SwiGluQuantV2", "DequantSwigluQuant", "DequantSwigluQuantV2")
def test_gates_that_end_in_int8():
    x = floats(6, 32, dtype=torch.float16)
    y, scale = torch_npu.npu_swiglu_quant(x.npu(), activate_left=True, quant_mode=1)
    value = F.silu(x[:, :16].double()) * x[:, 16:].double()
    close(scale.cpu().flatten(), value.abs().amax(-1) / 127, ulps=16)
    near_int8(y, value / (value.abs().amax(-1, True) / 127))
    sums, weights, tokens = ints(6, 32, dtype=torch.int32, low=-500, high=500), floats(1, 32, low=0.001, high=0.01), floats(6, 1, low=0.5, high=1)
    wide = sums.double() * weights * tokens
    call_dequant = lambda **kw: torch_npu.npu_dequant_swiglu_quant(  # noqa: E731
        sums.npu(), weight_scale=weights.npu(), activation_scale=tokens.npu(), activate_left=True, quant_mode=1, **kw)
    y, scale = torch.zeros(6, 16, dtype=torch.int8, device="npu"), torch.zeros(6, device="npu")
    call("DequantSwigluQuant", sums.npu(), weights.npu(), tokens.npu().flatten(), None, None, None, None, True, b"dynamic", y, scale)

    def check(y, scale, value):
        close(scale.cpu().flatten(), value.abs().amax(-1) / 127, ulps=16)
        near_int8(y, value / (value.abs().amax(-1, True) / 127))

    check(y, scale, F.silu(wide[:, :16]) * wide[:, 16:])
    check(*call_dequant(), F.silu(wide[:, :16]) * wide[:, 16:])
    for mode, glu, linear in ((1, wide[:, ::2], wide[:, 1::2]), (2, wide[:, :16], wide[:, 16:])):  # as GPT-OSS has it
        glu, linear = glu.clamp_max(1.5), linear.clamp(-1.5, 1.5)
        check(*call_dequant(swiglu_mode=mode, clamp_limit=1.5, glu_alpha=1.702, glu_bias=1.0), glu * (1.702 * glu).sigmoid() * (linear + 1))


@covers("MoeInitRouting", "MoeInitRoutingV2", "MoeInitRoutingV3", "MoeFinalizeRouting", "MoeFinalizeRoutingV2", "MoeComputeExpertTokens")
def test_to_the_experts_and_back():
    rows, k, experts = 7, 3, 5
    x = floats(rows, 8)
    chosen = torch.stack([torch.randperm(experts, generator=torch.Generator().manual_seed(i))[:k] for i in range(rows)]).int()
    weights = floats(rows, k, seed=1)
    scale_of = floats(experts, seed=2)

    def back(expanded, places, column):
        """What each expert does is to multiply by its number."""
        mode = 0 if column else 2
        return torch_npu.npu_moe_finalize_routing(expanded, None, None, None, weights.npu(), places, chosen.npu(), drop_pad_mode=mode).cpu()

    want = (weights[..., None] * scale_of[chosen.long()][..., None] * x[:, None]).sum(1)
    row_idx = torch.arange(rows * k, dtype=torch.int32).view(k, rows).t().contiguous()
    expanded, places, sorted_experts = torch_npu.npu_moe_init_routing(x.npu(), row_idx.npu(), chosen.npu(), rows)
    assert torch.equal(sorted_experts.cpu(), chosen.flatten().sort()[0])
    processed = expanded * scale_of[sorted_experts.cpu().long()][:, None].npu()
    out, none = torch.zeros(rows, 8, device="npu"), torch.zeros(rows, 8, device="npu")
    call("MoeFinalizeRouting", processed, none, None, torch.zeros(experts, 8, device="npu"), weights.npu(), places, chosen.npu(), out)
    close(out.cpu(), want.double(), absolute=1e-5)
    result = back(expanded * scale_of[sorted_experts.cpu().long()][:, None].npu(), places, True)
    close(result, want.double(), absolute=1e-5)
    ends = torch_npu.npu_moe_compute_expert_tokens(sorted_experts, experts).cpu()
    assert torch.equal(ends.long(), torch.bincount(chosen.flatten(), minlength=experts).cumsum(0))

    expanded, places, counts, _ = torch_npu.npu_moe_init_routing_v2(
        x.npu(), chosen.npu(), active_num=rows * k, expert_num=experts, expert_tokens_num_type=1, expert_tokens_num_flag=True, active_expert_range=[0, experts])
    assert torch.equal(counts.cpu(), torch.bincount(chosen.flatten(), minlength=experts))
    order = torch.repeat_interleave(torch.arange(experts), counts.cpu())
    close(back(expanded * scale_of[order][:, None].npu(), places, False), want.double(), absolute=1e-5)
    expanded, places, counts, scales = torch_npu.npu_moe_init_routing_v2(
        x.npu(), chosen.npu(), active_num=rows * k, expert_num=experts, expert_tokens_num_type=1, expert_tokens_num_flag=True, quant_mode=1,
        active_expert_range=[1, 3])
    used = int(((chosen >= 1) & (chosen < 3)).sum())
    assert (places.cpu() >= 0).sum() == used and counts.cpu().sum() == used
    token = (places.cpu() == 0).nonzero().item() // k
    near_int8(expanded[0], x[token].double() / (x[token].abs().max() / 127))
    close(scales[:1].cpu(), (x[token].abs().max() / 127).double().view(1), ulps=2)

    # The version with counts of its own, and room for two rows per expert.
    places, bounded = torch.zeros(rows * k, dtype=torch.int32, device="npu"), torch.zeros(experts, 2, 8, device="npu")
    before = torch.zeros(experts, dtype=torch.int32, device="npu")
    call("MoeInitRoutingV2", x.npu(), chosen.npu(), 0, 2, experts, 1, 0, True, bounded, places, None, before)
    assert torch.equal(before.cpu().long(), torch.bincount(chosen.flatten(), minlength=experts))
    assert (places.cpu() >= 0).sum() == before.cpu().clamp_max(2).sum()
    out = torch.zeros(rows, 8, device="npu")
    call("MoeFinalizeRoutingV2", bounded.view(-1, 8), places, None, None, None, weights.npu(), None, 3, out)
    kept = (places.cpu().view(rows, k) >= 0).double()
    close(out.cpu(), (kept * weights).sum(1, keepdim=True) * x.double(), absolute=1e-5)


@covers("MoeTokenPermute", "MoeTokenUnpermute", "MoeReRouting", "MoeGatingTopKSoftmaxV2")
def test_permuting_tokens():
    tokens, chosen, probs = floats(6, 4), ints(6, 2, dtype=torch.int32, low=0, high=5), floats(6, 2, seed=1)
    permuted, places = torch_npu.npu_moe_token_permute(tokens.npu(), chosen.npu())
    order = chosen.flatten().argsort(stable=True)
    assert torch.equal(permuted.cpu(), tokens[order // 2])
    got = torch_npu.npu_moe_token_unpermute(permuted, places, probs.npu())
    close(got.cpu(), tokens.double() * probs.double().sum(1, keepdim=True), absolute=1e-5)
    counts = torch.tensor([[1, 2, 0], [2, 0, 1]])
    moved, _, index, sums = torch_npu.npu_moe_re_routing(tokens.npu(), counts.npu())
    assert torch.equal(moved.cpu(), tokens[torch.tensor([0, 3, 4, 1, 2, 5])]) and sums.cpu().tolist() == [3, 2, 1]
    assert index.cpu().tolist() == [0, 3, 4, 1, 2, 5]
    x = floats(5, 9)
    y, experts, _ = torch_npu.npu_moe_gating_top_k_softmax_v2(x.npu(), k=3, renorm=1)
    values, indices = x.sort(dim=-1, descending=True, stable=True)
    close(y.cpu(), values[:, :3].double().softmax(-1), ulps=16)
    assert torch.equal(experts.cpu().long(), indices[:, :3])
