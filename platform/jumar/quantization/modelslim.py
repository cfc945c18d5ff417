"""``ascend``: checkpoints of ModelSlim, whose description file gives each tensor a type.

``quant_model_description*.json`` maps the name of each weight (``model.layers.0.mlp.up_proj.weight``) to a type:

    FLOAT         as it is
    W8A8          int8; input_scale, input_offset, and per output deq_scale = input_scale * weight_scale and the int32
                  quant_bias: y = (x_q w_q + quant_bias) deq_scale with x_q = round(x / input_scale) + input_offset
    W8A8_DYNAMIC  int8 with weight_scale [n, 1]; x_q = round(x / s), s = max |x| / 127 of each token
    W8A16         int8 with weight_scale and weight_offset [n, 1]: y = x (w_q + weight_offset) weight_scale
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase, LinearMethodBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig, QuantizeMethodBase
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.parameter import (
    ChannelQuantScaleParameter,
    ModelWeightParameter,
    PerTensorScaleParameter,
)

from jumar.quantization.experts import Int8Experts, QuantizedExpertsMethod
from jumar.quantization.int8 import multiply_dynamic, multiply_static
from jumar.quantization.layout import one_per_part, per_channel, put
from jumar.quantization.names import FUSED, one_type, unfused
from jumar.weights import to_nz

NAME = "ascend"
DESCRIPTION = "quant_model_description"
TYPES = ("FLOAT", "W8A8", "W8A8_DYNAMIC", "W8A16")
_FILES = ["", "_w8a8", "_w8a8_dynamic", "_w8a8s", "_w8a16", "_w4a16", "_w4a8"]


class ModelSlimConfig(QuantizationConfig):
    """``--quantization ascend``; the platform chooses it where a description file lies beside the weights."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.types = {name.removesuffix(".weight"): kind for name, kind in description.items() if name.endswith(".weight")}
        if not self.types:
            raise ValueError(f"the {DESCRIPTION} file has no type for any weight: quantise the model again")
        unknown = sorted({str(kind) for kind in self.types.values()} - {*TYPES})
        if unknown:
            example = next(name for name, kind in self.types.items() if str(kind) in unknown)
            raise ValueError(
                f"the {DESCRIPTION} file has types that are not supported: {', '.join(unknown)} (such as of {example}); "
                f"supported are {', '.join(TYPES)}: quantise the model with one of these"
            )

    @classmethod
    def get_name(cls) -> str:
        return NAME

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> list[str]:
        return [f"{DESCRIPTION}{suffix}.json" for suffix in _FILES]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ModelSlimConfig:
        return cls(config)

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        rename = unfused(hf_to_vllm_mapper)
        renamed = {rename(name): kind for name, kind in self.types.items()}
        self.types = {name: kind for name, kind in renamed.items() if name is not None}

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        if isinstance(layer, RoutedExperts):
            return self._experts_method(layer, prefix)
        if isinstance(layer, LinearBase):
            kind = one_type(prefix, self.types, FUSED | self.packed_modules_mapping)
            return UnquantizedLinearMethod() if kind == "FLOAT" else ModelSlimLinearMethod(kind)
        if isinstance(layer, ParallelLMHead) and self.types.get(prefix, "FLOAT") != "FLOAT":
            raise ValueError(f"{prefix} is of type {self.types[prefix]}; the output layer must be FLOAT: quantise without it")
        return None


    def _experts_method(self, layer: RoutedExperts, prefix: str) -> QuantizeMethodBase | None:
        names = (layer.ckpt_gate_proj_name, layer.ckpt_up_proj_name, layer.ckpt_down_proj_name)
        parts = [f"{expert}.{name}" for expert in range(layer.global_num_experts) for name in names]
        kind = one_type(f"{prefix}.experts", {f"{prefix}.{part}": self.types.get(f"{prefix}.{part}") for part in parts}, {"experts": parts})
        if kind == "FLOAT":
            return None
        if kind != "W8A8_DYNAMIC":
            raise ValueError(f"{prefix} is of type {kind}; experts are FLOAT or W8A8_DYNAMIC on npu: quantise them so")
        return QuantizedExpertsMethod(layer.moe_config, Int8Experts(has_offset=True))


class ModelSlimLinearMethod(LinearMethodBase):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        weight_loader: Callable | None = None,
        **_: Any,
    ) -> None:
        n, parts = sum(output_partition_sizes), len(output_partition_sizes)
        layer.logical_widths = output_partition_sizes
        weight = torch.empty(n, input_size_per_partition, dtype=torch.int8)
        layer.register_parameter(
            "weight", ModelWeightParameter(data=weight, input_dim=1, output_dim=0, weight_loader=weight_loader)
        )

        def channels(name: str, dtype: torch.dtype, *shape: int) -> None:
            data = torch.zeros(n, *shape, dtype=dtype)
            layer.register_parameter(
                name, ChannelQuantScaleParameter(data=data, output_dim=0, weight_loader=weight_loader)
            )

        channels("weight_scale", torch.float32, 1)
        channels("weight_offset", torch.float32, 1)
        if self.kind == "W8A8":
            channels("quant_bias", torch.int32)
            # A model of fp16 has its scales as the words that aclnnTransQuantParam makes.
            channels("deq_scale", torch.float32 if params_dtype == torch.bfloat16 else torch.int64)
            for name in ("input_scale", "input_offset"):
                parameter = PerTensorScaleParameter(data=torch.zeros(parts), weight_loader=weight_loader)
                layer.register_parameter(name, one_per_part(parameter))

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        scale = per_channel(layer.weight_scale.data, layer.logical_widths)
        offset = layer.weight_offset.data.flatten()
        if self.kind == "W8A16":
            dtype = layer.params_dtype
            put(layer, "weight", layer.weight.data)
            put(layer, "weight_scale", scale.to(dtype))
            put(layer, "weight_offset", offset.to(dtype))
            return
        if bool(offset.any()):
            raise ValueError(f"{layer.prefix}: weights with an offset are not supported in {self.kind}: quantise symmetrically")
        put(layer, "weight_offset", None)
        put(layer, "weight", to_nz(layer.weight.data.t()))
        put(layer, "weight_scale", scale)
        if self.kind == "W8A8":
            deq_scale = layer.deq_scale.data
            if deq_scale.dtype == torch.int64:
                deq_scale = deq_scale.to(torch.int32).view(torch.float32)
            put(layer, "deq_scale", deq_scale.contiguous())
            for name, dtype in (("input_scale", torch.float32), ("input_offset", torch.int32)):
                values = getattr(layer, name).data
                if bool((values != values[0]).any()):
                    raise ValueError(
                        f"{layer.prefix}: its parts have {name} {values.tolist()}, and one input: quantise them together"
                    )
                put(layer, name, values[:1].to(dtype))

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if self.kind == "W8A16":
            import torch_npu

            bias = bias.float() if bias is not None and x.dtype == torch.bfloat16 else bias
            y = torch_npu.npu_weight_quant_batchmatmul(
                rows, layer.weight.t(), layer.weight_scale, antiquant_offset=layer.weight_offset, bias=bias
            )
        elif self.kind == "W8A8_DYNAMIC":
            y = multiply_dynamic(rows, layer.weight, layer.weight_scale, bias)
        else:
            # quant_bias holds the layer's own bias as well.
            y = multiply_static(
                rows, layer.input_scale, layer.input_offset, layer.weight, layer.deq_scale, layer.quant_bias
            )
        return y.view(*x.shape[:-1], y.shape[-1])
