"""LoRA: the low-rank products of several adapters in one batch, vLLM's "punica" interface over plain matrix products.

An adapter sits in a slot of the stacked weights, A [slots, 1, rank, in] and B [slots, 1, out, rank], which vLLM scales when it loads
them. For each slot in use all tokens are multiplied, and those of other adapters by zero in between: at rank 16 that costs less than to
gather each token's own A and B, it has no shape that depends on the batch, and so a captured graph serves any mix of adapters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from vllm.lora.punica_wrapper.punica_base import PunicaWrapperBase

if TYPE_CHECKING:
    from vllm.config.lora import LoRAConfig
    from vllm.lora.layers import LoRAMapping


class AscendPunicaWrapper(PunicaWrapperBase):
    """Adds adapters' outputs in place. Tokens without an adapter have index -1."""

    def __init__(self, max_num_batched_tokens: int, max_batches: int, device: torch.device, lora_config: LoRAConfig, **_: Any) -> None:
        super().__init__(max_num_batched_tokens, max_batches, device)
        self._slots = torch.arange(lora_config.max_loras, device=device)
        self._used: list[int] = []

    def update_metadata(
        self, mapping: LoRAMapping, lora_index_to_id: list[int | None], max_loras: int, vocab_size: int, **_: Any
    ) -> None:
        self._update_base_metadata(mapping, lora_index_to_id, max_loras, vocab_size)
        wanted = {*mapping.index_mapping, *mapping.prompt_mapping}
        self._used = [slot for slot, adapter in enumerate(lora_index_to_id) if adapter is not None and adapter in wanted]

    def _computed(self) -> Sequence[int]:
        """The slots to multiply with. A graph is captured with other adapters than it serves, so it takes all."""
        capturing = self._used and torch.npu.is_current_stream_capturing()
        return range(len(self._slots)) if capturing else self._used

    def _chosen(self, indices: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """[slots, tokens, 1]: 1 where the token is the slot's. ``indices``: a buffer of at least as many tokens as ``like`` has."""
        return (indices[: like.shape[0]] == self._slots[:, None])[..., None].to(like.dtype)

    def add_shrink(
        self, y: torch.Tensor | Sequence[torch.Tensor], x: torch.Tensor, lora_a_stacked: Sequence[torch.Tensor], scale: float, **_: Any
    ) -> None:
        """y[i] [tokens, rank] += scale * x A_i^T, each token with its own adapter's."""
        chosen = self._chosen(self._token_lora_indices, x)
        for into, a in zip(y, lora_a_stacked):
            for slot in self._computed():
                into += F.linear(x, a[slot, 0]) * chosen[slot] * scale

    def add_expand(
        self,
        y: torch.Tensor,
        x: torch.Tensor | Sequence[torch.Tensor],
        lora_b_stacked: Sequence[torch.Tensor],
        output_slices: Sequence[int],
        offset_start: int = 0,
        **_: Any,
    ) -> None:
        """The slices of y [tokens, out], one behind the other from ``offset_start``, += x[i] B_i^T."""
        chosen = self._chosen(self._token_lora_indices, y)
        parts = y[:, offset_start:].split([*output_slices, y.shape[1] - offset_start - sum(output_slices)], dim=1)
        for into, low, b in zip(parts, x, lora_b_stacked):
            for slot in self._computed():
                into += F.linear(low.to(y.dtype) * chosen[slot], b[slot, 0])

    def add_lora_embedding(self, y: torch.Tensor, x: torch.Tensor, lora_b_stacked: torch.Tensor, **_: Any) -> None:
        """y [tokens, hidden] += x B^T; x [tokens, rank] are the tokens' rows of A."""
        self.add_expand(y, [x], [lora_b_stacked], [y.shape[1]])

    def _add(
        self, y: torch.Tensor, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float, chosen: torch.Tensor
    ) -> None:
        for slot in self._computed():
            low = F.linear(x, a[slot, 0]) * chosen[slot]
            y += F.linear(low if scale == 1.0 else low * scale, b[slot, 0])

    def add_lora_linear(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: Sequence[torch.Tensor],
        lora_b_stacked: Sequence[torch.Tensor],
        scale: float,
        output_slices: Sequence[int],
        **_: Any,
    ) -> None:
        """The slices of y [tokens, out] += scale * (x A_i^T) B_i^T; x: [tokens, in]."""
        chosen = self._chosen(self._token_lora_indices, x)
        for into, a, b in zip(y.split(list(output_slices), dim=1), lora_a_stacked, lora_b_stacked):
            self._add(into, x, a, b, scale, chosen)

    def add_lora_logits(
        self, y: torch.Tensor, x: torch.Tensor, lora_a_stacked: torch.Tensor, lora_b_stacked: torch.Tensor, scale: float, **_: Any
    ) -> None:
        """y [requests, vocabulary] += scale * (x A^T) B^T; x: [requests, hidden], the states that are sampled from."""
        self._add(y, x, lora_a_stacked, lora_b_stacked, scale, self._chosen(self._sampler_indices, x))

    def apply_lora_full_linear(
        self, y: torch.Tensor, x: torch.Tensor, weight_stacked: torch.Tensor, bias_stacked: torch.Tensor, module_enabled: torch.Tensor
    ) -> None:
        """Rows of y whose adapter brings a whole layer instead become x W^T + bias."""
        chosen = self._chosen(self._sampler_indices, x)
        whole = sum(F.linear(x, weight_stacked[slot, 0]) * chosen[slot] for slot in self._computed())
        if isinstance(whole, torch.Tensor):
            y.copy_(self._select_full_linear_output(y, whole, bias_stacked, module_enabled))
