"""DeepSeek V4. vLLM's model for CPUs, which is plain torch, with our attention and torch_npu's operators for the hyper-connections.

vLLM has a model for each device, of which an out-of-tree platform gets CUDA's. Registered by ``ModelRegistry`` in that one's place.
"""

from __future__ import annotations

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.distributed import get_pp_group
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.mhc import HCHeadOp, MHCPostOp, MHCPreOp
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.models.utils import PPMissingLayer, make_layers
from vllm.models.deepseek_v4.cpu.model import DeepseekV4DecoderLayer, DeepseekV4ForCausalLM, DeepseekV4Model, DeepseekV4MoE

from jumar import hyper_connections  # noqa: F401  (registers its operators)
from jumar.deepseek_v4_attention import DeepseekV4Attention


def check(vllm_config: VllmConfig) -> None:
    """Raises NotImplementedError for what this model can't do here."""
    cache_dtype, quantization = vllm_config.cache_config.cache_dtype, vllm_config.quant_config
    if quantization is not None:
        raise NotImplementedError(f"DeepSeek V4 in {quantization.get_name()} is not supported on npu; use an unquantised checkpoint")
    if cache_dtype not in ("auto", "float16", "bfloat16"):
        raise NotImplementedError(f"a KV cache in {cache_dtype} is not supported by DeepSeek V4 on npu; use --kv-cache-dtype auto")
    if vllm_config.speculative_config is not None:
        raise NotImplementedError("speculative decoding is not supported by DeepSeek V4 on npu: a rejected draft would stay in the compressors' states")


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=torch.float32), requires_grad=False)


class AscendDeepseekV4DecoderLayer(DeepseekV4DecoderLayer):
    """The parent's constructor makes an attention of its own; the rest of the parent is used as it is."""

    use_fused_mhc = False

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        nn.Module.__init__(self)
        config = vllm_config.model_config.hf_config
        self.hidden_size, self.rms_norm_eps = config.hidden_size, config.rms_norm_eps
        self.hc_mult, self.hc_sinkhorn_iters, self.hc_eps = config.hc_mult, config.hc_sinkhorn_iters, config.hc_eps
        self.hc_post_alpha = hyper_connections.POST_FACTOR
        self.attn = DeepseekV4Attention(vllm_config, f"{prefix}.attn")
        self.ffn = DeepseekV4MoE(vllm_config, prefix=f"{prefix}.ffn")
        self.attn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.ffn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        mixes = (2 + config.hc_mult) * config.hc_mult
        for part in ("attn", "ffn"):
            self.register_parameter(f"hc_{part}_fn", _weight(mixes, config.hc_mult * config.hidden_size))
            self.register_parameter(f"hc_{part}_base", _weight(mixes))
            self.register_parameter(f"hc_{part}_scale", _weight(3))
        self.mhc_pre, self.mhc_post = MHCPreOp(), MHCPostOp()


class AscendDeepseekV4Model(DeepseekV4Model):
    """The same: the parent's constructor makes its own layers."""

    do_not_compile = True  # the parent is decorated for torch.compile, and asks this when it is called
    is_fused_shared_expert_enabled = False
    _mtp_hidden_buffer = None

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        nn.Module.__init__(self)
        check(vllm_config)
        config = vllm_config.model_config.hf_config
        self.config, self.rms_norm_eps, self.hc_eps, self.hc_mult = config, config.rms_norm_eps, config.hc_eps, config.hc_mult
        first, last = get_pp_group().is_first_rank, get_pp_group().is_last_rank
        self.embed_tokens = (
            VocabParallelEmbedding(
                config.vocab_size, config.hidden_size, quant_config=vllm_config.quant_config, prefix=f"{prefix}.embed_tokens"
            )
            if first
            else PPMissingLayer()
        )
        self.start_layer, self.end_layer, self.layers = make_layers(
            config.num_hidden_layers, lambda prefix: AscendDeepseekV4DecoderLayer(vllm_config, prefix), prefix=f"{prefix}.layers"
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps) if last else PPMissingLayer()
        self.hc_head_fn = _weight(config.hc_mult, config.hc_mult * config.hidden_size)
        self.hc_head_base, self.hc_head_scale = _weight(config.hc_mult), _weight(1)
        self.hc_head_op = HCHeadOp()


class AscendDeepseekV4ForCausalLM(DeepseekV4ForCausalLM):
    model_cls = AscendDeepseekV4Model
