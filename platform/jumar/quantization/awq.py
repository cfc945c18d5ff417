"""AWQ checkpoints: vLLM's configuration and parameters over our kernel."""

from __future__ import annotations

import torch
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig, AutoAWQMarlinLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.quantization.utils.quant_utils import is_layer_skipped
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

from jumar.quantization.layout import refuse_experts
from jumar.quantization.weight_only import check_groups, unpack

# Of the eight outputs that a word holds: in which place each of them is.
PLACES = [0, 4, 1, 5, 2, 6, 3, 7]


class AscendAWQLinearMethod(AutoAWQMarlinLinearMethod):
    def __init__(self, quant_config: AutoAWQConfig) -> None:
        # Not the parent's: it refuses whatever Marlin can't do on the device.
        self.quant_config = quant_config
        self.quant_type = quant_config.quant_type
        self.input_dtype = None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        # Not the parent's: its conversion to GPTQ's layout shifts by a tensor, which torch_npu doesn't broadcast.
        points = _unpack(layer.qzeros.data) if self.quant_config.zero_point else None
        self.kernel.put_weights(layer, _unpack(layer.qweight.data), layer.scales.data, points)


def _unpack(packed: torch.Tensor) -> torch.Tensor:
    """[rows, n / 8] words in AWQ's order -> [rows, n] unsigned numbers."""
    eights = unpack(packed, 4, 1).unflatten(1, (-1, 8))
    return torch.stack([eights[..., place] for place in PLACES], -1).flatten(1)


class AscendAWQConfig(AutoAWQConfig):
    """Takes the place of vLLM's ``auto_awq`` (``register_quantization_config``)."""

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        refuse_experts(layer, prefix)
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
