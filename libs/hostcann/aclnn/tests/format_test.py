"""Private formats: the bytes lie as they should, casts there and back lose nothing, and what would misread them refuses them."""

import ctypes
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from oracle import FLOATS, covers, floats, ints, opapi

ND, NCHW, NC1HWC0, FRACTAL_Z, NDHWC, NZ, NCDHW, NDC1HWC0, FRACTAL_Z_3D = 2, 0, 3, 4, 27, 29, 30, 32, 33


def stored(t: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor's memory as they lie, padding included."""
    torch.npu.synchronize()
    flat = torch.empty(torch_npu.get_storage_size(t), dtype=t.dtype)
    size = ctypes.c_size_t(flat.numel() * flat.element_size())
    code = ctypes.CDLL("libascendcl.so").aclrtMemcpy(ctypes.c_void_p(flat.data_ptr()), size, ctypes.c_void_p(t.data_ptr()), size, 2)
    assert code == 0
    return flat


def blocks(x: torch.Tensor, axes: dict[int, int]) -> torch.Tensor:
    """x with each of the axes padded by zeros and cut into (blocks, block); an axis counts in x."""
    for axis in sorted(axes, reverse=True):
        block = axes[axis]
        padding = [0, 0] * (x.dim() - axis - 1) + [0, -x.shape[axis] % block]
        x = F.pad(x, padding).unflatten(axis, (-1, block))
    return x


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int8, torch.int32))
@covers("NpuFormatCast")
def test_fractal_nz_lies_in_columns_of_blocks(dtype):
    c0 = 32 if dtype == torch.int8 else 16
    for shape in ((16, 16), (33, 50), (1, 7), (2, 3, 40, 20)):
        x = floats(*shape).to(dtype) if dtype.is_floating_point else ints(*shape, dtype=dtype)
        nz = torch_npu.npu_format_cast(x.npu(), NZ)
        want = blocks(x.reshape(-1, *shape[-2:]), {1: 16, 2: c0}).permute(0, 3, 1, 2, 4)
        assert torch.equal(stored(nz), want.flatten())
        assert torch.equal(torch_npu.npu_format_cast(nz, ND).cpu(), x)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16))
@pytest.mark.parametrize("shape", ((2, 20, 3, 5), (17, 16, 1, 1), (1, 1, 2, 2)))
@covers("NpuFormatCast")
def test_formats_of_images(shape, dtype):
    x = floats(*shape, dtype=dtype)
    for format, want in (
        (NC1HWC0, blocks(x, {1: 16}).permute(0, 1, 3, 4, 2)),  # n c1 h w c0
        (FRACTAL_Z, blocks(x, {0: 16, 1: 16}).permute(2, 4, 5, 0, 1, 3)),  # c1 h w n1 n0 c0
    ):
        cast = torch_npu.npu_format_cast(x.npu(), format)
        assert torch_npu.get_npu_format(cast) == format and cast.shape == x.shape
        assert torch.equal(stored(cast), want.flatten()), format
        assert torch.equal(torch_npu.npu_format_cast(cast, NCHW).cpu(), x)
        assert torch.equal(cast.cpu(), x)
    straight = torch_npu.npu_format_cast(torch_npu.npu_format_cast(x.npu(), NC1HWC0), FRACTAL_Z)
    assert torch.equal(stored(straight), want.flatten()), "from one private format to another"


@covers("NpuFormatCast")
def test_formats_of_volumes():
    x = floats(3, 18, 2, 3, 4, dtype=torch.float16)
    for format, want in (
        (NDHWC, x.permute(0, 2, 3, 4, 1)),
        (NDC1HWC0, blocks(x, {1: 16}).permute(0, 3, 1, 4, 5, 2)),  # n d c1 h w c0
        (FRACTAL_Z_3D, blocks(x, {0: 16, 1: 16}).permute(4, 2, 5, 6, 0, 1, 3)),  # d c1 h w n1 n0 c0
    ):
        base = torch_npu.npu_format_cast(x.npu(), NCDHW)
        cast = torch_npu.npu_format_cast(base, format)
        assert torch_npu.get_npu_format(cast) == format
        assert torch.equal(stored(cast), want.flatten()), format
        assert torch.equal(torch_npu.npu_format_cast(cast, NCDHW).cpu(), x)


def error_of(code: str) -> str:
    """
    What a program prints. It is one of its own, since torch_npu drops the operators that follow such an error; without torch_npu's queue, behind
    which a program may end before the error arrives.
    """
    start = "import torch, torch_npu; torch.npu.config.allow_internal_format = True; cast = torch_npu.npu_format_cast; "
    environ = os.environ | {"ASCEND_LAUNCH_BLOCKING": "1"}
    return subprocess.run([sys.executable, "-c", start + code], env=environ, capture_output=True, text=True).stderr


def test_an_operator_without_the_format_refuses_it():
    assert "operator Exp is not available" in error_of(f"x = cast(torch.ones(2, 20, 3, 5).npu(), {NC1HWC0}); torch.exp(x); torch.npu.synchronize()")


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
@covers("MatmulWeightNz")
def test_a_weight_that_is_no_multiple_of_the_block(dtype):
    for m, k, n in ((3, 17, 5), (1, 100, 33), (16, 31, 16)):
        a, w = floats(m, k, dtype=dtype), floats(n, k, dtype=dtype, seed=1)
        want = torch.matmul(a.npu(), w.npu().t()).cpu()
        assert torch.equal(torch.matmul(a.npu(), torch_npu.npu_format_cast(w.npu(), NZ).t()).cpu(), want)
        assert torch.equal(torch.matmul(a.npu(), torch_npu.npu_format_cast(w.t().contiguous().npu(), NZ)).cpu(), want), "cast as [k, n]"


@pytest.mark.parametrize("part", ("[:16]", "[16:]"))
def test_a_part_of_a_blocked_weight_is_refused(part):
    # Strides don't say where its elements are.
    code = f"w = cast(torch.ones(40, 32).half().npu(), {NZ}){part}; print(torch.matmul(torch.ones(3, 32).half().npu(), w.t()).cpu())"
    assert "FRACTAL_NZ storage is" in error_of(code)


def test_the_legacy_path_names_near_operators():
    opapi()
    compiler, runtime = ctypes.CDLL("libacl_op_compiler.so"), ctypes.CDLL("libascendcl.so")
    runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
    assert compiler.aclopCompileAndExecuteV2(b"RmsNrm", 0, None, None, 0, None, None, None, 0, 0, None, None) == 100024
    assert "Operators with such names: aclnnRmsNorm" in runtime.aclGetRecentErrMsg().decode()
