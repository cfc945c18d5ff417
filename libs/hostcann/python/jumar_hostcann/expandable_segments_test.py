"""torch_npu's expandable segments, which use the virtual-memory calls. The variable is set by the build rule."""

import gc
import os

import pytest
import torch

MIB = 1 << 20


def test_the_variable_is_set():
    assert os.environ["PYTORCH_NPU_ALLOC_CONF"] == "expandable_segments:True"


def test_a_segment_grows_in_place_and_keeps_its_bytes():
    torch.npu.empty_cache()
    tensors = [torch.arange(size * 1000, dtype=torch.int32).to("npu") for size in range(1, 60, 7)]
    for size, tensor in zip(range(1, 60, 7), tensors):
        assert torch.equal(tensor.cpu(), torch.arange(size * 1000, dtype=torch.int32))
    segments = torch.npu.memory_snapshot()
    assert any(segment["is_expandable"] for segment in segments)


def test_unused_chunks_are_given_back():
    torch.npu.empty_cache()
    free = torch.npu.mem_get_info()[0]
    tensors = [torch.empty(50 * MIB, dtype=torch.uint8, device="npu") for _ in range(4)]
    full = torch.npu.mem_get_info()[0]
    assert full <= free - 200 * MIB
    del tensors[::2]
    gc.collect()
    torch.npu.empty_cache()
    # Chunks are 20 MiB: each hole of 50 MiB has at least one that nothing else touches.
    assert torch.npu.mem_get_info()[0] >= full + 2 * 20 * MIB
    tensors.clear()
    gc.collect()
    torch.npu.empty_cache()
    assert torch.npu.mem_get_info()[0] == free


def test_a_large_tensor_fits_where_fragments_were():
    torch.npu.empty_cache()
    pieces = [torch.empty(40 * MIB, dtype=torch.uint8, device="npu") for _ in range(8)]
    assert torch.npu.mem_get_info()[0] < 200 * MIB
    del pieces[::2]
    gc.collect()
    # The holes are apart, but their chunks can be mapped at the end of the segment.
    large = torch.empty(220 * MIB, dtype=torch.uint8, device="npu")
    assert large.numel() == 220 * MIB


def test_out_of_memory_is_torchs_own_error():
    torch.npu.empty_cache()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(600 * MIB, dtype=torch.uint8, device="npu")
    torch.empty(300 * MIB, dtype=torch.uint8, device="npu")
