"""A Hugging Face folder of a Llama model as a GGUF file for llama.cpp, in a number format of choice.

The values are those of the folder, rounded once by the gguf package's own code. Norms are float32, as llama.cpp wants them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import gguf
import ml_dtypes  # noqa: F401  (numpy learns bfloat16, in which safetensors gives weights)
import numpy as np
from safetensors import safe_open

FORMATS = {
    "F16": gguf.GGMLQuantizationType.F16,
    "BF16": gguf.GGMLQuantizationType.BF16,
    "Q8_0": gguf.GGMLQuantizationType.Q8_0,
    "Q4_0": gguf.GGMLQuantizationType.Q4_0,
}
_MODEL_TENSORS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_TENSORS = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_CONTROL = 3  # tokenizer.ggml.token_type


def paired_rotation_rows(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """GGUF's order of the rows of a q or k projection, [heads * head_dim, hidden]: each rotation's two rows are neighbours.

    Hugging Face has all the first ones of a head, then all the second ones.
    """
    rows, columns = weight.shape
    return weight.reshape(num_heads, 2, rows // num_heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def gguf_name(name: str) -> str:
    """GGUF's name of a Hugging Face tensor.

    Raises:
        ValueError: for a tensor that a Llama model doesn't have.
    """
    if name in _MODEL_TENSORS:
        return _MODEL_TENSORS[name]
    start, _, rest = name.removeprefix("model.layers.").partition(".")
    if not start.isdigit() or rest not in _LAYER_TENSORS:
        raise ValueError(f"{name} is no tensor of a Llama model that this writes")
    return f"blk.{start}.{_LAYER_TENSORS[rest]}"


def tensors(model: Path) -> Iterator[tuple[str, np.ndarray]]:
    """GGUF's name and the float32 values of each tensor."""
    config = json.loads((model / "config.json").read_text())
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as weights:
            for name in weights.keys():  # noqa: SIM118  (not a dict)
                values = weights.get_tensor(name).astype(np.float32)
                if name.endswith("q_proj.weight"):
                    values = paired_rotation_rows(values, config["num_attention_heads"])
                elif name.endswith("k_proj.weight"):
                    values = paired_rotation_rows(values, config["num_key_value_heads"])
                yield gguf_name(name), values


def write(model: Path, out: Path, weights: str, embedding: str) -> None:
    """Writes the file, completely or not at all.

    Args:
        weights: number format of the layers' matrices, a key of FORMATS.
        embedding: number format of the embedding, which is the output layer too where the two are tied.
    """
    config = json.loads((model / "config.json").read_text())
    if config["architectures"] != ["LlamaForCausalLM"]:
        raise ValueError(f"{model} is a {config['architectures']} model; this writes LlamaForCausalLM only")
    part = out.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "llama")
    _write_settings(writer, config)
    _write_tokenizer(writer, model, config)
    for name, values in tensors(model):
        if values.ndim == 1:
            writer.add_tensor(name, values)
            continue
        kind = FORMATS[embedding if name in ("token_embd.weight", "output.weight") else weights]
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(out)


def _write_settings(writer: gguf.GGUFWriter, config: dict) -> None:
    head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rotation = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rotation.get("rope_type", "default") != "default":
        raise ValueError(f"rotary embedding of type {rotation['rope_type']} is not written")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_dimension_count(head_size)
    writer.add_rope_freq_base(config.get("rope_theta") or rotation["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _write_tokenizer(writer: gguf.GGUFWriter, model: Path, config: dict) -> None:
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    by_id = {index: token for token, index in vocabulary.items()} | special
    tokens = [by_id.get(index, f"<unused{index}>") for index in range(config["vocab_size"])]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([_CONTROL if index in special else 1 for index in range(len(tokens))])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)
