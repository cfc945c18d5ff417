"""The attention backend against softmax attention in float64, over paged mixed batches."""

import pytest
import torch

from jumar.attention import AscendAttentionImpl, AscendMetadata

BLOCK = 16
HEADS, KV_HEADS, HEAD_SIZE = 6, 2, 32


def reference(query, keys, values, scale, window, sinks=None):
    """query [T, heads, d] are the last T of the tokens that keys and values [S, kv_heads, d] hold. sinks [heads]: scores without a value."""
    group = query.shape[1] // keys.shape[1]
    k = keys.double().repeat_interleave(group, dim=1)
    v = values.double().repeat_interleave(group, dim=1)
    scores = torch.einsum("thd,shd->hts", query.double(), k) * scale
    position = torch.arange(len(keys) - len(query), len(keys))[:, None]
    distance = position - torch.arange(len(keys))[None]
    hidden = distance < 0
    if window is not None:
        hidden |= distance >= window
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, len(query), 1)], -1)
    probabilities = scores.softmax(-1)[..., : len(keys)]
    return torch.einsum("hts,shd->thd", probabilities, v)


def run(dtype, requests, window=None, padding_rows=0, with_sinks=False):
    """requests: (new tokens, computed tokens). Returns what the backend wrote and what it should have."""
    torch.manual_seed(0)
    sinks = 2 * torch.randn(HEADS).to(dtype) if with_sinks else None
    impl = AscendAttentionImpl(
        HEADS, HEAD_SIZE, HEAD_SIZE**-0.5, KV_HEADS, sliding_window=window, sinks=sinks.npu() if with_sinks else None
    )
    max_blocks = max(-(-(new + old) // BLOCK) for new, old in requests)
    num_blocks = len(requests) * max_blocks + 3
    # As vLLM hands it over: logical [blocks, kv_heads, block, 2 * d] over memory [blocks, block, kv_heads, 2 * d].
    cache = torch.full((num_blocks, BLOCK, KV_HEADS, 2 * HEAD_SIZE), float("nan"), dtype=dtype).npu().transpose(1, 2)
    table = torch.randperm(num_blocks)[: len(requests) * max_blocks].view(len(requests), max_blocks)
    queries, wants, ends = [], [], []
    for row, (new, old) in enumerate(requests):
        total = new + old
        keys, values = (torch.randn(total, KV_HEADS, HEAD_SIZE).to(dtype) for _ in range(2))
        positions = torch.arange(total)
        slots = table[row, positions // BLOCK] * BLOCK + positions % BLOCK
        impl.do_kv_cache_update(None, keys.npu(), values.npu(), cache, slots.npu())
        queries.append(torch.randn(new, HEADS, HEAD_SIZE).to(dtype))
        wants.append(reference(queries[-1], keys, values, impl.scale, window, sinks))
        ends.append(new + (ends[-1] if ends else 0))
    query = torch.cat(queries + [torch.randn(padding_rows, HEADS, HEAD_SIZE).to(dtype)])
    metadata = AscendMetadata(
        num_actual_tokens=len(query),
        query_ends=ends + [ends[-1] + 1 + i for i in range(padding_rows)],
        kv_lens=[new + old for new, old in requests] + [0] * padding_rows,
        block_table=torch.cat([table, table[:1].expand(padding_rows, -1)]).to(torch.int32).npu(),
        slot_mapping=torch.empty(0),
        causal=True,
    )
    output = torch.full_like(query, float("nan")).npu()
    impl.forward(None, query.npu(), None, None, cache, metadata, output)
    return output.cpu(), torch.cat(wants)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([(33, 0)], id="prefill"),
        pytest.param([(1, 40), (1, 0), (1, 15), (1, 16)], id="decode"),
        pytest.param([(7, 30), (1, 77), (20, 0), (16, 16)], id="mixed"),
    ],
)
@pytest.mark.parametrize("window", [None, 1, 20])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_equals_softmax_attention(dtype, requests, window, with_sinks):
    got, want = run(dtype, requests, window, with_sinks=with_sinks)
    # Convex combinations of values: one rounding of the result, and float32 softmax over at most 78 keys.
    bound = (torch.finfo(dtype).eps + 128 * torch.finfo(torch.float32).eps) * want.abs().max().item()
    assert (got.double() - want).abs().max().item() <= bound


def test_padding_rows_are_zero():
    got, want = run(torch.float32, [(1, 40), (1, 3)], padding_rows=2)
    assert torch.equal(got[2:], torch.zeros_like(got[2:]))
    assert (got[:2].double() - want).abs().max().item() <= 1e-5


SINKS = torch.zeros(HEADS)


@pytest.mark.parametrize(
    "unsupported",
    [
        dict(alibi_slopes=[0.5]),
        dict(logits_soft_cap=30.0),
        dict(attn_type="encoder"),
        dict(sinks=SINKS, head_size=192),
        dict(sinks=SINKS, kv_cache_dtype="int8_per_token_head"),
    ],
)
def test_refuses_what_it_cannot_compute(unsupported):
    with pytest.raises(NotImplementedError, match="not supported by attention on npu"):
        AscendAttentionImpl(HEADS, **dict(head_size=HEAD_SIZE, scale=1.0, num_kv_heads=KV_HEADS) | unsupported)
