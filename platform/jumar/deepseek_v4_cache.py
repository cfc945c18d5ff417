"""Caches of DeepSeek V4's attention, and what a batch sees of them.

All caches of all layers share one block table, as vLLM's hybrid cache manager is off on npu. A block of ``block_size`` tokens has in

    a window's cache       a row for each token
    a cache of entries     a row for each group of ``ratio`` tokens, of the group's last token on
    a compressor's state   a ring: the row of position p is p % rows, so the last tokens of a full block stay, and can be found by another
                           request that shares the block (prefix caching). Later calls read no more than the last ``rows - 1`` tokens before them.

Everything is computed on the device from vLLM's lengths, of shapes that the numbers of tokens and requests give, so that a decode step can be
captured in a graph. Tokens that pad a step belong to no request: they see nothing and are written nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.platforms import current_platform
from vllm.v1.attention.backend import AttentionBackend, AttentionCGSupport, AttentionMetadataBuilder, CommonAttentionMetadata
from vllm.v1.attention.backends.registry import register_backend
from vllm.v1.kv_cache_interface import KVCacheSpec, MLAAttentionSpec

from jumar.attention import KV_BLOCK_SIZE
from jumar.mla import AscendMLABackend

NOWHERE = -1  # as a slot: isn't written; in a list of keys: none


def state_rows(ratio: int) -> int:
    """Tokens of which an entry is made: with ratio 4 the group before it, too."""
    return 2 * ratio if ratio == 4 else ratio


@dataclass
class Compression:
    """The entries that this step completes, ``entries`` of them at most; of the rows behind them nothing is kept."""

    entry_positions: torch.Tensor  # int64 [entries], of the first token of the group
    entry_slots: torch.Tensor  # int64 [entries]
    exists: torch.Tensor  # bool [entries, tokens of an entry, 1]: not before the sequence's begin
    is_new: torch.Tensor  # bool, likewise: a token of this step; else it is in the state
    new_rows: torch.Tensor  # int64 [entries, tokens of an entry]
    state_rows: torch.Tensor  # int64, likewise
    bias_rows: torch.Tensor  # int64 [tokens of the step]: position in the group
    kept_slots: torch.Tensor  # int64 [tokens of the step]: of the state


@dataclass
class DeepseekV4Metadata:
    """One batch."""

    num_actual_tokens: int
    max_kv_len: int
    query_starts: torch.Tensor  # int32 [requests + 1], prefix sums of the new tokens
    kv_lens: torch.Tensor  # int32 [requests], new tokens included
    block_table: torch.Tensor  # int32 [requests, blocks]
    block_size: int
    # What layers of the same kind share, made by the first of them: in a capture, it is part of the graph.
    _shared: dict = field(default_factory=dict)

    def graph_lengths(self) -> dict[str, list[int]]:
        """A captured step has no host lengths."""
        return {}

    def _once(self, name: str, make, *arguments: int):
        key = (name, *arguments)
        if key not in self._shared:
            self._shared[key] = make(*arguments)
        return self._shared[key]

    @property
    def query_ends(self) -> torch.Tensor:
        """int32 [requests]"""
        return self.query_starts[1:]

    @property
    def requests(self) -> torch.Tensor:
        """The request of each token, int64 [tokens]."""
        return self._once("requests", lambda: _owners(self.query_ends, self.num_actual_tokens))

    @property
    def positions(self) -> torch.Tensor:
        """The position of each token, int64 [tokens]; -1 for padding."""
        return self._once("positions", self._positions)

    def _positions(self) -> torch.Tensor:
        tokens = self._count(self.num_actual_tokens)
        positions = tokens + (self.kv_lens - self.query_ends).long()[self.requests]
        return torch.where(tokens < self.query_ends[-1], positions, -1)

    @property
    def token_tables(self) -> torch.Tensor:
        """The block table of each token's request, int32 [tokens, blocks]."""
        return self._once("token_tables", lambda: self.block_table[self.requests].contiguous())

    def visible(self, ratio: int) -> torch.Tensor:
        """How many entries of ``ratio`` tokens there are up to each token, itself included, int32 [tokens]."""
        return self._once("visible", lambda r: ((self.positions + 1) // r).int(), ratio)

    def all_entries(self, ratio: int) -> torch.Tensor:
        """The entries that each token sees, int32 [tokens, 1, 1, most], NOWHERE behind them."""
        return self._once("entries", self._all_entries, ratio)

    def _all_entries(self, ratio: int) -> torch.Tensor:
        entries = self._count(max(1, self.max_kv_len // ratio)).int()
        return torch.where(entries < self.visible(ratio).unsqueeze(1), entries, NOWHERE)[:, None, None]

    def window(self, size: int) -> torch.Tensor:
        """The last ``size`` tokens up to each, itself included, int32 [tokens, 1, 1, size], NOWHERE behind them."""
        return self._once("window", self._window, size)

    def _window(self, size: int) -> torch.Tensor:
        last = self.positions.unsqueeze(1)
        keys = (last - size + 1).clamp(min=0) + self._count(size)
        return torch.where(keys <= last, keys, NOWHERE).int()[:, None, None]

    def compression(self, ratio: int) -> Compression:
        return self._once("compression", self._compression, ratio)

    def _compression(self, ratio: int) -> Compression:
        terms = rows = state_rows(ratio)
        tokens, requests = self.num_actual_tokens, len(self.kv_lens)
        starts, kv_lens = self.query_starts[:-1].long(), self.kv_lens.long()
        contexts = kv_lens - (self.query_ends.long() - starts)
        first, counts = contexts // ratio, kv_lens // ratio - contexts // ratio
        ends = counts.cumsum(0)
        places = self._count(min(tokens, tokens // ratio + requests))
        owners = _owners(ends, len(places))
        entries = places + (first - ends + counts)[owners]
        is_entry = places < ends[-1]
        entries = torch.where(is_entry, entries, 0)

        positions = ((entries + 1) * ratio - terms).unsqueeze(1) + self._count(terms)
        new_rows = positions + (starts - contexts)[owners].unsqueeze(1)
        own = self.positions.clamp(min=0)
        stays = (own + rows >= kv_lens[self.requests]) | ((own + rows) // self.block_size != own // self.block_size)
        kept = self._slots(self.requests, own, own % rows, rows)
        in_block = entries % (self.block_size // ratio)
        entry_slots = self._slots(owners, entries * ratio, in_block, self.block_size // ratio)
        return Compression(
            entry_positions=entries * ratio,
            entry_slots=torch.where(is_entry, entry_slots, NOWHERE),
            exists=(positions >= 0).unsqueeze(-1),
            is_new=(positions >= contexts[owners].unsqueeze(1)).unsqueeze(-1),
            new_rows=new_rows.clamp(0, tokens - 1),
            state_rows=self._slots(owners.unsqueeze(1), positions.clamp(min=0), positions.clamp(min=0) % rows, rows),
            bias_rows=own % ratio,
            kept_slots=torch.where(stays & (self.positions >= 0), kept, NOWHERE),
        )

    def _slots(self, requests: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, block_rows: int) -> torch.Tensor:
        """Row ``rows`` of the blocks of these positions, counted from the cache's begin; a block has ``block_rows``."""
        blocks = (positions // self.block_size).clamp(max=self.block_table.shape[1] - 1)
        return self.block_table[requests, blocks].long() * block_rows + rows

    def _count(self, n: int) -> torch.Tensor:
        return torch.arange(n, device=self.block_table.device)


def largest_batch(vllm_config: VllmConfig, tokens: int) -> DeepseekV4Metadata:
    """A batch that takes as much memory as any of so many tokens: the longest prompts, and as many requests as there may be. All in block 0."""
    device, block_size = current_platform.device_type, vllm_config.cache_config.block_size
    requests, most = vllm_config.scheduler_config.max_num_seqs, vllm_config.model_config.max_model_len
    lengths = (tokens - most * torch.arange(requests, device=device)).clamp(0, most).int()
    return DeepseekV4Metadata(
        num_actual_tokens=tokens,
        max_kv_len=most,
        query_starts=torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
        kv_lens=lengths,
        block_table=torch.zeros(requests, -(-most // block_size), dtype=torch.int32, device=device),
        block_size=block_size,
    )


def _owners(ends: torch.Tensor, count: int) -> torch.Tensor:
    """Of ``count`` things, whose those before ends[0], ends[1], ... are, int64; those behind the last end are the last one's, too."""
    return (torch.arange(count, device=ends.device).unsqueeze(1) >= ends[:-1]).sum(1)


class DeepseekV4MetadataBuilder(AttentionMetadataBuilder[DeepseekV4Metadata]):
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> DeepseekV4Metadata:
        common = common_attn_metadata
        return DeepseekV4Metadata(
            num_actual_tokens=common.num_actual_tokens,
            max_kv_len=common.max_seq_len,
            query_starts=common.query_start_loc,
            kv_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            block_size=self.kv_cache_spec.block_size,
        )


@register_backend("ASCEND_DEEPSEEK_V4", "jumar.deepseek_v4_cache.AscendDeepseekV4Backend")
class AscendDeepseekV4Backend(AscendMLABackend):
    """Any of the caches; the layers compute by themselves (jumar.deepseek_v4_attention)."""

    @staticmethod
    def get_name() -> str:
        return "ASCEND_DEEPSEEK_V4"

    @staticmethod
    def get_builder_cls() -> type[DeepseekV4MetadataBuilder]:
        return DeepseekV4MetadataBuilder


class DeepseekV4Cache(torch.nn.Module, AttentionLayerBase):
    """Rows [head_dim] of the model's dtype: one for each ``tokens_per_row`` tokens of a block, or a ring of ``rows_per_block``."""

    def __init__(
        self, prefix: str, head_dim: int, tokens_per_row: int = 1, rows_per_block: int | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.vllm_config = get_current_vllm_config()
        self.prefix, self.head_dim, self.dtype = prefix, head_dim, dtype or self.vllm_config.model_config.dtype
        self.tokens_per_row, self.rows_per_block = tokens_per_row, rows_per_block
        self.kv_cache = torch.tensor([])
        self.vllm_config.compilation_config.static_forward_context[prefix] = self

    @property
    def is_bound(self) -> bool:
        return self.kv_cache.numel() > 0

    @property
    def pages(self) -> torch.Tensor:
        """[blocks, rows, 1, head_dim]; before there is a cache, one block of zeros."""
        if self.is_bound:
            return self.kv_cache
        rows = self.get_kv_cache_spec(self.vllm_config).num_states
        return torch.zeros(1, rows, 1, self.head_dim, dtype=self.dtype, device=current_platform.device_type)

    def bind_kv_cache(self, kv_cache: torch.Tensor) -> None:
        """kv_cache: [blocks, 1, rows, head_dim]; kept as [blocks, rows, 1, head_dim], the operators' layout."""
        self.kv_cache = kv_cache.transpose(1, 2)

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> KVCacheSpec:
        block_size = vllm_config.cache_config.block_size
        unit = self.rows_per_block or self.tokens_per_row
        if block_size % unit:
            raise ValueError(f"block size {block_size} is not a multiple of {unit}, which {self.prefix} needs; use --block-size {KV_BLOCK_SIZE}")
        return MLAAttentionSpec(
            block_size=block_size,
            num_kv_heads=1,
            max_tp_shards=1,
            head_size=self.head_dim,
            dtype=self.dtype,
            tokens_per_state=block_size // unit if self.rows_per_block else unit,
        )

    def get_attn_backend(self) -> type[AttentionBackend]:
        return AscendDeepseekV4Backend

    def write(self, rows: torch.Tensor, slots: torch.Tensor) -> None:
        """Rows [n, head_dim] to their slots [n], counted from the cache's begin; NOWHERE is skipped."""
        import torch_npu

        pages = self.pages
        rows = rows.to(pages.dtype).unsqueeze(1).contiguous()
        torch_npu.npu_scatter_pa_kv_cache(rows, rows, pages, pages, slots, cache_mode="Norm")
