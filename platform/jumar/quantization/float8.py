"""FP8 (E4M3) weights with scales per tensor, output channel or block, over activations in FP8 or 16 bits.

One method for every loader: ``fp8`` checkpoints and compressed-tensors differ in names only. Parts of a fused module
keep their own scales: a scale per tensor becomes one per output channel, where vLLM's own method quantises the parts
again to a common scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from vllm.model_executor.layers.linear import LinearMethodBase
from vllm.model_executor.layers.quantization.utils.fp8_utils import (
    create_fp8_input_scale,
    create_fp8_scale_parameter,
    create_fp8_weight_parameter,
    validate_fp8_block_shape,
)
from vllm.model_executor.parameter import (
    BlockQuantScaleParameter,
    ChannelQuantScaleParameter,
    PerTensorScaleParameter,
)

from jumar.quantization import formats
from jumar.quantization.layout import one_per_part, per_channel, put
from jumar.weights import to_nz

E4M3 = torch.float8_e4m3fn
_SCALES = {"tensor": PerTensorScaleParameter, "channel": ChannelQuantScaleParameter, "block": BlockQuantScaleParameter}


@dataclass(frozen=True)
class Float8Scheme:
    """Which scales there are.

    weights: "tensor", "channel" or "block". activations: "token" (dynamic), "tensor" (static), "group" (dynamic, with
    blocks: of the block's columns), or "" (16 bits). block: rows and columns of a block. scale_name: the parameter's.
    """

    weights: str
    activations: str
    block: tuple[int, int] | None = None
    scale_name: str = "weight_scale"


class Float8LinearMethod(LinearMethodBase):
    """y = (x_q s_x) (w_q s_w) + bias."""

    def __init__(self, scheme: Float8Scheme) -> None:
        self.scheme = scheme
        self.emulated = formats.is_emulated("fp8", weight_only=not scheme.activations)
        if scheme.weights == "block" and not scheme.activations and not self.emulated:
            raise ValueError(
                "FP8 blocks with 16-bit activations have no operator: use a checkpoint with dynamic activations "
                "(input_activations of config.json), or one scale per output channel"
            )

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        weight_loader: Callable | None = None,
        **_: object,
    ) -> None:
        scheme = self.scheme
        layer.logical_widths = output_partition_sizes
        layer.weight_block_size = None
        if scheme.block is not None:
            layer.weight_block_size = list(scheme.block)
            try:
                validate_fp8_block_shape(
                    layer, input_size, output_size, input_size_per_partition, output_partition_sizes, list(scheme.block)
                )
            except ValueError as error:
                raise ValueError(
                    f"{layer.prefix} has parts of {output_partition_sizes} outputs, which blocks of {scheme.block[0]} x "
                    f"{scheme.block[1]} don't divide ({error}): quantise with a scale per output channel"
                ) from error
        n = sum(output_partition_sizes)
        layer.register_parameter("weight", create_fp8_weight_parameter(n, input_size_per_partition, weight_loader))
        scale = create_fp8_scale_parameter(
            _SCALES[scheme.weights],
            output_partition_sizes,
            input_size_per_partition,
            layer.weight_block_size,
            weight_loader,
        )
        layer.register_parameter(scheme.scale_name, one_per_part(scale) if scheme.weights == "tensor" else scale)
        if scheme.activations == "tensor":
            layer.register_parameter("input_scale", one_per_part(create_fp8_input_scale(output_partition_sizes, weight_loader)))

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        scheme = self.scheme
        scale = getattr(layer, scheme.scale_name).data
        if scheme.weights != "block":
            scale = per_channel(scale, layer.logical_widths)
        if scheme.activations == "tensor":
            # One input for all parts, so one scale: the widest.
            put(layer, "input_scale", layer.input_scale.data.float().max().reshape(1))
        if self.emulated:
            put(layer, "weight", to_nz(self._decoded(layer.weight.data, scale, layer)))
            put(layer, scheme.scale_name, scale)
            return
        # The weight stays as it is stored, [n, k], and so do the scales of blocks: the operator takes transposed views.
        put(layer, "weight", layer.weight.data)
        if scheme.weights == "block":
            put(layer, scheme.scale_name, scale.float().contiguous())
            return
        if scheme.activations == "tensor":
            scale = scale * layer.input_scale
        elif not scheme.activations:
            scale = scale.to(layer.params_dtype)
        put(layer, scheme.scale_name, scale)

    def _decoded(self, weight: torch.Tensor, scale: torch.Tensor, layer: torch.nn.Module) -> torch.Tensor:
        """The weight [n, k] in the model's dtype, decoded by the host: the chip has no float8."""
        decoded = weight.view(torch.uint8).cpu().view(E4M3).float()
        scale = scale.float().cpu()
        if self.scheme.block is None:
            decoded *= scale[:, None]
        else:
            rows, columns = self.scheme.block
            spread = scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
            decoded *= spread[: decoded.shape[0], : decoded.shape[1]]
        return decoded.to(layer.params_dtype).to(weight.device)

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        y = self._emulate(layer, rows, bias) if self.emulated else self._multiply(layer, rows, bias)
        return y.view(*x.shape[:-1], y.shape[-1])

    def _emulate(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        scheme = self.scheme
        if scheme.activations == "tensor":
            x = formats.emulate_static(x, layer.input_scale)
        elif scheme.activations:
            x = formats.emulate_groups(x, scheme.block[1] if scheme.activations == "group" else 0)
        return torch.nn.functional.linear(x, layer.weight, bias)

    def _multiply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        import torch_npu

        scheme, dtype = self.scheme, x.dtype
        weight, scale = layer.weight, getattr(layer, scheme.scale_name)
        if not scheme.activations:
            return torch_npu.npu_weight_quant_batchmatmul(x, weight.t(), scale, bias=bias)
        if scheme.activations == "tensor":
            x = torch_npu.npu_quantize(x, layer.input_scale, None, E4M3, -1, True)
            return torch_npu.npu_quant_matmul(x, weight.t(), scale, bias=_f32(bias), output_dtype=dtype)
        if scheme.activations == "token":
            x, x_scale = torch_npu.npu_dynamic_quant(x, dst_type=E4M3)
            return torch_npu.npu_quant_matmul(
                x, weight.t(), scale, pertoken_scale=x_scale, bias=_f32(bias), output_dtype=dtype
            )
        rows, columns = scheme.block
        x, x_scale = quantize_groups(x, columns)
        y = torch_npu.npu_quant_matmul(
            x, weight.t(), scale.t(), pertoken_scale=x_scale, output_dtype=dtype, group_sizes=[1, rows, columns]
        )
        return y if bias is None else y + bias


def quantize_groups(x: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x [m, k] in E4M3, and a scale max / 448 for each ``size`` elements of a row, fp32 [m, ceil(k / size)]."""
    import torch_npu

    m, k = x.shape
    padding = -k % size
    if padding:
        x = torch.nn.functional.pad(x, (0, padding))
    quantized, scale = torch_npu.npu_dynamic_quant(x.reshape(-1, size), dst_type=E4M3)
    quantized = quantized.view(m, k + padding)
    return (quantized[:, :k].contiguous() if padding else quantized), scale.view(m, -1)


def _f32(bias: torch.Tensor | None) -> torch.Tensor | None:
    """Of float8 products, CANN takes a bias in fp32."""
    return None if bias is None else bias.float()
