"""Operators of mixture-of-experts layers."""

import pytest
import torch
import torch_npu

from fused_test import check_product
from oracle import FLOATS, close, covers, floats


@pytest.mark.parametrize("dtype", FLOATS)
@covers("MoeGatingTopKSoftmax", "MoeGatingTopK")
def test_gating(dtype):
    x = floats(9, 16, dtype=dtype)
    probabilities = x.double().softmax(-1)
    y, experts, rows = torch_npu.npu_moe_gating_top_k_softmax(x.npu(), None, 4)
    values, chosen = probabilities.sort(dim=-1, descending=True, stable=True)
    close(y.cpu(), values[:, :4], ulps=1.0 if dtype != torch.float32 else 24)
    assert torch.equal(experts.cpu().long(), chosen[:, :4]) or dtype != torch.float32
    assert torch.equal(rows.cpu().long(), torch.arange(36).view(4, 9).t())
    bias = floats(16, dtype=dtype, seed=1, low=-0.1, high=0.1)
    y, experts, scores = torch_npu.npu_moe_gating_top_k(x.npu(), 4, bias=bias.npu(), k_group=2, group_count=4, group_select_mode=1, norm_type=1,
                                                        routed_scaling_factor=2.5, out_flag=True)
    sigmoid = x.float().sigmoid()
    groups = (sigmoid + bias.float()).view(9, 4, 4)
    best = groups.topk(2, -1)[0].sum(-1).topk(2, -1)[1]
    ranked = groups.masked_fill(~torch.zeros(9, 4, dtype=torch.bool).scatter(1, best, True)[..., None], -torch.inf).flatten(1)
    chosen = ranked.sort(dim=-1, descending=True, stable=True)[1][:, :4]
    assert torch.equal(experts.cpu().long(), chosen)
    weights = sigmoid.double().gather(1, chosen)
    close(y.cpu(), 2.5 * weights / weights.sum(-1, keepdim=True), ulps=1.0 if dtype != torch.float32 else 24)
    close(scores.cpu(), x.double().sigmoid(), ulps=8)


@covers("MoeGatingTopKV2")
def test_gating_by_a_table():
    x, ids = floats(6, 16), torch.tensor([3, 0, 3, 4, 1, 2])
    table = torch.stack([torch.randperm(16, generator=torch.Generator().manual_seed(i))[:4] for i in range(5)]).int()
    y, experts, _ = torch_npu.npu_moe_gating_top_k(x.npu(), 4, input_ids=ids.npu(), tid2eid=table.npu(), norm_type=1, routed_scaling_factor=2.5)
    assert torch.equal(experts.cpu(), table[ids])
    weights = x.double().sigmoid().gather(1, table[ids].long())
    close(y.cpu(), 2.5 * weights / weights.sum(-1, keepdim=True), ulps=24)


@pytest.mark.parametrize("dtype", FLOATS)
@covers("GroupedMatmulV5", "GroupedMatmulV4")
def test_grouped_matmul(dtype, monkeypatch):
    x, weight = floats(20, 32, dtype=dtype), floats(4, 32, 24, dtype=dtype, seed=1)
    bias = floats(4, 24, dtype=dtype, seed=2)
    ends = torch.tensor([5, 5, 18, 20])
    counts = torch.tensor([5, 0, 13, 2])
    for given in (weight.npu(), weight.transpose(1, 2).contiguous().npu().transpose(1, 2)):
        for kind, groups in ((0, ends), (1, counts)):
            (y,) = torch_npu.npu_grouped_matmul([x.npu()], [given], group_list=groups.npu(), split_item=3, group_type=0, group_list_type=kind)
            for e, (begin, end) in enumerate(zip([0, 5, 5, 18], ends.tolist())):
                check_product(y[begin:end], x[begin:end], weight[e])
    (y,) = torch_npu.npu_grouped_matmul([x.npu()], [w.npu() for w in weight], bias=[b.npu() for b in bias], group_list=ends.npu(), split_item=3, group_type=0)
    for e, (begin, end) in enumerate(zip([0, 5, 5, 18], ends.tolist())):
        check_product(y[begin:end], x[begin:end], weight[e], bias[e])
    direct_v4(x, weight, ends)


def direct_v4(x, weight, ends):
    from ctypes import c_int64, c_uint64, c_void_p

    from oracle import ACL_DTYPES, call, opapi

    library = opapi()
    library.aclCreateTensorList.restype = library.aclCreateTensor.restype = c_void_p

    def one(t):
        dims, strides, n = (c_int64 * t.dim())(*t.shape), (c_int64 * t.dim())(*t.stride()), c_uint64(t.dim())
        tensor = c_void_p(library.aclCreateTensor(dims, n, ACL_DTYPES[t.dtype], strides, c_int64(0), 2, dims, n, c_void_p(t.data_ptr())))
        return c_void_p(library.aclCreateTensorList((c_void_p * 1)(tensor), c_uint64(1)))

    out, dx, dw = torch.empty(x.shape[0], weight.shape[2], dtype=x.dtype, device="npu"), x.npu(), weight.npu()
    call("GroupedMatmulV4", one(dx), one(dw), *[None] * 6, ends.npu(), *[None] * 3, 3, 0, 0, 0, one(out), None, None)
    for e, (begin, end) in enumerate(zip([0, 5, 5, 18], ends.tolist())):
        check_product(out[begin:end], x[begin:end], weight[e])
