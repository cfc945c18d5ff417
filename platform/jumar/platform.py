"""The vLLM platform ``ascend``: device ``npu`` of torch_npu, whatever CANN stands below it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from jumar_hostcann import probe
from vllm.logger import init_logger
from vllm.platforms.interface import Platform, PlatformEnum

from jumar import devices, quantization

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.attention.backends.mla.prefill.base import MLAPrefillBackend
    from vllm.v1.attention.backends.mla.prefill.selector import MLAPrefillSelectorConfig
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig

logger = init_logger("vllm.jumar.platform")

# The first one stands in for a checkpoint's dtype that is not among them.
SUPPORTED_DTYPES = [torch.bfloat16, torch.float16, torch.float32]

# Largest batch that is captured by default. A captured size costs one stream's tasks per layer on
# hardware (whose streams are few) and a second of start-up on a small host.
MAX_CAPTURE_SIZE = 64


class AscendPlatform(Platform):
    """Ascend NPUs, or hostcann where there is none. Hooks: see docs/upstream.md."""

    _enum = PlatformEnum.OOT
    device_name = "npu"
    device_type = "npu"
    dispatch_key = "PrivateUse1"
    dist_backend = "hccl"
    ray_device_key = "NPU"
    # vLLM gives each Ray worker its device's number; Ray must not hide the others as well.
    ray_noset_device_env_vars = ["RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"]
    device_control_env_var = "ASCEND_RT_VISIBLE_DEVICES"
    # Nothing is compiled by Inductor: it has no NPU code generator that we ship.
    simple_compile_backend = "eager"

    def __init__(self) -> None:
        probe.choose_backend().raise_if_unusable()
        import torch_npu  # noqa: F401  (an ImportError must reach the user as it is)

    # --- identity -----------------------------------------------------------------------------

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        return list(SUPPORTED_DTYPES)

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        if dtype not in SUPPORTED_DTYPES:
            names = ", ".join(str(d).removeprefix("torch.") for d in SUPPORTED_DTYPES)
            raise ValueError(f"dtype {dtype} is not supported on {cls.device_name}; choose one of: {names}")

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return torch.npu.get_device_name(device_id)

    @classmethod
    def get_device_uuid(cls, device_id: int = 0) -> str:
        return str(torch.npu.get_device_properties(device_id).uuid)

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return torch.npu.mem_get_info(device_id)[1]

    @classmethod
    def get_current_memory_usage(cls, device: torch.types.Device | None = None) -> float:
        torch.npu.reset_peak_memory_stats(device)
        return torch.npu.max_memory_allocated(device)

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        return torch.npu.get_device_properties(device_id).cube_core_num

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        torch.npu.set_device(device)

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        torch.npu.manual_seed_all(seed)

    @classmethod
    def device_count(cls) -> int:
        return torch.npu.device_count()

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return True

    def is_sleep_mode_available(self) -> bool:
        return True

    # --- what runs on it ----------------------------------------------------------------------

    @classmethod
    def import_kernels(cls) -> None:
        """vLLM's own compiled operators are for other devices; ours come with torch_npu."""

    @classmethod
    def import_ir_kernels(cls) -> None:
        """The fused operators are custom ops (jumar.ops), not IR implementations."""

    @classmethod
    def register_triton_kernel_overrides(cls) -> None:
        from jumar import kernels

        kernels.register()

    @classmethod
    def get_attn_backend_cls(
        cls,
        selected_backend: AttentionBackendEnum | None,
        attn_selector_config: AttentionSelectorConfig,
        num_heads: int | None = None,
    ) -> str:
        from jumar.attention import AscendAttentionBackend
        from jumar.mla import AscendMLABackend
        from jumar.sparse_mla import AscendSparseMLABackend

        latent = AscendSparseMLABackend if attn_selector_config.use_sparse else AscendMLABackend
        backend = latent if attn_selector_config.use_mla else AscendAttentionBackend
        reasons = backend.validate_configuration(
            device_capability=None, **attn_selector_config._asdict()
        )
        if reasons:
            raise NotImplementedError(
                f"attention of this model is not supported on {cls.device_name}: {'; '.join(reasons)} "
                f"({attn_selector_config})"
            )
        return f"{backend.__module__}.{backend.__qualname__}"

    @classmethod
    def get_mla_prefill_backend_cls(cls, mla_selector_config: MLAPrefillSelectorConfig) -> type[MLAPrefillBackend]:
        from jumar.mla import AscendMLAPrefill

        return AscendMLAPrefill

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "jumar.communicator.AscendCommunicator"

    @classmethod
    def get_punica_wrapper(cls) -> str:
        return "jumar.lora.AscendPunicaWrapper"

    @classmethod
    def get_static_graph_wrapper_cls(cls) -> str:
        return "jumar.graph.NpuGraphWrapper"

    @classmethod
    def support_static_graph_mode(cls) -> bool:
        return True

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return False

    @classmethod
    def check_runner_kv_caches_multi_layer(cls) -> None:
        """The runner binds each layer's cache by name, so equal layer indices do no harm."""

    # --- configuration ------------------------------------------------------------------------

    @classmethod
    def apply_config_platform_defaults(cls, vllm_config: VllmConfig) -> None:
        from vllm.config import CompilationMode, CUDAGraphMode

        compilation = vllm_config.compilation_config
        if compilation.mode is None:
            compilation.mode = CompilationMode.NONE
        if compilation.cudagraph_mode is None:
            compilation.cudagraph_mode = CUDAGraphMode.FULL_DECODE_ONLY
        if compilation.max_cudagraph_capture_size is None and compilation.cudagraph_capture_sizes is None:
            compilation.max_cudagraph_capture_size = min(
                vllm_config.scheduler_config.max_num_seqs, MAX_CAPTURE_SIZE
            )

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        from vllm.config import CompilationMode, CUDAGraphMode

        from jumar import kv_quantization

        if vllm_config.cache_config is not None:
            kv_quantization.check(vllm_config.cache_config.cache_dtype, vllm_config)

        # The second runner is written in Triton.
        os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")

        compilation = vllm_config.compilation_config
        if compilation.mode != CompilationMode.NONE:
            logger.warning("compilation mode %s is not supported on npu, using NONE", compilation.mode)
            compilation.mode = CompilationMode.NONE
        if compilation.cudagraph_mode not in (CUDAGraphMode.NONE, CUDAGraphMode.FULL_DECODE_ONLY):
            logger.warning(
                "graph mode %s is not supported on npu, using FULL_DECODE_ONLY", compilation.cudagraph_mode
            )
            compilation.cudagraph_mode = CUDAGraphMode.FULL_DECODE_ONLY

        model = vllm_config.model_config
        if model is not None and model.enable_sleep_mode and model.sleep_mode_backend == "cumem":
            model.sleep_mode_backend = "npu"  # vLLM's default is CUDA's (jumar.sleep_mode)

        quantization.choose(vllm_config)

        parallel = vllm_config.parallel_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = "jumar.worker.AscendWorker"
        parallel.disable_custom_all_reduce = True
        if probe.choose_backend().is_fallback:
            devices.provide(parallel)

        if vllm_config.speculative_config is not None:
            # Its copies of drafts are in further functions that say torch.cuda (jumar.async_scheduling).
            vllm_config.scheduler_config.async_scheduling = False

        # A forked child would inherit the runtime's state without its threads.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
