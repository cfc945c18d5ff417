"""The one table of names: which tensors of a checkpoint make a fused module of vLLM's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

# What vLLM's models fuse. A model's own `packed_modules_mapping` is added, and wins.
FUSED: dict[str, list[str]] = {
    "qkv_proj": ["q_proj", "k_proj", "v_proj"],
    "gate_up_proj": ["gate_proj", "up_proj"],
    "fused_qkv_a_proj": ["q_a_proj", "kv_a_proj_with_mqa"],
}


def table_of(model: torch.nn.Module) -> dict[str, list[str]]:
    """The fused modules of ``model``."""
    own = getattr(model, "packed_modules_mapping", None) or {}
    return FUSED | {name: list(parts) for name, parts in own.items() if len(parts) > 1}


def unfused(mapper: Any) -> Callable[[str], str | None]:
    """vLLM's ``WeightsMapper`` without its fusing: a checkpoint's name -> the part's name in vLLM, None if it's unused."""
    return dataclasses.replace(mapper, orig_to_new_stacked={}).map_name


def parts_of(module: str, table: Mapping[str, list[str]] = FUSED) -> list[str]:
    """The checkpoint's modules that make ``module``: ``a.qkv_proj`` is of ``a.q_proj``, ``a.k_proj`` and ``a.v_proj``."""
    parent, _, leaf = module.rpartition(".")
    return [f"{parent}.{part}" if parent else part for part in table.get(leaf, [leaf])]


def one_type(module: str, types: Mapping[str, str], table: Mapping[str, list[str]]) -> str:
    """The quantisation type that all parts of a fused module have.

    Args:
        types: a type for each of the checkpoint's modules.

    Raises:
        ValueError: if the parts' types differ, with the list, or if one has none.
    """
    found = {part: types.get(part) for part in parts_of(module, table)}
    if None in found.values():
        absent = ", ".join(part for part, kind in found.items() if kind is None)
        raise ValueError(f"the description of the quantisation has no type for {absent}: quantise the model again")
    if len({*found.values()}) > 1:
        listed = ", ".join(f"{part}: {kind}" for part, kind in found.items())
        raise ValueError(
            f"the parts of {module} are computed as one and need one type, but have several ({listed}): quantise them alike"
        )
    return next(iter(found.values()))


def listed(names: list[str], limit: int = 4) -> str:
    """Names for a message: the first few, and how many more."""
    shown = ", ".join(sorted(names)[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
