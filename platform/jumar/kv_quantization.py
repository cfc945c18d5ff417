"""The KV cache in INT8 or FP8: one byte for a number, and scales.

``--kv-cache-dtype`` names them as vLLM does (docs/kv_cache.md):

- ``int8_per_token_head``, ``fp8_per_token_head``: a float32 scale for each token and KV head, its largest number over
  127 (448), made when the token is written. Nothing to calibrate.
- ``fp8`` (= ``fp8_e4m3``), ``fp8_e5m2``: one scale for the keys and one for the values of a layer, or one for each
  head, from the checkpoint; without them 1.0.

A layer's cache is one allocation of vLLM's, used as keys ``[blocks, block_size, kv_heads, head_size]``, values of the
same shape, and per token and head the keys' scales ``[blocks, kv_heads, block_size]`` and the values'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from jumar_hostcann import probe
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm.v1.attention.backend import AttentionLayer
from vllm.v1.kv_cache_interface import AttentionSpec

from jumar.quantization import formats

if TYPE_CHECKING:
    from vllm.config import VllmConfig

SCALE_BYTES = 4

# Values of the operator's key_antiquant_mode and value_antiquant_mode (CANN, FusedInferAttentionScore).
MODE_PER_TENSOR = 0
MODE_PER_HEAD = 2
MODE_PER_TOKEN_HEAD_IN_PAGES = 5


@dataclass(frozen=True)
class KVFormat:
    codes: torch.dtype
    per_token_head: bool


FORMATS = {
    "int8_per_token_head": KVFormat(torch.int8, per_token_head=True),
    "fp8_per_token_head": KVFormat(torch.float8_e4m3fn, per_token_head=True),
    "fp8": KVFormat(torch.float8_e4m3fn, per_token_head=False),
    "fp8_e4m3": KVFormat(torch.float8_e4m3fn, per_token_head=False),
    "fp8_e5m2": KVFormat(torch.float8_e5m2, per_token_head=False),
}


def refusal(kv_cache_dtype: str | None, chip: str, emulate: bool) -> str | None:
    """Why ``chip`` can't have a cache of this dtype, with the alternative; None if it can.

    Args:
        emulate: the user asked for formats that the chip lacks, and what computes is hostcann.
    """
    kv_format = FORMATS.get(kv_cache_dtype or "auto")
    if kv_format is None or kv_format.codes == torch.int8 or emulate or not formats.lacks(chip, "fp8"):
        return None
    return (
        f"{chip} has no FP8, which --kv-cache-dtype {kv_cache_dtype} needs (as {formats.chips_with('fp8')} has): use "
        f"int8_per_token_head, or on hostcann --additional-config '{{\"{formats.OPTION}\": true}}' to have it emulated"
    )


def check(kv_cache_dtype: str | None, config: VllmConfig | None) -> None:
    """Checks a cache's dtype against the current device.

    Raises:
        ValueError: with refusal().
    """
    if kv_cache_dtype not in FORMATS:
        return
    from vllm.platforms import current_platform

    emulate = formats.asks_for_emulation(config) and probe.choose_backend().is_fallback
    said = refusal(kv_cache_dtype, current_platform.get_device_name(), emulate)
    if said is not None:
        raise ValueError(said)


def customize_spec(spec: AttentionSpec) -> AttentionSpec:
    """The spec with room for the scales in its pages: two float32 for each token and head."""
    if spec.state_content_bytes is not None or not spec.kv_quant_mode.is_per_token_head:
        return spec
    return replace(spec, state_content_bytes=spec.head_size + spec.head_size_v + 2 * SCALE_BYTES)


@dataclass
class QuantizedPages:
    """Views of a layer's allocation."""

    keys: torch.Tensor  # [blocks, block_size, kv_heads, head_size]
    values: torch.Tensor
    key_scales: torch.Tensor | None  # float32 [blocks, kv_heads, block_size]
    value_scales: torch.Tensor | None


class KVQuantizer:
    """Writes and describes one layer's quantised cache."""

    def __init__(self, kv_format: KVFormat, head_size: int) -> None:
        self.format = kv_format
        self.head_size = head_size
        self._pages: tuple[tuple[int, torch.Size], QuantizedPages] | None = None

    def pages(self, kv_cache: torch.Tensor) -> QuantizedPages:
        """Of vLLM's [blocks, kv_heads, block_size, bytes of a token and head]."""
        place = (kv_cache.data_ptr(), kv_cache.shape)
        if self._pages is None or self._pages[0] != place:
            self._pages = (place, self._split(kv_cache))
        return self._pages[1]

    def _split(self, kv_cache: torch.Tensor) -> QuantizedPages:
        blocks, heads, block_size, content = kv_cache.shape
        tokens = blocks * block_size * heads
        parts = kv_cache.as_strided((tokens * content,), (1,)).split(
            [tokens * self.head_size] * 2 + [tokens * SCALE_BYTES] * (2 if self.format.per_token_head else 0)
        )
        keys, values = (
            part.view(self.format.codes).view(blocks, block_size, heads, self.head_size) for part in parts[:2]
        )
        if not self.format.per_token_head:
            return QuantizedPages(keys, values, None, None)
        key_scales, value_scales = (part.view(torch.float32).view(blocks, heads, block_size) for part in parts[2:])
        return QuantizedPages(keys, values, key_scales, value_scales)

    def write(
        self, layer: AttentionLayer, key: torch.Tensor, value: torch.Tensor, pages: QuantizedPages, slots: torch.Tensor
    ) -> None:
        """Writes key and value [tokens, kv_heads, head_size] to their slots; slot -1 is skipped."""
        import torch_npu

        scatter = torch_npu.npu_scatter_pa_kv_cache
        if not self.format.per_token_head:
            codes = (self._quantize(key, layer._k_scale), self._quantize(value, layer._v_scale))
            scatter(*codes, pages.keys, pages.values, slots, cache_mode="Norm")
            return
        key_codes, key_scales = torch_npu.npu_dynamic_quant(key, dst_type=self.format.codes)
        value_codes, value_scales = torch_npu.npu_dynamic_quant(value, dst_type=self.format.codes)
        scatter(key_codes, value_codes, pages.keys, pages.values, slots, cache_mode="Norm")
        # A head's scales of a block are a block of their own.
        blocks, heads, block_size = pages.key_scales.shape
        as_cache = (blocks * heads, block_size, 1, 1)
        scatter(
            key_scales.view(-1, 1, 1),
            value_scales.view(-1, 1, 1),
            pages.key_scales.view(as_cache),
            pages.value_scales.view(as_cache),
            scale_slots(slots, heads, block_size),
            cache_mode="Norm",
        )

    def _quantize(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """x [tokens, kv_heads, head_size] over the scale of the tensor, or of each head, rounded to codes."""
        import torch_npu

        return torch_npu.npu_quantize(x, scale.view(-1), None, self.format.codes, axis=1)

    def attention_arguments(self, layer: AttentionLayer, pages: QuantizedPages) -> dict[str, Any]:
        """What the attention operator must be told of the scales."""
        if self.format.per_token_head:
            keys, values, mode = pages.key_scales, pages.value_scales, MODE_PER_TOKEN_HEAD_IN_PAGES
        else:
            keys, values = layer._k_scale.view(-1), layer._v_scale.view(-1)
            mode = MODE_PER_TENSOR if keys.numel() == 1 else MODE_PER_HEAD
        return dict(
            key_antiquant_scale=keys, value_antiquant_scale=values, key_antiquant_mode=mode, value_antiquant_mode=mode
        )


@cache
def _head_offsets(heads: int, block_size: int, device: torch.device) -> torch.Tensor:
    return torch.arange(heads, dtype=torch.int64).mul(block_size).to(device)


def scale_slots(slots: torch.Tensor, heads: int, block_size: int) -> torch.Tensor:
    """Where the scales of each token's heads lie, in a cache of one-head blocks: int64 [tokens * heads].

    Head h of the token in slot ``block * block_size + i`` has ``(block * heads + h) * block_size + i``, and -1 stays
    -1. The layers of one forward pass share them.
    """
    metadata = None
    if is_forward_context_available() and isinstance(get_forward_context().attn_metadata, dict):
        metadata = next(iter(get_forward_context().attn_metadata.values()), None)
        known = getattr(metadata, "scale_slots", None)
        if known is not None and known[0] is slots:
            return known[1]
    blocks = torch.div(slots, block_size, rounding_mode="floor")
    first = torch.add(slots, blocks, alpha=block_size * (heads - 1))
    result = torch.add(first.unsqueeze(1), _head_offsets(heads, block_size, slots.device)).clamp_min(-1).view(-1)
    if metadata is not None:
        metadata.scale_slots = (slots, result)
    return result
