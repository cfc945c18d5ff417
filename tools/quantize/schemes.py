"""The schemes, by name: compressed-tensors' own presets, with the group size that divides the model.

    w8a8         INT8 weights, a scale for each output channel; INT8 activations, a scale for each token, taken at run time
    w8a8_static  the same with one scale for all of a layer's activations, calibrated
    fp8          E4M3 weights, a scale for each output channel; E4M3 activations, a scale for each token, at run time
    fp8_static   E4M3 weights and activations, one scale each for the whole tensor, the activations' calibrated
    fp8_block    E4M3 weights with a scale for each 128 x 128 block (the last ones may be smaller); activations in groups of 128, at run time
    w4a16        INT4 weights in groups along a row, a scale for each; activations as they are
    w8a16        INT8 weights likewise
    mxfp8        OCP MX: E4M3 weights and activations in groups of 32 with a power of two (E8M0)
    mxfp4        OCP MX: E2M1 weights and activations in groups of 32 with a power of two (E8M0)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from compressed_tensors.config import CompressionFormat
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme, QuantizationStrategy
from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme

from serving.tracebacks import UserError

TARGETS = ["Linear"]
GROUP_SIZES = (128, 64, 32)  # in order of preference, where a scheme leaves it open
# What engines multiply by as one matrix, in its order.
_JOINED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("q_a_proj", "kv_a_proj_with_mqa"))


@dataclass(frozen=True, slots=True)
class _Entry:
    preset: str
    format: CompressionFormat
    needs_calibration: bool = False  # of the activations
    open_group_size: bool = False
    rounding: str = "nearest"  # what --rounding=auto takes
    folds: bool = False  # whether folding gains: where few inputs set the scale for all


_SCHEMES = {
    "w8a8": _Entry("W8A8", CompressionFormat.int_quantized, folds=True),
    "w8a8_static": _Entry("W8A8", CompressionFormat.int_quantized, needs_calibration=True, folds=True),
    "fp8": _Entry("FP8_DYNAMIC", CompressionFormat.float_quantized, rounding="gptq"),
    "fp8_static": _Entry("FP8", CompressionFormat.float_quantized, needs_calibration=True),
    "fp8_block": _Entry("FP8_BLOCK", CompressionFormat.float_quantized),
    "w4a16": _Entry("W4A16", CompressionFormat.pack_quantized, open_group_size=True, rounding="gptq"),
    "w8a16": _Entry("W8A16", CompressionFormat.pack_quantized, open_group_size=True),
    "mxfp8": _Entry("MXFP8", CompressionFormat.mxfp8_quantized),
    "mxfp4": _Entry("MXFP4", CompressionFormat.mxfp4_pack_quantized, rounding="gptq"),
}
NAMES = tuple(_SCHEMES)


@dataclass(frozen=True, slots=True)
class Scheme:
    """What is done to each linear layer."""

    name: str
    quantization: QuantizationScheme
    needs_calibration: bool
    rounding: str  # "nearest" or "gptq"
    folds: bool = False  # whether it gains by folding.py

    @property
    def weights(self) -> QuantizationArgs:
        assert self.quantization.weights is not None
        return self.quantization.weights

    @property
    def activations(self) -> QuantizationArgs | None:
        return self.quantization.input_activations

    @property
    def format(self) -> CompressionFormat:
        assert self.quantization.format is not None
        return CompressionFormat(self.quantization.format)

    @property
    def is_mx(self) -> bool:
        return self.weights.scale_dtype == torch.uint8

    def check_width(self, layer: str, width: int) -> None:
        """Raises UserError if a row of ``width`` weights isn't a whole number of groups."""
        group = self.weights.group_size if self.weights.strategy == QuantizationStrategy.GROUP else None
        if group and width % group:
            mend = "leave the layer out with --ignore, or take another scheme"
            if not self.is_mx:
                fitting = [size for size in GROUP_SIZES if width % size == 0]
                if fitting:
                    mend = f"give --group_size={fitting[0]}"
            raise UserError(f"{layer} has rows of {width} weights, which is no multiple of {self.name}'s group of {group}: {mend}")

    def uneven(self, heights: Mapping[str, int]) -> list[str]:
        """Those of the layers, given with their outputs, that can't be served: joined with another to one matrix, a block would span both."""
        if self.weights.strategy != QuantizationStrategy.BLOCK:
            return []
        block = self.weights.block_structure[0]
        found = []
        for name in heights:
            parent, _, local = name.rpartition(".")
            parts = next((parts for parts in _JOINED if local in parts), ())
            joined = [f"{parent}.{part}" for part in parts if f"{parent}.{part}" in heights]
            if any(heights[part] % block for part in joined[:-1]):
                found.append(name)
        return found


def make(name: str, widths: Collection[int] = (), group_size: int | None = None, rounding: str = "auto") -> Scheme:
    """The scheme ``name`` for layers whose rows have ``widths`` weights.

    Args:
        group_size: for w4a16 and w8a16; if not given, the greatest of 128, 64 and 32 that divides every width.
        rounding: "nearest", "gptq", or "auto", which is the scheme's own.

    Raises:
        UserError: for an unknown name, or a group size that the scheme has not or that doesn't divide.
    """
    entry = _SCHEMES.get(name)
    if entry is None:
        raise UserError(f"there is no scheme {name!r}: take one of {', '.join(NAMES)}")
    quantization = preset_name_to_scheme(entry.preset, TARGETS)
    quantization.format = entry.format
    if entry.open_group_size:
        if group_size is None:
            group_size = next((size for size in GROUP_SIZES if all(width % size == 0 for width in widths)), GROUP_SIZES[-1])
        if group_size not in GROUP_SIZES:
            raise UserError(f"--group_size={group_size}: {name} has groups of {', '.join(map(str, sorted(GROUP_SIZES)))}")
        quantization.weights.group_size = group_size
    elif group_size is not None:
        raise UserError(f"--group_size={group_size}: {name} has no choice of it, only w4a16 and w8a16 have; leave it out")
    if name == "w8a8_static":
        quantization.input_activations = QuantizationArgs(
            num_bits=8, type="int", strategy="tensor", symmetric=True, dynamic=False, observer="static_minmax"
        )
    if rounding == "auto":
        rounding = entry.rounding
    if rounding == "gptq" and quantization.weights.strategy in (QuantizationStrategy.BLOCK, QuantizationStrategy.TENSOR):
        raise UserError(f"--rounding=gptq: {name} has scales that span rows, for which it isn't defined here; take nearest")
    return Scheme(name, quantization, entry.needs_calibration, rounding, entry.folds)
