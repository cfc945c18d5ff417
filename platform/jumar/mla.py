"""Multi-head latent attention (DeepSeek V2, V3, Kimi K2) over torch_npu's fused-attention operator.

A token's cache entry is its latent and its rotated key, which all heads share. CANN wants the two apart, each contiguous, so a layer's
allocation is used as two parts: latents ``[blocks, block_size, kv_lora_rank]``, then rotated keys ``[blocks, block_size, rope]``.

Decoding computes in the latent space: vLLM multiplies the queries by W_UK, and the operator takes latents for keys and values. A prompt is
expanded to heads instead (kv_b_proj), which costs less for many queries; what is already cached of it comes in pieces of
``CONTEXT_TOKENS``, merged by their log-sum-exp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from vllm.model_executor.layers.attention.mla_attention import MLACommonBackend
from vllm.v1.attention.backend import (
    AttentionCGSupport,
    AttentionLayer,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
    MLAAttentionImpl,
    MultipleOf,
)
from vllm.v1.attention.backends.mla.prefill.base import MLAPrefillBackend
from vllm.v1.attention.backends.registry import register_backend
from vllm.v1.attention.backends.utils import split_decodes_and_prefills
from vllm.v1.kv_cache_interface import KVCacheLayout

from jumar.attention import (
    KV_BLOCK_SIZE,
    SPARSE_MODE_RIGHT_DOWN_CAUSAL,
    AscendMetadataBuilder,
    compressed_causal_mask,
    fused_attention,
)
from jumar.mla_prolog import LatentProlog

# Cached tokens of a prompt that are expanded to heads at a time; bounds the memory for long prompts.
CONTEXT_TOKENS = 8192

# Partial results that npu_attention_update takes at a time.
MOST_PARTS = 16


@register_backend("ASCEND_MLA", "jumar.mla.AscendMLABackend")
class AscendMLABackend(MLACommonBackend):
    """Causal MLA with a paged cache of latents, fp16, bf16 and fp32."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "float16", "bfloat16"]

    @staticmethod
    def get_name() -> str:
        return "ASCEND_MLA"

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return []  # any; hardware has 512 + 64

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None) -> list[int | MultipleOf]:
        return [MultipleOf(16)]

    @classmethod
    def get_preferred_block_size(cls, default_block_size: int) -> int:
        return KV_BLOCK_SIZE

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        # A layer's blocks must be one contiguous range, which _split_cache reinterprets.
        return (KVCacheLayout.LBNHC,)

    @classmethod
    def supports_kv_connector(cls) -> bool:
        # Connectors copy pages as contiguous bytes; ours are in two parts.
        return False

    @staticmethod
    def get_impl_cls() -> type[AscendMLAImpl]:
        return AscendMLAImpl

    @staticmethod
    def get_builder_cls() -> type[AscendMLAMetadataBuilder]:
        return AscendMLAMetadataBuilder


class AscendMLAPrefill(MLAPrefillBackend):
    """What vLLM asks a platform to name. AscendMLAImpl.forward_mha doesn't go through it."""

    supported_dtypes: ClassVar[list[torch.dtype]] = AscendMLABackend.supported_dtypes

    @staticmethod
    def get_name() -> str:
        return "ASCEND_MLA"

    def run_prefill_new_tokens(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        raise NotImplementedError("prompts are computed by AscendMLAImpl.forward_mha")

    def run_prefill_context_chunk(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError("prompts are computed by AscendMLAImpl.forward_mha")


@dataclass
class DecodeBatch:
    """Requests with one new token each, and a graph's padding rows."""

    kv_lens: list[int]  # new token included; 0 for a padding row
    block_table: torch.Tensor  # int32 [requests, max_blocks]


@dataclass
class PrefillBatch:
    """Requests with a prompt or a part of it."""

    query_ends: list[int]  # prefix sums of the new tokens, without the leading 0
    context_lens: list[int]  # tokens cached before
    block_table: torch.Tensor  # int32 [requests, max_blocks]


@dataclass
class AscendMLAMetadata:
    """One batch: decoding requests first. vLLM's MLAAttention reads the counts."""

    num_actual_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    decode: DecodeBatch | None
    prefill: PrefillBatch | None

    def graph_lengths(self) -> dict[str, list[int]]:
        """The host lengths of a captured decode step, under the operator's argument names."""
        assert self.decode is not None
        return dict(actual_seq_lengths_kv=self.decode.kv_lens)


class AscendMLAMetadataBuilder(AttentionMetadataBuilder[AscendMLAMetadata]):
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    reorder_batch_threshold: int = 1

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._rows = AscendMetadataBuilder(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> AscendMLAMetadata:
        rows = self._rows.build(common_prefix_len, common_attn_metadata, fast_build)
        decodes, prefills, decode_tokens, _ = split_decodes_and_prefills(
            common_attn_metadata, decode_threshold=self.reorder_batch_threshold
        )
        decode = DecodeBatch(rows.kv_lens[:decodes], rows.block_table[:decodes]) if decodes else None
        prefill = None
        if prefills:
            ends = [end - decode_tokens for end in rows.query_ends[decodes:]]
            counts = [end - start for start, end in zip([0, *ends], ends)]
            contexts = [kv - count for kv, count in zip(rows.kv_lens[decodes:], counts)]
            prefill = PrefillBatch(ends, contexts, rows.block_table[decodes:])
        return AscendMLAMetadata(
            num_actual_tokens=rows.num_actual_tokens,
            num_decodes=decodes,
            num_decode_tokens=decode_tokens,
            num_prefills=prefills,
            decode=decode,
            prefill=prefill,
        )


class AscendMLAImpl(MLAAttentionImpl[AscendMLAMetadata]):
    """One layer's attention; see vLLM's MLAAttentionImpl for the arguments."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None,
        attn_type: str,
        kv_sharing_target_layer_name: str | None,
        q_lora_rank: int | None,
        kv_lora_rank: int,
        qk_nope_head_dim: int,
        qk_rope_head_dim: int,
        qk_head_dim: int,
        v_head_dim: int,
        kv_b_proj: torch.nn.Module,
        indexer: object | None = None,
        q_pad_num_heads: int | None = None,
    ) -> None:
        unsupported = {
            "ALiBi": alibi_slopes is not None,
            "a sliding window": sliding_window is not None,
            "a soft cap of the logits": bool(logits_soft_cap),
            "sharing of caches between layers": kv_sharing_target_layer_name is not None,
            "decode context parallelism": self.dcp_world_size > 1,
        }
        for what, present in unsupported.items():
            if present:
                raise NotImplementedError(f"{what} is not supported by latent attention on npu")
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_kv_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_lora_rank = kv_lora_rank
        self.qk_nope_head_dim = qk_nope_head_dim
        self.qk_rope_head_dim = qk_rope_head_dim
        self.v_head_dim = v_head_dim
        self.kv_b_proj = kv_b_proj
        self.q_pad_num_heads = q_pad_num_heads
        self._split: tuple[tuple[int, torch.Size], torch.Tensor, torch.Tensor] | None = None
        self.prolog: LatentProlog | None = None  # of a layer that fits, set by the layer

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        if self.prolog is not None:
            self.prolog.load()

    def _split_cache(self, kv_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Latents [blocks, block_size, kv_lora_rank] and rotated keys [blocks, block_size, rope] of vLLM's [blocks, block_size, both]."""
        place = (kv_cache.data_ptr(), kv_cache.shape)
        if self._split is None or self._split[0] != place:
            blocks, block_size, _ = kv_cache.shape
            tokens = blocks * block_size
            flat = kv_cache.as_strided((tokens * self.head_size,), (1,))
            latents, keys = flat.split([tokens * self.kv_lora_rank, tokens * self.qk_rope_head_dim])
            shape = (blocks, block_size, -1)
            self._split = (place, latents.view(shape), keys.view(shape))
        return self._split[1], self._split[2]

    def do_kv_cache_update(
        self,
        kv_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        kv_cache_dtype: str,
        k_scale: torch.Tensor,
    ) -> None:
        """Writes latents [tokens, kv_lora_rank] and rotated keys [tokens, 1, rope] to their slots; slot -1 is skipped."""
        if kv_cache.numel() == 0:
            return
        import torch_npu

        tokens = slot_mapping.shape[0]
        latent, key = kv_c_normed[:tokens].unsqueeze(1).contiguous(), k_pe[:tokens].contiguous()
        latents, keys = (part.unsqueeze(2) for part in self._split_cache(kv_cache))
        torch_npu.npu_scatter_pa_kv_cache(latent, key, latents, keys, slot_mapping, cache_mode="Norm")

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: AscendMLAMetadata,
        layer: AttentionLayer,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Decoding: queries in the latent space, [requests, heads, kv_lora_rank] and their rotated parts, to outputs there."""
        batch = attn_metadata.decode
        assert batch is not None
        query, query_rope = q if isinstance(q, tuple) else q.split([self.kv_lora_rank, self.qk_rope_head_dim], dim=-1)
        latents, keys = self._split_cache(kv_c_and_k_pe_cache)
        query, query_rope = query.contiguous().unsqueeze(1), query_rope.contiguous().unsqueeze(1)
        out = torch.empty_like(query)
        fused_attention(
            query,
            latents,
            latents,
            out,
            query_rope=query_rope,
            key_rope=keys,
            actual_seq_lengths_kv=batch.kv_lens,
            block_table=batch.block_table,
            num_heads=self.num_heads,
            num_key_value_heads=1,
            scale=self.scale,
            input_layout="BSND",
            block_size=latents.shape[1],
        )
        return out.squeeze(1), None

    def forward_mha(
        self,
        q: torch.Tensor,
        kv_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: AscendMLAMetadata,
        k_scale: torch.Tensor,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
    ) -> None:
        """Prompts: q [tokens, heads, nope + rope] over keys and values expanded to heads, into output [tokens, heads * v_head_dim]."""
        batch = attn_metadata.prefill
        assert batch is not None
        has_context = any(batch.context_lens)
        q = q.contiguous()
        out = output.view(-1, self.num_heads, self.v_head_dim)
        keys, values = self._expand(kv_c_normed, k_pe)
        lse = self._attend(q, keys, values, out, batch.query_ends, batch.query_ends, causal=True, with_lse=has_context)
        if not has_context:
            return
        for row, (start, end) in enumerate(zip([0, *batch.query_ends], batch.query_ends)):
            if batch.context_lens[row]:
                parts = [(out[start:end], lse[start:end])]
                for part in self._context_parts(q[start:end], row, batch, kv_c_and_k_pe_cache):
                    if len(parts) == MOST_PARTS:
                        parts = [self._merge(parts)]
                    parts.append(part)
                out[start:end] = self._merge(parts)[0]

    def _expand(self, latent: torch.Tensor, key_rope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys [tokens, heads, nope + rope] and values [tokens, heads, v] of latents [tokens, kv_lora_rank] and rotated keys [tokens, 1, rope]."""
        heads = self.kv_b_proj(latent)[0].view(-1, self.num_heads, self.qk_nope_head_dim + self.v_head_dim)
        nope, values = heads.split([self.qk_nope_head_dim, self.v_head_dim], dim=-1)
        return torch.cat([nope, key_rope.expand(-1, self.num_heads, -1)], dim=-1), values.contiguous()

    def _attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        out: torch.Tensor,
        query_ends: list[int],
        key_ends: list[int],
        causal: bool,
        with_lse: bool,
    ) -> torch.Tensor:
        """Attention per head of packed tokens, into ``out``. Returns the log-sum-exp [tokens, heads, 1] if asked for."""
        mask = dict(atten_mask=compressed_causal_mask(query.device), sparse_mode=SPARSE_MODE_RIGHT_DOWN_CAUSAL) if causal else {}
        return fused_attention(
            query,
            keys,
            values,
            out,
            with_lse=with_lse,
            actual_seq_lengths=query_ends,
            actual_seq_lengths_kv=key_ends,
            num_heads=self.num_heads,
            num_key_value_heads=self.num_heads,
            scale=self.scale,
            input_layout="TND",
            **mask,
        )

    def _context_parts(
        self, query: torch.Tensor, row: int, batch: PrefillBatch, kv_cache: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Outputs and log-sum-exps of one request's queries over what is cached of it, piece by piece."""
        import torch_npu

        latents, keys = (part.unsqueeze(2) for part in self._split_cache(kv_cache))
        for first in range(0, batch.context_lens[row], CONTEXT_TOKENS):
            count = min(CONTEXT_TOKENS, batch.context_lens[row] - first)
            latent = query.new_empty(count, 1, self.kv_lora_rank)
            key = query.new_empty(count, 1, self.qk_rope_head_dim)
            length, offset = (torch.tensor([n], dtype=torch.int32, device=query.device) for n in (count, first))
            torch_npu.npu_gather_pa_kv_cache(
                latents, keys, batch.block_table[row : row + 1], length, latent, key, seq_offset=offset
            )
            out = query.new_empty(*query.shape[:2], self.v_head_dim)
            expanded = self._expand(latent.squeeze(1), key)
            lse = self._attend(query, *expanded, out, [len(query)], [count], causal=False, with_lse=True)
            yield out, lse

    def _merge(self, parts: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
        """One softmax of several: outputs weighted by what their log-sum-exps say, and their common log-sum-exp."""
        import torch_npu

        outs = [out.reshape(-1, self.v_head_dim) for out, _ in parts]
        merged, lse = torch_npu.npu_attention_update([lse.reshape(-1) for _, lse in parts], outs, 1)
        return merged.view_as(parts[0][0]), lse.view_as(parts[0][1])
