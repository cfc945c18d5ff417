"""Tensors, NZ weights and graphs over memory that sleeps, with torch_npu's own pools."""

import gc
from types import SimpleNamespace

import jumar_sleep_allocator as allocator
import pytest
import torch
import torch_npu

from jumar import sleep_mode
from jumar.weights import FRACTAL_NZ

MIB = 1 << 20
GIVEN_BACK = 8 * MIB  # most that torch's pools of small blocks may keep


def free_bytes() -> int:
    torch.npu.synchronize()
    return torch.npu.mem_get_info()[0]


def stats(tag: str) -> allocator.TagStats:
    return next(s for s in sleep_mode.statistics() if s.tag == tag)


@pytest.fixture(autouse=True)
def nothing_asleep():
    yield
    if any(s.num_asleep for s in sleep_mode.statistics()):
        allocator.wake(0, [])
    gc.collect()
    torch.npu.empty_cache()


@pytest.fixture
def backend():
    return sleep_mode.NpuSleepBackend()


def test_level_1_keeps_weights_and_addresses(backend):
    torch.manual_seed(0)
    source = torch.randint(0, 256, (40 * MIB,), dtype=torch.uint8)
    with sleep_mode.use_memory_pool("weights"):
        weights = source.npu()
        small = torch.arange(7.0, device="npu")
    with sleep_mode.use_memory_pool("kv_cache"):
        cache = torch.ones(60 * MIB, dtype=torch.uint8, device="npu")
    address, before = weights.data_ptr(), free_bytes()
    for _ in range(2):
        backend.suspend(1)
        assert backend.state() == "SUSPENDED"
        assert free_bytes() >= before + 100 * MIB
        assert stats("weights").host_bytes >= 40 * MIB and stats("kv_cache").host_bytes == 0
        backend.resume(None)
        assert backend.state() == "RUNNING"
        assert free_bytes() == before
        assert weights.data_ptr() == address
        assert torch.equal(weights.cpu(), source)
        assert small.tolist() == list(range(7))
        cache.fill_(3)
        assert cache[-1].item() == 3


def test_level_2_forgets_weights_and_wakes_by_tag(backend):
    with sleep_mode.use_memory_pool("weights"):
        weights = torch.ones(20 * MIB, dtype=torch.uint8, device="npu")
    with sleep_mode.use_memory_pool("runtime"):
        kept = torch.arange(1000, device="npu")
        with sleep_mode.use_memory_pool("kv_cache"):
            cache = torch.ones(30 * MIB, dtype=torch.uint8, device="npu")
    before = free_bytes()
    backend.suspend(2)
    assert stats("weights").host_bytes == 0
    backend.resume(["weights"])
    assert backend.state() == "SUSPENDED"
    assert free_bytes() >= before + 28 * MIB
    weights.fill_(5)
    assert kept.tolist() == list(range(1000))
    backend.resume(["kv_cache"])
    cache.fill_(1)
    assert weights.sum(dtype=torch.int64).item() == 5 * 20 * MIB


def test_a_captured_graph_replays_on_woken_memory(backend):
    torch.npu.config.allow_internal_format = True
    torch.manual_seed(1)
    host = torch.randn(256, 512).bfloat16()
    with sleep_mode.use_memory_pool("weights"):
        weight = torch.nn.Parameter(host.npu(), requires_grad=False)
        weight.data = torch_npu.npu_format_cast(weight.data, FRACTAL_NZ)
    x = torch.randn(4, 512).bfloat16().npu()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = torch.nn.functional.linear(x, weight)
    graph.replay()
    want = y.cpu()
    backend.suspend(1)
    backend.resume(None)
    y.zero_()
    graph.replay()
    assert torch.equal(y.cpu(), want)
    # Level 2: loaded again into the same memory.
    address = weight.data_ptr()
    backend.suspend(2)
    backend.resume(None)
    weight.data.copy_(torch_npu.npu_format_cast(host.npu(), FRACTAL_NZ))
    assert weight.data_ptr() == address
    y.zero_()
    graph.replay()
    assert torch.equal(y.cpu(), want)


def test_waking_without_room_loses_nothing(backend):
    with sleep_mode.use_memory_pool("weights"):
        weights = torch.full((64 * MIB,), 9, dtype=torch.uint8, device="npu")
    backend.suspend(1)
    other = torch.empty(free_bytes() - 40 * MIB, dtype=torch.uint8, device="npu")
    with pytest.raises(MemoryError, match="nothing is lost"):
        backend.resume(None)
    del other
    gc.collect()
    backend.resume(None)
    assert weights.sum(dtype=torch.int64).item() == 9 * 64 * MIB


def test_discarding_the_cache_keeps_the_weights(backend):
    with sleep_mode.use_memory_pool("weights"):
        weights = torch.full((MIB,), 4, dtype=torch.uint8, device="npu")
    with sleep_mode.use_memory_pool("kv_cache"):
        cache = torch.ones(32 * MIB, dtype=torch.uint8, device="npu")
    before = free_bytes()
    backend.discard(("kv_cache",))
    assert free_bytes() >= before + 32 * MIB
    assert weights[-1].item() == 4
    backend.resume(["kv_cache"])
    assert cache.fill_(1)[-1].item() == 1


def test_temporary_and_dead_tensors_are_given_back(backend):
    with sleep_mode.use_memory_pool("weights"):
        temporary = torch.empty(50 * MIB, dtype=torch.uint8, device="npu")
        weights = torch.ones(30 * MIB, dtype=torch.uint8, device="npu")
        del temporary
    assert stats("weights").size_bytes <= 30 * MIB + GIVEN_BACK
    backend.suspend(1)
    del weights
    gc.collect()
    torch.npu.empty_cache()
    assert [s for s in sleep_mode.statistics() if s.tag == "weights" and s.size_bytes > GIVEN_BACK] == []


def test_out_of_memory_is_torchs_own_error():
    with pytest.raises(torch.OutOfMemoryError), sleep_mode.use_memory_pool("weights"):
        torch.empty(1 << 40, dtype=torch.uint8, device="npu")
    assert torch.ones(3, device="npu").sum().item() == 3


def test_tags_are_the_threads_own():
    with sleep_mode.use_memory_pool("weights"):
        assert allocator.set_tag("weights") == "weights"
    assert allocator.set_tag("other") == "other"


def test_errors():
    with pytest.raises(RuntimeError, match="nothing of weights sleeps"):
        allocator.wake(0, ["weights"])
    with pytest.raises(RuntimeError, match="99"):
        allocator.stats(99)


def test_sleep_without_sleep_mode_says_so():
    from jumar.worker import AscendWorker

    worker = SimpleNamespace(model_config=SimpleNamespace(enable_sleep_mode=False))
    with pytest.raises(ValueError, match="--enable-sleep-mode"):
        AscendWorker.sleep(worker)


def test_registering_twice_is_once():
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

    sleep_mode.register()
    sleep_mode.register()
    assert SleepModeBackendFactory.get_backend_class("npu") is sleep_mode.NpuSleepBackend
