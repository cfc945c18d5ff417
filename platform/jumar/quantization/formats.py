"""What number formats the chip computes with, and what happens when it lacks one.

A checkpoint in a format that the chip lacks is refused before a weight is read, with the alternative. With
``--additional-config '{"emulate_formats": true}'`` it is served all the same, emulated: weights are decoded to the
model's dtype when they are loaded, and activations are rounded through the format by ordinary arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from vllm.logger import init_logger
from vllm.platforms import current_platform

from jumar.quantization import chips

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = init_logger("vllm.jumar.quantization")

OPTION = "emulate_formats"

# Formats by their names in the hardware table: how people call them, and what a chip without them can be given.
TITLES = {"int8": "INT8", "int4": "INT4", "fp8": "FP8", "mxfp8": "MXFP8", "mxfp4": "MXFP4", "hif8": "HiF8"}
ALTERNATIVES = {
    "fp8": "an INT8 W8A8 checkpoint (w8a8)",
    "mxfp8": "an INT8 W8A8 checkpoint (w8a8)",
    "mxfp4": "an INT4 weight-only checkpoint (w4a16)",
    "hif8": "an INT8 W8A8 checkpoint (w8a8)",
    "int4": "an INT8 W8A8 checkpoint (w8a8)",
    "int8": "a bf16 or fp16 checkpoint",
}


class FormatError(ValueError):
    """The chip lacks a number format."""


def _chip() -> str:
    return current_platform.get_device_name()


def row_of(chip: str) -> str | None:
    """The hardware table's row for a chip's name: the name itself, or the longest row that it starts with."""
    rows = [row for row in chips.COMPUTES if chip.lower().startswith(row.lower())]
    return max(rows, key=len, default=None)


def lacks(chip: str, fmt: str, weight_only: bool = False) -> bool:
    """Whether the table says that ``chip`` has no ``fmt``. A chip that the table doesn't know lacks nothing.

    Args:
        weight_only: the format is that of the weights alone, whose products are of 16 bits.
    """
    row = row_of(chip)
    if row is None:
        return False
    return fmt not in (chips.WEIGHTS if weight_only else chips.COMPUTES)[row]


def chips_with(fmt: str, weight_only: bool = False) -> str:
    """The chips that have ``fmt``, for a message: families rather than each variant."""
    table = chips.WEIGHTS if weight_only else chips.COMPUTES
    families = {chips.FAMILIES[row]: None for row, formats in table.items() if fmt in formats}
    return " or ".join(families)


def asks_for_emulation(config: VllmConfig | None) -> bool:
    """Whether the user asked for emulation."""
    options = config.additional_config if config is not None else None
    return isinstance(options, dict) and bool(options.get(OPTION))


def is_emulated(fmt: str, weight_only: bool = False) -> bool:
    """Whether layers in ``fmt`` have to be emulated on this chip.

    Raises:
        FormatError: if the chip lacks it and the user didn't ask for emulation.
    """
    chip = _chip()
    if not lacks(chip, fmt, weight_only):
        return False
    from vllm.config import get_current_vllm_config_or_none

    if not asks_for_emulation(get_current_vllm_config_or_none()):
        what = "weights need" if weight_only else "needs"
        raise FormatError(
            f"{TITLES[fmt]} {what} {chips_with(fmt, weight_only)}; this is {chip}: use {ALTERNATIVES[fmt]}, or "
            f"--additional-config '{{\"{OPTION}\": true}}' to run it emulated"
        )
    logger.warning_once(
        "%s has no %s: emulating it. Weights are decoded to the model's dtype when loaded (they take its memory and "
        "its speed), activations are rounded through %s by arithmetic",
        chip,
        TITLES[fmt],
        TITLES[fmt],
    )
    return True


def round_to_e4m3(x: torch.Tensor) -> torch.Tensor:
    """float32 ``x`` rounded to the nearest E4M3 number, a tie to the even one; beyond +-448, to that."""
    x = torch.clamp(x, -448.0, 448.0)
    bits = x.view(torch.int32)
    # 20 bits of the mantissa go: add half of the last bit that stays, less one if that is even.
    kept = bits + 0x7FFFF + ((bits >> 20) & 1)
    normal = (kept & ~0xFFFFF).view(torch.float32)
    # Below 2^-6 numbers are multiples of 2^-9.
    return torch.where(x.abs() < 2.0**-6, torch.round(x * 512.0) / 512.0, normal)


def round_to_e2m1(x: torch.Tensor) -> torch.Tensor:
    """float32 ``x`` rounded to the nearest of +-{0, 0.5, 1, 1.5, 2, 3, 4, 6}, a tie to the even mantissa."""
    magnitude = x.abs()
    step = torch.where(magnitude < 2.0, 0.5, torch.where(magnitude < 4.0, 1.0, 2.0))
    return torch.clamp(torch.round(x / step) * step, -6.0, 6.0)


def emulate_groups(x: torch.Tensor, size: int) -> torch.Tensor:
    """x [.., k] through E4M3 with a scale max / 448 for each ``size`` elements of a row; ``size`` 0: for each row."""
    k = x.shape[-1]
    groups = _groups(x, size or k)
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448.0
    return (round_to_e4m3(groups / scale) * scale).flatten(-2)[..., :k].to(x.dtype)


def emulate_static(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """x through E4M3 with the scale of a checkpoint."""
    return (round_to_e4m3(x.float() / scale) * scale).to(x.dtype)


def emulate_mx(x: torch.Tensor, fmt: str) -> torch.Tensor:
    """x [.., k] through MXFP8 (E4M3) or MXFP4: 32 elements share a power of two, by OCP's floor rule."""
    k = x.shape[-1]
    groups = _groups(x, 32)
    # The exponent of float32, exact where log2 may err.
    exponent = (groups.abs().amax(-1, keepdim=True).view(torch.int32) >> 23) - 127
    shift = (exponent - (8 if fmt == "mxfp8" else 2)).clamp(min=-126)
    scale = ((shift + 127) << 23).view(torch.float32)
    rounded = round_to_e4m3(groups / scale) if fmt == "mxfp8" else round_to_e2m1(groups / scale)
    return (rounded * scale).flatten(-2)[..., :k].to(x.dtype)


def _groups(x: torch.Tensor, size: int) -> torch.Tensor:
    padding = -x.shape[-1] % size
    x = x.float()
    if padding:
        x = torch.nn.functional.pad(x, (0, padding))
    return x.unflatten(-1, (-1, size))
