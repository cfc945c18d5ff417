"""How quantised weights lie in device memory, and what the kernels' parameters have in common."""

from __future__ import annotations

import torch
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.utils import replace_parameter

from jumar.weights import FRACTAL_NZ


def to_nz(weight: torch.Tensor) -> torch.Tensor:
    """``weight``, a matrix or a stack of them, in the fractal NZ format; where that can't be, as it is."""
    import torch_npu

    # torch_npu keeps to ND formats unless it is told otherwise, and says so in a warning only.
    torch.npu.config.allow_internal_format = True
    weight = weight.contiguous()
    return weight if weight.dtype == torch.float32 else torch_npu.npu_format_cast(weight, FRACTAL_NZ)


def put(layer: torch.nn.Module, name: str, value: torch.Tensor | None) -> None:
    """Makes ``value`` the layer's parameter ``name``, or takes it away."""
    if value is None:
        setattr(layer, name, None)
        return
    replace_parameter(layer, name, torch.nn.Parameter(value, requires_grad=False))


def per_channel(scale: torch.Tensor, widths: list[int]) -> torch.Tensor:
    """Scales of a fused module, fp32 [n]: of one per part, or per output channel already.

    Args:
        scale: [parts], [n] or [n, 1].
        widths: output channels of each part; n is their sum.
    """
    scale = scale.detach().float().flatten()
    n = sum(widths)
    if scale.numel() == n:
        return scale.contiguous()
    if scale.numel() == 1:
        return scale.expand(n).contiguous()
    if scale.numel() != len(widths):
        raise ValueError(f"{scale.numel()} scales for a module of {len(widths)} parts and {n} channels")
    return torch.cat([s.expand(width) for s, width in zip(scale, widths)])


def refuse_experts(layer: torch.nn.Module, prefix: str) -> None:
    """Raises NotImplementedError for routed experts, for which there is no kernel."""
    if isinstance(layer, RoutedExperts):
        raise NotImplementedError(f"{prefix}: quantised experts have no kernel on npu yet: serve a dense model")
