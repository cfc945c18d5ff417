"""Strict mode (JUMAR_STRICT=1, set for this test) refuses what CANN's public pages exclude, with CANN's code and the limit."""

import os
import subprocess
import sys

import pytest
import torch
from oracle import call, covers, floats


def run(script: str, **environment: str) -> str:
    program = "import torch, torch_npu\n" + script
    result = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True
    )
    return result.stdout + result.stderr


NINE_DIMENSIONS = "print(torch.abs(torch.ones(1, device='npu').reshape([1] * 9)).reshape(1).item())"


def test_too_many_dimensions():
    said = run(NINE_DIMENSIONS)
    assert "161002" in said
    assert "aclnnAbs: argument `self` has 9 dimensions, [1, 1, 1, 1, 1, 1, 1, 1, 1]" in said
    assert 'on Ascend910B2 (CANN\'s page "aclnnAbs"; JUMAR_STRICT=1 checks it)' in said


@pytest.mark.parametrize("strict", ["", "0"])
def test_nothing_is_refused_without_strict_mode(strict):
    assert "1.0" in run(NINE_DIMENSIONS, JUMAR_STRICT=strict).splitlines()


def test_a_type_that_the_page_does_not_list():
    x = torch.ones(3, dtype=torch.float64, device="npu")
    out = torch.empty(3, dtype=torch.float64, device="npu")
    with pytest.raises(RuntimeError, match="161002: aclnnSilu: argument `self` is float64; it must be one of float32, float16, bfloat16 on"):
        call("Silu", x, out)


def test_a_value_outside_of_its_range():
    x = floats(4, 4).to("npu")
    with pytest.raises(RuntimeError, match="161002: aclnnSort: argument `dim` is 2; it must be from -2 to 1"):
        call("Sort", x, True, 2, False, x, x.long())


def test_the_chip_decides():
    script = (
        "x, gamma = (torch.empty(*shape, dtype=torch.bfloat16, device='npu') for shape in ((2, 64), (64,)))\n"
        "print(torch_npu.npu_rms_norm(x, gamma)[1].shape)"
    )
    assert "torch.Size([2, 1])" in run(script).splitlines()
    assert "argument `x` is bfloat16; it must be one of float32, float16 on Ascend310P3" in run(script, JUMAR_SOC="Ascend310P3")


@covers("Add", "Silu", "RmsNorm")
def test_what_the_pages_allow_runs():
    x = floats(2, 8, dtype=torch.float16).to("npu")
    import torch_npu

    torch_npu.npu_rms_norm(torch.nn.functional.silu(x + x), torch.ones(8, dtype=torch.float16, device="npu"))
    torch.npu.synchronize()
