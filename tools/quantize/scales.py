"""Weights to scales and codes, by compressed-tensors' own functions: what it writes is by definition the format.

Scales (compressed_tensors.quantization.utils.calculate_qparams), for the greatest absolute value m of what shares one:

    integers of b bits   m / ((2^b - 1) / 2), so that codes are in [-2^(b-1), 2^(b-1) - 1]: m is 127.5 or 7.5, and clamps to 127 or 7
    E4M3                 m / 448
    MX                   2^(floor(log2 m') - e), where m' is m rounded to the next power of two from 1.75 on, and e = 8 (E4M3) or 2 (E2M1)

A zero m gives the smallest scale that isn't zero. Scales are then rounded to the dtype that the checkpoint stores them in, and only
then are codes chosen, so that no reader sees other values than the ones chosen for.
"""

from __future__ import annotations

import math

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationStrategy
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import calculate_qparams

from tools.quantize.schemes import Scheme

# Shares of the absolute maximum that a clipped group may keep.
_SHRINKS = tuple(1 - step / 40 for step in range(20))


def extremes(weight: torch.Tensor, args: QuantizationArgs) -> tuple[torch.Tensor, torch.Tensor]:
    """Least and greatest value of the weights [rows, columns] that share a scale, in the scale's shape."""
    rows, columns = weight.shape
    match args.strategy:
        case QuantizationStrategy.TENSOR:
            low, high = torch.aminmax(weight)
            return low.reshape(1), high.reshape(1)
        case QuantizationStrategy.CHANNEL:
            low, high = torch.aminmax(weight, dim=1, keepdim=True)
        case QuantizationStrategy.GROUP:
            low, high = torch.aminmax(weight.reshape(rows, columns // args.group_size, args.group_size), dim=-1)
        case QuantizationStrategy.BLOCK:
            height, width = args.block_structure
            row_blocks, column_blocks = math.ceil(rows / height), math.ceil(columns / width)
            padded = torch.nn.functional.pad(weight, (0, column_blocks * width - columns, 0, row_blocks * height - rows))
            blocks = padded.reshape(row_blocks, height, column_blocks, width).transpose(1, 2).reshape(row_blocks, column_blocks, -1)
            low, high = torch.aminmax(blocks, dim=-1)
        case _:
            raise NotImplementedError(args.strategy)
    return low, high


def stored(scale: torch.Tensor, scheme: Scheme, dtype: torch.dtype) -> torch.Tensor:
    """float32 scales as the checkpoint will hold them, in float32. MX scales are powers of two and exact."""
    if scheme.is_mx:
        return scale
    rounded = scale.to(dtype)
    return torch.where(rounded == 0, torch.tensor(torch.finfo(dtype).tiny, dtype=dtype), rounded).float()


def scale_of(weight: torch.Tensor, scheme: Scheme, dtype: torch.dtype) -> torch.Tensor:
    """Scales of float32 weights [rows, columns] by their absolute maxima: float32, as stored in a checkpoint of ``dtype``."""
    low, high = extremes(weight, scheme.weights)
    scale, _ = calculate_qparams(low, high, scheme.weights)
    return stored(scale.float(), scheme, dtype)


def best_group_scale(group: torch.Tensor, importance: torch.Tensor, scheme: Scheme, dtype: torch.dtype) -> torch.Tensor:
    """Scales [rows, 1] of one group [rows, width], clipped so far that the sum of importance * error^2 over a row is least.

    Args:
        importance: [width], not negative: the Hessian's diagonal.
    """
    args = scheme.weights
    low, high = torch.aminmax(group, dim=1, keepdim=True)
    best = torch.full_like(low, torch.inf)
    chosen = torch.ones_like(low)
    for shrink in _SHRINKS if not scheme.is_mx else (1.0, 0.5):
        scale = stored(calculate_qparams(low * shrink, high * shrink, args)[0].float(), scheme, dtype)
        error = ((fake_quantize(group, scale, None, args) - group).square() * importance).sum(1, keepdim=True)
        better = error < best
        best = torch.where(better, error, best)
        chosen = torch.where(better, scale, chosen)
    return chosen


def dequantised(weight: torch.Tensor, scale: torch.Tensor, scheme: Scheme) -> torch.Tensor:
    """The float32 values that a reader of the checkpoint gets for ``weight`` under ``scale``."""
    return fake_quantize(weight, scale, None, scheme.weights)


def compress(weight: torch.Tensor, scale: torch.Tensor, scheme: Scheme, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A layer's tensors as the checkpoint has them, by their local names ("weight_packed", "weight_scale", ...).

    Args:
        weight: float32. Values that ``dequantised`` gave come out as the same codes: code * scale / scale errs by less than 2^-22 of
            a code, and no code is that near to a rounding boundary.
        scale: what scale_of gave.
    """
    compressor = BaseCompressor.get_value_from_registry(scheme.format.value)
    state = {"weight": weight, "weight_scale": scale if scheme.is_mx else scale.to(dtype)}
    compressed = compressor.compress(state, scheme.quantization)
    return {name: tensor.detach().contiguous() for name, tensor in compressed.items()}
