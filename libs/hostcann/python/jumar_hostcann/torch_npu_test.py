"""The unmodified torch_npu on hostcann: memory, copies, streams, events, graphs. Copies only: operators have tests of their own."""

import gc
import json
import threading
import time

import pytest
import torch
import torch_npu


def on_device(values):
    return torch.tensor(values).to("npu")


def test_knows_the_device():
    assert torch.npu.is_available()
    properties = torch.npu.get_device_properties(0)
    assert properties.name == "Ascend910B2"
    assert properties.total_memory == 512 << 20
    assert torch_npu.__version__.startswith("2.13.0")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool])
def test_copies_there_and_back(dtype):
    values = torch.randint(0, 2, (1237,)).to(dtype)
    assert torch.equal(values.to("npu").cpu(), values)


def test_a_large_copy_from_pageable_memory_may_be_followed_by_a_write():
    values = torch.arange(3 << 20, dtype=torch.int32)
    expected = values.clone()
    device = values.to("npu", non_blocking=True)
    values.fill_(-1)
    torch.npu.synchronize()
    assert torch.equal(device.cpu(), expected)


def test_pinned_memory_is_pinned_and_copies_asynchronously():
    pinned = torch.arange(1000.0).pin_memory()
    assert pinned.is_pinned()
    assert not torch.arange(3.0).is_pinned()
    device = pinned.to("npu", non_blocking=True)
    back = torch.empty(1000).pin_memory()
    back.copy_(device, non_blocking=True)
    torch.npu.current_stream().synchronize()
    assert torch.equal(back, pinned)


def test_out_of_memory_is_torchs_own_error_and_memory_comes_back():
    with pytest.raises(torch.OutOfMemoryError, match="512.00 MiB total capacity"):
        torch.empty(1 << 30, dtype=torch.uint8, device="npu")
    big = torch.empty(400 << 20, dtype=torch.uint8, device="npu")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(200 << 20, dtype=torch.uint8, device="npu")
    del big
    gc.collect()
    torch.empty(200 << 20, dtype=torch.uint8, device="npu")  # the cache is given back when it is needed
    torch.npu.empty_cache()
    assert torch.npu.mem_get_info()[0] > 400 << 20


def test_statistics_follow_the_allocations():
    torch.npu.empty_cache()
    before = torch.npu.memory_allocated()
    tensor = torch.empty(10 << 20, dtype=torch.uint8, device="npu")
    assert 10 << 20 <= torch.npu.memory_allocated() - before < 11 << 20
    del tensor
    assert torch.npu.memory_allocated() == before


def test_streams_are_ordered_by_events():
    source = torch.arange(1 << 20, dtype=torch.int32).pin_memory()
    device = torch.empty(1 << 20, dtype=torch.int32, device="npu")
    back = torch.empty(1 << 20, dtype=torch.int32).pin_memory()
    first, second = torch.npu.Stream(), torch.npu.Stream()
    for _ in range(20):
        back.fill_(-1)
        with torch.npu.stream(first):
            device.copy_(source, non_blocking=True)
            event = first.record_event()
        second.wait_event(event)
        with torch.npu.stream(second):
            back.copy_(device, non_blocking=True)
        second.synchronize()
        assert torch.equal(back, source)


def test_events_tell_time_and_completion():
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    source = torch.empty(64 << 20, dtype=torch.uint8).pin_memory()
    host_start = time.perf_counter()
    start.record()
    device = source.to("npu", non_blocking=True)
    end.record()
    end.synchronize()
    host_ms = 1000 * (time.perf_counter() - host_start)
    assert end.query()
    assert 0 < start.elapsed_time(end) <= host_ms
    del device


def test_a_stream_is_busy_until_it_is_done():
    stream = torch.npu.Stream()
    source = torch.empty(128 << 20, dtype=torch.uint8).pin_memory()
    device = torch.empty(128 << 20, dtype=torch.uint8, device="npu")
    with torch.npu.stream(stream):
        for _ in range(4):
            device.copy_(source, non_blocking=True)
    stream.synchronize()
    assert stream.query()


@pytest.fixture
def capture():
    """Captures body(stream) on a stream of its own and returns the graph."""
    stream = torch.npu.Stream()

    def run(body, **kwargs):
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, stream=stream, **kwargs):
            body(stream)
        return graph

    return run


def test_a_graph_reads_its_inputs_at_every_replay(capture):
    source = torch.zeros(4096).pin_memory()
    device = torch.empty(4096, device="npu")
    graph = capture(lambda stream: device.copy_(source, non_blocking=True))
    for value in (3.0, 5.0):
        source.fill_(value)
        graph.replay()
        torch.npu.synchronize()
        assert torch.equal(device.cpu(), source)


def test_graphs_share_a_pool(capture):
    source = torch.arange(1000.0).pin_memory()
    outputs = []

    def body(stream):
        outputs.append(source.to("npu", non_blocking=True))

    first = capture(body)
    second = capture(body, pool=first.pool())
    for graph, output in zip((first, second), outputs):
        graph.replay()
        torch.npu.synchronize()
        assert torch.equal(output.cpu(), source)


def test_a_capture_forks_and_joins_streams(capture):
    source = torch.zeros(512).pin_memory()
    first, second = torch.empty(512, device="npu"), torch.empty(512, device="npu")
    side = torch.npu.Stream()

    def body(stream):
        first.copy_(source, non_blocking=True)
        side.wait_stream(stream)
        with torch.npu.stream(side):
            second.copy_(source, non_blocking=True)
        stream.wait_stream(side)

    graph = capture(body)
    source.fill_(8)
    graph.replay()
    torch.npu.synchronize()
    assert torch.equal(first.cpu(), source)
    assert torch.equal(second.cpu(), source)


def test_a_synchronising_call_in_a_capture_is_refused_and_told(capture):
    device = on_device([1.0, 2.0])
    with pytest.raises(RuntimeError, match="is being captured, so nothing on it runs before the graph is launched"):
        capture(lambda stream: device.cpu())
    assert device.cpu().tolist() == [1.0, 2.0]  # all is well again


def test_an_external_event_holds_a_replay(capture):
    source = torch.zeros(16).pin_memory()
    device = torch.empty(16, device="npu")
    event = torch.npu.ExternalEvent()

    def body(stream):
        event.wait(stream)
        event.reset(stream)
        device.copy_(source, non_blocking=True)

    graph = capture(body)
    update, launch = torch.npu.Stream(), torch.npu.Stream()
    for value in (1.0, 2.0):
        with torch.npu.stream(launch):
            graph.replay()
        time.sleep(0.02)
        assert not launch.query()
        source.fill_(value)  # not read before the event
        event.record(update)
        launch.synchronize()
        assert torch.equal(device.cpu(), source)


def test_a_graph_writes_what_it_holds(capture, tmp_path):
    source, device = torch.zeros(16).pin_memory(), torch.empty(16, device="npu")
    graph = capture(lambda stream: device.copy_(source, non_blocking=True))
    graph.debug_dump(str(tmp_path / "graph.json"))
    events = json.loads((tmp_path / "graph.json").read_text())
    assert [event["name"] for event in events] == ["memcpy"]
    assert (tmp_path / "graph.aligned.json").exists()  # torch_npu reads the dump and writes a version of its own


def test_a_destroyed_graph_gives_its_memory_back(capture):
    torch.npu.empty_cache()
    free = torch.npu.mem_get_info()[0]
    source = torch.zeros(64 << 20, dtype=torch.uint8).pin_memory()
    graph = capture(lambda stream: source.to("npu", non_blocking=True))
    graph.reset()
    del graph
    gc.collect()
    torch.npu.empty_cache()
    assert torch.npu.mem_get_info()[0] >= free - (2 << 20)


def test_host_functions_run_on_the_stream():
    ran = []
    stream = torch.npu.Stream()
    torch_npu.npu._subscribe_report(stream)
    try:
        torch_npu.npu._launch_host_func(stream, lambda value: ran.append((value, threading.get_ident())), 7)
        stream.synchronize()
    finally:
        torch_npu.npu._unsubscribe_report(stream)
    assert [value for value, _ in ran] == [7]
    assert ran[0][1] != threading.get_ident()


def test_threads_use_the_device_at_once():
    errors = []

    def work(index):
        try:
            stream = torch.npu.Stream()
            with torch.npu.stream(stream):
                for step in range(30):
                    values = torch.full((1000,), float(index * 100 + step))
                    assert torch.equal(values.to("npu").cpu(), values)
        except Exception as error:  # noqa: BLE001  told below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_process_group_of_one_rank(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("hccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        tensor = on_device([1.0, 2.0])
        dist.all_reduce(tensor)
        gathered = torch.empty(2, device="npu")
        dist.all_gather_into_tensor(gathered, tensor)
        dist.broadcast(tensor, 0)
        torch.npu.synchronize()
        assert gathered.cpu().tolist() == tensor.cpu().tolist() == [1.0, 2.0]
    finally:
        dist.destroy_process_group()
