"""Sparse latent attention (DeepSeek V3.2, GLM-5): an indexer selects tokens, and attention goes over those.

Each layer has two caches: that of latent attention (jumar.mla), and the indexer's keys ``[blocks, block_size, 1, index_head_dim]`` in the
model's dtype. torch_npu's lightning indexer scores the cached keys and gives the best ``index_topk`` of each token; its sparse flash attention
reads those latents only. Both take the lengths from the device, for prompts and decoding alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.mla import MLAModules, MultiHeadLatentAttentionWrapper
from vllm.v1.attention.backend import AttentionBackend, AttentionCGSupport, AttentionLayer, AttentionMetadataBuilder, CommonAttentionMetadata
from vllm.v1.attention.backends.registry import register_backend
from vllm.v1.kv_cache_interface import KVCacheSpec, MLAAttentionSpec

from jumar import mla_prolog
from jumar.attention import SPARSE_MODE_RIGHT_DOWN_CAUSAL
from jumar.mla import AscendMLABackend, AscendMLAImpl

if TYPE_CHECKING:
    from vllm.model_executor.models.deepseek_v2 import DeepseekV32IndexerCache, Indexer

# Value of the operator's attention_mode: the values are the first part of the keys (torch_npu, npu_sparse_flash_attention).
ATTENTION_MODE_ABSORBED = 2


@dataclass
class AscendSparseMLAMetadata:
    """One batch. vLLM's MLAAttention reads the counts: all tokens are computed in the latent space, as those of decoding are."""

    num_actual_tokens: int
    query_ends: torch.Tensor  # int32 [requests], prefix sums of the new tokens, without the leading 0
    kv_lens: torch.Tensor  # int32 [requests], new tokens included
    block_table: torch.Tensor  # int32 [requests, max_blocks]
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int = 0
    prefill: None = None

    def graph_lengths(self) -> dict[str, list[int]]:
        """A captured step has no host lengths."""
        return {}

    def arguments(self, keys: str) -> dict[str, Any]:
        """What both operators are told of the batch; ``keys`` is how they name the keys."""
        return {
            "actual_seq_lengths_query": self.query_ends,
            f"actual_seq_lengths_{keys}": self.kv_lens,
            "block_table": self.block_table,
            "layout_query": "TND",
            f"layout_{keys}": "PA_BSND",
            "sparse_mode": SPARSE_MODE_RIGHT_DOWN_CAUSAL,
        }


class AscendSparseMLAMetadataBuilder(AttentionMetadataBuilder[AscendSparseMLAMetadata]):
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> AscendSparseMLAMetadata:
        common = common_attn_metadata
        return AscendSparseMLAMetadata(
            num_actual_tokens=common.num_actual_tokens,
            query_ends=common.query_start_loc[1:],
            kv_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            num_decodes=common.num_reqs,
            num_decode_tokens=common.num_actual_tokens,
        )


@register_backend("ASCEND_SPARSE_MLA", "jumar.sparse_mla.AscendSparseMLABackend")
class AscendSparseMLABackend(AscendMLABackend):
    """Causal MLA over selected tokens of a paged cache of latents, fp16, bf16 and fp32."""

    @staticmethod
    def get_name() -> str:
        return "ASCEND_SPARSE_MLA"

    @classmethod
    def is_sparse(cls) -> bool:
        return True

    @staticmethod
    def get_impl_cls() -> type[AscendSparseMLAImpl]:
        return AscendSparseMLAImpl

    @staticmethod
    def get_builder_cls() -> type[AscendSparseMLAMetadataBuilder]:
        return AscendSparseMLAMetadataBuilder


@register_backend("ASCEND_INDEXER", "jumar.sparse_mla.AscendIndexerBackend")
class AscendIndexerBackend(AscendSparseMLABackend):
    """The cache of an indexer's keys."""

    @staticmethod
    def get_name() -> str:
        return "ASCEND_INDEXER"


class AscendIndexerCache(torch.nn.Module, AttentionLayerBase):
    """The cache of an indexer's keys, in the model's dtype. Takes the place of vLLM's, which has codes and scales."""

    def __init__(self, replaced: DeepseekV32IndexerCache, head_dim: int) -> None:
        super().__init__()
        self.kv_cache = torch.tensor([])
        self.head_dim = head_dim
        self.prefix = replaced.prefix
        get_current_vllm_config().compilation_config.static_forward_context[self.prefix] = self

    def bind_kv_cache(self, kv_cache: torch.Tensor) -> None:
        """kv_cache: [blocks, 1, block_size, head_dim]."""
        self.kv_cache = kv_cache.transpose(1, 2)

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> KVCacheSpec:
        block_size, dtype = vllm_config.cache_config.block_size, vllm_config.model_config.dtype
        return MLAAttentionSpec(block_size=block_size, num_kv_heads=1, max_tp_shards=1, head_size=self.head_dim, dtype=dtype)

    def get_attn_backend(self) -> type[AttentionBackend]:
        return AscendIndexerBackend


class AscendIndexer:
    """vLLM's indexer, whose weights it uses, with torch_npu's operator and a cache in the model's dtype."""

    def __init__(self, weights: Indexer) -> None:
        self.weights = weights
        self.topk_tokens = weights.topk_tokens
        weights.k_cache = AscendIndexerCache(weights.k_cache, weights.head_dim)

    def __call__(
        self, hidden_states: torch.Tensor, latent_query: torch.Tensor, positions: torch.Tensor, rotary_emb: torch.nn.Module
    ) -> torch.Tensor:
        """Writes the keys of hidden_states [tokens, hidden] to the cache and the tokens that each token selects, -1 behind them, to the
        model's buffer, int32 [max_tokens, index_topk], which it returns. latent_query: [tokens, q_lora_rank]."""
        import torch_npu

        weights, buffer = self.weights, self.weights.topk_indices_buffer
        context = get_forward_context()
        if context.attn_metadata is None:  # the profiling run has no cache yet
            return buffer
        query, key, head_weights = self._project(hidden_states, latent_query, positions, rotary_emb)
        slots = context.slot_mapping[weights.k_cache.prefix]
        pages = weights.k_cache.kv_cache
        key = key[: len(slots)].unsqueeze(1).contiguous()
        torch_npu.npu_scatter_pa_kv_cache(key, key, pages, pages, slots, cache_mode="Norm")
        metadata = context.attn_metadata[weights.k_cache.prefix]
        tokens = metadata.num_actual_tokens
        indices, _ = torch_npu.npu_lightning_indexer(
            query[:tokens], pages, head_weights[:tokens], sparse_count=self.topk_tokens, **metadata.arguments("key")
        )
        buffer[:tokens] = indices.squeeze(1)
        return buffer

    def _project(
        self, hidden_states: torch.Tensor, latent_query: torch.Tensor, positions: torch.Tensor, rotary_emb: torch.nn.Module
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [tokens, heads, dim], keys [tokens, dim] and weights of the heads [tokens, heads]."""
        weights = self.weights
        parts = [weights.rope_dim, weights.head_dim - weights.rope_dim]
        query = weights.wq_b(latent_query)[0].view(-1, weights.n_head, weights.head_dim)
        key, head_weights = weights.wk_weights_proj(hidden_states)[0].split([weights.head_dim, weights.n_head], dim=-1)
        query_rope, query_rest = query.split(parts, dim=-1)
        key_rope, key_rest = weights.k_norm(key).unsqueeze(1).split(parts, dim=-1)
        query_rope, key_rope = rotary_emb(positions, query_rope.contiguous(), key_rope.contiguous())
        query = torch.cat([query_rope, query_rest], dim=-1)
        key = torch.cat([key_rope, key_rest], dim=-1).squeeze(1)
        return query, key, head_weights * (weights.softmax_scale * weights.n_head_scale)


class AscendLatentAttention(MultiHeadLatentAttentionWrapper):
    """vLLM's latent attention with our indexer and, where it fits, the fused pre-work. Takes its place (``PluggableLayer.register_oot``)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        modules = next(a for a in (*args, *kwargs.values()) if isinstance(a, MLAModules))
        if modules.indexer is not None:
            modules.indexer = AscendIndexer(modules.indexer)
        super().__init__(*args, **kwargs)
        self.fuse()

    def fuse(self) -> None:
        """Decodes with the fused pre-work from here on, if the layer fits. It would pass by the adapters of LoRA."""
        impl = self.mla_attn.impl
        if get_current_vllm_config().lora_config is None and mla_prolog.fits(self, impl, self.mla_attn.kv_cache_dtype):
            impl.prolog = mla_prolog.LatentProlog(self, impl)

    def forward(
        self, positions: torch.Tensor, hidden_states: torch.Tensor, llama_4_scaling: torch.Tensor | None = None
    ) -> torch.Tensor:
        out = self._decode(positions, hidden_states) if llama_4_scaling is None else None
        if out is None:
            return super().forward(positions, hidden_states, llama_4_scaling)
        if self.g_proj is not None:
            out = out * self.g_proj(hidden_states)[0].sigmoid()
        return self.o_proj(out)[0]

    def _decode(self, positions: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """The heads' outputs [tokens, heads * v_head_dim] by the fused pre-work, None where the separate operators have to do it."""
        attention, prolog = self.mla_attn, self.mla_attn.impl.prolog
        if prolog is None:
            return None
        context = get_forward_context()
        if not isinstance(context.attn_metadata, dict):  # the profiling run has no cache yet
            return None
        metadata, slots = context.attn_metadata[attention.layer_name], context.slot_mapping[attention.layer_name]
        tokens = metadata.num_decode_tokens
        if metadata.num_prefills or len(slots) < tokens or attention.kv_cache.shape[1] > mla_prolog.LARGEST_BLOCK:
            return None
        query = prolog(positions[:tokens], hidden_states[:tokens], attention.kv_cache, slots[:tokens])
        latent, _ = attention.impl.forward_mqa(query, attention.kv_cache, metadata, attention)
        out = hidden_states.new_empty(len(hidden_states), self.num_heads * self.v_head_dim)
        attention._v_up_proj(latent, out=out[:tokens])
        return out


class AscendSparseMLAImpl(AscendMLAImpl):
    """One layer's attention to the tokens in ``topk_indices_buffer``; see vLLM's MLAAttentionImpl for the arguments."""

    is_sparse = True
    supports_dense_mha_prefill = False

    def __init__(self, *args: Any, topk_indices_buffer: torch.Tensor, index_group_builder: object | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.topk_indices_buffer = topk_indices_buffer

    def record_logical_topk_ready(self) -> None:
        """vLLM's sign that the buffer is written. Indexer and attention run on one stream."""

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: AscendSparseMLAMetadata,
        layer: AttentionLayer,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Queries in the latent space, [tokens, heads, kv_lora_rank] and their rotated parts, to outputs there."""
        import torch_npu

        query, query_rope = q if isinstance(q, tuple) else q.split([self.kv_lora_rank, self.qk_rope_head_dim], dim=-1)
        latents, keys = (part.unsqueeze(2) for part in self._split_cache(kv_c_and_k_pe_cache))
        out, _, _ = torch_npu.npu_sparse_flash_attention(
            query.contiguous(),
            latents,
            latents,
            self.topk_indices_buffer[: len(query)].unsqueeze(1),
            self.scale,
            query_rope=query_rope.contiguous(),
            key_rope=keys,
            attention_mode=ATTENTION_MODE_ABSORBED,
            **attn_metadata.arguments("kv"),
        )
        return out, None
