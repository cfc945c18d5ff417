"""Quantised checkpoints on an NPU: vLLM's own loaders over torch_npu's operators.

vLLM reads the checkpoint and asks for the kernel that multiplies what it loaded. Where its table has a place for other
devices' kernels (``register_linear_kernel``), they are registered there; where it has none, a subclass of its
configuration takes the configuration's place (``register_quantization_config``). docs/quantization.md lists what loads.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def register() -> None:
    """Registers the kernels and configurations; may be called again in the same process."""
    from vllm.model_executor.kernels.linear import register_linear_kernel
    from vllm.model_executor.layers.quantization import register_quantization_config
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.platforms.interface import PlatformEnum

    from jumar.quantization.awq import AscendAWQConfig
    from jumar.quantization.compressed_tensors import AscendCompressedTensorsConfig
    from jumar.quantization.fp8 import AscendFp8Config
    from jumar.quantization.gptq import AscendGPTQConfig
    from jumar.quantization.int8 import AscendInt8LinearKernel
    from jumar.quantization.loader import NAME, AscendModelLoader
    from jumar.quantization.modelslim import ModelSlimConfig
    from jumar.quantization.mx import AscendMxfp4LinearKernel, AscendMxfp8LinearKernel
    from jumar.quantization.mxfp4_experts import AscendGptOssMxfp4Config
    from jumar.quantization.weight_only import AscendWeightOnlyKernel

    global _registered
    if _registered:
        return
    _registered = True
    register_linear_kernel(AscendInt8LinearKernel, PlatformEnum.OOT, "int8")
    register_linear_kernel(AscendWeightOnlyKernel, PlatformEnum.OOT, "mp")
    register_linear_kernel(AscendMxfp8LinearKernel, PlatformEnum.OOT, "mxfp8")
    register_linear_kernel(AscendMxfp4LinearKernel, PlatformEnum.OOT, "mxfp4")
    for config, names in {
        AscendAWQConfig: ("auto_awq", "awq", "awq_marlin"),
        AscendCompressedTensorsConfig: ("compressed-tensors",),
        AscendFp8Config: ("fp8",),
        AscendGPTQConfig: ("auto_gptq", "gptq", "gptq_marlin"),
        AscendGptOssMxfp4Config: ("gpt_oss_mxfp4",),
        ModelSlimConfig: ("ascend",),
    }.items():
        for name in names:
            register_quantization_config(name)(config)
    register_model_loader(NAME)(AscendModelLoader)


def choose(vllm_config: VllmConfig) -> None:
    """For the platform: ModelSlim's files are recognised, and a quantised checkpoint is loaded with checks."""
    from vllm.config import VllmConfig

    from jumar.quantization import loader, modelslim

    model, load = vllm_config.model_config, vllm_config.load_config
    if model is None:
        return
    if model.quantization is None and any(Path(model.model).glob(f"{modelslim.DESCRIPTION}*.json")):
        model.quantization = modelslim.NAME
        vllm_config.quant_config = VllmConfig.get_quantization_config(model, load)
    if model.quantization is not None and load.load_format in ("auto", "hf", "safetensors"):
        load.load_format = loader.NAME


# vLLM's tables are lists that grow with every registration.
_registered = False
