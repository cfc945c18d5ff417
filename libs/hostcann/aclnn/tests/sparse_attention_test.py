"""Sparse attention of DeepSeek V3.2: the lightning indexer and attention to selected tokens, against their formulas in float64."""

import pytest
import torch
import torch_npu
from oracle import EPS, close, covers, floats

FORMS = ("TND pages", "BSND pages", "BSND", "TND")  # of the queries, and of the keys if they aren't in pages
QUERIES, KEYS = (3, 1, 5), (300, 1, 70)  # of each sequence
BLOCK = 16


class Layout:
    """Where the tokens of sequences of QUERIES and KEYS lie in tensors of one of FORMS."""

    def __init__(self, form: str):
        self.form, self.paged, self.packed = form, form.endswith("pages"), form.startswith("TND")
        self.query_layout = "TND" if self.packed else "BSND"
        self.key_layout = "PA_BSND" if self.paged else self.query_layout
        lengths = [torch.tensor(n, dtype=torch.int32) for n in (QUERIES, KEYS)]
        self.query_lengths = lengths[0].cumsum(0).int() if self.packed else lengths[0]
        self.key_lengths = lengths[1].cumsum(0).int() if self.packed and not self.paged else lengths[1]
        blocks = [-(-n // BLOCK) for n in KEYS]
        order = torch.randperm(sum(blocks) + 2, generator=torch.Generator().manual_seed(5)).int()
        self.num_blocks = len(order)
        self.table = torch.full((len(KEYS), max(blocks) + 1), -1, dtype=torch.int32)
        for row, part in zip(self.table, order[: sum(blocks)].split(blocks)):
            row[: len(part)] = part

    def queries(self, rows: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(rows) if self.packed else torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    def keys(self, rows: list[torch.Tensor]) -> torch.Tensor:
        """[n, dim] per sequence to keys of one head; what belongs to no token is NaN, or all bits set."""
        if not self.paged:
            return (torch.cat(rows) if self.packed else torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)).unsqueeze(-2).contiguous()
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[rows[0].element_size()]
        pages = torch.full((self.num_blocks, BLOCK, *rows[0].shape[1:]), 255 if bits == torch.uint8 else -1, dtype=bits).view(rows[0].dtype)
        for row, blocks in zip(rows, self.table):
            for j in range(0, len(row), BLOCK):
                part = row[j : j + BLOCK]
                pages[blocks[j // BLOCK], : len(part)] = part
        return pages.unsqueeze(2) if rows[0].dim() > 1 else pages.unsqueeze(-1)

    def of_sequence(self, t: torch.Tensor, i: int) -> torch.Tensor:
        if not self.packed:
            return t[i, : QUERIES[i]]
        return t[sum(QUERIES[:i]) : sum(QUERIES[: i + 1])]

    def arguments(self, kind: str) -> dict:
        key = {"indexer": "key", "attention": "kv"}[kind]
        return {
            "actual_seq_lengths_query": self.query_lengths.npu(), f"actual_seq_lengths_{key}": self.key_lengths.npu(), "layout_query": self.query_layout,
            f"layout_{key}": self.key_layout, "block_table": self.table.npu() if self.paged else None,
        }


def per_sequence(counts, *shape, dtype=torch.float32, seed=0):
    return [floats(n, *shape, dtype=dtype, seed=seed + 10 * i) for i, n in enumerate(counts)]


def limit(i: int, query: int, causal: bool) -> int:
    return max(0, KEYS[i] - QUERIES[i] + query + 1) if causal else KEYS[i]


def check_indices(got, layout, scores, count, causal, error=1e-4):
    """Each row: as many of the best as there are, in descending order, then -1."""
    for i, score in enumerate(scores):
        rows = layout.of_sequence(got.cpu(), i).flatten(1).long()
        for q, row in enumerate(rows):
            visible = limit(i, q, causal)
            n = min(count, visible)
            assert (row[n:] == -1).all(), f"sequence {i} query {q}: {row[n:]}"
            assert ((row[:n] >= 0) & (row[:n] < visible)).all() and row[:n].unique().numel() == n
            chosen = score[q][row[:n]]
            assert (chosen.diff() <= error).all()
            rest = score[q][:visible].clone()
            rest[row[:n]] = -torch.inf
            assert n == 0 or rest.max() <= chosen.min() + error


def index_scores(q, k, w):
    return [torch.einsum("qh,qhs->qs", c.double(), (a.double() @ b.double().T).relu()) for a, b, c in zip(q, k, w)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("causal", [True, False])
@covers("LightningIndexer")
def test_lightning_indexer(form, causal):
    layout, heads = Layout(form), 8
    for dtype, weights_type in ((torch.bfloat16, torch.bfloat16), (torch.float16, torch.float16), (torch.bfloat16, torch.float32)):
        q, k, w = (per_sequence(n, *s, dtype=t, seed=i) for i, (n, s, t) in enumerate(((QUERIES, (heads, 128), dtype), (KEYS, (128,), dtype), (QUERIES, (heads,), weights_type))))
        for count in (1, 64, 2048):
            indices, _ = torch_npu.npu_lightning_indexer(layout.queries(q).npu(), layout.keys(k).npu(), layout.queries(w).npu(), sparse_count=count,
                                                         sparse_mode=3 if causal else 0, **layout.arguments("indexer"))
            check_indices(indices, layout, index_scores(q, k, w), count, causal)


@covers("LightningIndexer")
def test_lightning_indexer_gives_scores():
    layout, heads = Layout("TND"), 8
    q, k, w = (per_sequence(n, *s, dtype=torch.bfloat16, seed=i) for i, (n, s) in enumerate(((QUERIES, (heads, 128)), (KEYS, (128,)), (QUERIES, (heads,)))))
    indices, values = torch_npu.npu_lightning_indexer(layout.queries(q).npu(), layout.keys(k).npu(), layout.queries(w).npu(), sparse_count=32, sparse_mode=3,
                                                      return_value=True, **layout.arguments("indexer"))
    for i, score in enumerate(index_scores(q, k, w)):
        rows, got = layout.of_sequence(indices.cpu(), i).flatten(1).long(), layout.of_sequence(values.cpu(), i).flatten(1)
        for q_index, (row, value) in enumerate(zip(rows, got)):
            n = min(32, limit(i, q_index, True))
            close([value[:n]], [score[q_index][row[:n]]], absolute=1e-4)
            assert (value[n:] == -torch.inf).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("format", [torch.int8, torch.float8_e4m3fn])
@covers("QuantLightningIndexer")
def test_quant_lightning_indexer(form, format):
    layout, heads = Layout(form), 8
    scale_type = torch.float16 if format == torch.int8 else torch.float32
    weights_type = torch.float16 if format == torch.int8 else torch.bfloat16

    def codes(counts, *shape, seed):
        return [(t * 40).round().to(format) for t in per_sequence(counts, *shape, seed=seed)]

    q, k = codes(QUERIES, heads, 128, seed=0), codes(KEYS, 128, seed=1)
    w = per_sequence(QUERIES, heads, dtype=weights_type, seed=2)
    q_scale, k_scale = ([t.abs().add(0.5).div(64).to(scale_type) for t in per_sequence(n, *s, seed=3)] for n, s in ((QUERIES, (heads,)), (KEYS, ())))
    wide_q = [a.double() * b.double().unsqueeze(-1) for a, b in zip(q, q_scale)]
    wide_k = [a.double() * b.double().unsqueeze(-1) for a, b in zip(k, k_scale)]
    got = torch_npu.npu_quant_lightning_indexer(
        layout.queries(q).npu(), layout.keys(k).npu(), layout.queries(w).npu(), layout.queries(q_scale).npu(),
        layout.keys(k_scale).npu() if layout.paged else layout.queries(k_scale).unsqueeze(-1).npu(), 0, 0, sparse_count=64, sparse_mode=3, **layout.arguments("indexer"))
    check_indices(got, layout, index_scores(wide_q, wide_k, w), 64, True, error=1e-3)


def random_lists(layout, count, block, heads=1):
    """For each query a list with -1 behind, some of whose entries lie behind the query."""
    lists = []
    for i, queries in enumerate(QUERIES):
        rows = torch.full((queries, heads, count), -1, dtype=torch.int32)
        for q in range(queries):
            entries = -(-KEYS[i] // block)
            n = min(entries, count - q % 2)
            rows[q, 0, :n] = torch.randperm(entries, generator=torch.Generator().manual_seed(q))[:n].int()
        lists.append(rows)
    return lists


def sparse_reference(q, k, v, lists, block, causal, scale, sinks=None):
    """The output, what bounds its error, and lse. A score errs by dim eps32 sum|q k|, which moves a probability by as much relatively."""
    outs, bounds, lses = [], [], []
    for i, (a, b, c, rows) in enumerate(zip(q, k, v, lists)):
        out, lse = torch.zeros(*a.shape[:2], c.shape[-1], dtype=torch.float64), torch.full(a.shape[:2], torch.inf, dtype=torch.float64)
        bound = torch.zeros_like(out)
        for j in range(len(a)):
            keep = [s for s in range(limit(i, j, causal)) if s // block in rows[j, 0].tolist()]
            score = scale * a[j].double() @ b[keep].double().T
            if sinks is not None:
                score = torch.cat([score, sinks.double()[:, None]], -1)
            if score.shape[-1] == 0:
                continue
            lse[j] = score.logsumexp(-1)
            p, values = score.softmax(-1)[:, : len(keep)], c[keep].double()
            out[j] = p @ values
            spread = scale * (a[j].double().abs() @ b[keep].double().abs().T).amax() if keep else 0
            bound[j] = EPS[torch.float32] * (2 * (a.shape[-1] + 4) * spread + len(keep) + 8) * (p @ values.abs())
        outs.append(out)
        bounds.append(bound)
        lses.append(lse)
    return outs, bounds, lses


def check_rows(got, layout, want):
    for i, (rows, bound) in enumerate(zip(want[0], want[1])):
        close(layout.of_sequence(got.cpu(), i), rows, absolute=bound)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block", [1, 16])
@covers("SparseFlashAttention")
def test_sparse_flash_attention(form, block):
    layout, heads, scale = Layout(form), 4, 0.07
    for dtype in (torch.bfloat16, torch.float16):
        for causal in (True, False):
            q, k = per_sequence(QUERIES, heads, 576, dtype=dtype, seed=1), per_sequence(KEYS, 576, dtype=dtype, seed=2)
            lists = random_lists(layout, 40 if block == 1 else 5, block)
            latent, rope = ([t.split([512, 64], -1)[n].contiguous() for t in k] for n in (0, 1))
            arguments = {
                "query_rope": layout.queries([t[..., 512:].contiguous() for t in q]).npu(), "key_rope": layout.keys(rope).npu(),
                "sparse_block_size": block, "sparse_mode": 3 if causal else 0, "attention_mode": 2, **layout.arguments("attention"),
            }
            keys = layout.keys(latent).npu()
            out, top, total = torch_npu.npu_sparse_flash_attention(
                layout.queries([t[..., :512].contiguous() for t in q]).npu(), keys, keys, layout.queries(lists).npu(), scale,
                return_softmax_lse=not layout.paged, **arguments)
            want = sparse_reference(q, k, latent, lists, block, causal, scale)
            check_rows(out, layout, want)
            if not layout.paged:
                lse = (top + total.log()).cpu()
                lse = lse.view(-1, heads) if layout.packed else lse.view(len(QUERIES), max(QUERIES), heads)
                for i, rows in enumerate(want[2]):
                    close([layout.of_sequence(lse, i)], [rows], absolute=2e-5)


@covers("SparseFlashAttentionV2")
def test_sparse_flash_attention_with_sinks():
    layout, heads, scale = Layout("TND pages"), 8, 0.07
    q, k = per_sequence(QUERIES, heads, 576, dtype=torch.bfloat16, seed=1), per_sequence(KEYS, 576, dtype=torch.bfloat16, seed=2)
    lists, sinks = random_lists(layout, 40, 1), floats(heads, seed=3) * 3
    keys = layout.keys([t[:, :512].contiguous() for t in k]).npu()
    out, _, _ = torch_npu.npu_sparse_flash_attention(
        layout.queries([t[..., :512].contiguous() for t in q]).npu(), keys, keys, layout.queries(lists).npu(), scale, attention_mode=2, sinks=sinks.npu(),
        query_rope=layout.queries([t[..., 512:].contiguous() for t in q]).npu(), key_rope=layout.keys([t[:, 512:].contiguous() for t in k]).npu(),
        **layout.arguments("attention"))
    check_rows(out, layout, sparse_reference(q, k, [t[:, :512] for t in k], lists, 1, True, scale, sinks))


def packed_rows(counts, dtype, format, seed):
    """Rows of 656 bytes, and the numbers that they stand for: 512 of code * scale, rounded, and 64."""
    rows, numbers = [], []
    for codes, scales, rope in zip(per_sequence(counts, 512, seed=seed), per_sequence(counts, 4, seed=seed + 1), per_sequence(counts, 64, dtype=dtype, seed=seed + 2)):
        codes = (codes * 60).round().to(format)
        scales = scales.abs().add(0.1) / 32
        rows.append(torch.cat([codes.view(torch.uint8), rope.view(torch.uint8), scales.view(torch.uint8)], -1).view(format))
        numbers.append(torch.cat([(codes.float() * scales.repeat_interleave(128, -1)).to(dtype), rope], -1))
    return rows, numbers


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("format", [torch.int8, torch.float8_e4m3fn])
@covers("KvQuantSparseFlashAttention")
def test_kv_quant_sparse_flash_attention(form, format):
    layout, heads, scale = Layout(form), 8, 0.07
    for dtype in (torch.bfloat16, torch.float16):
        q, (rows, numbers) = per_sequence(QUERIES, heads, 576, dtype=dtype, seed=1), packed_rows(KEYS, dtype, format, seed=2)
        lists, keys = random_lists(layout, 40, 1), layout.keys(rows).npu()
        out = torch_npu.npu_kv_quant_sparse_flash_attention(
            layout.queries(q).npu(), keys, keys, layout.queries(lists).npu(), scale, 2, 2, attention_mode=2, **layout.arguments("attention"))
        check_rows(out, layout, sparse_reference(q, numbers, [t[:, :512] for t in numbers], lists, 1, True, scale))


def test_wrong_calls_are_explained():
    layout, heads = Layout("TND pages"), 8
    q, k = layout.queries(per_sequence(QUERIES, heads, 128, dtype=torch.bfloat16)).npu(), layout.keys(per_sequence(KEYS, 128, dtype=torch.bfloat16)).npu()
    w = layout.queries(per_sequence(QUERIES, heads, dtype=torch.bfloat16)).npu()
    good = {"sparse_count": 8, **layout.arguments("indexer")}
    for change, message in (
        ({"sparse_mode": 2}, "sparse_mode is 2; it must be 0"),
        ({"block_table": None}, "block_table is missing; layout PA_BSND needs it"),
        ({"actual_seq_lengths_query": None}, "actual_seq_lengths_query is missing; layout TND needs it"),
        ({"block_table": layout.table[:2].contiguous().npu()}, r"it must be int32 \[3, blocks\]"),
        ({"pre_tokens": 5}, "pre_tokens is 5"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch_npu.npu_lightning_indexer(q, k, w, **{**good, **change})
            torch.npu.synchronize()
    for lengths, message in (([3, 2, 9], r"actual_seq_lengths_query\[1\] is 2"), ([3, 4, 10], r"actual_seq_lengths_query\[2\] is 10; query has 9 tokens")):
        with pytest.raises(RuntimeError, match=message):
            torch_npu.npu_lightning_indexer(q, k, w, **{**good, "actual_seq_lengths_query": torch.tensor(lengths, dtype=torch.int32).npu()})
            torch.npu.synchronize()
