"""compressed-tensors: vLLM's configuration, with FP8 layers of ours where vLLM has no place to register a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from compressed_tensors.quantization import QuantizationStrategy
from vllm.logger import init_logger
from vllm.model_executor.layers.linear import LinearBase, LinearMethodBase
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
    CompressedTensorsKVCacheMethod,
)
from vllm.model_executor.layers.quantization.compressed_tensors.schemes import CompressedTensorsScheme

from jumar.quantization.float8 import Float8LinearMethod, Float8Scheme
from jumar.quantization.layout import refuse_experts
from jumar.quantization.weight_only import check_groups

logger = init_logger("vllm.jumar.quantization")

# For messages.
SUPPORTED = "W8A8 (INT8, FP8), W8A16 (INT8, FP8), W4A16, MXFP8 and MXFP4"


class MethodScheme(CompressedTensorsScheme):
    """A linear method as a scheme."""

    def __init__(self, method: LinearMethodBase) -> None:
        self.method = method

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    def create_weights(self, layer: torch.nn.Module, weight_loader: Callable, **sizes: Any) -> None:
        self.method.create_weights(layer, weight_loader=weight_loader, **sizes)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        self.method.process_weights_after_loading(layer)

    def apply_weights(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.method.apply(layer, x, bias)


class AscendCompressedTensorsConfig(CompressedTensorsConfig):
    """Takes the place of vLLM's ``compressed-tensors`` (``register_quantization_config``)."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> AscendCompressedTensorsConfig:
        try:
            CompressedTensorsKVCacheMethod.validate_kv_cache_scheme(config.get("kv_cache_scheme"))
        except (NotImplementedError, ValueError) as error:
            raise ValueError(
                f"kv_cache_scheme of the checkpoint's quantization_config is not supported: {error}. Take it out of config.json to "
                "have the cache in the model's dtype"
            ) from error
        return super().from_config(config)

    def _get_scheme_from_parts(
        self,
        weight_quant: Any,
        input_quant: Any,
        output_quant: Any = None,
        format: str | None = None,
        layer_name: str | None = None,
    ) -> CompressedTensorsScheme:
        if weight_quant.num_bits == 8 and (
            self._is_fp8_w8a8(weight_quant, input_quant)
            or (input_quant is None and self._is_fp8_w8a16(weight_quant, input_quant))
        ):
            return MethodScheme(Float8LinearMethod(float8_scheme(weight_quant, input_quant)))
        if input_quant is None and (self._is_mxfp4(weight_quant) or self._is_mxfp8(weight_quant)):
            logger.warning_once(
                "the checkpoint's MXFP%d weights are for 16-bit activations; they are multiplied with MXFP%d ones",
                weight_quant.num_bits,
                weight_quant.num_bits,
            )
        try:
            return super()._get_scheme_from_parts(weight_quant, input_quant, output_quant, format, layer_name)
        except NotImplementedError as error:
            raise ValueError(
                f"{layer_name}: {_described(weight_quant, input_quant)} is a scheme that has no kernel; supported are {SUPPORTED}: "
                "quantise the model with one of these"
            ) from error

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        refuse_experts(layer, prefix)
        if isinstance(layer, LinearBase):
            scheme = self.get_scheme_dict(layer, prefix)
            if scheme and scheme["weights"].strategy == QuantizationStrategy.GROUP:
                check_groups(prefix, layer.input_size, scheme["weights"].group_size)
        return super().get_quant_method(layer, prefix)


def float8_scheme(weight_quant: Any, input_quant: Any) -> Float8Scheme:
    """The scheme of compressed-tensors' arguments for weights and inputs."""
    block = tuple(weight_quant.block_structure) if weight_quant.block_structure else None
    if input_quant is None:
        activations = ""
    elif block is not None:
        activations = "group"
    else:
        activations = "token" if input_quant.dynamic else "tensor"
    return Float8Scheme(QuantizationStrategy(weight_quant.strategy).value, activations, block)


def _described(weight_quant: Any, input_quant: Any) -> str:
    """Such as "W8A16 (int 8 by channel, inputs int 16 by token)"."""
    text = f"{weight_quant.type} {weight_quant.num_bits} by {weight_quant.strategy}"
    if input_quant is None:
        return f"W{weight_quant.num_bits}A16 ({text})"
    inputs = f"{input_quant.type} {input_quant.num_bits} by {input_quant.strategy}"
    return f"W{weight_quant.num_bits}A{input_quant.num_bits} ({text}, inputs {inputs})"
