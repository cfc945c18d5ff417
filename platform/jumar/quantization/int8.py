"""INT8 weights and activations: int32 sums of int8 products, one scale per output channel."""

from __future__ import annotations

import torch
from vllm.model_executor.kernels.linear import Int8ScaledMMLinearKernel, Int8ScaledMMLinearLayerConfig

from jumar.quantization.layout import per_channel, put, to_nz

INT8_MIN, INT8_MAX = -128, 127


def multiply_dynamic(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """x [m, k], rounded by a scale of each row, times an int8 weight [k, n] with scales [n]; in x's dtype."""
    import torch_npu

    codes, token_scale = torch_npu.npu_dynamic_quant(x)
    return torch_npu.npu_quant_matmul(codes, weight, scale, pertoken_scale=token_scale, bias=bias, output_dtype=x.dtype)


def multiply_static(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """x [m, k], rounded by one scale and zero point, times an int8 weight [k, n] plus an int32 bias [n], times ``scale`` [n]."""
    import torch_npu

    codes = torch_npu.npu_quantize(x, x_scale, zero_point, torch.qint8, -1, True)
    return torch_npu.npu_quant_matmul(codes, weight, scale, bias=bias, output_dtype=x.dtype)


class AscendInt8LinearKernel(Int8ScaledMMLinearKernel):
    """``x_q = round(x / s_x) + z``; ``y = s_x s_w (x_q - z) w_q + bias``.

    Dynamic: ``s_x`` is each token's (npu_dynamic_quant: max |x| / 127), ``z = 0``. Static: both come from the
    checkpoint, and ``-z * sum of w_q's column`` joins the int32 sum as an int32 bias, exactly.
    """

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None

    @classmethod
    def can_implement(cls, c: Int8ScaledMMLinearLayerConfig) -> tuple[bool, str | None]:
        if not c.is_static_input_scheme and not c.input_symmetric:
            return False, (
                "has no activations with a zero point per token: quantise with symmetric dynamic activations, or "
                "with static ones"
            )
        return True, None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        w_name, s_name, x_name, z_name, adjustment_name = self.layer_param_names
        weight = getattr(layer, w_name).data.t()  # [k, n], as the operator takes it
        scale = per_channel(getattr(layer, s_name), layer.logical_widths)
        if not self.config.is_static_input_scheme:
            put(layer, x_name, None)
            put(layer, z_name, None)
            put(layer, s_name, scale)
        else:
            x_scale, zero_point = self._one_range(layer)
            put(layer, x_name, x_scale)
            put(layer, s_name, scale * x_scale)
            if self.config.input_symmetric:
                put(layer, z_name, None)
            else:
                put(layer, z_name, zero_point)
                put(layer, adjustment_name, -zero_point * weight.sum(dim=0, dtype=torch.int32))
        put(layer, w_name, to_nz(weight))

    def _one_range(self, layer: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale, fp32 [1], and zero point, int32 [1], that cover the ranges of all parts of a fused module."""
        _, _, scales, zero_points, _ = self._get_layer_params(layer)
        scales = scales.detach().float().flatten()
        if self.config.input_symmetric:
            return scales.max().reshape(1), torch.zeros(1, dtype=torch.int32, device=scales.device)
        zero_points = zero_points.detach().to(torch.int32).flatten()
        if len({*zip(scales.tolist(), zero_points.tolist())}) == 1:
            return scales[:1].contiguous(), zero_points[:1].contiguous()
        top = (scales * (INT8_MAX - zero_points)).max()
        bottom = (scales * (INT8_MIN - zero_points)).min()
        scale = (top - bottom) / (INT8_MAX - INT8_MIN)
        return scale.reshape(1), (INT8_MIN - torch.round(bottom / scale)).to(torch.int32).reshape(1)

    def apply_weights(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        weight, scale, x_scale, zero_point, adjustment = self._get_layer_params(layer)
        rows = x.reshape(-1, x.shape[-1])
        if x_scale is None:
            y = multiply_dynamic(rows, weight, scale, bias)
        else:
            y = multiply_static(rows, x_scale, zero_point, weight, scale, adjustment)
            if bias is not None:
                y = y + bias
        return y.view(*x.shape[:-1], y.shape[-1])
