"""Four devices in one process, and processes that see some of them."""

import os
import subprocess
import sys

import pytest
import torch

MIB = 1 << 20
DEVICES = range(4)


@pytest.fixture(autouse=True)
def on_device_0():
    torch.npu.set_device(0)
    yield
    torch.npu.set_device(0)


def test_there_are_four():
    assert torch.npu.device_count() == 4
    for index in DEVICES:
        assert torch.npu.get_device_name(index) == "Ascend910B2"
        assert torch.npu.get_device_properties(index).total_memory == 256 * MIB


@pytest.mark.parametrize("index", DEVICES)
def test_tensors_live_and_compute_where_they_were_made(index):
    x = torch.arange(1000.0, device=f"npu:{index}")
    y = x * 2 + 1
    assert x.device == y.device == torch.device("npu", index)
    assert torch.equal(y.cpu(), torch.arange(1000.0) * 2 + 1)
    assert torch.npu.current_device() == 0, "an operator on another device leaves the current one"


@pytest.mark.parametrize("source", DEVICES)
@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("non_blocking", [False, True])
def test_peers_copy(source, target, non_blocking):
    values = torch.randn(300, 500)
    x = values.to(f"npu:{source}")
    y = x.to(f"npu:{target}", non_blocking=non_blocking)
    assert y.device.index == target
    assert torch.equal(y.cpu(), values)
    assert torch.equal(x.t().contiguous().to(f"npu:{target}").cpu(), values.t())


def test_every_pair_of_peers_may_copy():
    for a in DEVICES:
        for b in DEVICES:
            if a != b:
                assert torch.npu.can_device_access_peer(a, b)


def test_the_current_device_is_the_threads():
    assert torch.npu.current_device() == 0
    with torch.npu.device(2):
        assert torch.npu.current_device() == 2
        assert torch.empty(1, device="npu").device.index == 2
        with torch.npu.device(3):
            assert torch.empty(1, device="npu").device.index == 3
        assert torch.npu.current_device() == 2
    assert torch.npu.current_device() == 0
    torch.npu.set_device(1)
    assert torch.ones(3).npu().device.index == 1


def test_streams_and_events_belong_to_a_device():
    streams = [torch.npu.Stream(device=index) for index in DEVICES]
    assert [stream.device.index for stream in streams] == list(DEVICES)
    x = torch.ones(1 << 16).to("npu:1")
    ready = torch.npu.Event()
    with torch.npu.stream(streams[1]):
        assert torch.npu.current_device() == 1
        streams[1].wait_stream(torch.npu.default_stream(1))
        for _ in range(20):
            x = x + 1
        ready.record(streams[1])
    with torch.npu.stream(streams[2]):
        # torch_npu has a queue for each device, so a wait on one can overtake the record on another: the host waits.
        ready.synchronize()
        y = x.to("npu:2", non_blocking=True) * 2
    streams[2].synchronize()
    assert torch.equal(y.cpu(), torch.full((1 << 16,), 42.0))
    for index in DEVICES:
        torch.npu.synchronize(index)


def test_each_device_has_a_memory_of_its_own():
    torch.npu.empty_cache()
    free = [torch.npu.mem_get_info(index)[0] for index in DEVICES]
    held = torch.empty(100 * MIB, dtype=torch.uint8, device="npu:3")
    assert torch.npu.mem_get_info(3)[0] <= free[3] - 100 * MIB
    assert [torch.npu.mem_get_info(index)[0] for index in range(3)] == free[:3]
    assert torch.npu.memory_allocated(3) >= 100 * MIB
    assert torch.npu.memory_allocated(1) < 100 * MIB
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(200 * MIB, dtype=torch.uint8, device="npu:3")
    assert torch.empty(200 * MIB, dtype=torch.uint8, device="npu:1").device.index == 1
    del held
    torch.npu.empty_cache()
    assert torch.npu.mem_get_info(3)[0] == free[3]


def test_graphs_are_captured_on_their_device():
    with torch.npu.device(2):
        x, graph = torch.ones(100, device="npu"), torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = x * 3
        x.fill_(5)
        graph.replay()
        torch.npu.synchronize()
    assert torch.equal(y.cpu(), torch.full((100,), 15.0))


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(RuntimeError, match="(?i)device"):
        torch.npu.set_device(4)
    with pytest.raises(RuntimeError):
        torch.empty(1, device="npu:4")


REPORT = """
import torch
x = torch.ones(10, device="npu:0")
assert x.sum().item() == 10
print(torch.npu.device_count(), torch.npu.get_device_properties(0).total_memory >> 20)
"""


@pytest.mark.parametrize("visible,count", [("0", 1), ("1,3", 2), ("3,2,1", 3)])
def test_processes_see_the_devices_that_they_are_given(visible, count):
    children = [
        subprocess.Popen([sys.executable, "-c", REPORT], env={**os.environ, "ASCEND_RT_VISIBLE_DEVICES": visible}, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [child.communicate()[0].split() for child in children] == [[str(count), "256"]] * 2
    assert [child.returncode for child in children] == [0, 0]
