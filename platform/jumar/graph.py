"""Full-graph decode: a decode step is one replay of a captured NPU graph.

CANN takes the lengths of attention as host integers, which a replay would keep
as they were captured. torch_npu captures each attention call as an updatable task
group behind an external event (``auto_dispatch_capture``): while the graph runs,
``NPUGraph.update`` writes the step's lengths into the groups from a side stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.compilation.monitor import validate_cudagraph_capturing_enabled
from vllm.config import CUDAGraphMode, VllmConfig
from vllm.forward_context import BatchDescriptor, ForwardContext, get_forward_context, is_forward_context_available
from vllm.logger import init_logger

logger = init_logger("vllm.jumar.graph")


class NpuGraphWrapper(CUDAGraphWrapper):
    """vLLM's graph wrapper on torch.npu's graphs, one for each batch descriptor."""

    def __init__(
        self, runnable: Callable[..., Any], vllm_config: VllmConfig, runtime_mode: CUDAGraphMode, **options: Any
    ) -> None:
        super().__init__(runnable, vllm_config, runtime_mode, **options)
        # vLLM has one pool for all engines of a process. Once all graphs of a pool are gone, torch refuses to capture into it
        # again if a pinned block of a capture outlives them (CachingHostAllocator.h: "use_count > 0").
        self.graph_pool = torch.npu.graph_pool_handle()
        self._captured: dict[BatchDescriptor, tuple[torch.npu.NPUGraph, Any]] = {}
        self._replayed = torch.npu.Event()  # the last replay has ended

    def clear_graphs(self) -> None:
        super().clear_graphs()
        self._captured.clear()
        self.graph_pool = torch.npu.graph_pool_handle()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not is_forward_context_available():
            return self.runnable(*args, **kwargs)
        context = get_forward_context()
        if context.cudagraph_runtime_mode != self.runtime_mode:
            return self.runnable(*args, **kwargs)
        if context.batch_descriptor not in self._captured:
            self._captured[context.batch_descriptor] = self._capture(context, *args, **kwargs)
            return self._captured[context.batch_descriptor][1]
        graph, output = self._captured[context.batch_descriptor]
        # An update that comes while the step before still runs would give it this step's lengths. Asynchronous scheduling
        # gets here so early; what follows a replay in a step (output layer, sampler) still hides the launch of the next one.
        self._replayed.synchronize()
        graph.replay()
        self._replayed.record()
        if lengths := attention_lengths(context):
            graph.update(cpu_update_input=[lengths])
        return output

    def _capture(self, context: ForwardContext, *args: Any, **kwargs: Any) -> tuple[torch.npu.NPUGraph, Any]:
        validate_cudagraph_capturing_enabled()
        logger.debug("capturing an NPU graph for %s", context.batch_descriptor)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, pool=self.graph_pool, auto_dispatch_capture=True):
            output = self.runnable(*args, **kwargs)
        return graph, output


def attention_lengths(context: ForwardContext) -> dict[str, list[int]]:
    """The host lengths of this step, under the attention operator's argument names; none if the operators read them from the device.

    Raises:
        NotImplementedError: if layers of the model see different lengths (hybrid KV cache).
    """
    distinct = {id(metadata): metadata.graph_lengths() for metadata in context.attn_metadata.values()}
    with_lengths = [lengths for lengths in distinct.values() if lengths]
    if len(with_lengths) > 1:
        raise NotImplementedError(
            f"graphs over {len(with_lengths)} KV cache groups are not supported on npu; use --enforce-eager"
        )
    return with_lengths[0] if with_lengths else {}
