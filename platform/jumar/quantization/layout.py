"""How quantised weights lie in device memory, and what the kernels' parameters have in common."""

from __future__ import annotations

import torch
from vllm.model_executor.utils import replace_parameter, set_weight_attrs


def put(layer: torch.nn.Module, name: str, value: torch.Tensor | None) -> None:
    """Makes ``value`` the layer's parameter ``name``, or takes it away."""
    if value is None:
        setattr(layer, name, None)
        return
    replace_parameter(layer, name, torch.nn.Parameter(value, requires_grad=False))


def one_per_part(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    """``parameter`` [parts], told to vLLM's loader to take a number from each part of a fused module, of shape [] or [1]."""
    set_weight_attrs(parameter, {"needs_scalar_to_array": True})
    return parameter


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
