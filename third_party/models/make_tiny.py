"""Makes a tiny checkpoint of one architecture, with random weights and a given tokenizer, for tests.

    make_tiny --architecture=qwen3 --tokenizer=DIR --out=DIR

The weights are a function of the architecture alone, byte for byte: each tensor comes from a generator that
its name seeds. They are float32, and large enough that the greedy next token is rarely a near-tie.
"""

import copy
import json
import os
import pathlib
import re
import shutil
import sys
import zlib

# torch and transformers would load torch_npu, which can't be loaded without a CANN. None is needed here.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
sys.modules["torch_npu"] = None

import numpy as np
import safetensors.torch
import torch
import transformers
from absl import app, flags

# As real models of the family, but small. The sizes that kernels care about (head sizes, MLA's ranks) are real ones.
_COMMON = dict(
    vocab_size=49152,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=3,
    max_position_embeddings=2048,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=2,
    tie_word_embeddings=False,
)
_GROUPED_HEADS = dict(num_attention_heads=8, num_key_value_heads=2, head_dim=64)
_DEEPSEEK = dict(
    num_attention_heads=4,
    num_key_value_heads=4,
    q_lora_rank=128,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    first_k_dense_replace=1,
    moe_intermediate_size=128,
    n_routed_experts=8,
    n_shared_experts=1,
    num_experts_per_tok=2,
    n_group=2,
    topk_group=1,
    norm_topk_prob=True,
    routed_scaling_factor=1.0,
    num_nextn_predict_layers=0,
    # Of the released checkpoints' config.json; transformers always does this, vLLM only if it says so.
    topk_method="noaux_tc",
    scoring_func="sigmoid",
)
# Fewer selected tokens than the tests' longer prompts have.
_INDEXER = dict(index_topk=48, index_n_heads=16, index_head_dim=128)


# What released config.json files of DeepSeek V4 have, which transformers reads as well; it writes other names, of which vLLM knows nothing.
_DEEPSEEK_V4 = dict(
    # Every kind of layer: a window alone; compressed by 4, with an indexer; by 128. Experts by token numbers in the first two layers.
    compress_ratios=[0, 4, 128, 4],
    num_hash_layers=2,
    rope_scaling=dict(type="yarn", factor=4, original_max_position_embeddings=512, beta_fast=32, beta_slow=1),
)
_DEEPSEEK_V4_UNRELEASED = ("layer_types", "mlp_layer_types", "compress_rates", "rope_parameters", "partial_rotary_factor")


def _deepseek_v4() -> transformers.PreTrainedConfig:
    return transformers.DeepseekV4Config(
        **{**_COMMON, "num_hidden_layers": 4, "intermediate_size": 128},  # of an expert
        **copy.deepcopy(_DEEPSEEK_V4),  # transformers adds to it
        num_attention_heads=4,
        head_dim=512,
        qk_rope_head_dim=64,
        q_lora_rank=128,
        o_groups=2,
        o_lora_rank=64,
        sliding_window=32,
        index_topk=16,  # the tests' longer prompts have more entries
        index_n_heads=16,
        index_head_dim=128,
        n_routed_experts=8,
        num_experts_per_tok=2,
        num_nextn_predict_layers=0,
        topk_method="noaux_tc",
        swiglu_limit=1.5,  # low enough to matter
        hc_mult=4,
    )


_ARCHITECTURES = {
    "llama": lambda: transformers.LlamaConfig(**_COMMON, **_GROUPED_HEADS),
    "qwen2": lambda: transformers.Qwen2Config(**_COMMON, num_attention_heads=4, num_key_value_heads=2),
    "qwen3": lambda: transformers.Qwen3Config(**_COMMON, **_GROUPED_HEADS),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **_COMMON, **_GROUPED_HEADS, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=128, norm_topk_prob=True
    ),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(**_COMMON, **_DEEPSEEK),
    "deepseek_v32": lambda: transformers.DeepseekV32Config(**_COMMON, **_DEEPSEEK, **_INDEXER),
    # The second layer uses the first one's selection.
    "glm_moe_dsa": lambda: transformers.GlmMoeDsaConfig(
        **_COMMON, **_DEEPSEEK, **_INDEXER, index_topk_pattern="FSF", indexer_rope_interleave=True
    ),
    "deepseek_v4": _deepseek_v4,
    # Sinks, biases everywhere, a window in every other layer.
    "gpt_oss": lambda: transformers.GptOssConfig(
        **{**_COMMON, "num_hidden_layers": 4, "intermediate_size": 128},  # of an expert
        **_GROUPED_HEADS,
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=32,
        rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=512, beta_fast=32.0, beta_slow=1.0, truncate=False
        ),
    ),
    "gemma3_text": lambda: transformers.Gemma3TextConfig(
        **_COMMON, **_GROUPED_HEADS, sliding_window=32, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
    ),
}
# transformers reads the released checkpoints' names of tensors, but doesn't write all of them.
_RELEASED_NAMES = {
    "deepseek_v4": [
        (r"^model\.embed_tokens\.", "embed."),
        (r"^model\.hc_head\.hc_", "hc_head_"),
        (r"^model\.", ""),
        (r"\.attn\.norm\.", ".attn.kv_norm."),
    ],
}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

_ARCHITECTURE = flags.DEFINE_enum("architecture", None, sorted(_ARCHITECTURES), "what to make", required=True)
_TOKENIZER = flags.DEFINE_string("tokenizer", None, "the model directory whose tokenizer to take", required=True)
_OUT = flags.DEFINE_string("out", None, "the directory to write", required=True)


def random_values(name: str, shape: torch.Size) -> torch.Tensor:
    """float32 values for the tensor `name`: weights of about unit gain, norms around one, small biases."""
    normal = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(tuple(shape), dtype=np.float32)
    if "norm" in name or name.endswith("scale"):
        return torch.from_numpy(1 + np.float32(0.1) * normal)
    if len(shape) < 2:
        return torch.from_numpy(np.float32(0.1) * normal)
    if "embed_tokens" in name:
        return torch.from_numpy(normal)
    return torch.from_numpy(normal / np.float32(np.sqrt(shape[-1])))


def random_experts(name: str, shape: torch.Size, experts: int) -> torch.Tensor:
    """Numbers of different experts in each row of `shape`."""
    rows = np.random.default_rng(zlib.crc32(name.encode())).permuted(np.tile(np.arange(experts), (shape[0], 1)), axis=1)
    return torch.from_numpy(rows[:, : shape[1]].copy())


def released_name(name: str, rules: list[tuple[str, str]]) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def make(architecture: str, tokenizer: pathlib.Path, out: pathlib.Path) -> None:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_config(_ARCHITECTURES[architecture](), dtype=torch.float32)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith("tid2eid"):
                tensor.copy_(random_experts(name, tensor.shape, model.config.n_routed_experts))
            else:
                tensor.copy_(random_values(name, tensor.shape))
    model.save_pretrained(out)
    if architecture == "deepseek_v4":
        config = json.loads((out / "config.json").read_text())
        config = {name: value for name, value in config.items() if name not in _DEEPSEEK_V4_UNRELEASED} | _DEEPSEEK_V4
        (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = out / "model.safetensors"
    if rules := _RELEASED_NAMES.get(architecture):
        tensors = {released_name(name, rules): tensor for name, tensor in safetensors.torch.load_file(weights).items()}
        safetensors.torch.save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    for name in _TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, out / name)
        (out / name).chmod(0o644)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    make(_ARCHITECTURE.value, pathlib.Path(_TOKENIZER.value), pathlib.Path(_OUT.value))


if __name__ == "__main__":
    app.run(main)
