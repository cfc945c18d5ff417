"""Other architectures than the default model's: tiny checkpoints with random weights, against transformers."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.programs import run

ROOT = Path(__file__).parents[1]
MODELS, DOCS = ROOT / "third_party" / "models", ROOT / "docs"
MAX_TOKENS = 8
# The third is longer than what a step takes, so that it comes in chunks, beside decoding ones; the last waits for a place, and then finds
# the first 128 tokens of the third in the prefix cache.
PROMPTS = [[504], [504, 3575, 282, 4649, 314], list(range(1000, 1150)), [30, 31, 32] * 7, [*range(1000, 1140), 7, 8, 9]]

# What the default model hasn't, once: latent and sparse attention, windows, sinks, biases, experts of three kinds.
QUICK = ["glm_moe_dsa", "gpt_oss", "qwen3_moe"]
OTHERS = ["deepseek_v3", "deepseek_v32", "deepseek_v4", "gemma3_text", "llama", "qwen2", "qwen3"]


def compare(architectures: list[str], folder: Path) -> None:
    common = dict(prompts=PROMPTS, max_tokens=MAX_TOKENS)
    options = dict(dtype="float32", max_model_len=256, max_num_seqs=4, max_num_batched_tokens=64)
    models = [str(MODELS / f"tiny_{architecture}") for architecture in architectures]
    ours = run("generate.py", [dict(common, llm=dict(model=model, **options)) for model in models], folder / "ours")
    theirs = run("reference.py", [dict(common, model=model, dtype="float32") for model in models], folder / "theirs")
    answers = {name: mine["completions"] for name, mine in zip(architectures, ours)}
    assert answers == {name: reference["completions"] for name, reference in zip(architectures, theirs)}


def test_float32_equals_transformers(tmp_path):
    compare(QUICK, tmp_path)


@pytest.mark.full
def test_other_architectures_equal_transformers(tmp_path):
    compare(OTHERS, tmp_path)


def to_mxfp4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes uint8 [..., k / 32, 16], exponents uint8 [..., k / 32] and values of weight [..., k], as GPT-OSS' checkpoints have them."""
    groups = weight.unflatten(-1, (-1, 32))
    exponent = groups.abs().amax(-1).log2().floor() - 2
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    scaled = groups / torch.exp2(exponent)[..., None]
    codes = (scaled.abs()[..., None] - magnitudes).abs().argmin(-1)
    values = magnitudes[codes] * scaled.sign() * torch.exp2(exponent)[..., None]
    codes += 8 * (scaled < 0)
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8), (exponent + 127).to(torch.uint8), values.flatten(-2)


@pytest.mark.full
def test_released_gpt_oss_equals_its_decoded_weights(tmp_path):
    """Experts in MXFP4, on a chip without it."""
    released, decoded = load_file(MODELS / "tiny_gpt_oss" / "model.safetensors"), {}
    for name in list(released):
        decoded[name] = released[name]
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):  # [experts, k, n]
            blocks, scales, values = to_mxfp4(released.pop(name).mT)
            released |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            decoded[name] = values.mT.contiguous()
    for folder, tensors in dict(mxfp4=released, decoded=decoded).items():
        shutil.copytree(MODELS / "tiny_gpt_oss", tmp_path / folder)
        (tmp_path / folder / "model.safetensors").unlink()
        save_file(tensors, tmp_path / folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((tmp_path / "mxfp4" / "config.json").read_text())
    config["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.embed_tokens", "lm_head"])
    (tmp_path / "mxfp4" / "config.json").unlink()
    (tmp_path / "mxfp4" / "config.json").write_text(json.dumps(config))
    common = dict(prompts=PROMPTS, max_tokens=MAX_TOKENS)
    llm = dict(model=str(tmp_path / "mxfp4"), dtype="float32", max_model_len=256, additional_config={"emulate_formats": True})
    ours = run("generate.py", [dict(common, llm=llm)], tmp_path / "ours")
    theirs = run("reference.py", [dict(common, model=str(tmp_path / "decoded"), dtype="float32")], tmp_path / "theirs")
    assert ours[0]["completions"] == theirs[0]["completions"]


def test_the_documented_table_has_every_architecture():
    rows = [line.split("`")[1] for line in (DOCS / "models.md").read_text().splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(QUICK + OTHERS)
