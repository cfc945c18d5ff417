"""Captured steps come and go within a process, as engines do."""

import gc
from types import SimpleNamespace

import torch
import torch_npu  # noqa: F401
from vllm.compilation.monitor import set_cudagraph_capturing_enabled
from vllm.config import CUDAGraphMode

from jumar import graph
from jumar.graph import NpuGraphWrapper


class Model:
    """Doubles; keeps a pinned block of every capture, which outlives the graph."""

    def __init__(self) -> None:
        self.pinned = []

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.pinned.append(torch.empty(16, pin_memory=True))
        return x * 2


def test_graphs_are_captured_again_after_all_are_gone(monkeypatch):
    lengths = SimpleNamespace(graph_lengths=dict)
    context = SimpleNamespace(cudagraph_runtime_mode=CUDAGraphMode.FULL, batch_descriptor="size 4", attn_metadata={"layer": lengths})
    monkeypatch.setattr(graph, "is_forward_context_available", lambda: True)
    monkeypatch.setattr(graph, "get_forward_context", lambda: context)
    config, model, x = SimpleNamespace(compilation_config=None), Model(), torch.arange(4.0).npu()
    set_cudagraph_capturing_enabled(True)
    for _ in range(2):  # engines
        wrapper = NpuGraphWrapper(model, config, CUDAGraphMode.FULL)
        for _ in range(2):  # reloads
            wrapper(x)
            assert torch.equal(wrapper(x).cpu(), torch.arange(4.0) * 2)
            wrapper.clear_graphs()
            gc.collect()
        del wrapper
        gc.collect()
    assert len(model.pinned) == 4
