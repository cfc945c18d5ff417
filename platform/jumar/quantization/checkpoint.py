"""Checks a quantised checkpoint against the model that is to hold it, before the long work.

Read are the headers of the safetensors files (names, dtypes, shapes) and the scales themselves. Every error is one
message with the names and what mends it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from safetensors import SafetensorError, safe_open
from vllm.logger import init_logger
from vllm.model_executor.layers.linear import LinearBase, MergedColumnParallelLinear, QKVParallelLinear
from vllm.model_executor.parameter import BlockQuantScaleParameter, PerTensorScaleParameter

from jumar.quantization.names import listed, parts_of, table_of, unfused

logger = init_logger("vllm.jumar.quantization")

DTYPES = {
    "I8": torch.int8, "U8": torch.uint8, "I32": torch.int32, "I64": torch.int64, "F16": torch.float16,
    "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
}  # fmt: skip
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Bytes that hold an E8M0 exponent.
_E8M0 = (torch.uint8, torch.float8_e8m0fnu)

# Tensors that quantisers write and no layer takes, or that may be absent.
_OPTIONAL = re.compile(r"(g_idx|weight_shape|[qkv]_scale|[qkv]_zero_point|output_scale|prob_scale|inv_freq|\.bias)$")
_SCALE = re.compile(r"(scale|scales|scale_inv)$")


class CheckpointError(ValueError):
    """The checkpoint can't be served; the message is for the user."""


@dataclass(frozen=True)
class Stored:
    """A tensor of a file, by its header."""

    file: str
    name: str  # the checkpoint's
    dtype: torch.dtype | None
    shape: tuple[int, ...]


@dataclass
class Problems:
    """What is wrong, by kind."""

    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    scales: list[str] = field(default_factory=list)

    def raise_if_any(self, folder: str, method: str) -> None:
        found = []
        if self.missing:
            found.append(f"{len(self.missing)} tensors are missing ({listed(self.missing)})")
        if self.extra:
            found.append(f"{len(self.extra)} tensors have no place in the model ({listed(self.extra)})")
        for kind, what in [(self.shapes, "wrong shape"), (self.dtypes, "wrong dtype"), (self.scales, "bad scales")]:
            if kind:
                found.append(f"{what}: {listed(kind, 3)}")
        if found:
            mend = (
                "quantise the model again"
                if self.scales or self.shapes or self.dtypes
                else "fetch all of its files again, or mend quantization_config in its config.json"
            )
            raise CheckpointError(f"checkpoint {folder} doesn't fit its quantisation, {method}: {'; '.join(found)}: {mend}")


def read_headers(files: list[str]) -> dict[str, Stored]:
    """Every tensor of safetensors files by name.

    Raises:
        CheckpointError: for a file that is damaged or truncated.
    """
    tensors = {}
    for file in files:
        try:
            with safe_open(file, "pt") as opened:
                for name in opened.keys():
                    entry = opened.get_slice(name)
                    tensors[name] = Stored(file, name, DTYPES.get(entry.get_dtype()), tuple(entry.get_shape()))
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is corrupt or truncated ({error}): fetch it again") from error
    return tensors


def check(model: torch.nn.Module, files: list[str], folder: str, method: str, whole: bool = True) -> None:
    """Compares the headers of ``files`` with the linear layers of ``model``, and looks at the scales.

    Args:
        whole: this rank holds all layers, so that a tensor without a place is one too many.

    Raises:
        CheckpointError: with everything that is wrong.
    """
    stored = _by_vllm_name(model, read_headers(files))
    table = table_of(model)
    problems = Problems()
    wanted: dict[str, tuple[tuple[int, ...], torch.Tensor, LinearBase]] = {}
    modules: set[str] = set()
    for prefix, layer in model.named_modules():
        if not isinstance(layer, LinearBase):
            continue
        parts = parts_of(prefix, table)
        if len(parts) != len(full_widths(layer)) or any(name.startswith(prefix + ".") for name in stored):
            parts = [prefix]  # the checkpoint has it fused
        modules.update(parts)
        for suffix, parameter in layer.named_parameters(recurse=False):
            for index, part in enumerate(parts):
                shape = full_shape(layer, parameter, index if len(parts) > 1 else None)
                wanted[f"{part}.{suffix}"] = shape, parameter, layer
    if not wanted.keys() & stored.keys():
        logger.info("the checkpoint's names are not those of the model's layers; they are not checked")
        return
    for name, (shape, parameter, layer) in wanted.items():
        if name not in stored:
            if not _OPTIONAL.search(name):
                problems.missing.append(name)
            continue
        tensor = stored[name]
        if not _same_kind(tensor.dtype, parameter.dtype):
            problems.dtypes.append(f"{name} is {_short(tensor.dtype)}, not {_short(parameter.dtype)}")
        elif math.prod(tensor.shape) != 1 or math.prod(shape) != 1:
            if tensor.shape != shape:
                problems.shapes.append(f"{name} is {list(tensor.shape)}, not {list(shape)}{_groups(shape, parameter, layer)}")
    leaves = {module.rpartition(".")[2] for module in modules}
    for name in stored.keys() - wanted.keys() if whole else ():
        module = name.rpartition(".")[0]
        if module.rpartition(".")[2] in leaves and "experts" not in module and not _OPTIONAL.search(name):
            problems.extra.append(name)
    problems.scales += _bad_scales([stored[name] for name in wanted if name in stored and _SCALE.search(name)])
    problems.raise_if_any(folder, method)


def _by_vllm_name(model: torch.nn.Module, tensors: dict[str, Stored]) -> dict[str, Stored]:
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    if mapper is None:
        return tensors
    rename = unfused(mapper)
    mapped = {rename(name): tensor for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in mapped.items() if name is not None}


def full_widths(layer: LinearBase) -> list[int]:
    """Output channels of each part of a layer, over all tensor-parallel ranks."""
    if isinstance(layer, QKVParallelLinear):
        value = getattr(layer, "v_head_size", layer.head_size)
        heads, kv_heads = layer.total_num_heads, layer.total_num_kv_heads
        return [heads * layer.head_size, kv_heads * layer.head_size, kv_heads * value]
    if isinstance(layer, MergedColumnParallelLinear):
        return list(layer.output_sizes)
    return [layer.output_size]


def full_shape(layer: LinearBase, parameter: torch.Tensor, part: int | None) -> tuple[int, ...]:
    """What the checkpoint's tensor for ``parameter`` must have, over all ranks; of one part, or of all (None)."""
    widths = full_widths(layer)
    n = sum(widths) if part is None else widths[part]
    local_k = getattr(layer, "input_size_per_partition", layer.input_size)
    if isinstance(parameter, PerTensorScaleParameter):
        return (1,)
    shape = list(parameter.shape)
    for axis, size, local in (
        (getattr(parameter, "output_dim", None), n, None),
        (getattr(parameter, "input_dim", None), layer.input_size, local_k),
    ):
        if axis is None or axis >= len(shape):
            continue
        if getattr(parameter, "packed_dim", None) == axis:
            shape[axis] = math.ceil(size / parameter.packed_factor)
        elif isinstance(parameter, BlockQuantScaleParameter) and layer.weight_block_size:
            shape[axis] = -(-size // layer.weight_block_size[axis])
        elif local is None:
            shape[axis] = size
        else:
            shape[axis] = shape[axis] * size // local
    return tuple(shape)


def _same_kind(have: torch.dtype | None, want: torch.dtype) -> bool:
    if have is None or have == want or (have in _E8M0 and want in _E8M0):
        return True
    return have in _FLOATS and want in _FLOATS


def _short(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def _groups(shape: tuple[int, ...], parameter: torch.Tensor, layer: LinearBase) -> str:
    """How the wanted shape of a scale comes about."""
    axis = getattr(parameter, "input_dim", None)
    if axis is None or len(shape) < 2 or shape[axis] >= layer.input_size or hasattr(parameter, "packed_factor"):
        return ""
    return f" (groups of {layer.input_size // max(shape[axis], 1)} of the {layer.input_size} inputs)"


def _bad_scales(scales: list[Stored]) -> Iterator[str]:
    """Which scales hold a number that can't be one, and the number."""
    by_file: dict[str, list[Stored]] = {}
    for tensor in scales:
        by_file.setdefault(tensor.file, []).append(tensor)
    for file, tensors in by_file.items():
        with safe_open(file, "pt") as opened:
            for tensor in tensors:
                value = opened.get_tensor(tensor.name)
                if tensor.dtype in _E8M0:
                    bad, what = value.view(torch.uint8) == 255, "NaN"
                else:
                    value = value.float()
                    bad = ~(torch.isfinite(value) & (value > 0))
                    what = f"{value[bad].flatten()[0]:g}" if bad.any() else ""
                if bad.any():
                    yield f"{tensor.name} has {what} ({int(bad.sum())} of {bad.numel()})"
