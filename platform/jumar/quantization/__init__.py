"""Quantised checkpoints on an NPU: vLLM's own loaders over torch_npu's operators.

vLLM reads the checkpoint (compressed-tensors, fp8, GPTQ, AWQ, MXFP8, ...) and asks its table of kernels for one
that multiplies what it loaded. The kernels here are registered in that table (``register_linear_kernel``).
docs/quantization.md lists what loads.
"""

from __future__ import annotations


def register() -> None:
    """Registers the kernels and configurations; may be called again in the same process."""
    from vllm.model_executor.kernels.linear import register_linear_kernel
    from vllm.platforms.interface import PlatformEnum

    from jumar.quantization.int8 import AscendInt8LinearKernel

    global _registered
    if _registered:
        return
    _registered = True
    for kind, kernel in [("int8", AscendInt8LinearKernel)]:
        register_linear_kernel(kernel, PlatformEnum.OOT, kind)


# vLLM's table is a list that grows with every registration.
_registered = False
