"""GPTQ: rounds a layer's weights one column after the other, and makes up for each column's error in those that are left.

Frantar, Ashkboos, Hoefler, Alistarh: "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", ICLR 2023,
arXiv:2210.17323, Algorithm 1, with the columns in their own order (no act-order, which few readers support in groups). For inputs X
[tokens, columns] and H = X^T X + lambda I, U the upper Cholesky factor of H^-1 (H^-1 = U^T U), column j is rounded to q_j, and with
e = (w_j - q_j) / U_jj every later column i becomes w_i - e U_ji. A group's scale is chosen when its first column is reached.
"""

from __future__ import annotations

import torch
from compressed_tensors.quantization import QuantizationStrategy
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.quant_args import QuantizationArgs

from tools.quantize import scales
from tools.quantize.schemes import Scheme

DAMPING = 0.01  # lambda, as a share of the mean of H's diagonal: the paper's
_BLOCK = 64  # columns whose errors reach the columns behind the block by one product; groups of 32, 64 and 128 begin where it is up to date


def quantise(weight: torch.Tensor, hessian: torch.Tensor, scheme: Scheme, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounds float32 weights [rows, columns].

    Args:
        hessian: [columns, columns], float32 or float64: the sum of x x^T over the calibration's inputs x.
        dtype: what the checkpoint stores scales in.

    Returns:
        The dequantised weights and their scales, float32.
    """
    weight = weight.clone()
    hessian = hessian.double().clone()
    columns = weight.shape[1]
    diagonal = hessian.diagonal()
    dead = diagonal == 0  # inputs that calibration never saw: they say nothing, and must not stop the factorisation
    importance = torch.where(dead, diagonal.mean(), diagonal).float()  # what an error of a column costs by itself
    diagonal[dead] = 1
    diagonal += DAMPING * diagonal.mean()
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian))
    factor = torch.linalg.cholesky(inverse, upper=True).float()

    args = scheme.weights
    grouped = args.strategy == QuantizationStrategy.GROUP
    group = args.group_size if grouped else columns
    column_args = QuantizationArgs(num_bits=args.num_bits, type=args.type, strategy="channel", symmetric=True)
    chosen = []
    result = torch.empty_like(weight)
    scale = scales.scale_of(weight, scheme, dtype) if not grouped else torch.empty(0)
    for start in range(0, columns, _BLOCK):
        end = min(start + _BLOCK, columns)
        errors = torch.empty(weight.shape[0], end - start)
        for column in range(start, end):
            if grouped and column % group == 0:
                scale = scales.best_group_scale(weight[:, column : column + group], importance[column : column + group], scheme, dtype)
                chosen.append(scale)
            rounded = fake_quantize(weight[:, column : column + 1], scale, None, column_args)
            result[:, column : column + 1] = rounded
            error = (weight[:, column : column + 1] - rounded) / factor[column, column]
            errors[:, column - start : column - start + 1] = error
            weight[:, column + 1 : end] -= error * factor[column, column + 1 : end]
        weight[:, end:] -= errors @ factor[start:end, end:]
    return result, torch.cat(chosen, dim=1) if grouped else scale
