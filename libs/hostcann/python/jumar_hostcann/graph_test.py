"""torch_npu's NPUGraph with operators: shared pools, task groups and their update, dumps, and what a capture refuses."""

import json

import pytest
import torch
import torch_npu  # noqa: F401


def capture(body, stream=None, **kwargs):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=stream or torch.npu.Stream(), **kwargs):
        body()
    return graph


def replay(graph):
    graph.replay()
    torch.npu.synchronize()


def test_graphs_that_share_a_pool_run_one_after_another():
    x = torch.zeros(1000, device="npu")
    pool = torch.npu.graph_pool_handle()
    outputs: list[torch.Tensor] = []
    graphs = [capture(lambda step=step: outputs.append((x + step) * 2), pool=pool) for step in range(3)]
    for value in (1.0, 5.0):
        x.fill_(value)
        for step, graph in enumerate(graphs):
            replay(graph)
            assert torch.equal(outputs[step].cpu(), torch.full((1000,), (value + step) * 2))


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_capture_allocates_from_its_pool_in_each_mode(mode):
    x, outputs = torch.ones(1 << 20, device="npu"), []
    graph = capture(lambda: outputs.append((x + 1).mul(3)), capture_error_mode=mode)
    replay(graph)
    assert outputs[0].cpu().unique().tolist() == [6.0]


def captured_product(x, y, factor):
    """A graph whose one node is y = x * factor, in a task group; and the group's handle."""
    stream, handles = torch.npu.Stream(), []

    def body():
        torch.npu.graph_task_group_begin(stream)
        torch.mul(x, factor, out=y)
        handles.append(torch.npu.graph_task_group_end(stream))

    return capture(body, stream), handles[0]


def test_a_task_group_is_updated_between_replays():
    x, y = torch.arange(8.0).to("npu"), torch.empty(8, device="npu")
    graph, handle = captured_product(x, y, 2.0)
    replay(graph)
    assert torch.equal(y.cpu(), torch.arange(8.0) * 2)
    update = torch.npu.Stream()
    for factor in (5.0, 7.0):
        with torch.npu.stream(update):
            torch.npu.graph_task_update_begin(update, handle)
            torch.mul(x, factor, out=y)
            torch.npu.graph_task_update_end(update)
        update.synchronize()
        replay(graph)
        assert torch.equal(y.cpu(), torch.arange(8.0) * factor)


def test_an_update_brings_the_operators_that_were_captured():
    x, y = torch.arange(8.0).to("npu"), torch.empty(8, device="npu")
    graph, handle = captured_product(x, y, 2.0)
    update = torch.npu.Stream()
    with torch.npu.stream(update):
        torch.npu.graph_task_update_begin(update, handle)
        torch.add(x, 1.0, out=y)
        with pytest.raises(RuntimeError, match="was captured as aclnnMul.* and cannot become aclnnAdd"):
            torch.npu.graph_task_update_end(update)
    replay(graph)
    assert torch.equal(y.cpu(), torch.arange(8.0) * 2)


def test_an_external_event_lets_a_replay_wait_for_its_update():
    x, y = torch.arange(8.0).to("npu"), torch.empty(8, device="npu")
    stream, launch, update = torch.npu.Stream(), torch.npu.Stream(), torch.npu.Stream()
    event, handles = torch.npu.ExternalEvent(), []

    def body():
        event.wait(stream)
        event.reset(stream)
        torch.npu.graph_task_group_begin(stream)
        torch.mul(x, 2.0, out=y)
        handles.append(torch.npu.graph_task_group_end(stream))

    graph = capture(body, stream)
    for factor in (3.0, 4.0):
        with torch.npu.stream(launch):
            graph.replay()
        with torch.npu.stream(update):
            torch.npu.graph_task_update_begin(update, handles[0])
            torch.mul(x, factor, out=y)
            torch.npu.graph_task_update_end(update)
            event.record(update)
        launch.synchronize()
        assert torch.equal(y.cpu(), torch.arange(8.0) * factor)


def test_a_dump_lists_the_operators_in_order(tmp_path):
    x = torch.ones(4, device="npu")

    def body():
        x.add_(1)
        x.mul_(2)

    capture(body).debug_dump(str(tmp_path / "graph.json"))
    names = [event["name"] for event in json.loads((tmp_path / "graph.json").read_text())]
    assert len(names) == 2 and "Add" in names[0] and "Mul" in names[1]


def test_a_captured_event_can_neither_be_queried_nor_waited_for():
    x, event = torch.ones(4, device="npu"), torch.npu.Event()
    for ask in (event.query, event.synchronize):

        def body(ask=ask):
            x.add_(1)
            event.record()
            _ = torch.npu.current_stream().npu_stream  # waits until torch_npu has issued the record
            ask()

        with pytest.raises(RuntimeError, match="recorded into a capture that is still open"):
            capture(body)
    assert x.cpu().tolist() == [1.0] * 4, "nothing of a capture has run"


def test_a_device_cannot_be_synchronised_in_a_capture():
    x = torch.ones(4, device="npu")

    def body():
        x.add_(1)
        torch.npu.synchronize()

    with pytest.raises(RuntimeError, match="a device cannot be synchronised while one of its streams is captured"):
        capture(body)


def test_a_stream_that_forks_must_join():
    x, side = torch.ones(4, device="npu"), torch.npu.Stream()
    stream = torch.npu.Stream()

    def body():
        side.wait_stream(stream)
        with torch.npu.stream(side):
            x.add_(1)

    with pytest.raises(RuntimeError, match="has tasks that"):
        capture(body, stream)


# The last test: torch_npu issues the copy from a thread of its own, which takes no more operators once one has failed.
def test_a_copy_from_pageable_memory_is_refused_in_a_capture():
    x, source = torch.ones(4, device="npu"), torch.zeros(4)
    with pytest.raises(RuntimeError, match="pageable host memory is not allowed while a stream is captured"):
        capture(lambda: x.copy_(source, non_blocking=True))
    x.copy_(source)
    assert x.cpu().tolist() == [0.0] * 4
