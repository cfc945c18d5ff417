"""Reductions, scans, indexing, sorting, shapes."""

import pytest
import torch
import torch_npu

from oracle import EPS, FLOATS, INTS, bools, call, close, covers, floats, ints, near, same, strict_refuses

WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float32}


def sum_bound(x, dim, dtype):
    """k additions in fp32 in any order: (k - 1) eps32 sum|x| (Higham, chapter 4)."""
    terms = x.numel() if dim is None else x.shape[dim]
    magnitude = x.double().abs().sum() if dim is None else x.double().abs().sum(dim)
    return (terms - 1) * EPS[torch.float32] * magnitude


@pytest.mark.parametrize("dtype", FLOATS)
@covers("ReduceSum", "Mean", "ReduceNansum")
def test_sums(dtype):
    for x in (floats(6, 257, dtype=dtype), floats(257, 6, dtype=dtype).t(), floats(3, 4, 65, dtype=dtype)):
        for dim in (None, -1, 0):
            close(x.npu().sum(dim).cpu() if dim is not None else x.npu().sum().cpu(), x.double().sum(dim) if dim is not None else x.double().sum(),
                  absolute=sum_bound(x, dim, dtype))
        k = x.shape[-1]
        close(x.npu().mean(-1).cpu(), x.double().mean(-1), absolute=sum_bound(x, -1, dtype) / k)
        same(lambda t: t.sum(-1, keepdim=True, dtype=torch.float32), x.contiguous())
    x[0, 0] = float("nan")
    close(torch.nansum(x.npu(), -1).cpu(), torch.nansum(x.double(), -1), absolute=sum_bound(x.nan_to_num(), -1, dtype))
    same(lambda t: t.sum(0), floats(0, 4, dtype=dtype))


@covers("ReduceSum", "Any", "All")
def test_integer_and_bool_reductions():
    for dtype in INTS:
        same(lambda t: t.sum(), ints(5, 7, dtype=dtype))
        same(lambda t: t.sum(1), ints(5, 7, dtype=dtype))
    x = bools(5, 7)
    for t in (x, ~x, torch.zeros(5, 7, dtype=torch.bool), torch.zeros(0, 7, dtype=torch.bool)):
        same(lambda a: a.sum(0), t)
        same(torch.any, t)
        same(torch.all, t)
        same(lambda a: a.any(1), t)
        same(lambda a: a.all(0, keepdim=True), t)


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int32, torch.int64))
@strict_refuses("aclnnMaxDim: argument `self` is int32", when=lambda dtype: dtype == torch.int32)
@covers("Max", "Min", "Amax", "Amin", "MaxDim", "MinDim", "ArgMax", "ArgMin", "AminmaxAll", "AminmaxDim")
def test_extremes(dtype):
    make = floats if dtype.is_floating_point else lambda *s, **k: torch.randperm(s[0] * s[1]).reshape(s).to(dtype)
    for x in (make(6, 33, dtype=dtype), make(33, 6, dtype=dtype).t()):
        same(torch.max, x)
        same(torch.min, x)
        same(lambda t: t.amax((0, 1)), x)
        same(lambda t: t.amin(1, keepdim=True), x)
        same(lambda t: tuple(t.max(1)), x)
        same(lambda t: tuple(t.min(0, keepdim=True)), x)
        same(lambda t: t.argmax(-1), x)
        same(lambda t: t.argmin(0), x)
        same(torch.argmax, x)
        same(lambda t: tuple(torch._aminmax(t)), x)
        same(lambda t: tuple(torch._aminmax(t, 1)), x)


@covers("Aminmax")
def test_aminmax():
    x = floats(6, 33)
    same(lambda t: tuple(torch.aminmax(t, dim=1)), x)


@covers("Prod", "ProdDim", "Cumsum", "Cumprod", "Cummax", "Cummin", "Trace", "Median", "MedianDim", "Kthvalue")
def test_products_scans_and_order_statistics():
    for dtype in FLOATS:
        x = floats(5, 9, dtype=dtype, low=0.5, high=1.5)
        same(torch.prod, x)
        same(lambda t: t.prod(1), x)
        same(lambda t: t.cumsum(-1), x)
        same(lambda t: t.cumsum(0, dtype=torch.float32), x)
        same(lambda t: t.cumprod(1), x)
    for x in (floats(5, 9), ints(5, 9)):
        same(lambda t: t.cumsum(0), x)
        same(lambda t: tuple(t.cummax(1)), x)
        same(lambda t: tuple(t.cummin(0)), x)
        same(torch.trace, x)
        same(torch.median, x)
    same(lambda t: tuple(t.median(1)), floats(5, 9))
    same(lambda t: tuple(t.kthvalue(3, 1)), floats(5, 9))


@covers("Std", "VarCorrection", "VarMean", "StdMeanCorrection", "Norm", "LinalgVectorNorm", "LogSumExp")
def test_moments():
    x = floats(6, 129)
    # Two-pass moments of values of size 1: the error is that of sums of 129 terms.
    ulps = 129
    for correction in (0, 1):
        near(lambda t: t.std(1, correction=correction), x, ulps=ulps)
        near(lambda t: t.var(0, correction=correction), x, ulps=ulps)
        near(lambda t: torch.var_mean(t, 1, correction=correction)[0], x, ulps=ulps)
        near(lambda t: torch.std_mean(t, 1, correction=correction)[0], x, ulps=ulps)
    near(lambda t: torch.ops.aten.norm.ScalarOpt_dim(t, 2, [0, 1]), x, ulps=ulps * 6)
    near(lambda t: torch.ops.aten.norm.ScalarOpt_dim(t, 1, [1], True), x, ulps=ulps)
    near(lambda t: torch.linalg.vector_norm(t, 2, dim=1), x, ulps=ulps)
    near(lambda t: torch.linalg.vector_norm(t, float("inf")), x, ulps=1)
    near(lambda t: torch.logsumexp(t, 1), x, ulps=ulps)


@pytest.mark.parametrize("dtype", FLOATS)
@covers("Softmax", "LogSoftmax", "SoftmaxBackward")
def test_softmax(dtype):
    for x in (floats(6, 257, dtype=dtype), floats(257, 6, dtype=dtype).t(), floats(0, 5, dtype=dtype), floats(2, 3, 4, dtype=dtype)):
        k = max(2, x.shape[-1])
        # exp of x - max (|.| <= 6) with its rounded argument, a sum of k, one division: (6 + k) eps32, and one rounding.
        near(lambda t: torch.softmax(t, -1), x, ulps=1.0 if dtype != torch.float32 else 8 + k)
        near(lambda t: torch.softmax(t, 0), x, ulps=1.0 if dtype != torch.float32 else 8 + x.shape[0])
        near(lambda t: torch.log_softmax(t, -1), x, ulps=1.0 if dtype != torch.float32 else 8 + k)
        got, want = torch.softmax(x.npu(), -1, dtype=torch.float32).cpu(), torch.softmax(x.double(), -1)
        close(got, want, ulps=8 + k)
    x = floats(6, 33, dtype=dtype, seed=1)
    y = torch.softmax(x, -1)
    same(lambda g, o: torch._softmax_backward_data(g, o, -1, dtype), x, y)
    masked = torch.tensor([[0.0, -float("inf"), 1.0], [-float("inf"), 2.0, -float("inf")]], dtype=dtype)
    same(lambda t: torch.softmax(t, -1), masked)


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int32, torch.int64))
@covers("Sort", "Topk")
def test_sort_and_topk(dtype):
    values = torch.randperm(6 * 200, generator=torch.Generator().manual_seed(0)).reshape(6, 200)
    x = (values % 256 if dtype == torch.bfloat16 else values).to(dtype)  # all integers up to 256 are bfloat16 numbers
    same(lambda t: tuple(torch.sort(t, stable=True)), x)
    same(lambda t: tuple(torch.sort(t, dim=0, descending=True, stable=True)), x)
    same(lambda t: torch.sort(t)[0], x.t().contiguous().t())
    same(lambda t: torch.argsort(t, stable=True), x)
    same(lambda t: t.topk(7)[0], x)
    same(lambda t: t.topk(3, dim=0, largest=False)[0], x)
    if dtype != torch.bfloat16:
        same(lambda t: t.topk(7)[1], x)
    same(lambda t: tuple(t.topk(0)), x)


@covers("Unique2", "UniqueConsecutive", "UniqueDim", "Nonzero", "Bincount", "Histc", "SearchSorted", "SearchSorteds", "OneHot", "Bucketize",
        "Unique", "NonzeroV2")
def test_sets_and_searches():
    for x in (ints(50, low=0, high=9), ints(5, 10, low=-3, high=3, dtype=torch.int32), floats(40).round()):
        same(torch.unique, x)
        same(lambda t: tuple(torch.unique(t, return_inverse=True, return_counts=True)), x)
        same(torch.unique_consecutive, x)
        same(lambda t: tuple(torch.unique_consecutive(t, return_inverse=True, return_counts=True)), x.sort()[0])
        same(torch.nonzero, x)
        same(lambda t: tuple(torch.nonzero(t, as_tuple=True)), x)
        same(lambda t: t[t > 0], x)
    same(lambda t: tuple(torch.unique(t, dim=0, return_inverse=True, return_counts=True)), ints(20, 2, low=0, high=2))
    same(lambda t: torch._unique(t, True, True)[0], ints(20, low=0, high=4))
    same(torch.nonzero, torch.zeros(4, 5))
    same(torch.bincount, ints(50, low=0, high=9))
    same(lambda t, w: torch.bincount(t, w, minlength=12), ints(50, low=0, high=9), floats(50))
    same(lambda t: torch.histc(t, 10, -3, 3), floats(200))
    edges = floats(12).sort()[0]
    same(torch.searchsorted, edges, floats(5, 4, seed=1))
    same(lambda e, v: torch.searchsorted(e, v, right=True, out_int32=True), edges, edges.clone())
    same(lambda e: torch.searchsorted(e, 0.5), edges)
    same(lambda e, v: torch.bucketize(v, e), edges, floats(9, seed=2))
    same(lambda t: torch.nn.functional.one_hot(t, 9), ints(4, 5, low=0, high=9))
    # torch_npu goes another way to these on this SoC.
    out = torch.empty(9, dtype=torch.int64, device="npu")
    values = floats(9, seed=2)
    call("Bucketize", values.npu(), edges.npu(), False, False, out)
    assert torch.equal(out.cpu(), torch.bucketize(values, edges))
    mask, found = bools(3, 5), torch.zeros(2, 15, dtype=torch.int64, device="npu")
    call("NonzeroV2", mask.npu(), found)
    want = mask.nonzero().t()
    assert torch.equal(found.cpu().flatten()[: want.numel()].view(want.shape), want)


# ---- indices

@pytest.mark.parametrize("dtype", (*FLOATS, torch.int64, torch.bool))
@covers("Index", "IndexPutImpl", "IndexSelect", "Gather", "Take", "InplacePut", "InplaceIndexCopy", "IndexFill", "InplaceIndexFill")
def test_index(dtype):
    make = floats if dtype.is_floating_point else lambda *s, **k: ints(*s, low=0, high=2, **k)
    x = make(6, 7, 3, dtype=dtype)
    rows, cols = torch.tensor([0, 5, -1, 2]), torch.tensor([6, 0, 1, 1])
    same(lambda t, i: t[i], x, rows)
    same(lambda t, i: t[i], x, rows.int())
    same(lambda t, i, j: t[i, j], x, rows, cols)
    same(lambda t, i: t[:, i], x, rows.clamp(0))
    same(lambda t, i, j: t[i[:, None], :, j[None] % 3], x, rows, cols)
    same(lambda t, m: t[m], x, bools(6))
    same(lambda t, m: t[m], x, bools(6, 7))
    same(lambda t, i: t[i], x, torch.empty(0, dtype=torch.int64))
    same(lambda t, i: t[:, i], x, torch.empty(0, dtype=torch.int64))
    value = make(4, 7, 3, dtype=dtype, seed=1)

    def put(t, i, v):
        t = t.clone()
        t[i] = v
        return t

    same(put, x, torch.tensor([0, 5, 1, 2]), value)
    same(put, x, bools(6), make(1, dtype=dtype, seed=2))
    same(put, x, torch.empty(0, dtype=torch.int64), value[:0])
    same(lambda t, i, j, v: t.clone().index_put_((i, j), v), x, torch.tensor([0, 5, 1, 2]), cols, value[:, 0])
    if dtype != torch.bool:
        same(lambda t, i, v: t.clone().index_put_((i,), v, accumulate=True), x, torch.tensor([1, 1, 2, 1]), value)
    index = torch.tensor([5, 0, 3, 3])
    same(lambda t, i: t.index_select(0, i), x, index)
    same(lambda t, i: t.index_select(1, i), x, index.int())
    same(lambda t, i: t.clone().index_copy_(0, i, t[:2].flip(1)), x, torch.tensor([4, 1]))
    same(lambda t, i: t.clone().index_fill_(1, i, 1), x, index)
    same(lambda t, i: t.index_fill(1, i, 1), x, index)
    same(lambda t, i: t.gather(1, i), x, ints(6, 4, 3, low=0, high=7))
    same(torch.take, x, ints(3, 4, low=0, high=120))
    same(lambda t, i, v: t.clone().put_(i, v), x, torch.tensor([0, 17, 99]), value.flatten()[:3].clone())


@covers("IndexAdd", "IndexAddV2", "Scatter", "ScatterValue", "InplaceScatter", "InplaceScatterValue", "ScatterAdd", "ScatterReduce",
        "InplaceScatterReduce", "ScatterNdUpdate", "InplaceScatterUpdate", "IndexCopy")
def test_scatter():
    for dtype in (torch.float32, torch.float16, torch.int64):
        make = floats if dtype.is_floating_point else ints
        x, src = make(6, 7, dtype=dtype), make(3, 7, dtype=dtype, seed=1)
        index = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(i))[:3] for i in range(7)], 1)
        same(lambda t, i, s: t.scatter(0, i, s), x, index, src)
        same(lambda t, i: t.scatter(0, i, 7), x, index)
        same(lambda t, i, s: t.clone().scatter_(0, i, s), x, index, src)
        same(lambda t, i: t.clone().scatter_(0, i, 7), x, index)
        same(lambda t, i, s: t.scatter_add(0, i, s), x, index, src)
        same(lambda t, i, s: t.index_add(0, i, s, alpha=2), x, torch.tensor([4, 0, 2]), src)
    x, src = floats(6, 7), floats(3, 7, seed=1)
    for code, name in ((1, "add"), (2, "multiply")):
        got = torch.empty(6, 7, device="npu")
        call("Scatter", x.npu(), 0, index.npu(), src.npu(), code, got)
        assert torch.equal(got.cpu(), x.scatter(0, index, src, reduce=name))
    same(lambda t, i, s: t.scatter_reduce(0, i, s, "sum"), x, index, src)
    same(lambda t, i, s: t.clone().scatter_reduce_(0, i, s, "sum"), x, index, src)
    for code, name in ((1, "sum"), (2, "prod"), (3, "amax"), (4, "amin"), (5, "mean")):
        got = torch.empty(6, 7, device="npu")
        call("ScatterReduce", x.npu(), 0, index.npu(), src.npu(), code, True, got)
        assert torch.equal(got.cpu(), x.scatter_reduce(0, index, src, name))
    same(lambda t, i, s: torch.index_copy(t, 0, i, s, out=torch.empty_like(t)), x, torch.tensor([4, 0, 2]), src)
    where, rows = torch.tensor([[1], [5], [2]]), floats(3, 7, seed=2)
    got = torch_npu.npu_scatter_nd_update(x.npu(), where.npu(), rows.npu()).cpu()
    want = x.clone()
    want[where[:, 0]] = rows
    assert torch.equal(got, want)
    cache, update = floats(2, 4, 8, 3), floats(2, 4, 2, 3, seed=3)
    got = torch_npu.scatter_update(cache.npu(), torch.tensor([5, 1]).npu(), update.npu(), -2).cpu()
    want = cache.clone()
    want[0, :, 5:7], want[1, :, 1:3] = update[0], update[1]
    assert torch.equal(got, want)
    got = torch.ops.npu._npu_index_add(x.npu(), torch.tensor([4, 0, 2]).npu(), src.npu(), alpha=2).cpu()
    assert torch.equal(got, x.index_add(0, torch.tensor([4, 0, 2]), src, alpha=2))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@covers("Embedding")
def test_embedding(dtype):
    weight = floats(50, 24, dtype=dtype)
    for index in (ints(3, 4, low=0, high=50), ints(5, low=0, high=50, dtype=torch.int32), torch.empty(0, dtype=torch.int64)):
        same(torch.nn.functional.embedding, index, weight)
    same(torch.nn.functional.embedding, ints(3, 4, low=0, high=50), floats(24, 50, dtype=dtype).t())
    with pytest.raises(RuntimeError, match=r"indices\[1\] is 50; weight has 50 rows"):
        torch.nn.functional.embedding(torch.tensor([0, 50]).npu(), weight.npu())
        torch.npu.synchronize()


# ---- shapes and copies

@covers("InplaceZero", "InplaceOne", "InplaceFillScalar", "InplaceFillTensor", "InplaceFillDiagonal", "Arange", "Range", "Linspace", "LogSpace", "Eye",
        "Tril", "Triu", "InplaceTril", "InplaceTriu")
def test_creation():
    for dtype in (*FLOATS, *INTS, torch.bool):
        for make in (torch.zeros, torch.ones):
            assert torch.equal(make(3, 5, dtype=dtype, device="npu").cpu(), make(3, 5, dtype=dtype))
        same(lambda t: t.clone().fill_(1), torch.zeros(3, 5, dtype=dtype))
        same(lambda t: t.clone().zero_(), torch.ones(3, 5, dtype=dtype))
    same(lambda t, v: t.clone().fill_(v), floats(3, 5), torch.tensor(2.5))
    same(lambda t: t.clone().fill_diagonal_(9), floats(4, 6))
    for arguments in ((5,), (2, 9), (3, 20, 4), (10, 0, -3), (0, 0), (0.0, 1.0, 0.1)):
        assert torch.equal(torch.arange(*arguments, device="npu").cpu(), torch.arange(*arguments))
    assert torch.equal(torch.arange(2**53, 2**53 + 9, 2, device="npu").cpu(), torch.arange(2**53, 2**53 + 9, 2))
    assert torch.equal(torch.range(0, 5, 0.5, device="npu").cpu(), torch.range(0, 5, 0.5))
    close(torch.linspace(-1, 1, 33, device="npu").cpu(), torch.linspace(-1, 1, 33, dtype=torch.float64), absolute=2.0**-24)
    close(torch.logspace(0, 2, 9, device="npu").cpu(), torch.logspace(0, 2, 9, dtype=torch.float64), ulps=16)
    assert torch.equal(torch.eye(4, 6, device="npu").cpu(), torch.eye(4, 6))
    for diagonal in (-1, 0, 2):
        same(lambda t: t.tril(diagonal), floats(5, 7))
        same(lambda t: t.triu(diagonal), bools(5, 7))
        same(lambda t: t.clone().tril_(diagonal), floats(5, 7))
        same(lambda t: t.clone().triu_(diagonal), floats(5, 7))


@covers("Cat", "Stack", "Repeat", "RepeatInterleaveIntWithDim", "RepeatInterleaveInt", "RepeatInterleave", "RepeatInterleaveWithDim", "Flip", "Roll",
        "ConstantPadNd", "RepeatInterleaveTensor", "SplitWithSize")
def test_joining():
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        x = floats(3, 4, dtype=dtype) if dtype.is_floating_point else ints(3, 4, low=0, high=2, dtype=dtype)
        same(lambda a: torch.cat([a, a * a if dtype != torch.bool else a]), x)
        same(lambda a: torch.cat([a, a.t().t()], 1), x)
        same(lambda a: torch.cat([a, a[:0]]), x)
        same(lambda a: torch.stack([a, a], 1), x)
        same(lambda a: a.repeat(2, 1, 3), x)
        same(lambda a: a.repeat_interleave(3, 1), x)
        same(lambda a: a.repeat_interleave(2), x)
        same(lambda a, r: a.repeat_interleave(r, 0), x, torch.tensor([2, 0, 3]))
        same(lambda a, r: a.flatten().repeat_interleave(r), x, ints(12, low=0, high=3))
        same(lambda a: a.flip(0, 1), x)
        same(lambda a: a.roll(2, 1), x)
        same(lambda a: a.roll((1, -2), (0, 1)), x)
        same(lambda a: torch.nn.functional.pad(a, (1, 2, 0, 1), value=1), x)
        same(lambda a: torch.nn.functional.pad(a, (-1, 0)), x)
    same(lambda a, b: torch.cat([a, b]), floats(3), ints(4))
    same(torch.repeat_interleave, torch.tensor([2, 0, 3]))
    # Only a split into more than 32 parts is one operator.
    wide = floats(4, 33 * 2000)
    parts = [torch.empty(4, 2000, device="npu") for _ in range(33)]
    torch.split_with_sizes_copy(wide.npu(), [2000] * 33, 1, out=parts)
    for got, want in zip(parts, wide.split(2000, 1)):
        assert torch.equal(got.cpu(), want)


@covers("InplaceCopy", "Cast")
def test_copies():
    kinds = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.int8, torch.bool)
    for source in kinds:
        x = floats(6, 40, dtype=source, low=0, high=100) if source.is_floating_point else ints(6, 40, low=0, high=100, dtype=source)
        for target in kinds:
            same(lambda t: t.to(target), x)
            same(lambda t: t.t().to(target), x)
            same(lambda t: torch_npu.npu_dtype_cast(t, target) if t.device.type == "npu" else t.to(target), x)
            same(lambda t: torch.zeros(6, 40, dtype=target, device=t.device).copy_(t), x)
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        x = floats(6, 96, dtype=dtype) if dtype.is_floating_point else ints(6, 96, dtype=dtype)
        same(lambda t: t.t().contiguous(), x)
        same(lambda t: t[:, 32:64].contiguous(), x)  # a slice of rows
        same(lambda t: t[:, 1:].clone(), x)
        same(lambda t: t[::2].clone(), x)
        same(lambda t: t[:1].expand(6, 96).contiguous(), x)

        def into_slice(t):
            out = torch.zeros(6, 200, dtype=dtype, device=t.device)
            out[:, 100:196] = t
            return out

        same(into_slice, x)
    big = ints(3 << 20, dtype=torch.int8)
    same(lambda t: t.clone(), big)


@covers("Cast")
def test_rounding_of_casts():
    """The neighbours of each midpoint between two half-precision numbers, and what overflows."""
    for dtype in (torch.float16, torch.bfloat16):
        steps = torch.arange(0, 0x7C00 if dtype == torch.float16 else 0x7F80, 7, dtype=torch.int32).to(torch.int16).view(dtype)
        middle = (steps[:-1].double() + steps[1:].double()) / 2
        x = torch.cat([torch.nextafter(middle.float(), torch.tensor(s * float("inf"))) for s in (-1, 1)] + [middle.float(), steps.float()])
        same(lambda t: torch_npu.npu_dtype_cast(t, dtype) if t.device.type == "npu" else t.to(dtype), torch.cat([x, -x, torch.tensor([1e30, float("nan"), float("inf")])]))


def test_wrong_calls_name_operator_argument_and_value():
    x = floats(3, 4).npu()
    with pytest.raises(RuntimeError, match=r"aclnnTopk: k is 9; dimension 1 has only 4 elements"):
        call("Topk", x, 9, 1, True, True, x, x.long())
    with pytest.raises(RuntimeError, match=r"aclnnMul: argument `other` is null"):
        call("Mul", x, None, x)
    with pytest.raises(RuntimeError, match=r"aclnnMul: shapes \[3, 4\] and \[4, 3\] don't broadcast to the output's \[3, 4\]"):
        call("Mul", x, floats(4, 3).npu(), x)
