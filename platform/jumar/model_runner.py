"""vLLM's V1 model runner on torch.npu: what differs is capture and the weights' format."""

from __future__ import annotations

import time

import torch
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.compilation.monitor import set_cudagraph_capturing_enabled
from vllm.config import CUDAGraphMode, VllmConfig
from vllm.logger import init_logger
from vllm.v1.worker.gpu_model_runner import AsyncGPUModelRunnerOutput, GPUModelRunner
from vllm.v1.worker.workspace import lock_workspace

from jumar.async_scheduling import on_npu
from jumar.graph import NpuGraphWrapper
from jumar.weights import cast_weights_to_nz

logger = init_logger("vllm.jumar.model_runner")


class AsyncAscendModelRunnerOutput(AsyncGPUModelRunnerOutput):
    """A step's tokens on their way to the host, while the next step may be prepared."""

    __init__ = on_npu(AsyncGPUModelRunnerOutput.__init__)


class AscendModelRunner(GPUModelRunner):
    """Overrides are listed with their reasons in docs/upstream.md."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        # The parent would make a stream and an event of torch.cuda.
        scheduler = vllm_config.scheduler_config
        asynchronous, scheduler.async_scheduling = bool(scheduler.async_scheduling), False
        try:
            super().__init__(vllm_config, device)
        finally:
            scheduler.async_scheduling = asynchronous
        self.use_async_scheduling = asynchronous
        if asynchronous:
            self.async_output_copy_stream = torch.npu.Stream()
            self.prepare_inputs_event = torch.npu.Event()

    sample_tokens = torch.inference_mode()(
        on_npu(GPUModelRunner.sample_tokens, AsyncGPUModelRunnerOutput=AsyncAscendModelRunnerOutput)
    )

    def load_model(self, load_dummy_weights: bool = False) -> None:
        """Loads the model, casts its weights to NZ, and captures graphs with torch.npu."""
        super().load_model(load_dummy_weights)
        cast = cast_weights_to_nz(self.get_model())
        logger.info("cast %d weights (%.1f MiB) to the NZ format", cast.count, cast.num_bytes / 2**20)
        if isinstance(self.model, CUDAGraphWrapper):
            self.model = NpuGraphWrapper(self.model.unwrap(), self.vllm_config, CUDAGraphMode.FULL)

    def capture_model(self) -> int:
        """Captures a graph for each batch size; returns the device bytes they took."""
        if self.compilation_config.cudagraph_mode == CUDAGraphMode.NONE:
            return 0
        start = time.perf_counter()
        set_cudagraph_capturing_enabled(True)
        try:
            with self._freeze_gc():
                torch.accelerator.synchronize()
                torch.accelerator.empty_cache()
                free_before = torch.accelerator.get_memory_info()[0]
                for mode, descriptors in self.cudagraph_dispatcher.get_capture_descs():
                    self._capture_cudagraphs(batch_descriptors=descriptors, cudagraph_runtime_mode=mode)
        finally:
            set_cudagraph_capturing_enabled(False)
        torch.accelerator.synchronize()
        lock_workspace()
        num_bytes = free_before - torch.accelerator.get_memory_info()[0]
        logger.info(
            "captured graphs in %.1f s, %.1f MiB of device memory", time.perf_counter() - start, num_bytes / 2**20
        )
        return num_bytes
