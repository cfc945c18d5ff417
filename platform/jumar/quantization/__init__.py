"""Quantised checkpoints on an NPU: vLLM's own loaders over torch_npu's operators.

vLLM reads the checkpoint and asks for the kernel that multiplies what it loaded. Where its table has a place for other
devices' kernels (``register_linear_kernel``), they are registered there; where it has none, a subclass of its
configuration takes the configuration's place (``register_quantization_config``). docs/quantization.md lists what loads.
"""

from __future__ import annotations


def register() -> None:
    """Registers the kernels and configurations; may be called again in the same process."""
    from vllm.model_executor.kernels.linear import register_linear_kernel
    from vllm.model_executor.layers.quantization import register_quantization_config
    from vllm.platforms.interface import PlatformEnum

    from jumar.quantization.awq import AscendAWQConfig
    from jumar.quantization.compressed_tensors import AscendCompressedTensorsConfig
    from jumar.quantization.fp8 import AscendFp8Config
    from jumar.quantization.gptq import AscendGPTQConfig
    from jumar.quantization.int8 import AscendInt8LinearKernel
    from jumar.quantization.weight_only import AscendWeightOnlyKernel

    global _registered
    if _registered:
        return
    _registered = True
    register_linear_kernel(AscendInt8LinearKernel, PlatformEnum.OOT, "int8")
    register_linear_kernel(AscendWeightOnlyKernel, PlatformEnum.OOT, "mp")
    for config, names in {
        AscendAWQConfig: ("auto_awq", "awq", "awq_marlin"),
        AscendCompressedTensorsConfig: ("compressed-tensors",),
        AscendFp8Config: ("fp8",),
        AscendGPTQConfig: ("auto_gptq", "gptq", "gptq_marlin"),
    }.items():
        for name in names:
            register_quantization_config(name)(config)


# vLLM's tables are lists that grow with every registration.
_registered = False
