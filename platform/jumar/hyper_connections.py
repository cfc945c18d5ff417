"""Hyper-connections (DeepSeek V4) over torch_npu's operators. Importing this module puts them in the place of vLLM's."""

from __future__ import annotations

import torch
from vllm.model_executor.custom_op import CustomOp
from vllm.model_executor.layers.mhc import HCHeadOp, MHCPostOp, MHCPreOp

# What the operator multiplies the sigmoid of "post" by; vLLM's layers pass the same.
POST_FACTOR = 2.0


@CustomOp.register_oot(name="MHCPreOp")
class AscendHyperConnectionPre(MHCPreOp):
    """Collapses the streams [tokens, n, hidden] to a layer's input, by npu_mhc_pre and npu_mhc_sinkhorn."""

    def forward_oot(
        self,
        residual: torch.Tensor,
        fn: torch.Tensor,
        hc_scale: torch.Tensor,
        hc_base: torch.Tensor,
        rms_eps: float,
        hc_pre_eps: float,
        hc_sinkhorn_eps: float,
        hc_post_mult_value: float,
        sinkhorn_repeat: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """How the layer's output is spread [tokens, n] and the streams are mixed [tokens, n, n], both fp32, and its input [tokens, hidden]."""
        import torch_npu

        assert hc_post_mult_value == POST_FACTOR, hc_post_mult_value
        inputs, post, mix, *_ = torch_npu.npu_mhc_pre(residual, fn, hc_scale, hc_base, norm_eps=rms_eps, hc_eps=hc_pre_eps)
        mix = torch_npu.npu_mhc_sinkhorn(mix, eps=hc_sinkhorn_eps, num_iters=sinkhorn_repeat)[0]
        return post, mix, inputs


@CustomOp.register_oot(name="MHCPostOp")
class AscendHyperConnectionPost(MHCPostOp):
    """Mixes the streams and adds the layer's output x [tokens, hidden] to each, by npu_mhc_post."""

    def forward_oot(
        self, x: torch.Tensor, residual: torch.Tensor, post_layer_mix: torch.Tensor, comb_res_mix: torch.Tensor
    ) -> torch.Tensor:
        import torch_npu

        return torch_npu.npu_mhc_post(residual, comb_res_mix, x, post_layer_mix)


@CustomOp.register_oot(name="HCHeadOp")
class AscendHyperConnectionHead(HCHeadOp):
    """Collapses the streams behind the last layer, once a step. There is no operator for it."""

    def forward_oot(
        self,
        hidden_states: torch.Tensor,
        hc_fn: torch.Tensor,
        hc_scale: torch.Tensor,
        hc_base: torch.Tensor,
        rms_norm_eps: float,
        hc_eps: float,
    ) -> torch.Tensor:
        streams = hidden_states.float()
        flat = streams.flatten(-2)
        inverse_rms = torch.rsqrt(flat.square().mean(-1, keepdim=True) + rms_norm_eps)
        weights = torch.sigmoid(torch.nn.functional.linear(flat * inverse_rms, hc_fn) * hc_scale + hc_base) + hc_eps
        return (weights.unsqueeze(-1) * streams).sum(-2).to(hidden_states.dtype)
