"""An attention operator under measurement; subject.py says how it is talked to. It imports nothing of ours.

    settings: {"kind": "npu" (torch_npu's fused attention) | "torch" (scaled_dot_product_attention) | "vllm_cpu" (vLLM's CPU operator), "threads": n}
    request:  {"queries": [new tokens of each sequence], "keys": [its tokens], "heads", "kv_heads", "head_dim", "calls": timed calls}
    answer:   {"seconds": the fastest call's, "sums": the sum of each sequence's output}

All have the same bf16 numbers: pages of 128 tokens in any order for npu and vllm_cpu, each sequence's keys in one piece for torch.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

PAGE = 128


class Problem:
    """Queries [tokens, heads, dim] and, of each sequence, keys and values [keys, kv_heads, dim]; bf16."""

    def __init__(self, queries: list[int], keys: list[int], heads: int, kv_heads: int, head_dim: int, **_: Any) -> None:
        generator = torch.Generator().manual_seed(1)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).to(torch.bfloat16)

        self.queries, self.lengths = queries, keys
        self.heads, self.kv_heads, self.head_dim, self.scale = heads, kv_heads, head_dim, head_dim**-0.5
        self.query = normal(sum(queries), heads, head_dim)
        self.keys = [normal(n, kv_heads, head_dim) for n in keys]
        self.values = [normal(n, kv_heads, head_dim) for n in keys]
        pages = [-(-n // PAGE) for n in keys]
        order = torch.randperm(sum(pages), generator=generator).to(torch.int32)
        self.table = torch.zeros(len(keys), max(pages), dtype=torch.int32)
        for row, part in zip(self.table, order.split(pages)):
            row[: len(part)] = part

    def slots(self, sequence: int) -> torch.Tensor:
        positions = torch.arange(self.lengths[sequence])
        return self.table[sequence][positions // PAGE].long() * PAGE + positions % PAGE

    @property
    def ends(self) -> list[int]:
        return torch.tensor(self.queries).cumsum(0).tolist()


def npu(problem: Problem) -> Callable[[], torch.Tensor]:
    import torch_npu

    width = problem.kv_heads * problem.head_dim
    caches = [torch.zeros(problem.table.max() + 1, PAGE, width, dtype=torch.bfloat16) for _ in range(2)]
    for cache, parts in zip(caches, (problem.keys, problem.values)):
        for sequence, part in enumerate(parts):
            cache.view(-1, width)[problem.slots(sequence)] = part.view(-1, width)
    key, value = (cache.npu() for cache in caches)
    query, table = problem.query.npu(), problem.table.npu()
    mask = torch.ones(2048, 2048, dtype=torch.int8).triu(1).npu()

    def call() -> torch.Tensor:
        out, _ = torch_npu.npu_fused_infer_attention_score(
            query, key, value, num_heads=problem.heads, num_key_value_heads=problem.kv_heads, scale=problem.scale, input_layout="TND", block_table=table,
            block_size=PAGE, actual_seq_lengths=problem.ends, actual_seq_lengths_kv=problem.lengths, atten_mask=mask, sparse_mode=3,
        )
        torch.npu.synchronize()
        return out

    return call


def sdpa(problem: Problem) -> Callable[[], torch.Tensor]:
    parts = []
    for query, key, value in zip(problem.query.split(problem.queries), problem.keys, problem.values):
        # Right-down causal: a single query sees all; torch's own flag is for as many queries as keys.
        assert len(query) in (1, len(key)), "torch's causal mask starts at the left top"
        parts.append([t.transpose(0, 1).unsqueeze(0).contiguous() for t in (query, key, value)] + [len(query) > 1])

    def call() -> torch.Tensor:
        outs = [
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=problem.scale, enable_gqa=True)
            for q, k, v, causal in parts
        ]
        return torch.cat([out.squeeze(0).transpose(0, 1) for out in outs])

    return call


def vllm_cpu(problem: Problem) -> Callable[[], torch.Tensor]:
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    isa = _get_attn_isa(torch.bfloat16, PAGE, problem.head_dim)
    cache = torch.zeros(int(problem.table.max()) + 1, problem.kv_heads, 2 * PAGE, problem.head_dim, dtype=torch.bfloat16)
    key_cache, value_cache = cache.chunk(2, dim=2)
    for sequence, (key, value) in enumerate(zip(problem.keys, problem.values)):
        ops.cpu_attn_reshape_and_cache(key, value, key_cache, value_cache, problem.slots(sequence), isa)
    starts = torch.tensor([0, *problem.ends], dtype=torch.int32)
    lengths = torch.tensor(problem.lengths, dtype=torch.int32)
    plan = ops.cpu_attn_get_scheduler_metadata(
        num_reqs=len(problem.queries), num_heads=problem.heads, num_kv_heads=problem.kv_heads, head_dim=problem.head_dim, seq_lens=lengths,
        dtype=torch.bfloat16, query_start_loc=starts, causal=True, sliding_window_size=-1, isa=isa, enable_kv_split=True,
    )
    out = torch.empty_like(problem.query)

    def call() -> torch.Tensor:
        ops.cpu_attention_with_kv_cache(
            query=problem.query, key_cache=key_cache, value_cache=value_cache, output=out, query_start_loc=starts, seq_lens=lengths,
            scale=problem.scale, causal=True, alibi_slopes=None, sliding_window=-1, block_table=problem.table, softcap=0.0,
            scheduler_metadata=plan, s_aux=None,
        )
        return out

    return call


def main() -> None:
    settings = json.loads(sys.argv[2])
    make = {"npu": npu, "torch": sdpa, "vllm_cpu": vllm_cpu}[settings["kind"]]
    torch.set_num_threads(settings["threads"])
    answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")

    answer(version=torch.__version__)
    for line in sys.stdin:
        request = json.loads(line)
        problem = Problem(**request)
        call = make(problem)
        out, seconds = call(), []
        for _ in range(request["calls"]):
            start = time.perf_counter()
            out = call()
            seconds.append(time.perf_counter() - start)
        sums = [part.float().sum().item() for part in out.cpu().split(problem.queries)]
        answer(seconds=min(seconds), sums=sums)


if __name__ == "__main__":
    main()
