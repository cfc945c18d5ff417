"""One linear layer: its weights to a checkpoint's tensors, and what that costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationStrategy
from compressed_tensors.quantization.utils import calculate_qparams, calculate_range
from compressed_tensors.quantization.quant_args import round_to_quantized_type_args

from serving.tracebacks import UserError
from tools.quantize import gptq, scales
from tools.quantize.calibration import Inputs
from tools.quantize.schemes import Scheme


@dataclass(frozen=True, slots=True)
class LayerError:
    """What quantisation does to a layer."""

    name: str
    rows: int
    columns: int
    weight_error: float  # |W - W'| / |W|, Frobenius
    output_snr_db: float | None  # 10 log10(|X W^T|^2 / |X W^T - X' W'^T|^2) over calibration's inputs; None if there were none


@dataclass(frozen=True, slots=True)
class Quantised:
    tensors: dict[str, torch.Tensor]  # by local name
    weight: torch.Tensor  # float32, as a reader gets it
    error: LayerError


def quantise_inputs(inputs: torch.Tensor, args: QuantizationArgs, static_scale: torch.Tensor | None) -> torch.Tensor:
    """What an engine computes with in place of float32 inputs [rows, columns]. The last group may be shorter than the others."""
    columns = inputs.shape[1]
    if args.strategy == QuantizationStrategy.GROUP:
        width = args.group_size
        groups = math.ceil(columns / width)
        values = torch.nn.functional.pad(inputs, (0, groups * width - columns)).reshape(-1, groups, width)
    else:
        values = inputs.unsqueeze(1)
    if static_scale is not None:
        scale = static_scale.float()
    else:
        scale, _ = calculate_qparams(values.amin(-1, keepdim=True), values.amax(-1, keepdim=True), args)
    low, high = calculate_range(args, inputs.device)
    quantised = round_to_quantized_type_args(values / scale, args, low, high).float() * scale
    return quantised.reshape(inputs.shape[0], -1)[:, :columns]


def static_scale(absmax: torch.Tensor, args: QuantizationArgs, dtype: torch.dtype) -> torch.Tensor:
    """The static scale [1] of a layer's inputs, from their greatest absolute value."""
    scale, _ = calculate_qparams(-absmax.reshape(1), absmax.reshape(1), args)
    return scale.to(dtype)


def nearest(weight: torch.Tensor, scheme: Scheme, dtype: torch.dtype) -> torch.Tensor:
    """The values of float32 weights [rows, columns] rounded to the nearest, under scales stored in ``dtype``."""
    return scales.dequantised(weight, scales.scale_of(weight, scheme, dtype), scheme)


def quantise(name: str, weight: torch.Tensor, scheme: Scheme, inputs: Inputs | None, folded: torch.Tensor | None = None) -> Quantised:
    """Quantises the layer ``name``.

    Args:
        weight: [rows, columns], in the dtype of the checkpoint.
        inputs: what calibration saw; needed by GPTQ and by static activation scales.
        folded: float32 weights to quantise in place of the checkpoint's.

    Raises:
        UserError: if a weight is not finite, or its rows don't divide into groups, or inputs are missing.
    """
    if not weight.is_floating_point() or weight.element_size() < 2:
        raise UserError(f"{name}.weight is {weight.dtype} already: give a model in bfloat16, float16 or float32")
    bad = int((~torch.isfinite(weight)).sum())
    if bad:
        raise UserError(f"{name}.weight has {bad} NaN or infinite values of {weight.numel()}: the checkpoint is damaged, fetch it again")
    scheme.check_width(name, weight.shape[1])
    if inputs is None and (scheme.rounding == "gptq" or scheme.needs_calibration):
        what = "--rounding=gptq" if scheme.rounding == "gptq" else scheme.name
        mend = "give --rounding=nearest" if not scheme.needs_calibration else "leave it out with --ignore, or take a dynamic scheme"
        raise UserError(f"{name} gets no inputs in the calibration, which {what} needs: {mend}")
    dtype = weight.dtype
    original = weight.float() if folded is None else folded.clone()
    if scheme.rounding == "gptq":
        weight32, scale = gptq.quantise(original, inputs.hessian, scheme, dtype)
    else:
        scale = scales.scale_of(original, scheme, dtype)
        weight32 = scales.dequantised(original, scale, scheme)
    tensors = scales.compress(weight32 if scheme.rounding == "gptq" else original, scale, scheme, dtype)
    static = None
    if scheme.needs_calibration:
        static = tensors["input_scale"] = static_scale(inputs.absmax, scheme.activations, dtype)

    error = (weight32 - original).norm() / original.norm().clamp_min(torch.finfo(torch.float32).tiny)
    snr = None
    if inputs is not None:
        rows = inputs.rows()
        exact = rows @ original.T
        seen = rows if scheme.activations is None else quantise_inputs(rows, scheme.activations, static)
        noise = (seen @ weight32.T - exact).double().square().sum()
        snr = 10 * math.log10(float(exact.double().square().sum()) / max(float(noise), 1e-300)) if float(noise) > 0 else math.inf
    return Quantised(tensors, weight32, LayerError(name, *weight.shape, float(error), snr))
