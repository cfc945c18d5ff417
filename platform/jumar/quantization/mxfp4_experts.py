"""GPT-OSS' released checkpoints: experts in MXFP4 (OCP MX: E2M1 in pairs, 32 along k sharing a power of two), all else in bf16.

Activations stay in 16 bits. No operator of torch_npu multiplies groups of such rows with MXFP4 weights, so the weights are decoded when they
are loaded, exactly, and take the memory of bf16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.quantization.mxfp4 import GptOssMxfp4Config

from jumar.moe import multiply_experts
from jumar.quantization import formats
from jumar.quantization.experts import BLOCK, ExpertFormat, QuantizedExpertsMethod, register
from jumar.quantization.layout import put
from jumar.quantization.mx import GROUP, decoded
from jumar.weights import to_nz

if TYPE_CHECKING:
    from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig
    from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase


class Mxfp4Experts(ExpertFormat):
    """Weights uint8 [experts, n, k / 2], the first element in the lower half, and exponents uint8 [experts, n, k / 32] with a bias of 127."""

    takes_biases = True

    def __init__(self, has_bias: bool) -> None:
        formats.is_emulated("mxfp4", weight_only=True)  # a chip that lacks it is asked for first
        self.has_bias = has_bias

    def create(self, layer: RoutedExperts, name: str, experts: int, n: int, k: int, dtype: torch.dtype, loading: dict[str, Any]) -> None:
        layer.params_dtype = dtype
        register(layer, f"{name}_weight", torch.zeros(experts, n, k // 2, dtype=torch.uint8), loading)
        register(layer, f"{name}_weight_scale", torch.zeros(experts, n, k // GROUP, dtype=torch.uint8), loading, BLOCK)
        if self.has_bias:
            register(layer, f"{name}_bias", torch.zeros(experts, n, dtype=dtype), loading)

    def finish(self, layer: RoutedExperts, name: str) -> None:
        codes, scales = getattr(layer, f"{name}_weight").data, getattr(layer, f"{name}_weight_scale").data
        put(layer, f"{name}_weight", to_nz(torch.stack([decoded(c, s, layer.params_dtype) for c, s in zip(codes, scales)])))
        put(layer, f"{name}_weight_scale", None)

    def multiply(self, layer: RoutedExperts, name: str, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return multiply_experts(layer, name, x, counts)


class AscendGptOssMxfp4Config(GptOssMxfp4Config):
    """Takes the place of vLLM's ``gpt_oss_mxfp4`` (``register_quantization_config``)."""

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float32]  # both hold every MXFP4 number

    def _make_moe_method(self, moe: FusedMoEConfig) -> FusedMoEMethodBase:
        return QuantizedExpertsMethod(moe, Mxfp4Experts(moe.has_bias))
