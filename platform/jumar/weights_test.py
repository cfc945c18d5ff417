"""Weights in NZ give the same linear layers."""

import pytest
import torch
import torch_npu
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import (
    cleanup_dist_env_and_memory,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.model_executor.layers.linear import ReplicatedLinear

from jumar.weights import FRACTAL_NZ, cast_weights_to_nz


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory):
    """Linear layers ask for their tensor-parallel rank."""
    with set_current_vllm_config(VllmConfig()):
        store = tmp_path_factory.mktemp("store") / "file"
        init_distributed_environment(1, 0, f"file://{store}", local_rank=0, backend="gloo")
        initialize_model_parallel()
        yield
        cleanup_dist_env_and_memory()


@pytest.mark.parametrize("dtype, casts", [(torch.bfloat16, True), (torch.float16, True), (torch.float32, False)])
@pytest.mark.parametrize("tokens", [1, 5, 64])
def test_linear_is_unchanged(dtype, casts, tokens):
    torch.manual_seed(0)
    with set_current_vllm_config(VllmConfig()):
        layer = ReplicatedLinear(100, 50, bias=True, params_dtype=dtype)
    layer.weight.data.normal_()
    layer.bias.data.normal_()
    layer = layer.npu()
    x = torch.randn(tokens, 100).to(dtype)
    want = x.double() @ layer.weight.cpu().double().T + layer.bias.cpu().double()
    cast = cast_weights_to_nz(torch.nn.Sequential(layer))
    assert cast.count == (1 if casts else 0)
    assert (torch_npu.get_npu_format(layer.weight) == FRACTAL_NZ) == casts
    got, _ = layer(x.npu())
    # Sums of 100 products in float32, one rounding of the product, one of the sum with the bias.
    magnitude = (x.double().abs() @ layer.weight.cpu().double().abs().T).max().item()
    bound = 2 * torch.finfo(dtype).eps * want.abs().max().item() + 100 * torch.finfo(torch.float32).eps * magnitude
    assert (got.cpu().double() - want).abs().max().item() <= bound
