"""``fp8`` checkpoints: a scale per tensor, or DeepSeek's 128 x 128 blocks (``weight_scale_inv``)."""

from __future__ import annotations

import torch
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.quantization.fp8 import Fp8Config
from vllm.model_executor.layers.quantization.utils.quant_utils import is_layer_skipped

from jumar.quantization.float8 import Float8LinearMethod, Float8Scheme
from jumar.quantization.layout import refuse_experts


class AscendFp8Config(Fp8Config):
    """Takes the place of vLLM's ``fp8`` (``register_quantization_config``)."""

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        refuse_experts(layer, prefix)
        if not isinstance(layer, LinearBase):
            return super().get_quant_method(layer, prefix)
        if is_layer_skipped(
            prefix=prefix,
            ignored_layers=self.ignored_layers,
            fused_mapping=self.packed_modules_mapping,
            match_mode=self.ignored_layers_match_mode,
        ):
            return UnquantizedLinearMethod()
        return Float8LinearMethod(self.scheme())

    def scheme(self) -> Float8Scheme:
        """Dynamic activations have a scale per token, which is never coarser than vLLM's scale per tensor."""
        if self.weight_block_size is not None:
            return Float8Scheme("block", "group", tuple(self.weight_block_size), "weight_scale_inv")
        return Float8Scheme("tensor", "tensor" if self.activation_scheme == "static" else "token")
