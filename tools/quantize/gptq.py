"""GPTQ: rounds a layer's weights one column after the other, and makes up for each column's error in those that are left.

Frantar, Ashkboos, Hoefler, Alistarh: "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", ICLR 2023,
arXiv:2210.17323, Algorithm 1. For inputs X [tokens, columns] and H = X^T X + lambda I, U the upper Cholesky factor of H^-1
(H^-1 = U^T U), column j is rounded to q_j, and with e = (w_j - q_j) / U_jj every later column i becomes w_i - e U_ji.

Columns come by falling diagonal of H: those of great inputs, whose errors cost most, while many are left to make up for them. Groups stay
those of the checkpoint's order, and so their scales are chosen before, of the weights as they were: then every reader takes the result.
"""

from __future__ import annotations

import torch
from compressed_tensors.quantization import QuantizationStrategy
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.quant_args import QuantizationArgs

from tools.quantize import scales
from tools.quantize.schemes import Scheme

DAMPING = 0.01  # lambda, as a share of the mean of H's diagonal: the paper's
_BLOCK = 64  # columns whose errors reach the columns behind the block by one product


def quantise(weight: torch.Tensor, hessian: torch.Tensor, scheme: Scheme, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounds float32 weights [rows, columns].

    Args:
        hessian: [columns, columns], float32 or float64: the sum of x x^T over the calibration's inputs x.
        dtype: what the checkpoint stores scales in.

    Returns:
        The dequantised weights and their scales, float32.
    """
    hessian = hessian.double().clone()
    columns = weight.shape[1]
    diagonal = hessian.diagonal()
    dead = diagonal == 0  # inputs that calibration never saw: they say nothing, and must not stop the factorisation
    importance = torch.where(dead, diagonal.mean(), diagonal).float()  # what an error of a column costs by itself
    diagonal[dead] = 1
    diagonal += DAMPING * diagonal.mean()
    order = torch.argsort(diagonal, descending=True, stable=True)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian[order][:, order]))
    factor = torch.linalg.cholesky(inverse, upper=True).float()

    args = scheme.weights
    if args.strategy == QuantizationStrategy.GROUP:
        group = args.group_size
        groups = [slice(start, start + group) for start in range(0, columns, group)]
        scale = torch.cat([scales.best_group_scale(weight[:, part], importance[part], scheme, dtype) for part in groups], dim=1)
    else:
        group, scale = columns, scales.scale_of(weight, scheme, dtype)
    group_of = (order // group).tolist()
    column_args = QuantizationArgs(num_bits=args.num_bits, type=args.type, strategy="channel", symmetric=True)
    weight = weight[:, order]
    result = torch.empty_like(weight)
    for start in range(0, columns, _BLOCK):
        end = min(start + _BLOCK, columns)
        errors = torch.empty(weight.shape[0], end - start)
        for column in range(start, end):
            column_scale = scale[:, group_of[column] : group_of[column] + 1]
            rounded = fake_quantize(weight[:, column : column + 1], column_scale, None, column_args)
            result[:, column : column + 1] = rounded
            error = (weight[:, column : column + 1] - rounded) / factor[column, column]
            errors[:, column - start : column - start + 1] = error
            weight[:, column + 1 : end] -= error * factor[column, column + 1 : end]
        weight[:, end:] -= errors @ factor[start:end, end:]
    return result[:, order.argsort()], scale
