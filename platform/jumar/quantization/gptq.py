"""GPTQ checkpoints: vLLM's configuration without its checks for Marlin, which is CUDA's."""

from __future__ import annotations

import copy

import torch
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig, AutoGPTQLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.quantization.utils.gptq_utils import (
    get_dynamic_override,
    get_linear_quant_method,
    override_config,
)

from jumar.quantization.experts import QuantizedExpertsMethod, WeightOnlyExperts
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
        if isinstance(layer, RoutedExperts):
            # Dynamic rules may leave a layer out, or give it other bits: as vLLM reads them.
            if get_dynamic_override(self, layer_name=prefix) is False:
                return None
            config = copy.deepcopy(self)
            override_config(config, prefix=prefix)
            form = WeightOnlyExperts(config.quant_type.size_bits, config.group_size, False, "gptq")
            return QuantizedExpertsMethod(layer.moe_config, form)
        if isinstance(layer, LinearBase):
            check_groups(prefix, layer.input_size, self.group_size)
        return get_linear_quant_method(self, layer, prefix, AscendGPTQLinearMethod)
