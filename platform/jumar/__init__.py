"""Jumar's vLLM plugin: serves models on Ascend NPUs through torch_npu.

Importing this package has no effects. vLLM calls the two entry points below in
every one of its processes.
"""

from __future__ import annotations


def register_platform() -> str | None:
    """Entry point of ``vllm.platform_plugins``: the platform class to use here.

    Returns:
        The class's qualified name, or ``None`` on a machine that another of
        vLLM's platforms serves better (a CUDA device and no NPU).

    A CANN toolkit that can't be used (wrong version, no Python bindings) is not a
    reason for ``None``: vLLM would go on without a word. The platform's constructor
    raises then, with the reason.
    """
    from jumar_hostcann import probe

    choice = probe.choose_backend()
    if choice.is_fallback and _has_cuda_device():
        return None
    return "jumar.platform.AscendPlatform"


def register_general() -> None:
    """Entry point of ``vllm.general_plugins``: the layers that NPU operators replace, the quantised ones, a model, and sleep mode's backend."""
    from vllm import ModelRegistry

    from jumar import ops, quantization, sleep_mode

    ops.register()
    quantization.register()
    sleep_mode.register()
    # vLLM's class for platforms that it doesn't know is CUDA's. By name, so that it is imported where it is used.
    ModelRegistry.register_model("DeepseekV4ForCausalLM", "jumar.deepseek_v4:AscendDeepseekV4ForCausalLM")


def _has_cuda_device() -> bool:
    import torch

    return torch.cuda.is_available()
