"""Manifold-constrained hyper-connections: against the formula in float64, and DeepSeek V4's own modules in transformers."""

import pytest
import torch
import torch_npu
from oracle import STRICT, call, covers, floats
from transformers import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperConnection

HALVES = (torch.float16, torch.bfloat16)


def pre(x, phi, alpha, bias, gamma, norm_eps, hc_eps):
    """hIn, hPost, hRes, invRms, hMix, hPre of x [tokens, n, d], all in float64."""
    n = x.shape[1]
    x, phi, alpha, bias = x.double(), phi.double(), alpha.double(), bias.double()
    inverse_rms = (x.flatten(1).square().mean(-1) + norm_eps).rsqrt()
    mix = (x * (1 if gamma is None else gamma.double())).flatten(1) @ phi.T
    w = mix * inverse_rms[:, None]
    h_pre = torch.sigmoid(w[:, :n] * alpha[0] + bias[:n]) + hc_eps
    h_post = 2 * torch.sigmoid(w[:, n : 2 * n] * alpha[1] + bias[n : 2 * n])
    h_res = (w[:, 2 * n :] * alpha[2] + bias[2 * n :]).unflatten(1, (n, n)) if len(alpha) == 3 else None
    return (h_pre[..., None] * x).sum(1), h_post, h_res, inverse_rms, mix, h_pre


def sinkhorn(x, iterations, eps):
    x = x.double().softmax(-1) + eps
    for i in range(2 * iterations - 1):
        x = x / (x.sum(-2 if i % 2 == 0 else -1, keepdim=True) + eps)
    return x


def near(got, want, error):
    """`error` absolute, and one rounding to the type of `got`."""
    step = torch.finfo(got.dtype).eps / 2 if got.dtype != torch.float32 else 0
    worst = ((got.cpu().double() - want).abs() - step * want.abs()).max().item()
    assert worst <= error, f"off by {worst}, allowed is {error}"


def tensors(n=4, d=64, tokens=(5,), dtype=torch.bfloat16, parts=3):
    rows = 2 * n + (n * n if parts == 3 else 0)
    x = floats(*tokens, n, d, dtype=dtype)
    return x, floats(rows, n * d, seed=1) / d, floats(parts, seed=2), floats(rows, seed=3)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("with_gamma", [True, False])
@covers("MhcPreV2")
def test_pre(dtype, with_gamma):
    for n, d, tokens in ((4, 64, (5,)), (6, 16, (2, 3)), (8, 48, (1,))):
        x, phi, alpha, bias = tensors(n, d, tokens, dtype)
        gamma = floats(n, d, seed=4, low=0.5, high=1.5) if with_gamma else None
        got = torch_npu.npu_mhc_pre(x.npu(), phi.npu(), alpha.npu(), bias.npu(), gamma=gamma.npu() if with_gamma else None, norm_eps=1e-5, hc_eps=1e-3, out_flag=1)
        want = pre(x.flatten(0, -3), phi, alpha, bias, gamma, 1e-5, 1e-3)
        for out, expected, error in zip(got, want, (n * d * 2e-6, n * d * 2e-7, n * d * 2e-7, 1e-5, n * d * 2e-7, n * d * 2e-7)):
            near(out.reshape(expected.shape), expected, error)
        assert got[0].dtype == dtype and got[0].shape == (*tokens, d) and got[2].shape == (*tokens, n, n)


@covers("MhcPreV2")
def test_pre_without_the_matrix():
    x, phi, alpha, bias = tensors(parts=2)
    h_in, h_post, *_ = torch_npu.npu_mhc_pre(x.npu(), phi.npu(), alpha.npu(), bias.npu())
    want = pre(x, phi, alpha, bias, None, 1e-6, 1e-6)
    near(h_in, want[0], 1e-4)
    near(h_post, want[1], 1e-5)


@covers("MhcPre")
def test_first_version_of_pre():
    x, phi, alpha, bias = tensors()
    h_in, h_post, h_res = torch.zeros(5, 64, dtype=x.dtype).npu(), torch.zeros(5, 4).npu(), torch.zeros(5, 4, 4).npu()
    call("MhcPre", x.npu(), phi.npu(), alpha.npu(), bias.npu(), None, 1e-6, 1e-6, h_in, h_post, h_res, None, None, None)
    want = pre(x, phi, alpha, bias, None, 1e-6, 1e-6)
    for out, expected in zip((h_in, h_post, h_res), want):
        near(out, expected, 1e-4)


@covers("MhcSinkhorn")
def test_sinkhorn():
    for n in (4, 6, 8):
        x = floats(37, n, n, seed=n, low=-4, high=4)
        for iterations in (1, 20):
            y = torch_npu.npu_mhc_sinkhorn(x.npu(), num_iters=iterations)[0]
            near(y, sinkhorn(x, iterations, 1e-6), 2e-5)
    view = floats(3, 4, 5, 4).permute(2, 0, 1, 3)[:, :, :, :4]
    near(torch_npu.npu_mhc_sinkhorn(view.npu())[0], sinkhorn(view, 20, 1e-6), 2e-5)


@pytest.mark.parametrize("dtype", HALVES)
@covers("MhcPost")
def test_post(dtype):
    x, out, mix, post = floats(5, 4, 64, dtype=dtype), floats(5, 64, dtype=dtype, seed=1), floats(5, 4, 4, seed=2), floats(5, 4, seed=3)
    spread = post[..., None].double() * out.double()[:, None]
    got = torch_npu.npu_mhc_post(x.npu(), mix.npu(), out.npu(), post.npu())
    near(got, mix.double().transpose(1, 2) @ x.double() + spread, 1e-5)
    near(torch_npu.npu_mhc_post(x.npu(), None, out.npu(), post.npu()), x.double() + spread, 1e-5)
    batched = torch_npu.npu_mhc_post(x[None].npu(), mix[None].npu(), out[None].npu(), post[None].npu())
    assert torch.equal(batched[0].cpu(), got.cpu())


@covers("MhcPreV2", "MhcSinkhorn")
def test_deepseek_v4_module():
    config = DeepseekV4Config(hidden_size=64, hc_mult=4, hc_sinkhorn_iters=20)
    module = DeepseekV4HyperConnection(config)
    with torch.no_grad():
        module.fn.copy_(floats(24, 256, seed=1) / 8), module.base.copy_(floats(24, seed=2)), module.scale.copy_(floats(3, seed=3))
    x = floats(1, 5, 4, 64, seed=4, dtype=torch.bfloat16)
    with torch.no_grad():
        post, comb, collapsed = module(x)
    h_in, h_post, h_res, *_ = torch_npu.npu_mhc_pre(
        x.npu(), module.fn.npu(), module.scale.npu(), module.base.npu(), norm_eps=config.rms_norm_eps, hc_eps=config.hc_eps
    )
    near(h_in, collapsed.double(), 2.0**-7 * collapsed.abs().max().item())  # which transformers rounds at more places
    near(h_post, post.double(), 1e-4)
    near(torch_npu.npu_mhc_sinkhorn(h_res, eps=config.hc_eps)[0], comb.double(), 1e-4)


@covers("MhcPreV2", "MhcSinkhorn", "MhcPost")
def test_refusals():
    x, phi, alpha, bias = (t.npu() for t in tensors())
    res, out, post = torch.zeros(5, 4, 4).npu(), torch.zeros(5, 64, dtype=x.dtype).npu(), torch.zeros(5, 4).npu()
    torch_npu.npu_mhc_pre(x, phi, alpha, bias), torch_npu.npu_mhc_sinkhorn(res), torch_npu.npu_mhc_post(x, res, out, post)  # these are fine
    for wrong, message in (
        (lambda: torch_npu.npu_mhc_pre(x, phi[:20], alpha, bias), "phi"),
        (lambda: torch_npu.npu_mhc_pre(x, phi, alpha, bias[:9]), "bias"),
        (lambda: torch_npu.npu_mhc_sinkhorn(res, num_iters=101), "101"),
        (lambda: torch_npu.npu_mhc_sinkhorn(res, out_flag=1), "norm_out|out_flag"),
        (lambda: torch_npu.npu_mhc_post(x, res[:, :3], out, post), "hRes"),
        (lambda: torch_npu.npu_mhc_post(x, res, out[:3], post), "hOut"),
    ):
        with pytest.raises(RuntimeError, match=message if not STRICT else None):
            wrong()
            torch.npu.synchronize()
