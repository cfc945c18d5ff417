"""Hyper-connections on torch_npu's operators, against transformers' DeepSeek V4."""

import pytest
import torch
from transformers import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperConnection, DeepseekV4HyperHead

from jumar.hyper_connections import POST_FACTOR, AscendHyperConnectionHead, AscendHyperConnectionPost, AscendHyperConnectionPre

TOKENS, STREAMS, HIDDEN, EPSILON, ROUNDS = 5, 4, 64, 1e-6, 20


def module(cls: type[torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    made = cls(DeepseekV4Config(hidden_size=HIDDEN, hc_mult=STREAMS, hc_sinkhorn_iters=ROUNDS, hc_eps=EPSILON, num_hidden_layers=1))
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return made


def on_npu(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.detach().npu() for tensor in tensors]


def ours(cls: type[torch.nn.Module]) -> torch.nn.Module:
    made = cls.__new__(cls)  # the constructor wants a vLLM configuration
    torch.nn.Module.__init__(made)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_a_layers_input_and_output(dtype):
    reference, streams, output = module(DeepseekV4HyperConnection), torch.randn(TOKENS, STREAMS, HIDDEN).to(dtype), torch.randn(TOKENS, HIDDEN).to(dtype)
    post, mix, inputs = (part[0] for part in reference(streams[None]))
    weights = on_npu(reference.fn, reference.scale, reference.base)
    got = ours(AscendHyperConnectionPre).forward_oot(streams.npu(), *weights, 1e-6, EPSILON, EPSILON, POST_FACTOR, ROUNDS)
    for mine, theirs in zip(got[:2], (post, mix)):
        assert torch.allclose(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)
    eps = torch.finfo(dtype).eps
    assert torch.allclose(got[2].cpu().float(), inputs.float(), rtol=4 * eps, atol=1e-5)
    want = post[..., None] * output[:, None].float() + mix.transpose(1, 2) @ streams.float()
    spread = ours(AscendHyperConnectionPost).forward_oot(output.npu(), streams.npu(), got[0], got[1])
    assert spread.dtype == dtype and torch.allclose(spread.cpu().float(), want, rtol=4 * eps, atol=1e-4)


@torch.inference_mode()
def test_the_last_collapse():
    reference, streams = module(DeepseekV4HyperHead), torch.randn(TOKENS, STREAMS, HIDDEN)
    weights = on_npu(reference.hc_fn, reference.hc_scale, reference.hc_base)
    got = ours(AscendHyperConnectionHead).forward_oot(streams.npu(), *weights, 1e-6, EPSILON)
    assert torch.allclose(got.cpu(), reference(streams[None])[0], rtol=1e-5, atol=1e-5)
