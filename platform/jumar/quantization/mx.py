"""MXFP8 and MXFP4: E4M3 or E2M1 numbers, 32 along k sharing a power of two (E8M0)."""

from __future__ import annotations

import torch
from vllm.model_executor.kernels.linear import (
    Mxfp8LinearKernel,
    Mxfp8LinearLayerConfig,
    MxFp4LinearKernel,
    MxFp4LinearLayerConfig,
)
from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Dynamic

from jumar.quantization import formats
from jumar.quantization.layout import put, to_nz

GROUP = 32
# The eight magnitudes of E2M1 by code; bit 3 is the sign.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def decoded(weight: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A weight of E4M3 [n, k], or of E2M1 in bytes [n, k / 2] (the lower half first), as ``dtype``; by the host.

    Both formats have at most 4 significant bits, so that bfloat16 holds them exactly.
    """
    device, codes = weight.device, weight.view(torch.uint8).cpu()
    if weight.dtype == torch.uint8:
        nibbles = torch.stack([codes & 15, codes >> 4], -1).flatten(1).long()
        values = torch.tensor(E2M1 + tuple(-value for value in E2M1))[nibbles]
    else:
        values = codes.view(torch.float8_e4m3fn).float()
    powers = torch.exp2(scale.view(torch.uint8).cpu().float() - 127)
    n, k = values.shape
    return (values.view(n, k // GROUP, GROUP) * powers[:, : k // GROUP, None]).view(n, k).to(dtype).to(device)


class _MxLayer:
    """What both formats do. The operators take a weight's rows along k as a transposed view, and scales in pairs."""

    format: str

    def __init__(self, config: Mxfp8LinearLayerConfig | MxFp4LinearLayerConfig) -> None:
        super().__init__(config)
        self.emulated = formats.is_emulated(self.format)

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        weight, scale = layer.weight.data, layer.weight_scale.data
        if self.emulated:
            put(layer, "weight", to_nz(decoded(weight, scale, layer.params_dtype)))
            put(layer, "weight_scale", None)
            return
        scale = torch.nn.functional.pad(scale.view(torch.uint8), (0, scale.shape[1] % 2))
        put(layer, "weight", weight)
        put(layer, "weight_scale", scale.view(scale.shape[0], -1, 2).contiguous())

    def apply_weights(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if self.emulated:
            y = torch.nn.functional.linear(formats.emulate_mx(rows, self.format), layer.weight, bias)
        else:
            y = self._multiply(layer, rows, bias)
        return y.view(*x.shape[:-1], y.shape[-1])

    def _multiply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        import torch_npu

        is_fp4 = self.format == "mxfp4"
        codes, scale = torch_npu.npu_dynamic_mx_quant(
            x, dst_type=torch_npu.float4_e2m1fn_x2 if is_fp4 else torch.float8_e4m3fn
        )
        types = dict(x1_dtype=torch_npu.float4_e2m1fn_x2, x2_dtype=torch_npu.float4_e2m1fn_x2) if is_fp4 else {}
        return torch_npu.npu_quant_matmul(
            codes,
            layer.weight.t(),
            layer.weight_scale.transpose(0, 1),
            scale_dtype=torch_npu.float8_e8m0fnu,
            pertoken_scale=scale,
            pertoken_scale_dtype=torch_npu.float8_e8m0fnu,
            bias=None if bias is None else bias.float(),
            output_dtype=x.dtype,
            group_sizes=[1, 1, GROUP],
            **types,
        )


class AscendMxfp8LinearKernel(_MxLayer, Mxfp8LinearKernel):
    format = "mxfp8"

    @classmethod
    def can_implement(cls, c: Mxfp8LinearLayerConfig) -> tuple[bool, str | None]:
        k = c.weight_shape[-1]
        return (True, None) if k % GROUP == 0 else (False, f"{k} inputs are no multiple of {GROUP}")


class AscendMxfp4LinearKernel(_MxLayer, MxFp4LinearKernel):
    format = "mxfp4"

    @classmethod
    def can_implement(cls, config: MxFp4LinearLayerConfig) -> tuple[bool, str | None]:
        if config.activation_quant_key not in (None, kMxfp4Dynamic):
            return False, f"has no activations in {config.activation_quant_key}: quantise them to MXFP4, or not at all"
        return True, None
