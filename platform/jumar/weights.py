"""The weights' storage format on the device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from vllm.model_executor.layers.attention import MLAAttention
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod

# ACL_FORMAT_FRACTAL_NZ: tiles of 16 x 16, as the cube unit reads them.
FRACTAL_NZ = 29

# The cube unit computes in 16 bits; a weight of 32 stays as it is.
NZ_DTYPES = (torch.bfloat16, torch.float16)


class CastWeights(NamedTuple):
    """How many weights were cast, and their bytes."""

    count: int
    num_bytes: int


def to_nz(weight: torch.Tensor) -> torch.Tensor:
    """``weight``, a matrix or a stack of them, in the fractal NZ format; where that can't be, as it is."""
    import torch_npu

    # torch_npu keeps to ND formats unless it is told otherwise, and says so in a warning only.
    torch.npu.config.allow_internal_format = True
    weight = weight.contiguous()
    return weight if weight.dtype == torch.float32 else torch_npu.npu_format_cast(weight, FRACTAL_NZ)


class NzLinearMethod(UnquantizedLinearMethod):
    """vLLM's linear method over a weight in NZ, also when the weight is loaded again.

    vLLM reloads a layer into a fresh weight of rows, lets this class process it, and copies it into the old memory, to
    which captured graphs refer. torch_npu copies in place between equal formats only; a copy of rows into an NZ tensor
    leaves the old memory as it is, without a word.
    """

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        super().process_weights_after_loading(layer)
        layer.weight.data = to_nz(layer.weight.data)


def cast_weights_to_nz(model: torch.nn.Module) -> CastWeights:
    """Casts the weights of ``model``'s unquantised linear layers to the NZ format, one at a time.

    An output layer that shares the embedding's weight keeps rows, which the embedding looks up; so does the projection that latent
    attention takes apart whenever weights are loaded.
    """
    count = num_bytes = 0
    taken_apart = {layer.kv_b_proj for layer in model.modules() if isinstance(layer, MLAAttention)}
    for layer in model.modules():
        if layer in taken_apart or not isinstance(layer, LinearBase) or not isinstance(layer.quant_method, UnquantizedLinearMethod):
            continue
        weight = layer.weight
        if weight.dtype not in NZ_DTYPES or weight.dim() != 2:
            continue
        layer.quant_method = NzLinearMethod()
        layer.quant_method.process_weights_after_loading(layer)
        count += 1
        num_bytes += weight.numel() * weight.element_size()
    return CastWeights(count, num_bytes)
