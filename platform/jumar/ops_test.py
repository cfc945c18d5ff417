"""The fused operators against vLLM's own definitions, computed in float64 or float32 on the CPU."""

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.rotary_embedding import get_rope

from jumar import ops

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def vllm_config():
    ops.register()
    with set_current_vllm_config(VllmConfig()):
        yield


def assert_close(got: torch.Tensor, want: torch.Tensor, roundings: int) -> None:
    """Within `roundings` roundings of the result's format, each relative to the largest value."""
    eps = torch.finfo(got.dtype).eps
    bound = roundings * eps * want.abs().max().item()
    error = (got.cpu().double() - want.double()).abs().max().item()
    assert error <= bound, f"error {error} over bound {bound}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 7, 64])
def test_rms_norm(dtype, tokens):
    torch.manual_seed(tokens)
    layer = RMSNorm(576, eps=1e-5, dtype=dtype)
    assert type(layer) is ops.AscendRMSNorm
    layer.weight.data.uniform_(0.5, 1.5)
    x = torch.randn(tokens, 576).to(dtype)
    want = x.double() * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + 1e-5) * layer.weight.double()
    # One rounding of the result, and one of x * rstd where that is done before the weight.
    assert_close(layer.npu()(x.npu()), want, roundings=2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm_returns_the_sum_too(dtype):
    torch.manual_seed(0)
    layer = RMSNorm(576, eps=1e-5, dtype=dtype)
    x, residual = (torch.randn(9, 576).to(dtype) for _ in range(2))
    total = x.double() + residual.double()
    want = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-5)
    out, new_residual = layer.npu()(x.npu(), residual.npu())
    assert_close(new_residual, total, roundings=1)
    # The sum may be rounded before it is normalised.
    assert_close(out, want, roundings=3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu(dtype):
    torch.manual_seed(0)
    layer = SiluAndMul()
    assert type(layer) is ops.AscendSiluAndMul
    x = torch.randn(5, 2 * 192).to(dtype)
    gate, up = x.double().chunk(2, dim=-1)
    # One rounding of the result, and one of silu(gate) where that is stored in between.
    assert_close(layer(x.npu()), torch.nn.functional.silu(gate) * up, roundings=2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("neox", [True, False])
def test_rotary_embedding(dtype, neox):
    torch.manual_seed(0)
    rope = get_rope(
        64, max_position=512, is_neox_style=neox, rope_parameters={"rope_type": "default", "rope_theta": 1e4}, dtype=dtype
    )
    assert type(rope) is ops.AscendRotaryEmbedding
    positions = torch.tensor([0, 1, 5, 511, 17])
    query, key = torch.randn(5, 9 * 64).to(dtype), torch.randn(5, 3 * 64).to(dtype)
    cache = rope.cos_sin_cache.to(dtype).double()
    want = rope.forward_static(positions, query.double(), key.double(), 64, 64, cache, neox)
    got = rope.npu()(positions.npu(), query.npu(), key.npu())
    for g, w in zip(got, want):
        # Two products and a sum, each of which may be rounded.
        assert_close(g, w, roundings=3)
