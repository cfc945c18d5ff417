"""Fused attention in all its layouts, the paged cache, and both in captured graphs."""

import math

import pytest
import torch
import torch_npu

from oracle import EPS, FLOATS, call, close, covers, floats, ints, strict_refuses

HEADS, KV_HEADS, DIM = 6, 2, 32
SCALE = 1 / math.sqrt(DIM)


def reference(q, k, v, *, hidden=None, scale=SCALE, sink=None):
    """q [s1, n, d], k, v [s2, nkv, d] in float64; hidden [s1, s2] or [n, s1, s2]; sink [n], a score without a value. Gives the output, what
    bounds its error, and lse."""
    q, k, v = (t.double().transpose(0, 1) for t in (q, k, v))
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    scores = q @ k.transpose(-1, -2) * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    if sink is not None:
        scores = torch.cat([scores, sink.double()[:, None, None].expand(-1, scores.shape[1], 1)], -1)
    p = scores.softmax(-1).nan_to_num(0)[..., : k.shape[1]]
    # A score errs by d eps32 sum|q k|, which moves p by as much relatively; s2 terms are summed. All in fp32.
    spread = (q.abs() @ k.abs().transpose(-1, -2) * scale).amax(-1, keepdim=True)
    bound = EPS[torch.float32] * ((2 * (q.shape[-1] + 4) * spread + k.shape[1] + 8) * (p @ v.abs()))
    return (p @ v).transpose(0, 1), bound.transpose(0, 1), scores.logsumexp(-1).transpose(0, 1)


def causal(s1, s2, align="right"):
    shift = s2 - s1 if align == "right" else 0
    return torch.arange(s2)[None] > torch.arange(s1)[:, None] + shift


def check(got, want):
    out, bound, _ = want
    close(got.cpu(), out, absolute=bound)


def triangle():
    return torch.ones(2048, 2048, dtype=torch.int8).triu(1)


class Paged:
    """Sequences in a paged cache whose unused slots hold NaN."""

    def __init__(self, query_lengths, key_lengths, dtype, block=16, blocks=24, seed=0):
        self.queries, self.keys, self.block = query_lengths, key_lengths, block
        tokens = sum(query_lengths)
        self.q = floats(tokens, HEADS, DIM, dtype=dtype, seed=seed)
        self.k = [floats(n, KV_HEADS, DIM, dtype=dtype, seed=seed + 10 + i) for i, n in enumerate(key_lengths)]
        self.v = [floats(n, KV_HEADS, DIM, dtype=dtype, seed=seed + 50 + i) for i, n in enumerate(key_lengths)]
        self.cache_k, self.cache_v = (torch.full((blocks, block, KV_HEADS, DIM), math.nan, dtype=dtype) for _ in range(2))
        free = torch.randperm(blocks, generator=torch.Generator().manual_seed(seed)).tolist()
        width = max(-(-n // block) for n in key_lengths) + 1
        self.table = torch.full((len(key_lengths), width), -1, dtype=torch.int32)
        for s, n in enumerate(key_lengths):
            for b in range(-(-n // block)):
                self.table[s, b] = free.pop()
                part = slice(b * block, min(n, (b + 1) * block))
                self.cache_k[self.table[s, b], : part.stop - part.start] = self.k[s][part]
                self.cache_v[self.table[s, b], : part.stop - part.start] = self.v[s][part]

    def want(self, mode, sink=None):
        out, begin = [], 0
        for n, k, v in zip(self.queries, self.k, self.v):
            hidden = causal(n, len(k)) if mode == 3 else None
            out.append(reference(self.q[begin : begin + n], k, v, hidden=hidden, sink=sink))
            begin += n
        return [torch.cat(parts) for parts in zip(*out)]

    def arguments(self, mode, layout="flat"):
        blocks = self.cache_k.shape[0]
        shape = lambda c: c.reshape(blocks, self.block, -1) if layout == "flat" else c.transpose(1, 2).contiguous()  # noqa: E731
        ends = torch.tensor(self.queries).cumsum(0).tolist()
        return dict(
            query=self.q.npu(), key=shape(self.cache_k).npu(), value=shape(self.cache_v).npu(), block_table=self.table.npu(), block_size=self.block,
            num_heads=HEADS, num_key_value_heads=KV_HEADS, scale=SCALE, input_layout="TND", sparse_mode=mode, actual_seq_lengths=ends,
            actual_seq_lengths_kv=self.keys, atten_mask=triangle().npu() if mode else None,
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ("flat", "heads first"))
@strict_refuses("`query` is float32; it must be one of float16, int8, bfloat16", when=lambda dtype, **_: dtype == torch.float32)
@covers("FusedInferAttentionScoreV3")
def test_paged_mixed_batch(dtype, layout):
    # A prefill, a chunk of one, and two decodes.
    batch = Paged([13, 5, 1, 1], [13, 40, 33, 16], dtype)
    got, _ = torch_npu.npu_fused_infer_attention_score(**batch.arguments(3, layout))
    check(got, batch.want(3))


@strict_refuses("`query` is float32; it must be one of float16, int8, bfloat16")
@covers("FusedInferAttentionScoreV3")
def test_softmax_lse_and_no_mask():
    batch = Paged([3, 1, 2], [20, 7, 31], torch.float32)
    got, lse = torch_npu.npu_fused_infer_attention_score(**batch.arguments(0), softmax_lse_flag=True)
    want = batch.want(0)
    check(got, want)
    assert lse.shape == (6, HEADS, 1)
    close(lse.cpu()[..., 0], want[2], absolute=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@strict_refuses("query", when=lambda dtype: dtype == torch.float32)
@covers("FusedInferAttentionScoreV3")
def test_latent_attention(dtype):
    """Queries and keys in two parts, one key head, values that are the first part: over pages, a query each; and packed prompts."""
    latent, rope, block, scale, lengths = 64, 16, 16, 0.1, [33, 1, 16, 70]
    pages = [torch.full((20, block, width), math.nan, dtype=dtype) for width in (latent, rope)]
    table = torch.randperm(20, generator=torch.Generator().manual_seed(1)).view(4, 5).to(torch.int32)
    query, query_rope = floats(4, 1, HEADS, latent, dtype=dtype), floats(4, 1, HEADS, rope, dtype=dtype, seed=1)
    wants = []
    for s, n in enumerate(lengths):
        key, key_rope = floats(n, 1, latent, dtype=dtype, seed=s + 2), floats(n, 1, rope, dtype=dtype, seed=s + 9)
        for t in range(n):
            pages[0][table[s, t // block], t % block], pages[1][table[s, t // block], t % block] = key[t, 0], key_rope[t, 0]
        wants.append(reference(torch.cat([query[s], query_rope[s]], -1), torch.cat([key, key_rope], -1), key, scale=scale))
    paged = {"block_table": table.npu(), "block_size": block, "actual_seq_lengths_kv": lengths, "num_key_value_heads": 1}
    common = {"num_heads": HEADS, "scale": scale}
    out, _ = torch_npu.npu_fused_infer_attention_score(
        query.npu(), pages[0].npu(), pages[0].npu(), query_rope=query_rope.npu(), key_rope=pages[1].npu(), input_layout="BSND", **paged, **common
    )
    check(out.squeeze(1), [torch.cat(parts) for parts in zip(*wants)])

    q, k = (floats(20, HEADS, latent + rope, dtype=dtype, seed=seed) for seed in (3, 4))
    v = floats(20, HEADS, latent, dtype=dtype, seed=5)
    ends, starts = [7, 20], [0, 7]
    q_parts, k_parts = ([part.contiguous().npu() for part in t.split([latent, rope], -1)] for t in (q, k))
    out, _ = torch_npu.npu_fused_infer_attention_score(
        q_parts[0], k_parts[0], v.npu(), query_rope=q_parts[1], key_rope=k_parts[1], input_layout="TND", actual_seq_lengths=ends,
        actual_seq_lengths_kv=ends, num_key_value_heads=HEADS, sparse_mode=3, atten_mask=triangle().npu(), **common,
    )
    wants = [reference(q[a:b], k[a:b], v[a:b], hidden=causal(b - a, b - a), scale=scale) for a, b in zip(starts, ends)]
    check(out, [torch.cat(parts) for parts in zip(*wants)])
    for wrong, message in (({"query_rope": q_parts[1]}, "together"), ({"query_rope": q_parts[1][:5], "key_rope": k_parts[1]}, "query_rope")):
        with pytest.raises(RuntimeError, match=message):
            torch_npu.npu_fused_infer_attention_score(
                q_parts[0], k_parts[0], v.npu(), input_layout="TND", actual_seq_lengths=ends, actual_seq_lengths_kv=ends,
                num_key_value_heads=HEADS, **common, **wrong,
            )


@covers("FusedInferAttentionScoreV4")
def test_sinks():
    batch = Paged([13, 5, 1, 1], [13, 40, 33, 16], torch.bfloat16)
    a = batch.arguments(3)
    sink = floats(HEADS, dtype=torch.bfloat16, seed=9)

    def run(sink):
        return torch_npu.npu_fused_infer_attention_score_v2(
            a["query"], a["key"], a["value"], block_table=a["block_table"], block_size=a["block_size"], num_query_heads=HEADS,
            num_key_value_heads=KV_HEADS, softmax_scale=SCALE, input_layout="TND", sparse_mode=3, actual_seq_qlen=a["actual_seq_lengths"],
            actual_seq_kvlen=a["actual_seq_lengths_kv"], atten_mask=a["atten_mask"], learnable_sink=sink.npu())[0]

    check(run(sink), batch.want(3, sink))
    with pytest.raises(RuntimeError, match=r"learnable_sink has shape \[3\]; it must have num_heads = "):
        run(sink[:3])


@covers("FusedInferAttentionScoreV4", "FusedInferAttentionScoreV2", "FusedInferAttentionScoreV5")
def test_other_versions():
    batch = Paged([4, 1], [9, 30], torch.float16)
    a = batch.arguments(3)
    got, _ = torch_npu.npu_fused_infer_attention_score_v2(
        a["query"], a["key"], a["value"], block_table=a["block_table"], block_size=a["block_size"], num_query_heads=HEADS,
        num_key_value_heads=KV_HEADS, softmax_scale=SCALE, input_layout="TND", sparse_mode=3, actual_seq_qlen=a["actual_seq_lengths"],
        actual_seq_kvlen=a["actual_seq_lengths_kv"], atten_mask=a["atten_mask"])
    check(got, batch.want(3))
    # V2 is what torch_npu calls on older releases.
    from ctypes import c_bool, c_char_p, c_int64, c_uint64, c_void_p

    from oracle import ACL_DTYPES, opapi

    library = opapi()
    library.aclCreateTensorList.restype = library.aclCreateIntArray.restype = library.aclCreateTensor.restype = c_void_p

    def one(t):
        dims, strides = (c_int64 * t.dim())(*t.shape), (c_int64 * t.dim())(*t.stride())
        n = c_uint64(t.dim())
        tensor = c_void_p(library.aclCreateTensor(dims, n, ACL_DTYPES[t.dtype], strides, c_int64(0), 2, dims, n, c_void_p(t.data_ptr())))
        return c_void_p(library.aclCreateTensorList((c_void_p * 1)(tensor), c_uint64(1)))

    def array(values):
        return c_void_p(library.aclCreateIntArray((c_int64 * len(values))(*values), c_uint64(len(values))))

    out = torch.empty_like(a["query"])
    call("FusedInferAttentionScoreV2", a["query"], one(a["key"]), one(a["value"]), None, a["atten_mask"], array(a["actual_seq_lengths"]),
         array(a["actual_seq_lengths_kv"]), *[None] * 7, a["block_table"], *[None] * 8, None, HEADS, SCALE, 2147483647, 2147483647, c_char_p(b"TND"),
         KV_HEADS, 3, 0, a["block_size"], 0, c_bool(False), 0, 0, out, None)
    assert torch.equal(out, got)
    # V5 is what it calls on Ascend950.
    out.zero_()
    call("FusedInferAttentionScoreV5", a["query"], one(a["key"]), one(a["value"]), None, a["atten_mask"], array(a["actual_seq_lengths"]),
         array(a["actual_seq_lengths_kv"]), *[None] * 7, a["block_table"], *[None] * 9, *[None] * 7, HEADS, SCALE, 2147483647, 2147483647,
         c_char_p(b"TND"), KV_HEADS, 3, 0, a["block_size"], 0, c_bool(False), 0, 0, 0, 0, out, None)
    assert torch.equal(out, got)


@pytest.mark.parametrize("layout", ("BSH", "BSND", "BNSD", "BNSD_BSND"))
@strict_refuses("`query` is float32; it must be one of float16, int8, bfloat16")
@covers("FusedInferAttentionScoreV3")
def test_contiguous_layouts(layout):
    b, s1, s2 = 3, 5, 11
    q, k, v = floats(b, s1, HEADS, DIM), floats(b, s2, KV_HEADS, DIM, seed=1), floats(b, s2, KV_HEADS, DIM, seed=2)

    def shaped(t, name):
        return {"BSH": lambda: t.flatten(2), "BSND": lambda: t, "BNSD": lambda: t.transpose(1, 2).contiguous()}[name]().npu()

    kind, out_kind = layout.split("_")[0], layout.split("_")[-1]
    lengths, keys = [5, 3, 1], [11, 8, 4]
    for mode, align in ((0, None), (2, "left"), (3, "right")):
        mask = triangle().npu() if mode else None
        got, _ = torch_npu.npu_fused_infer_attention_score(
            shaped(q, kind), shaped(k, kind), shaped(v, kind), num_heads=HEADS, num_key_value_heads=KV_HEADS, scale=SCALE, input_layout=layout,
            sparse_mode=mode, atten_mask=mask, actual_seq_lengths=lengths, actual_seq_lengths_kv=keys)
        got = {"BSH": lambda t: t.unflatten(2, (HEADS, DIM)), "BSND": lambda t: t, "BNSD": lambda t: t.transpose(1, 2)}[out_kind](got)
        for i in range(b):
            hidden = causal(lengths[i], keys[i], align) if mode else None
            check(got[i, : lengths[i]], reference(q[i, : lengths[i]], k[i, : keys[i]], v[i, : keys[i]], hidden=hidden))


@strict_refuses("`query` is float32; it must be one of float16, int8, bfloat16")
@covers("FusedInferAttentionScoreV3")
def test_masks_bands_and_packed_keys():
    b, s1, s2 = 2, 6, 10
    q, k, v = floats(b, s1, HEADS, DIM), floats(b, s2, KV_HEADS, DIM, seed=1), floats(b, s2, KV_HEADS, DIM, seed=2)
    hidden = torch.rand(b, 1, s1, s2, generator=torch.Generator().manual_seed(0)) < 0.3
    options = dict(num_heads=HEADS, num_key_value_heads=KV_HEADS, scale=SCALE, input_layout="BSND")
    got, _ = torch_npu.npu_fused_infer_attention_score(q.npu(), k.npu(), v.npu(), atten_mask=hidden.npu(), sparse_mode=1, **options)
    for i in range(b):
        check(got[i], reference(q[i], k[i], v[i], hidden=hidden[i, 0]))
    got, _ = torch_npu.npu_fused_infer_attention_score(q.npu(), k.npu(), v.npu(), atten_mask=triangle().npu(), sparse_mode=4, pre_tokens=3, next_tokens=1, **options)
    distance = torch.arange(s2)[None] - (torch.arange(s1)[:, None] + s2 - s1)
    for i in range(b):
        check(got[i], reference(q[i], k[i], v[i], hidden=(distance < -3) | (distance > 1)))
    packed = Paged([4, 1, 7], [9, 5, 7], torch.float32)
    got, _ = torch_npu.npu_fused_infer_attention_score(
        packed.q.npu(), torch.cat(packed.k).npu(), torch.cat(packed.v).npu(), num_heads=HEADS, num_key_value_heads=KV_HEADS, scale=SCALE, input_layout="TND",
        sparse_mode=3, atten_mask=triangle().npu(), actual_seq_lengths=[4, 5, 12], actual_seq_lengths_kv=[9, 14, 21])
    check(got, packed.want(3))
    one = floats(b, 1, HEADS, DIM, seed=4)
    got, _ = torch_npu.npu_fused_infer_attention_score(one.npu(), k.npu(), v.npu(), actual_seq_lengths_kv=[10, 4], **options)
    for i, n in enumerate((10, 4)):
        check(got[i], reference(one[i], k[i, :n], v[i, :n]))


@covers("PromptFlashAttentionV3", "IncreFlashAttentionV4")
def test_prompt_and_incre():
    b, s1, s2 = 2, 6, 6
    q, k, v = floats(b, HEADS, s1, DIM, dtype=torch.float16), floats(b, KV_HEADS, s2, DIM, dtype=torch.float16, seed=1), floats(b, KV_HEADS, s2, DIM, dtype=torch.float16, seed=2)
    got = torch_npu.npu_prompt_flash_attention(q.npu(), k.npu(), v.npu(), num_heads=HEADS, num_key_value_heads=KV_HEADS, scale_value=SCALE,
                                               input_layout="BNSD", sparse_mode=2, atten_mask=triangle().bool().npu())
    for i in range(b):
        check(got[i].transpose(0, 1), reference(q[i].transpose(0, 1), k[i].transpose(0, 1), v[i].transpose(0, 1), hidden=causal(s1, s2)))
    got = torch_npu.npu_incre_flash_attention(q[:, :, :1].contiguous().npu(), k.npu(), v.npu(), num_heads=HEADS, num_key_value_heads=KV_HEADS, scale_value=SCALE,
                                              input_layout="BNSD", actual_seq_lengths=[6, 3])
    for i, n in enumerate((6, 3)):
        check(got[i].transpose(0, 1), reference(q[i, :, :1].transpose(0, 1), k[i, :, :n].transpose(0, 1), v[i, :, :n].transpose(0, 1)))


@pytest.mark.parametrize("dtype", FLOATS)
@covers("FlashAttentionScore")
def test_scaled_dot_product_attention(dtype):
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for s1, s2 in ((7, 7), (5, 12), (9, 4), (1, 8)):
        q, k, v = floats(2, HEADS, s1, DIM, dtype=dtype), floats(2, KV_HEADS, s2, DIM, dtype=dtype, seed=1), floats(2, KV_HEADS, s2, DIM, dtype=dtype, seed=2)
        mask = torch.rand(2, 1, s1, s2, generator=torch.Generator().manual_seed(0)) < 0.7
        mask[..., 0] = True
        for options, hidden in (({}, None), ({"is_causal": True}, causal(s1, s2, "left")), ({"attn_mask": mask}, ~mask)):
            got = sdpa(q.npu(), k.npu(), v.npu(), enable_gqa=True, **{n: o.npu() if isinstance(o, torch.Tensor) else o for n, o in options.items()})
            for i in range(2):
                h = hidden[i] if hidden is not None and hidden.dim() == 4 else hidden
                check(got[i].transpose(0, 1), reference(q[i].transpose(0, 1), k[i].transpose(0, 1), v[i].transpose(0, 1), hidden=h))


@covers("FlashAttentionVarLenScore")
def test_variable_length_flash_attention():
    packed = Paged([4, 1, 7], [9, 5, 7], torch.float32)
    got = torch_npu.npu_fusion_attention(packed.q.npu(), torch.cat(packed.k).npu(), torch.cat(packed.v).npu(), HEADS, "TND", scale=SCALE, sparse_mode=3,
                                         atten_mask=triangle().bool().npu(), actual_seq_qlen=[4, 5, 12], actual_seq_kvlen=[9, 14, 21])[0]
    check(got, packed.want(3))


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
@covers("FlashAttentionScoreV2", "FlashAttentionVarLenScoreV2")
def test_second_version_of_flash_attention(dtype):
    q, k, v = floats(2, HEADS, 7, DIM, dtype=dtype), floats(2, KV_HEADS, 9, DIM, dtype=dtype, seed=1), floats(2, KV_HEADS, 9, DIM, dtype=dtype, seed=2)
    got = torch_npu.npu_fusion_attention_v2(q.npu(), k.npu(), v.npu(), HEADS, "BNSD", scale=SCALE)[0]
    for i in range(2):
        check(got[i].transpose(0, 1), reference(q[i].transpose(0, 1), k[i].transpose(0, 1), v[i].transpose(0, 1)))
    packed = Paged([4, 1, 7], [9, 5, 7], dtype)
    got = torch_npu.npu_fusion_attention_v2(packed.q.npu(), torch.cat(packed.k).npu(), torch.cat(packed.v).npu(), HEADS, "TND", scale=SCALE, sparse_mode=3,
                                            atten_mask=triangle().bool().npu(), actual_seq_qlen=[4, 5, 12], actual_seq_kvlen=[9, 14, 21])[0]
    check(got, packed.want(3))


def test_wrong_attention_calls_are_explained():
    batch = Paged([2], [9], torch.float16)
    for change, message in (
        ({"actual_seq_lengths_kv": [900]}, r"actual_seq_lengths_kv\[0\] is 900; block_table has room for 32 tokens"),
        ({"block_size": 32}, r"argument `key` has blocks of 16 tokens but block_size is 32"),
        ({"num_key_value_heads": 4}, r"num_key_value_heads is 4; it must divide num_heads 6"),
        ({"sparse_mode": 7}, r"sparse_mode is 7; hostcann has 0 to 4"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch_npu.npu_fused_infer_attention_score(**{**batch.arguments(3), **change})


# ---- a quantised cache

CODES = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
# Scales of keys or values by mode (0: per channel and per tensor): what makes them, of [heads, dim] and of the cache's or batch's tokens.
TENSOR, CHANNEL, TOKEN, HEAD, TOKEN_HEAD, TOKEN_PAGED, TOKEN_HEAD_PAGED = "tensor", 0, 1, 2, 3, 4, 5


class Quantised(Paged):
    """The cache as codes, and `k`, `v` as the numbers that codes and scales make."""

    def __init__(self, query_lengths, key_lengths, dtype, codes, kind, seed=0):
        super().__init__(query_lengths, key_lengths, torch.float32, seed=seed)
        self.q = self.q.to(dtype)
        self.mode = 0 if kind == TENSOR else kind
        blocks, width = self.cache_k.shape[0], self.table.shape[1] * self.block
        per_token = kind in (TOKEN, TOKEN_HEAD, TOKEN_PAGED, TOKEN_HEAD_PAGED)
        self.scales = []
        for cache, rows in ((self.cache_k, self.k), (self.cache_v, self.v)):
            by_code = (127 if codes == torch.int8 else 200 if codes == torch.float8_e4m3fn else 20000) / 4
            shape = {TENSOR: (1,), CHANNEL: (KV_HEADS, DIM), HEAD: (KV_HEADS,), TOKEN: (len(rows), width), TOKEN_HEAD: (len(rows), KV_HEADS, width),
                     TOKEN_PAGED: (blocks, self.block), TOKEN_HEAD_PAGED: (blocks, KV_HEADS, self.block)}[kind]
            scales = (1 + floats(*shape, seed=seed + len(self.scales) + 7).abs()) / by_code
            scales = scales if per_token else scales.to(dtype)
            for s, row in enumerate(rows):
                at = torch.arange(len(row))
                block, slot = self.table[s].long()[at // self.block], at % self.block
                of = scales.float()
                scale = {TENSOR: lambda: of.view(1, 1, 1), CHANNEL: lambda: of[None], HEAD: lambda: of[None, :, None],
                         TOKEN: lambda: of[s, : len(row), None, None], TOKEN_HEAD: lambda: of[s, :, : len(row)].T[..., None],
                         TOKEN_PAGED: lambda: of[block, slot][:, None, None], TOKEN_HEAD_PAGED: lambda: of[block, :, slot][..., None]}[kind]()
                code = (row / scale).clamp(-127, 127).round() if codes == torch.int8 else row / scale
                code = code.to(codes)
                rows[s] = code.double() * scale.double()
                cache[block, slot] = code.float()
            if per_token:  # what belongs to no token
                used = torch.zeros(shape, dtype=torch.bool)
                for s, row in enumerate(rows):
                    at = torch.arange(len(row))
                    block, slot = self.table[s].long()[at // self.block], at % self.block
                    if kind == TOKEN:
                        used[s, : len(row)] = True
                    elif kind == TOKEN_HEAD:
                        used[s, :, : len(row)] = True
                    elif kind == TOKEN_PAGED:
                        used[block, slot] = True
                    else:
                        used[block, :, slot] = True
                scales[~used] = math.nan
            self.scales.append(scales)
        self.cache_k, self.cache_v = (c.nan_to_num(0).to(codes) for c in (self.cache_k, self.cache_v))

    def arguments(self, mode, layout="flat"):
        a = super().arguments(mode, layout)
        k, v = (s.npu() for s in self.scales)
        return {**a, "key_antiquant_scale": k, "value_antiquant_scale": v, "key_antiquant_mode": self.mode, "value_antiquant_mode": self.mode}


@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("kind", (TENSOR, CHANNEL, TOKEN, HEAD, TOKEN_HEAD, TOKEN_PAGED, TOKEN_HEAD_PAGED))
@covers("FusedInferAttentionScoreV3")
def test_quantised_cache(codes, kind):
    batch = Quantised([13, 5, 1, 1], [13, 40, 33, 16], torch.bfloat16, codes, kind)
    got, _ = torch_npu.npu_fused_infer_attention_score(**batch.arguments(3))
    check(got, batch.want(3))


@covers("FusedInferAttentionScoreV3")
def test_quantised_cache_in_decode_and_heads_first():
    """One query per sequence in a layout with a batch: what the operator's page describes for a quantised cache."""
    batch = Quantised([1, 1, 1], [13, 40, 33], torch.float16, torch.int8, TOKEN_HEAD_PAGED)
    a = batch.arguments(0, "heads first")
    a.update(query=a["query"].unsqueeze(1), input_layout="BSND", actual_seq_lengths=None)
    got, _ = torch_npu.npu_fused_infer_attention_score(**a)
    check(got.squeeze(1), batch.want(0))


@covers("FusedInferAttentionScoreV4", "IncreFlashAttentionV4")
def test_quantised_cache_in_other_versions():
    batch = Quantised([4, 1], [9, 30], torch.float16, torch.int8, TOKEN_HEAD_PAGED)
    a = batch.arguments(3)
    got, _ = torch_npu.npu_fused_infer_attention_score_v2(
        a["query"], a["key"], a["value"], block_table=a["block_table"], block_size=a["block_size"], num_query_heads=HEADS,
        num_key_value_heads=KV_HEADS, softmax_scale=SCALE, input_layout="TND", sparse_mode=3, actual_seq_qlen=a["actual_seq_lengths"],
        actual_seq_kvlen=a["actual_seq_lengths_kv"], atten_mask=a["atten_mask"], dequant_scale_key=a["key_antiquant_scale"],
        dequant_scale_value=a["value_antiquant_scale"], key_quant_mode=5, value_quant_mode=5)
    check(got, batch.want(3))
    # Both scales in one tensor, contiguous keys.
    lengths, width = [9, 30], 30
    k, v = (floats(2, width, KV_HEADS * DIM, seed=s).mul(20).round().clamp(-127, 127) for s in (1, 2))
    scales = floats(2, KV_HEADS * DIM, seed=3).abs().add(1).div(64).to(torch.float16)
    q = floats(2, 1, HEADS * DIM, dtype=torch.float16)
    got = torch_npu.npu_incre_flash_attention(q.npu(), k.to(torch.int8).npu(), v.to(torch.int8).npu(), antiquant_scale=scales.npu(), num_heads=HEADS,
                                              num_key_value_heads=KV_HEADS, scale_value=SCALE, input_layout="BSH", actual_seq_lengths=lengths)
    for i, n in enumerate(lengths):
        numbers = ((c[i, :n].double() * s.double()).view(n, KV_HEADS, DIM) for c, s in zip((k, v), scales))
        check(got[i].view(1, HEADS, DIM), reference(q[i].view(1, HEADS, DIM), *numbers))


def test_wrong_scales_are_explained():
    batch = Quantised([2], [9], torch.bfloat16, torch.int8, TOKEN_HEAD_PAGED)
    a = batch.arguments(3)
    for change, message in (
        ({"key_antiquant_scale": None, "value_antiquant_scale": None}, r"key is int8 and there isn't a scale; int8 and float8 need key_antiquant_scale"),
        ({"key_antiquant_mode": 4}, r"key_antiquant_scale is float32 of shape \[24, 2, 16\]; mode 4 needs float32 \[24, 16\]"),
        ({"value_antiquant_mode": 0}, r"value_antiquant_scale has shape \[24, 2, 16\]; mode 0 needs \[1\], \[64\], \[2, 32\] or \[2, 1, 32\]"),
        ({"key_antiquant_mode": 6}, r"the mode of key_antiquant_scale is 6; hostcann has 0 to 5"),
        ({"key_antiquant_offset": a["key_antiquant_scale"]}, r"argument `key_antiquant_offset` is given"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch_npu.npu_fused_infer_attention_score(**{**a, **change})


@pytest.mark.parametrize("codes", CODES)
@covers("ScatterPaKvCache")
def test_codes_are_written_to_the_cache(codes):
    rows = floats(3, KV_HEADS, DIM).to(codes)
    caches = [torch.zeros(4, 8, KV_HEADS, DIM).to(codes).npu() for _ in range(2)]
    torch_npu.npu_scatter_pa_kv_cache(rows.npu(), rows.npu(), *caches, torch.tensor([9, -1, 31]).npu(), cache_mode="Norm")
    for cache in caches:
        flat = cache.cpu().view(torch.uint8).view(-1, KV_HEADS, DIM)
        assert torch.equal(flat[9], rows[0].view(torch.uint8)) and torch.equal(flat[31], rows[2].view(torch.uint8))
        assert flat.ne(0).any(-1).any(-1).sum() == 2


# ---- the cache

@pytest.mark.parametrize("dtype", FLOATS)
@covers("ScatterPaKvCache", "ScatterPaCache", "GatherPaKvCache")
def test_write_and_gather_the_cache(dtype):
    blocks, block, tokens = 5, 8, 6
    k, v = floats(tokens, KV_HEADS, DIM, dtype=dtype), floats(tokens, KV_HEADS, DIM, dtype=dtype, seed=1)
    slots = torch.tensor([3, 39, -1, 8, 0, -1])
    for kind in (torch.int32, torch.int64):
        # The block before the first would take what is written to slot -1.
        guarded = [torch.zeros(1 + blocks, block, KV_HEADS, DIM, dtype=dtype, device="npu") for _ in range(2)]
        cache_k, cache_v = (c[1:] for c in guarded)
        torch_npu.npu_scatter_pa_kv_cache(k.npu(), v.npu(), cache_k, cache_v, slots.to(kind).npu(), cache_mode="Norm")
        assert all((c[0] == 0).all() for c in guarded)
        for cache, rows in ((cache_k, k), (cache_v, v)):
            want = torch.zeros(blocks * block, KV_HEADS, DIM, dtype=dtype)
            want[slots[slots >= 0]] = rows[slots >= 0]
            assert torch.equal(cache.cpu().view_as(want), want)
    # k and v as slices of one projection, and the fractal cache.
    qkv = floats(tokens, 8 * DIM, dtype=dtype)
    row_k, row_v = (qkv.npu()[:, i * 2 * DIM : (i + 1) * 2 * DIM].unflatten(1, (2, DIM)) for i in (2, 3))
    torch_npu.npu_scatter_pa_kv_cache(row_k, row_v, cache_k, cache_v, slots.npu(), cache_mode="Norm")
    assert torch.equal(cache_v.cpu().flatten(0, 1)[39], qkv[1, 6 * DIM :].view(2, DIM))
    nz = torch.zeros(blocks, KV_HEADS * DIM // 16, block, 16, dtype=dtype, device="npu")
    torch_npu.npu_scatter_pa_kv_cache(k.npu(), v.npu(), nz, nz.clone(), slots.npu(), cache_mode="PA_NZ")
    assert torch.equal(nz.cpu()[4, :, 7].flatten(), k[1].flatten())
    cache = torch.zeros(blocks, block, KV_HEADS, DIM, dtype=dtype, device="npu")
    call("ScatterPaCache", k.npu(), cache, slots.npu(), None, None, None, None)
    assert torch.equal(cache.cpu(), cache_k.cpu().flatten(0, 1).index_copy(0, slots[slots >= 0], k[slots >= 0]).view_as(cache))
    table, lengths = torch.tensor([[1, 4], [0, 2]], dtype=torch.int32), torch.tensor([13, 3], dtype=torch.int32)
    out_k, out_v = (torch.zeros(16, KV_HEADS, DIM, dtype=dtype, device="npu") for _ in range(2))
    torch_npu.npu_gather_pa_kv_cache(cache_k, cache_v, table.npu(), lengths.npu(), out_k, out_v)
    flat = cache_k.cpu().flatten(0, 1)
    assert torch.equal(out_k.cpu(), torch.cat([flat[8:16], flat[32:37], flat[0:3]]))
    # The fractal cache holds what the other holds; lengths as prefix sums, and from a token on.
    got, want = (torch.zeros(16, KV_HEADS, DIM, dtype=dtype, device="npu") for _ in range(2))
    sums, first = torch.tensor([0, 9, 12], dtype=torch.int32).npu(), torch.tensor([6, 1], dtype=torch.int32).npu()
    for source, mode, rows in ((nz, b"PA_NZ", got), (cache, b"Norm", want)):
        call("GatherPaKvCache", source, source, table.npu(), sums, rows, rows.clone(), first, mode, True)
    flat = cache.cpu().flatten(0, 1)
    assert torch.equal(want.cpu()[:12], torch.cat([flat[14:16], flat[32:39], flat[1:4]])) and torch.equal(got.cpu(), want.cpu())


@pytest.mark.parametrize("table, lengths, message", [
    ([[1, 5]], [9], r"token 8: block_table\[0, 1\] names block 5; the cache has 5"),
    ([[1, -1]], [9], r"token 8: block_table\[0, 1\] names block -1; the cache has 5"),
    ([[1, 4]], [17], r"seq_lens\[0\] is 17; there is room for 16 tokens, 0 are taken"),
    ([[1]], [9], r"token 8: request 0 needs column 1 of the block table, which has 1"),
    ([[1]], [9, 9], r"seq_lens has 2 entries; it must have 1"),
])
def test_a_gather_outside_of_the_cache_is_named(table, lengths, message):
    cache, rows = torch.zeros(5, 8, 1, 16, device="npu"), torch.zeros(16, 1, 16, device="npu")
    with pytest.raises(RuntimeError, match=message):
        call("GatherPaKvCache", cache, cache, torch.tensor(table, dtype=torch.int32).npu(), torch.tensor(lengths, dtype=torch.int32).npu(), rows, rows.clone(),
             None, b"Norm", False)


def test_a_slot_past_the_cache_is_named():
    rows, cache = floats(2, 1, 16).npu(), torch.zeros(2, 4, 1, 16, device="npu")
    with pytest.raises(RuntimeError, match=r"slot_mapping\[1\] is 8; the cache has 8 slots"):
        call("ScatterPaCache", rows, cache, torch.tensor([0, 8]).npu(), None, None, None, None)
        torch.npu.synchronize()


# ---- graphs

@strict_refuses("`query` is float32; it must be one of float16, int8, bfloat16")
@covers("FusedInferAttentionScoreV3", "ScatterPaKvCache")
def test_captured_decode_with_updated_lengths():
    """Decode steps as one graph: the lengths are host arguments of the attention, replaced by a task-group update."""
    batch = Paged([1, 1], [8, 21], torch.float32)
    a = batch.arguments(0)
    key, value = a.pop("key"), a.pop("value")
    slots = torch.zeros(2, dtype=torch.int32, device="npu")
    new_k, new_v = torch.zeros(2, KV_HEADS, DIM, device="npu"), torch.zeros(2, KV_HEADS, DIM, device="npu")
    out, lse = torch.empty_like(a["query"]), torch.empty(0, device="npu")
    stream, update, graph = torch.npu.Stream(), torch.npu.Stream(), torch.npu.NPUGraph()
    caches = [c.view(-1, batch.block, KV_HEADS, DIM) for c in (key, value)]
    ready = torch.npu.ExternalEvent()
    with torch.npu.stream(stream):
        torch_npu.npu_scatter_pa_kv_cache(new_k, new_v, *caches, torch.full_like(slots, -1), cache_mode="Norm")
        with torch.npu.graph(graph, stream=stream):
            torch_npu.npu_scatter_pa_kv_cache(new_k, new_v, *caches, slots, cache_mode="Norm")
            ready.wait(stream)
            ready.reset(stream)
            workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(key=key, value=value, **a)
            torch.npu.graph_task_group_begin(stream)
            torch_npu.npu_fused_infer_attention_score.out(key=key, value=value, workspace=workspace, out=[out, lse], **a)
            handle = torch.npu.graph_task_group_end(stream)
    torch.npu.synchronize()
    for step in range(3):
        lengths = [n + 1 + step for n in (8, 21)]
        for s, n in enumerate(lengths):
            if -(-n // batch.block) > -(-(n - 1) // batch.block):
                batch.table[s, n // batch.block] = 22 + s
            batch.k[s] = torch.cat([batch.k[s], floats(1, KV_HEADS, DIM, seed=100 + 10 * step + s)])
            batch.v[s] = torch.cat([batch.v[s], floats(1, KV_HEADS, DIM, seed=200 + 10 * step + s)])
        a["block_table"].copy_(batch.table)
        new_k.copy_(torch.stack([k[-1] for k in batch.k]))
        new_v.copy_(torch.stack([v[-1] for v in batch.v]))
        positions = [n - 1 for n in lengths]
        slots.copy_(torch.tensor([int(batch.table[s, p // batch.block]) * batch.block + p % batch.block for s, p in enumerate(positions)], dtype=torch.int32))
        torch.npu.synchronize()
        with torch.npu.stream(update):
            torch.npu.graph_task_update_begin(update, handle)
            torch_npu.npu_fused_infer_attention_score.out(key=key, value=value, workspace=workspace, out=[out, lse], **{**a, "actual_seq_lengths_kv": lengths})
            torch.npu.graph_task_update_end(update)
            ready.record(update)
        graph.replay()
        torch.npu.synchronize()
        check(out, batch.want(0))


@covers("Matmul", "Silu", "Add", "RmsNorm", "Embedding", "InplaceUniformTensor")
def test_replay_reads_what_is_there_when_it_runs():
    table, weight, gain = floats(20, 32).npu(), floats(32, 32, seed=1).npu(), floats(32, seed=2).npu()
    tokens, noise = torch.zeros(4, dtype=torch.int64, device="npu"), torch.zeros(1000, device="npu")

    def step():
        x = torch.nn.functional.embedding(tokens, table)
        y = torch_npu.npu_rms_norm(x, gain)[0] @ weight.t()
        return torch.nn.functional.silu(y) + x

    stream, graph = torch.npu.Stream(), torch.npu.NPUGraph()
    stream.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(stream):
        step()
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        out = step()
        noise.uniform_()
    seen = []
    for i in range(3):
        tokens.copy_(ints(4, low=0, high=20, seed=i))
        graph.replay()
        torch.npu.synchronize()
        assert torch.equal(out, step())
        seen.append(noise.cpu())
    assert not torch.equal(seen[0], seen[1]) and not torch.equal(seen[1], seen[2]), "each replay draws other numbers"
