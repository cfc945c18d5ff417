"""vLLM's worker on an NPU: device start-up and the memory budget."""

from __future__ import annotations

import atexit
import gc
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jumar_hostcann import probe
from vllm.config import CUDAGraphMode
from vllm.distributed.parallel_state import cleanup_dist_env_and_memory, get_pp_group
from vllm.logger import init_logger
from vllm.platforms import current_platform
from vllm.platforms.interface import set_assigned_physical_gpu_ids
from vllm.utils.gc_utils import freeze_gc_heap
from vllm.utils.mem_utils import MemorySnapshot
from vllm.utils.torch_utils import set_random_seed
from vllm.v1.worker.gpu_worker import Worker, init_worker_distributed_environment
from vllm.v1.worker.utils import request_memory
from vllm.v1.worker.worker_base import CompilationTimes

from jumar import sleep_mode
from jumar.model_runner import AscendModelRunner

logger = init_logger("vllm.jumar.worker")


class AscendWorker(Worker):
    """Overrides are listed with their reasons in docs/upstream.md."""

    def init_device(self) -> None:
        index = self._device_index()
        self.device = torch.device(f"npu:{index}")
        torch.npu.set_device(self.device)
        current_platform.check_if_supports_dtype(self.model_config.dtype)
        init_worker_distributed_environment(
            self.vllm_config,
            self.rank,
            self.distributed_init_method,
            index,
            current_platform.dist_backend,
        )
        # At exit torch_npu destroys every process group; vLLM must have closed its own by then.
        atexit.register(cleanup_dist_env_and_memory)
        set_random_seed(self.model_config.seed)
        gc.collect()
        torch.npu.empty_cache()
        self.init_snapshot = MemorySnapshot(device=self.device)
        self.requested_memory = request_memory(self.init_snapshot, self.cache_config)
        self._init_workspace_and_model_runner()

    def _device_index(self) -> int:
        """Which of the visible devices this rank takes. Data-parallel ranks get theirs from vLLM, as a list."""
        assigned = self.parallel_config.assigned_physical_gpu_ids
        if assigned is not None:
            set_assigned_physical_gpu_ids(assigned)
        count = torch.npu.device_count()
        try:
            index = current_platform.logical_device_id_to_visible_device_id(self.local_rank)
        except (IndexError, RuntimeError):
            index = count
        if index >= count:
            raise ValueError(
                f"rank {self.rank} (local rank {self.local_rank} of devices {assigned or 'in order'}) has no device: "
                f"{count} NPU(s) are visible. Lower the parallel sizes, widen ASCEND_RT_VISIBLE_DEVICES or, without an "
                "NPU, raise JUMAR_DEVICES"
            )
        return index

    def _make_model_runner(self) -> AscendModelRunner:
        return AscendModelRunner(self.vllm_config, self.device)

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[None]:
        return sleep_mode.use_memory_pool(tag) if self.model_config.enable_sleep_mode else nullcontext()

    def sleep(self, level: int = 1) -> None:
        if not self.model_config.enable_sleep_mode:
            raise ValueError(
                "sleep mode is off, so no memory can be given back: start with --enable-sleep-mode "
                "(enable_sleep_mode=True). The engine is paused; wake_up() lets it go on"
            )
        super().sleep(level)

    def determine_available_memory(self) -> int:
        """Bytes for the KV cache: the requested share of the device less all else; logs each term."""
        available = super().determine_available_memory()
        if self.cache_config.kv_cache_memory_bytes:
            return available
        weights = int(self.model_runner.model_memory_usage)
        peak = int(self.peak_activation_memory)
        other = int(self.total_consumed) - weights
        logger.info(
            "KV cache budget on %s: %s of %s total (utilisation %.2f) = %s requested "
            "- %s weights - %s runtime and others - %s peak activations = %s",
            self.device,
            _mib(self.init_snapshot.free_memory) + " free",
            _mib(self.init_snapshot.total_memory),
            self.cache_config.gpu_memory_utilization,
            _mib(self.requested_memory),
            _mib(weights),
            _mib(other),
            _mib(peak),
            _mib(available),
        )
        return available

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Captures the decode graphs and runs the sampler once at its largest size."""
        runner = self.model_runner
        if not self.model_config.enforce_eager:
            runner.capture_model()
        if get_pp_group().is_last_rank:
            scheduler = self.scheduler_config
            _, last_hidden_states = runner._dummy_run(
                num_tokens=min(scheduler.max_num_seqs, scheduler.max_num_batched_tokens),
                skip_eplb=True,
                cudagraph_runtime_mode=CUDAGraphMode.NONE,
            )
            runner._dummy_sampler_run(hidden_states=last_hidden_states)
        set_random_seed(self.model_config.seed, self.parallel_config.data_parallel_index)
        freeze_gc_heap()
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def describe_device(self) -> dict[str, str | int]:
        """For the server's banner, by collective_rpc: names, and bytes of device memory."""
        backend = probe.choose_backend()
        caches = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in self.model_runner.kv_caches}
        return dict(
            device=str(self.device),
            soc=torch.npu.get_device_name(self.device),
            backend=f"{'hostcann' if backend.is_fallback else 'CANN'} {backend.version}",
            total_bytes=self.init_snapshot.total_memory,
            weight_bytes=int(self.model_runner.model_memory_usage),
            kv_cache_bytes=sum(caches.values()),
        )

    def describe_memory(self) -> dict[str, Any]:
        """For the example and the tests of sleep mode, by collective_rpc. Bytes; `tags` is empty without sleep mode."""
        free, total = torch.npu.mem_get_info()
        return dict(
            process_id=os.getpid(),
            total_bytes=total,
            free_bytes=free,
            tags={
                stats.tag: dict(
                    size_bytes=stats.size_bytes, device_bytes=stats.device_bytes, host_bytes=stats.host_bytes
                )
                for stats in sleep_mode.statistics()
            },
        )


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"
