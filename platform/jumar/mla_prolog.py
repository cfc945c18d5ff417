"""The fused pre-work of latent attention: torch_npu.npu_mla_prolog_v3 in place of projections, norms, rotation, absorption and cache update.

Batches that only decode go through it. The operator leaves the halves of a rotated row apart, where vLLM's rotation of neighbours leaves them
together; scores don't depend on that, as long as queries and cached keys agree, so a layer with the operator has halves on every path.

The operator wants its weights as [k, n] in the NZ format, so they are kept beside the layer's own, which prompts go through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from vllm.logger import init_logger
from vllm.model_executor.layers.attention.mla_attention import split_kv_b_proj
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbeddingBase

from jumar.weights import to_nz

if TYPE_CHECKING:
    from vllm.model_executor.layers.mla import MultiHeadLatentAttentionWrapper

    from jumar.mla import AscendMLAImpl

logger = init_logger(__name__)

# What torch_npu's page of npu_mla_prolog_v3 takes; unquantised, all is bfloat16.
HIDDEN_SIZES = (1024, 2048, 3072, 4096, 5120, 6144, 7168, 7680, 8192)
QUERY_RANKS = (1536, 2048)
HEADS = (1, 2, 4, 8, 16, 32, 64, 128)
NOPE_SIZES = (128, 192)
KV_RANK, ROPE_SIZE = 512, 64
LARGEST_BLOCK = 1024  # a multiple of 16, as the backend has them anyway

ND = 2  # ACL_FORMAT_ND


def _is_plain(linear: torch.nn.Module | None) -> bool:
    """Whether a linear layer has a weight of bfloat16 and nothing else."""
    if linear is None or not isinstance(linear.quant_method, UnquantizedLinearMethod):
        return False
    return linear.weight.dtype == torch.bfloat16 and getattr(linear, "bias", None) is None


def fits(layer: MultiHeadLatentAttentionWrapper, impl: AscendMLAImpl, kv_cache_dtype: str) -> bool:
    """Whether the operator's page allows the layer: its sizes, types and weights, and what is computed between the operator's steps."""
    if layer.q_lora_rank is None or layer.is_sparse or layer.indexer is not None or layer.dcp_q_replicate or impl.q_pad_num_heads is not None:
        return False
    rotary = layer.rotary_emb
    return (
        layer.hidden_size in HIDDEN_SIZES
        and layer.q_lora_rank in QUERY_RANKS
        and layer.num_heads in HEADS
        and layer.qk_nope_head_dim in NOPE_SIZES
        and (layer.kv_lora_rank, layer.qk_rope_head_dim) == (KV_RANK, ROPE_SIZE)
        and kv_cache_dtype in ("auto", "bfloat16")
        and all(_is_plain(linear) for linear in (layer.fused_qkv_a_proj, layer.q_b_proj, layer.kv_b_proj))
        and all(norm.weight.dtype == torch.bfloat16 for norm in (layer.q_a_layernorm, layer.kv_a_layernorm))
        and isinstance(rotary, RotaryEmbeddingBase)
        and not rotary.is_neox_style
        and rotary.cos_sin_cache.shape[-1] == ROPE_SIZE
    )


class HalvesRotary(torch.nn.Module):
    """A rotation of neighbours, whose results are left as the two halves of a row."""

    def __init__(self, rotary: RotaryEmbeddingBase) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        query, key = self.rotary(positions, query, key)
        return self._halves(query), self._halves(key)

    @staticmethod
    def _halves(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)

    def tables(self) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin of each position, bfloat16 [positions, rope], an entry per element; one copy for all layers that share the rotation."""
        made = getattr(self.rotary, "halves_tables", None)
        if made is None:
            parts = self.rotary.cos_sin_cache.to("npu", torch.bfloat16).chunk(2, dim=-1)
            made = self.rotary.halves_tables = tuple(torch.cat([part, part], dim=-1) for part in parts)
        return made


class LatentProlog:
    """The operator for one layer, which must fit. Replaces the layer's rotation."""

    def __init__(self, layer: MultiHeadLatentAttentionWrapper, impl: AscendMLAImpl) -> None:
        self._layer, self._impl = layer, impl
        self._weights: dict[str, torch.Tensor] = {}
        self._rotary = layer.rotary_emb = HalvesRotary(layer.rotary_emb)
        logger.info_once("latent attention decodes with npu_mla_prolog_v3")

    def load(self) -> None:
        """Takes the weights of the layer. When they are loaded again, they go where they were, as captured graphs refer to that."""
        import torch_npu

        layer = self._layer
        down, up = (torch_npu.npu_format_cast(linear.weight.data, ND) for linear in (layer.fused_qkv_a_proj, layer.q_b_proj))
        query, key_value = down.split([layer.q_lora_rank, layer.kv_lora_rank + layer.qk_rope_head_dim])
        to_key, _ = split_kv_b_proj(
            layer.kv_b_proj, torch.bfloat16, layer.kv_lora_rank, layer.num_heads, layer.qk_nope_head_dim, layer.v_head_dim
        )
        weights = {
            "weight_dq": to_nz(query.T),
            "weight_uq_qr": to_nz(up.T),
            "weight_uk": to_key.permute(1, 2, 0).contiguous(),
            "weight_dkv_kr": to_nz(key_value.T),
        }
        for name, weight in weights.items():
            if name in self._weights:
                self._weights[name].copy_(weight)
            else:
                self._weights[name] = weight

    def __call__(
        self, positions: torch.Tensor, hidden_states: torch.Tensor, kv_cache: torch.Tensor, slots: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the latents and rotated keys of hidden_states [tokens, hidden] to their slots. Gives the queries in the latent space,
        [tokens, heads, kv_lora_rank], and their rotated parts."""
        import torch_npu

        layer = self._layer
        latents, keys = (part.unsqueeze(2) for part in self._impl._split_cache(kv_cache))
        cos, sin = (table.index_select(0, positions) for table in self._rotary.tables())
        query, query_rope, *_ = torch_npu.npu_mla_prolog_v3(
            hidden_states,
            **self._weights,
            rmsnorm_gamma_cq=layer.q_a_layernorm.weight,
            rmsnorm_gamma_ckv=layer.kv_a_layernorm.weight,
            rope_sin=sin,
            rope_cos=cos,
            kv_cache=latents,
            kr_cache=keys,
            # The page has no slot for rows of padding; vLLM's block 0 is nobody's.
            cache_index=slots.clamp_min(0),
            rmsnorm_epsilon_cq=layer.q_a_layernorm.variance_epsilon,
            rmsnorm_epsilon_ckv=layer.kv_a_layernorm.variance_epsilon,
            cache_mode="PA_BSND",
        )
        return query, query_rope
