"""Grouped products: quantised, with weights in FRACTAL_NZ, of several tensors, along k; what follows and precedes them."""

import ctypes

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from oracle import call, close, covers, floats, ints, strict_refuses
from quant_test import near_int8

HALVES = (torch.float16, torch.bfloat16)
ENDS = torch.tensor([5, 5, 18, 20])
COUNTS = torch.tensor([5, 0, 13, 2])
SPANS = list(zip([0, 5, 5, 18], ENDS.tolist()))


def grouped(x, weight, **arguments):
    arguments = {"group_list": ENDS.npu(), "split_item": 3, "group_type": 0} | arguments
    return torch_npu.npu_grouped_matmul([x.npu()], [w if w.is_npu else w.npu() for w in weight], **arguments)[0].cpu()


def by_group(x, weight):
    """In float64, exact for int8."""
    return torch.cat([x[begin:end].double() @ weight[e].double() for e, (begin, end) in enumerate(SPANS)])


def per_row(of_experts):
    """A row of numbers per expert, for each row of x."""
    return of_experts[torch.repeat_interleave(torch.arange(4), COUNTS)]


@covers("GroupedMatmulV5", "GroupedMatmulWeightNz")
def test_int8_with_scales():
    x, w = ints(20, 64, dtype=torch.int8, low=-128, high=128), ints(4, 64, 48, dtype=torch.int8, seed=1, low=-128, high=128)
    exact = by_group(x, w)
    assert torch.equal(grouped(x, [w], output_dtype=torch.int32).double(), exact), "sums in int32 are exact"
    bias = ints(4, 48, dtype=torch.int32, seed=5, low=-9999, high=9999)
    assert torch.equal(grouped(x, [w], bias=[bias.npu()], output_dtype=torch.int32).double(), exact + per_row(bias))
    scale, token = floats(4, 48, seed=2, low=1e-4, high=1e-3), floats(20, seed=3, low=0.5, high=1.5)
    nz = torch_npu.npu_format_cast(w.npu(), 29)
    for dtype in HALVES:
        s = scale.bfloat16() if dtype == torch.bfloat16 else scale
        want = (exact + per_row(bias)) * per_row(s).double() * token[:, None]
        arguments = {"scale": [s.npu()], "per_token_scale": [token.npu()], "bias": [bias.npu()], "output_dtype": dtype}
        got = grouped(x, [w], **arguments)
        close(got, want, ulps=2)
        assert torch.equal(grouped(x, [w], **arguments | {"group_list": COUNTS.npu(), "group_list_type": 1}), got)
        assert torch.equal(grouped(x, [nz], **arguments), got), "the layout of the weight changes nothing"
        one_each = {"scale": [t.npu() for t in s], "bias": [t.npu() for t in bias]}
        assert torch.equal(grouped(x, list(w), **arguments | one_each), got), "a tensor per expert is the same"
    value = exact * per_row(scale)
    for act_type, want in ((1, value.relu()), (2, F.gelu(value, approximate="tanh")), (4, value * (1.702 * value).sigmoid()), (5, F.silu(value))):
        close(grouped(x, [w], scale=[scale.npu()], output_dtype=torch.float16, act_type=act_type), want, ulps=2, absolute=2.0**-23 * 8)


@covers("GroupedMatmulV5", "GroupedMatmulWeightNz", "GroupedMatmulSwigluQuantV2")
def test_int8_groups_of_every_layout_are_exact():
    """Rows of no group stay as they are; an expert without rows, one row, more rows than a tile."""
    for k, n in ((64, 32), (100, 96)):
        x, w = ints(40, k, dtype=torch.int8, low=-128, high=128), ints(4, n, k, dtype=torch.int8, seed=1, low=-128, high=128)
        ends = torch.tensor([1, 1, 30, 37])
        exact = torch.cat([x[b:e].long() @ w[i].long().t() for i, (b, e) in enumerate(zip([0, 1, 1, 30], ends.tolist()))])
        across = w.transpose(1, 2).contiguous().npu()
        for weight in (w.npu().transpose(1, 2), across, torch_npu.npu_format_cast(across, 29)):
            got = grouped(x, [weight], group_list=ends.npu(), output_dtype=torch.int32)
            assert torch.equal(got[:37].long(), exact)
        scale, token = floats(4, n, seed=2, low=1e-4, high=1e-3), floats(40, seed=3, low=0.5, high=1.5)
        value = exact.float() * scale[torch.tensor([0] + [2] * 29 + [3] * 7)] * token[:37, None]
        got = grouped(x, [across], group_list=ends.npu(), scale=[scale.bfloat16().npu()], per_token_scale=[token.npu()], output_dtype=torch.bfloat16)
        rounded = exact.float() * scale.bfloat16().float()[torch.tensor([0] + [2] * 29 + [3] * 7)] * token[:37, None]
        assert torch.equal(got[:37], rounded.bfloat16())
        gated = F.silu(value[:, : n // 2].double()) * value[:, n // 2 :].double()
        want = gated.abs().amax(-1) / 127
        y, s = torch_npu.npu_grouped_matmul_swiglu_quant_v2(x.npu(), [across], [scale.npu()], token.npu(), ends.npu(), group_list_type=0)
        close(s.cpu()[:37], want, ulps=16)
        near_int8(y[:37], gated / want[:, None])


@covers("GroupedMatmulV5")
def test_int8_pairs_of_expert_and_count():
    x, w = ints(20, 32, dtype=torch.int8), ints(4, 32, 16, dtype=torch.int8, seed=1)
    pairs = torch.tensor([[2, 7], [0, 4], [3, 9], [1, 0]])
    got = grouped(x, [w], group_list=pairs.npu(), group_list_type=2, output_dtype=torch.int32)
    want = torch.cat([x[:7].double() @ w[2].double(), x[7:11].double() @ w[0].double(), x[11:].double() @ w[3].double()])
    assert torch.equal(got.double(), want)


@covers("GroupedMatmulV5", "TransQuantParamV3")
def test_int8_to_int8():
    x, w = ints(20, 32, dtype=torch.int8), ints(4, 32, 16, dtype=torch.int8, seed=1)
    scale = floats(4, 16, seed=2, low=0.01, high=0.05)
    words = torch_npu.npu_trans_quant_param(scale.npu().view(1, -1), None).view(4, 16)
    cut = (scale.view(torch.int32) & -8192).view(torch.float32)
    near_int8(grouped(x, [w], scale=[words]), by_group(x, w) * per_row(cut))


@pytest.mark.parametrize("dtype", HALVES)
@covers("GroupedMatmulV5")
def test_float_rows_with_int8_and_int4_weights(dtype):
    x = floats(20, 64, dtype=dtype)
    offset, scale = floats(4, 32, dtype=dtype, seed=3), floats(4, 32, dtype=dtype, seed=2, low=0.01, high=0.1)
    for low, high in ((-128, 128), (-8, 8)):
        w = ints(4, 64, 32, dtype=torch.int8, seed=1, low=low, high=high)
        packed = torch_npu.npu_convert_weight_to_int4pack(w.view(-1, 32).int().npu()).view(4, 64, 4)
        wide = (w.double() + offset.double()[:, None]) * scale.double()[:, None]
        sizes = by_group(x.abs(), wide.abs())
        got = grouped(x, [w if low == -128 else packed], antiquant_scale=[scale.npu()], antiquant_offset=[offset.npu()])
        close(got, by_group(x, wide), ulps=1, absolute=66 * 2.0**-23 * sizes)
    groups = floats(4, 2, 32, dtype=dtype, seed=4, low=0.01, high=0.1)  # each for 32 rows of the weight
    wide = w.double() * groups.double().repeat_interleave(32, 1)
    got = grouped(x, [packed], antiquant_scale=[groups.npu()], antiquant_offset=[torch.zeros_like(groups).npu()])
    close(got, by_group(x, wide), ulps=1, absolute=66 * 2.0**-23 * by_group(x.abs(), wide.abs()))


@pytest.mark.parametrize("dtype", HALVES)
@covers("GroupedMatmulV5", "GroupedMatmulWeightNz")
def test_floats_in_other_shapes(dtype):
    x, w = floats(20, 32, dtype=dtype), floats(4, 32, 24, dtype=dtype, seed=1)
    slack = 34 * 2.0**-23 * by_group(x.abs(), w.abs())
    want = by_group(x, w)
    plain = grouped(x, [w])
    close(plain, want, absolute=slack)
    assert torch.equal(grouped(x, [torch_npu.npu_format_cast(w.npu(), 29)]), plain), "the layout of the weight changes nothing"
    nz = torch_npu.npu_format_cast(w.transpose(1, 2).contiguous().npu(), 29).transpose(1, 2)
    assert torch.equal(grouped(x, [nz]), plain)
    assert torch.equal(grouped(x, [torch_npu.npu_format_cast(each.npu(), 29) for each in w]), plain), "nor do tensors of their own"
    close(grouped(x, [w], act_type=5), F.silu(want), ulps=2, absolute=2 * slack)
    parts = [x[begin:end].npu() for begin, end in SPANS if end > begin]
    weights = [w[e].npu() for e in (0, 2, 3)]
    got = torch_npu.npu_grouped_matmul(parts, weights, group_list=torch.tensor([5, 18, 20]).npu(), split_item=2, group_type=0)
    close(torch.cat([g.cpu() for g in got]), want, absolute=slack)
    # Along k: columns of x with as many rows of the weight.
    a, b, ends = floats(6, 20, dtype=dtype, seed=2), floats(20, 24, dtype=dtype, seed=3), ENDS
    view = a.t().contiguous().npu().t()
    (got,) = torch_npu.npu_grouped_matmul([view], [b.npu()], group_list=ends.npu(), split_item=3, group_type=2)
    want = torch.stack([a[:, begin:end].double() @ b[begin:end].double() for begin, end in SPANS])
    sizes = torch.stack([a[:, begin:end].double().abs() @ b[begin:end].double().abs() for begin, end in SPANS])
    close(got.cpu(), want, absolute=22 * 2.0**-23 * sizes)


def test_what_is_refused():
    x, w = floats(20, 32, dtype=torch.float16), ints(4, 32, 16, dtype=torch.int8)
    with pytest.raises(RuntimeError, match="x is float16 and weight int8 without antiquant_scale"):
        grouped(x, [w])
    with pytest.raises(RuntimeError, match="act_type is 3; it must be 0"):
        grouped(x, [floats(4, 32, 16, dtype=torch.float16)], act_type=3)
    for act_type in (0, 1):  # the kernel, and the general case
        with pytest.raises(RuntimeError, match="group 1 of group_list ends at 3"):
            torch_npu.npu_grouped_matmul([x.npu()], [floats(4, 32, 16, dtype=torch.float16).npu()], group_list=torch.tensor([5, 3, 18, 20]).npu(),
                                         split_item=3, group_type=0, act_type=act_type)
            torch.npu.synchronize()


@covers("GroupedMatmulSwigluQuantWeightNZ", "GroupedMatmulSwigluQuantV2", "GroupedMatmulSwigluQuantWeightNzV2")
def test_product_gate_and_quantisation():
    x, w = ints(20, 64, dtype=torch.int8, low=-128, high=128), ints(4, 64, 64, dtype=torch.int8, seed=1, low=-128, high=128)
    scale, token = floats(4, 64, seed=2, low=1e-4, high=1e-3), floats(20, seed=3, low=0.05, high=0.1)
    c = by_group(x, w) * per_row(scale) * token[:, None]
    value = F.silu(c[:, :32]) * c[:, 32:]
    want = value.abs().amax(-1) / 127
    nz = torch_npu.npu_format_cast(w.npu(), 29)
    first = torch_npu.npu_grouped_matmul_swiglu_quant(x.npu(), nz, ENDS.npu(), scale.npu(), token.npu())
    for weight in (w.npu(), nz):
        y, s = torch_npu.npu_grouped_matmul_swiglu_quant_v2(x.npu(), [weight], [scale.npu()], token.npu(), COUNTS.npu(), group_list_type=1)
        close(s.cpu(), want, ulps=16)
        near_int8(y, value / want[:, None])
        assert torch.equal(y, first[0]) and torch.equal(s, first[1])


@pytest.mark.parametrize("mode", [0, 1])
@covers("MoeInitRoutingQuantV2")
def test_to_the_experts_quantised(mode):
    rows, k, experts = 7, 3, 5
    x = floats(rows, 16, dtype=torch.float16)
    chosen = torch.stack([torch.randperm(experts, generator=torch.Generator().manual_seed(i))[:k] for i in range(rows)]).int()
    scale = floats(1, low=5, high=20) if mode == 0 else floats(experts, 16, seed=2)
    offset = torch.tensor([3.0]) if mode == 0 else None
    order = chosen.flatten().long().argsort(stable=True)

    def pairs(which):
        value = x[which // k].double()
        if mode == 0:
            return value * scale + 3, None
        value = value * scale[chosen.flatten()[which].long()]
        return value / (value.abs().amax(-1, True) / 127), value.abs().amax(-1) / 127

    call = lambda **kw: torch_npu.npu_moe_init_routing_quant(  # noqa: E731
        x.npu(), chosen.npu(), scale=scale.npu(), offset=None if offset is None else offset.npu(), expert_num=experts, quant_mode=mode, **kw)
    y, places, counts, _, scales = call(active_num=0, expert_tokens_num_mode=2)
    assert torch.equal(places.cpu()[order].long(), torch.arange(rows * k))
    assert torch.equal(counts.cpu().long(), torch.bincount(chosen.flatten(), minlength=experts))
    want, want_scale = pairs(order)
    near_int8(y, want)
    if mode == 1:
        close(scales.cpu(), want_scale, ulps=8)
    y, places, _, before, _ = call(active_num=0, expert_capacity=3, drop_pad_mode=1, expert_tokens_before_capacity_flag=True)
    assert torch.equal(before.cpu().long(), torch.bincount(chosen.flatten(), minlength=experts))
    kept = (places.cpu() >= 0).nonzero().flatten()
    assert len(kept) == before.cpu().clamp_max(3).sum()
    near_int8(y.view(-1, 16)[places.cpu()[kept].long().npu()], pairs(kept)[0])


def way_back():
    """Arguments from the scale on, with bias, and what they give."""
    x, w = ints(20, 64, dtype=torch.int8, low=-128, high=128), ints(4, 64, 256, dtype=torch.int8, seed=1, low=-128, high=128)
    scale, token, logit = floats(4, 256, seed=2, low=1e-4, high=1e-3), floats(20, seed=3, low=0.5, high=1.5), floats(20, seed=4, low=0, high=1)
    rows = torch.randperm(20, generator=torch.Generator().manual_seed(5)) % 7
    shared = floats(4, 256, dtype=torch.bfloat16, seed=6)
    terms = by_group(x, w) * per_row(scale) * token[:, None] * logit[:, None]
    want = torch.zeros(8, 256, dtype=torch.float64).index_add(0, rows, terms)
    want[2:6] += 0.5 * shared.double()
    slack = 8 * 2.0**-23 * (torch.zeros(8, 256, dtype=torch.float64).index_add(0, rows, terms.abs()) + 1)
    return x.npu(), w.npu(), [scale.npu(), None, token.npu(), COUNTS.npu(), shared.npu(), logit.npu(), rows.npu()], want, slack


@covers("GroupedMatmulFinalizeRoutingV3", "GroupedMatmulFinalizeRoutingWeightNzV2")
def test_product_and_the_way_back():
    x, w, (scale, _, token, counts, shared, logit, rows), want, slack = way_back()
    for weight in (w, torch_npu.npu_format_cast(w, 29)):
        got = torch_npu.npu_grouped_matmul_finalize_routing(
            x, weight, counts, scale=scale, pertoken_scale=token, shared_input=shared, logit=logit, row_index=rows, shared_input_weight=0.5,
            shared_input_offset=2, output_bs=8)
        close(got.cpu(), want, absolute=slack)


# The versions that torch_npu takes if those aren't there.
OLD_REST = [0, ctypes.c_float(0.5), 2, False, False, 1]


@strict_refuses("`x2` is int8; it must be one of int4")
@covers("GroupedMatmulFinalizeRoutingV2")
def test_the_way_back_as_it_was():
    x, w, given, want, slack = way_back()
    out = torch.zeros(8, 256, device="npu")
    call("GroupedMatmulFinalizeRoutingV2", x, w, *given[:2], None, None, None, *given[2:], *OLD_REST, out)
    close(out.cpu(), want, absolute=slack)


@strict_refuses("`scale` is float32; it must be one of int64")
@covers("GroupedMatmulFinalizeRoutingWeightNz")
def test_the_way_back_as_it_was_from_fractals():
    x, w, given, want, slack = way_back()
    out = torch.zeros(8, 256, device="npu")
    call("GroupedMatmulFinalizeRoutingWeightNz", x, (torch_npu.npu_format_cast(w, 29), 29, (4, 8, 4, 16, 32)), *given, *OLD_REST, out)
    close(out.cpu(), want, absolute=slack)
