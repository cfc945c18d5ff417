"""vLLM finds the plugin, and the plugin refuses what it can't use, aloud."""

import subprocess
import sys

import pytest
import torch

import jumar


def test_vllm_selects_the_platform():
    from vllm.platforms import current_platform

    assert type(current_platform).__name__ == "AscendPlatform"
    assert current_platform.device_type == "npu"
    assert current_platform.get_device_total_memory() > 0


def test_importing_and_registering_leave_the_device_alone():
    program = (
        "import jumar, torch; "
        "assert jumar.register_platform() == 'jumar.platform.AscendPlatform'; "
        "assert not torch.npu.is_initialized()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unusable_toolkit_is_an_error_that_reaches_the_user(monkeypatch):
    from jumar_hostcann import probe

    from jumar.platform import AscendPlatform

    class Unusable:
        is_fallback = False

        def raise_if_unusable(self):
            raise RuntimeError("CANN 8.0 is installed, 9.1.0 is wanted")

    monkeypatch.setattr(probe, "choose_backend", Unusable)
    assert jumar.register_platform() == "jumar.platform.AscendPlatform"
    with pytest.raises(RuntimeError, match="8.0 .* 9.1.0"):
        AscendPlatform()


def test_unsupported_dtype_names_the_choices():
    from vllm.platforms import current_platform

    with pytest.raises(ValueError, match="float8_e4m3fn.*bfloat16, float16, float32"):
        current_platform.check_if_supports_dtype(torch.float8_e4m3fn)
