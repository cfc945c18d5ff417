"""GPTQ checkpoints: vLLM's configuration without its checks for Marlin, which is CUDA's."""

from __future__ import annotations

import torch
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig, AutoGPTQLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.quantization.utils.gptq_utils import get_linear_quant_method

from jumar.quantization.layout import refuse_experts
from jumar.quantization.weight_only import check_groups


class AscendGPTQLinearMethod(AutoGPTQLinearMethod):
    def __init__(self, quant_config: AutoGPTQConfig) -> None:
        # Not the parent's: it refuses whatever Marlin can't do on the device.
        self.quant_config = quant_config
        self.quant_type = quant_config.quant_type
        self.input_dtype = None


class AscendGPTQConfig(AutoGPTQConfig):
    """Takes the place of vLLM's ``auto_gptq`` (``register_quantization_config``)."""

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        refuse_experts(layer, prefix)
        if isinstance(layer, LinearBase):
            check_groups(prefix, layer.input_size, self.group_size)
        return get_linear_quant_method(self, layer, prefix, AscendGPTQLinearMethod)
