"""Small models of Hugging Face transformers: the same logits and the same greedy tokens on the device as on the CPU."""

import pytest
import torch
import torch_npu  # noqa: F401
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

COMMON = dict(vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              max_position_embeddings=256)
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"tie_word_embeddings": True}),
    "qwen3 moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig, {"moe_intermediate_size": 64, "num_experts": 8, "num_experts_per_tok": 2}),
    "deepseek v3": (DeepseekV3ForCausalLM, DeepseekV3Config, {
        "head_dim": 16, "num_key_value_heads": 4, "moe_intermediate_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
        "first_k_dense_replace": 1, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, {"query_pre_attn_scalar": 32, "sliding_window": 8}),
}


def build(name, attention, dtype):
    torch.manual_seed(0)
    model, config, extra = MODELS[name]
    # Weights of this size keep the logits apart, so that tokens don't hang on the last bit.
    return model(config(**{**COMMON, **extra}, attn_implementation=attention, initializer_range=0.08)).eval().to(dtype)


@pytest.mark.parametrize("name,attention,dtype", [
    (name, attention, dtype) for name in MODELS for attention in ("eager", "sdpa") for dtype in (torch.float32, torch.bfloat16)
    if not (name == "gemma2" and attention == "sdpa")  # its soft cap has no sdpa
    and not (name in ("qwen3 moe", "deepseek v3") and dtype != torch.float32)  # rounding may choose another expert
] + [("llama", "eager", torch.float16)])
def test_logits_and_greedy_tokens(name, attention, dtype):
    model = build(name, attention, dtype)
    prompt = torch.randint(0, 512, (2, 16))
    mask = torch.ones_like(prompt)
    mask[0, :5] = 0  # left padding
    options = dict(max_new_tokens=8, do_sample=False, pad_token_id=0)
    with torch.inference_mode():
        logits = model(prompt, attention_mask=mask).logits
        tokens = model.generate(prompt, attention_mask=mask, **options)
        exact = model.float()(prompt, attention_mask=mask).logits.double()
        model = model.to(dtype).npu()
        got = model(prompt.npu(), attention_mask=mask.npu()).logits.cpu()
        drawn = model.generate(prompt.npu(), attention_mask=mask.npu(), **options).cpu()
    real = mask.bool()
    # The CPU's own rounding error measures what the type costs; the device may cost twice that, and an ulp of the logits.
    cost = (logits.double() - exact)[real].abs().max() if dtype != torch.float32 else 0
    scale = exact[real].abs().max()
    bound = 2 * cost + scale * {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    error = (got.double() - exact)[real].abs().max()
    assert error <= bound, f"error {error}, bound {bound}"
    if dtype == torch.float32:
        assert torch.equal(drawn, tokens)


def test_sampling_runs_on_the_device():
    model = build("llama", "eager", torch.float32).npu()
    prompt = torch.randint(0, 512, (2, 16)).npu()
    torch.npu.manual_seed(1)
    options = dict(max_new_tokens=8, do_sample=True, top_k=20, top_p=0.9, temperature=0.8, pad_token_id=0, attention_mask=torch.ones_like(prompt))
    first = model.generate(prompt, **options).cpu()
    torch.npu.manual_seed(1)
    assert torch.equal(first, model.generate(prompt, **options).cpu())
    assert not torch.equal(first, model.generate(prompt, **options).cpu())
