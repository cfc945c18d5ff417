"""The torch replacements of Triton kernels against loops that read like their definition."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jumar.kernels import compute_slot_mapping

PAD = -1


@st.composite
def batches(draw):
    lengths = draw(st.lists(st.tuples(st.integers(0, 70), st.integers(0, 300)), min_size=1, max_size=6))
    block_size = draw(st.sampled_from([1, 16, 128]))
    padding_rows = draw(st.integers(0, 3))
    padding_tokens = draw(st.integers(0, 9))
    return lengths, block_size, padding_rows, padding_tokens


@settings(max_examples=60, deadline=None)
@given(batches())
def test_slot_mapping_is_block_times_size_plus_offset(batch):
    lengths, block_size, padding_rows, padding_tokens = batch
    max_blocks = 400 // block_size + 1
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randperm(len(lengths) * max_blocks, generator=generator).view(len(lengths), max_blocks)
    want, positions, starts = [], [], [0]
    for row, (new, computed) in enumerate(lengths):
        for position in range(computed, computed + new):
            positions.append(position)
            want.append(int(blocks[row, position // block_size]) * block_size + position % block_size)
        starts.append(starts[-1] + new)
    starts += [starts[-1]] * padding_rows
    num_tokens, total = len(want), len(want) + padding_tokens
    slots = torch.full((total,), 12345, dtype=torch.int64).npu()
    compute_slot_mapping(
        num_tokens,
        total,
        torch.tensor(starts, dtype=torch.int32).npu(),
        torch.tensor(positions + [0] * padding_tokens, dtype=torch.int64).npu(),
        blocks.to(torch.int32).npu(),
        max_blocks,
        slots,
        KV_CACHE_BLOCK_SIZE=block_size,
        TOTAL_CP_WORLD_SIZE=1,
        TOTAL_CP_RANK=0,
        CP_KV_CACHE_INTERLEAVE_SIZE=1,
        PAD_ID=PAD,
        BLOCK_SIZE=1024,
    )
    assert slots.tolist() == want + [PAD] * padding_tokens
