"""AWQ checkpoints: vLLM's configuration and parameters over our kernel."""

from __future__ import annotations

import torch
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig, AutoAWQMarlinLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.quantization.utils.quant_utils import is_layer_skipped
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

from jumar.quantization.experts import QuantizedExpertsMethod, WeightOnlyExperts
from jumar.quantization.weight_only import check_groups, unpack_awq

class AscendAWQLinearMethod(AutoAWQMarlinLinearMethod):
    def __init__(self, quant_config: AutoAWQConfig) -> None:
        # Not the parent's: it refuses whatever Marlin can't do on the device.
        self.quant_config = quant_config
        self.quant_type = quant_config.quant_type
        self.input_dtype = None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        # Not the parent's: its conversion to GPTQ's layout shifts by a tensor, which torch_npu doesn't broadcast.
        points = unpack_awq(layer.qzeros.data) if self.quant_config.zero_point else None
        self.kernel.put_weights(layer, unpack_awq(layer.qweight.data), layer.scales.data, points)


class AscendAWQConfig(AutoAWQConfig):
    """Takes the place of vLLM's ``auto_awq`` (``register_quantization_config``)."""

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        if isinstance(layer, RoutedExperts):
            if is_layer_skipped(prefix, self.modules_to_not_convert, self.packed_modules_mapping, match_mode="substring"):
                return None
            form = WeightOnlyExperts(self.quant_type.size_bits, self.group_size, self.zero_point, "awq")
            return QuantizedExpertsMethod(layer.moe_config, form)
        is_head = isinstance(layer, ParallelLMHead) and self.lm_head_quantized
        if not isinstance(layer, LinearBase) and not is_head:
            return None
        if is_layer_skipped(
            prefix, self.modules_to_not_convert, self.packed_modules_mapping, match_mode="substring"
        ):
            return UnquantizedLinearMethod()
        if isinstance(layer, LinearBase):
            check_groups(prefix, layer.input_size, self.group_size)
        return AscendAWQLinearMethod(self)
