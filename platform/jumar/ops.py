"""vLLM's custom ops on torch_npu's fused operators.

Each class replaces its vLLM parent when a model is built (``CustomOp.register_oot``).
The embedding needs none: torch's own is already one NPU operator.
"""

from __future__ import annotations

import torch
from vllm.model_executor.custom_op import CustomOp, PluggableLayer
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding

from jumar.moe import AscendUnquantizedFusedMoEMethod
from jumar.sparse_mla import AscendLatentAttention


class AscendRMSNorm(RMSNorm):
    """``x / sqrt(mean(x^2) + eps) * weight``, optionally of ``x + residual``."""

    def forward_oot(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        if self.variance_size_override is not None or not self.has_weight:
            return self.forward_native(x, residual)
        import torch_npu

        if residual is None:
            return torch_npu.npu_rms_norm(x, self.weight, self.variance_epsilon)[0]
        out, _, new_residual = torch_npu.npu_add_rms_norm(x, residual, self.weight, self.variance_epsilon)
        return out, new_residual


class AscendSiluAndMul(SiluAndMul):
    """SwiGLU: ``silu(x[..., :d]) * x[..., d:]``."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        import torch_npu

        return torch_npu.npu_swiglu(x)


class AscendRotaryEmbedding(RotaryEmbedding):
    """Rotary position embedding of query and key in one operator (aclnnRopeWithSinCosCache)."""

    def forward_oot(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if key is None:
            return self.forward_native(positions, query, key)
        import torch_npu

        # The operator wants a token's heads in one row; latent attention has them apart.
        query_out, key_out = torch_npu.npu_mrope(
            positions.flatten(),
            query.reshape(len(query), -1).contiguous(),
            key.reshape(len(key), -1).contiguous(),
            self._match_cos_sin_cache_dtype(query),
            self.head_size,
            mrope_section=[0, 0, 0],
            rotary_mode="half" if self.is_neox_style else "interleave",
        )
        return query_out.view(query.shape), key_out.view(key.shape)


REPLACEMENTS: dict[str, type[CustomOp | PluggableLayer]] = {
    "RMSNorm": AscendRMSNorm,
    "SiluAndMul": AscendSiluAndMul,
    "RotaryEmbedding": AscendRotaryEmbedding,
    "UnquantizedFusedMoEMethod": AscendUnquantizedFusedMoEMethod,
    "MultiHeadLatentAttentionWrapper": AscendLatentAttention,
}


def register() -> None:
    """Registers the replacements; may be called again in the same process."""
    from vllm.model_executor.custom_op import op_registry_oot

    for name, cls in REPLACEMENTS.items():
        if op_registry_oot.get(name) is not cls:
            CustomOp.register_oot(cls, name=name)
