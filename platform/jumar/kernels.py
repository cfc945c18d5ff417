"""Replacements for the Triton kernels that vLLM's V1 runner launches, in plain torch."""

from __future__ import annotations

import torch


def compute_slot_mapping(
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc_ptr: torch.Tensor,
    positions_ptr: torch.Tensor,
    block_table_ptr: torch.Tensor,
    block_table_stride: int,
    slot_mapping_ptr: torch.Tensor,
    KV_CACHE_BLOCK_SIZE: int,
    TOTAL_CP_WORLD_SIZE: int,
    TOTAL_CP_RANK: int,
    CP_KV_CACHE_INTERLEAVE_SIZE: int,
    PAD_ID: int,
    BLOCK_SIZE: int,
) -> None:
    """Writes each token's KV slot; the parameters are the Triton kernel's, by name.

    ``slot = block_table[request, position // block_size] * block_size + position % block_size``

    Args:
        num_tokens: tokens of the batch, T.
        max_num_tokens: length of ``slot_mapping_ptr``; the tail is set to ``PAD_ID``.
        query_start_loc_ptr: int32 [requests + 1], prefix sums of the query lengths.
        positions_ptr: int64 [>= T].
        block_table_ptr: int32 [max_requests, block_table_stride].
        slot_mapping_ptr: int64 [max_num_tokens], written.
        BLOCK_SIZE: the Triton tile; means nothing here.

    Raises:
        NotImplementedError: for context parallelism.
    """
    if TOTAL_CP_WORLD_SIZE != 1:
        raise NotImplementedError(f"context parallelism over {TOTAL_CP_WORLD_SIZE} ranks; only 1 is supported")
    positions = positions_ptr[:num_tokens]
    # The row of each token: how many requests start at or before it. Padded requests repeat the
    # last start, so they are counted only beyond the batch's end.
    tokens = torch.arange(num_tokens, dtype=torch.int32, device=positions.device)
    rows = torch.searchsorted(query_start_loc_ptr[1:].contiguous(), tokens, right=True)
    pages = torch.div(positions, KV_CACHE_BLOCK_SIZE, rounding_mode="floor")
    blocks = block_table_ptr.view(-1).index_select(0, torch.add(pages, rows, alpha=block_table_stride))
    # The token moves with its page: every launch here is paid in each decode step, so there are few.
    torch.add(positions, blocks - pages, alpha=KV_CACHE_BLOCK_SIZE, out=slot_mapping_ptr[:num_tokens])
    slot_mapping_ptr[num_tokens:max_num_tokens].fill_(PAD_ID)


def register() -> None:
    """Puts the replacements into vLLM's kernel dispatcher."""
    from vllm.triton_utils.dispatcher import register_kernels

    register_kernels({"vllm.v1.worker.block_table.ComputeSlotMappingKernel.kernel": compute_slot_mapping})
