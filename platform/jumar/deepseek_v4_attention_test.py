"""DeepSeek V4's compressor and attention on the device, against their formulas in float64, in caches of NaN but for what was written."""

from types import SimpleNamespace

import pytest
import torch

from jumar.deepseek_v4 import check
from jumar.deepseek_v4_attention import Compressor, DeepseekV4Attention, Indexer
from jumar.deepseek_v4_cache import DeepseekV4Cache, DeepseekV4Metadata, state_rows

BLOCK, TABLE, DIM, HEADS, WINDOW = 128, 3, 32, 4, 20
LENGTHS = [300, 131, 3]


def without_engine(cls, **attributes):
    """A module whose constructor wants a vLLM configuration."""
    module = cls.__new__(cls)
    torch.nn.Module.__init__(module)
    for name, value in attributes.items():
        object.__setattr__(module, name, value)
    return module


def cache(rows: int, width: int) -> DeepseekV4Cache:
    pages = torch.full((TABLE * len(LENGTHS) + 1, rows, 1, width), float("nan")).npu()
    return without_engine(DeepseekV4Cache, kv_cache=pages)


@pytest.fixture
def tables() -> torch.Tensor:
    torch.manual_seed(0)
    return (torch.randperm(TABLE * len(LENGTHS)) + 1).view(len(LENGTHS), TABLE).int()


def metadata(tables: torch.Tensor, olds: list[int], news: list[int]) -> DeepseekV4Metadata:
    return DeepseekV4Metadata(
        num_actual_tokens=sum(news),
        max_kv_len=max(LENGTHS),
        query_starts=torch.tensor([0, *news]).cumsum(0).int().npu(),
        kv_lens=(torch.tensor(olds) + torch.tensor(news)).int().npu(),
        block_table=tables.npu(),
        block_size=BLOCK,
    )


def rows_of(pages: torch.Tensor, table: torch.Tensor, count: int) -> torch.Tensor:
    return pages.cpu()[table.long()].flatten(0, 2)[:count]


def compress(ratio: int, ape: torch.Tensor, inputs: list[torch.Tensor], tables: torch.Tensor, chunk: int) -> list[torch.Tensor]:
    """The entries of sequences whose tokens come in chunks, all sequences at once."""
    width = ape.shape[1]
    entries = cache(BLOCK // ratio, DIM)
    compressor = without_engine(
        Compressor,
        ratio=ratio,
        head_dim=DIM,
        overlaps=state_rows(ratio) > ratio,
        ape=ape.npu(),
        fused_wkv_wgate=lambda x: (x, None),
        norm=lambda x: 2 * x,
        rotary_emb=lambda positions, x: (x + positions[:, None, None], None),
        state=cache(state_rows(ratio), 2 * width),
        entries=entries,
    )
    olds = [0] * len(inputs)
    while any(old < len(x) for old, x in zip(olds, inputs)):
        news = [min(chunk, len(x) - old) for old, x in zip(olds, inputs)]
        step = torch.cat([x[old : old + new] for old, new, x in zip(olds, news, inputs)])
        compressor(step.npu(), metadata(tables, olds, news))
        olds = [old + new for old, new in zip(olds, news)]
    return [rows_of(entries.kv_cache, table, len(x) // ratio) for table, x in zip(tables, inputs)]


@pytest.mark.parametrize("ratio", [4, 128])
def test_compression_is_the_formula_whatever_the_chunks(ratio, tables):
    width = DIM * (2 if ratio == 4 else 1)
    ape = torch.randn(ratio, width)
    inputs = [torch.randn(length, 2 * width) for length in (140, 131, 3)]
    whole = compress(ratio, ape, inputs, tables, 140)
    for got, x in zip(whole, inputs):
        values, scores = x.double().chunk(2, -1)
        scores = scores + ape.double()[torch.arange(len(x)) % ratio]
        for entry in range(len(x) // ratio):
            own = slice(entry * ratio, (entry + 1) * ratio)
            v, s = values[own, -DIM:], scores[own, -DIM:]
            if ratio == 4 and entry > 0:
                before = slice((entry - 1) * ratio, entry * ratio)
                v, s = torch.cat([values[before, :DIM], v]), torch.cat([scores[before, :DIM], s])
            want = 2 * (s.softmax(0) * v).sum(0) + entry * ratio
            assert torch.allclose(got[entry].double(), want, rtol=1e-6, atol=1e-5)
    for chunk in (1, 7, 64):
        assert all(map(torch.equal, compress(ratio, ape, inputs, tables, chunk), whole))


@pytest.mark.parametrize("ratio, listed", [(0, False), (4, True), (128, False)])
@pytest.mark.parametrize("olds", [[0, 0, 0], [299, 130, 2], [150, 0, 1]], ids=["prompts", "decode", "mixed"])
def test_attention_is_one_softmax_over_window_entries_and_sink(ratio, listed, olds, tables):
    torch.manual_seed(1)
    news = [length - old for length, old in zip(LENGTHS, olds)]
    tokens, entries, sinks = cache(BLOCK, DIM), cache(BLOCK // max(ratio, 1), DIM), torch.randn(HEADS)
    keys = [torch.randn(length, DIM) for length in LENGTHS]
    pools = [torch.randn(length // ratio, DIM) if ratio else torch.zeros(0, DIM) for length in LENGTHS]
    for table, key, pool, old in zip(tables, keys, pools, olds):
        positions, places = torch.arange(old), torch.arange(len(pool))
        tokens.write(key[:old].npu(), (table[positions // BLOCK].long() * BLOCK + positions % BLOCK).npu())
        if len(pool):
            rows = BLOCK // ratio
            entries.write(pool.npu(), (table[places // rows].long() * rows + places % rows).npu())
    query, batch = torch.randn(sum(news), HEADS, DIM), metadata(tables, olds, news)
    counts = batch.visible(ratio or 1).tolist()
    chosen = [torch.randperm(count)[:5].tolist() if listed else [*range(count if ratio else 0)] for count in counts]
    lists = torch.tensor([(some + [-1] * 5)[:5] for some in chosen], dtype=torch.int32)[:, None, None].npu() if listed else None
    positions = [position for old, length in zip(olds, LENGTHS) for position in range(old, length)]
    slots = torch.tensor([table[p // BLOCK].item() * BLOCK + p % BLOCK for table, old, length in zip(tables, olds, LENGTHS) for p in range(old, length)])
    layer = without_engine(
        DeepseekV4Attention, ratio=ratio, window=WINDOW, scale=DIM**-0.5, heads=HEADS, head_dim=DIM, tokens=tokens, entries=entries,
        attn_sink=sinks.npu(), compressor=(lambda *_: None) if ratio else None, indexer=(lambda *_: lists) if listed else None,
    )
    out = torch.full((sum(news), HEADS, DIM), float("nan")).npu()
    new_keys = torch.cat([key[old:] for key, old in zip(keys, olds)])
    unused = torch.zeros(sum(news), 1).npu()
    layer._attend(unused, unused, query.npu(), new_keys.npu(), torch.tensor(positions).npu(), batch, slots.npu(), out)
    row = 0
    for key, pool, old, new in zip(keys, pools, olds, news):
        seen, visible = torch.cat([key, pool]).double(), torch.zeros(new, len(key) + len(pool), dtype=torch.bool)
        for i, some in enumerate(chosen[row : row + new]):
            visible[i, max(0, old + i - WINDOW + 1) : old + i + 1] = True
            visible[i, [len(key) + entry for entry in some]] = True
        scores = torch.einsum("thd,kd->htk", query[row : row + new].double(), seen) * DIM**-0.5
        scores = torch.cat([scores.masked_fill(~visible, -torch.inf), sinks.double()[:, None, None].expand(-1, new, 1)], -1)
        want = torch.einsum("htk,kd->thd", scores.softmax(-1)[..., :-1], seen)
        assert torch.allclose(out[row : row + new].cpu().double(), want, rtol=1e-5, atol=1e-5)
        row += new


def test_the_indexer_lists_the_best_entries(tables):
    heads, top_k, length = 3, 6, 131
    keys, pool = cache(BLOCK // 4, DIM), torch.randn(length // 4, DIM)
    places = torch.arange(len(pool))
    keys.write(pool.npu(), (tables[0, places // 32].long() * 32 + places % 32).npu())
    query, weights = torch.randn(length, heads, DIM), torch.randn(length, heads)
    indexer = without_engine(
        Indexer, heads=heads, head_dim=DIM, top_k=top_k, scale=0.5, keys=keys, compressor=lambda *_: None,
        rotary_emb=lambda positions, x: (x, None), wq_b=lambda x: (x, None), weights_proj=lambda x: (x, None),
    )
    batch = metadata(tables[:1], [0], [length])
    got = indexer(weights.npu(), query.flatten(1).npu(), torch.arange(length).npu(), batch).cpu()[:, 0, 0]
    scores = torch.einsum("th,thk->tk", weights.double(), torch.einsum("thd,kd->thk", query.double(), pool.double()).relu())
    for position, listed in enumerate(got.tolist()):
        count = (position + 1) // 4
        best = scores[position, :count].topk(min(top_k, count)).values
        chosen, rest = listed[: len(best)], listed[len(best) :]
        assert len({*chosen}) == len(chosen) and all(0 <= entry < count for entry in chosen) and {*rest} <= {-1}
        # Values, as several are 0: no head's product is positive.
        assert torch.allclose(scores[position, chosen].sort(descending=True).values, best, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(cache_config=SimpleNamespace(cache_dtype="fp8_ds_mla")), "a KV cache in fp8_ds_mla is not supported"),
        (dict(speculative_config=object()), "speculative decoding is not supported"),
        (dict(quant_config=SimpleNamespace(get_name=lambda: "deepseek_v4_fp8")), "DeepSeek V4 in deepseek_v4_fp8 is not supported on npu; use an unq"),
    ],
)
def test_what_the_model_cannot_do_is_refused(change, message):
    plain = dict(cache_config=SimpleNamespace(cache_dtype="auto"), speculative_config=None, quant_config=None)
    check(SimpleNamespace(**plain))
    with pytest.raises(NotImplementedError, match=message):
        check(SimpleNamespace(**plain | change))
