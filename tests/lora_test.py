"""LoRA adapters in one batch, against transformers with each adapter's product added to the weights."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.programs import run

BASE = Path(__file__).parents[1] / "third_party" / "models" / "tiny_llama"
MAX_TOKENS = 8
PROMPTS = [[504, 3575, 282], list(range(1000, 1150)), [30, 31, 32] * 7, [504]]
# name -> rank, alpha, kinds of modules
ADAPTERS = {
    "all": (8, 16, ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    "few": (4, 12, ["v_proj", "down_proj"]),
    "head": (16, 8, ["o_proj", "lm_head", "embed_tokens"]),
}


def write_adapter(folder: Path, rank: int, alpha: int, kinds: list[str], base: dict[str, torch.Tensor], seed: int) -> None:
    """A random adapter in PEFT's format, and beside it the model that it makes of the base."""
    generator = torch.Generator().manual_seed(seed)
    adapter, merged = {}, dict(base)
    for name, weight in base.items():
        module = name.removesuffix(".weight")
        if module.rpartition(".")[2] not in kinds:
            continue
        a = torch.randn(rank, weight.shape[1], generator=generator) / weight.shape[1] ** 0.5
        b = torch.randn(weight.shape[0], rank, generator=generator) * weight.float().std() * 2
        merged[name] = weight.float() + alpha / rank * b @ a
        if module.endswith("embed_tokens"):  # which PEFT takes as a layer from the vocabulary
            parts = {"lora_embedding_A": b.T, "lora_embedding_B": a.T}
        else:
            parts = {"lora_A.weight": a, "lora_B.weight": b}
        adapter |= {f"base_model.model.{module}.{part}": tensor.contiguous() for part, tensor in parts.items()}
    folder.mkdir()
    save_file(adapter, folder / "adapter_model.safetensors")
    config = dict(peft_type="LORA", r=rank, lora_alpha=alpha, target_modules=kinds, bias="none", task_type="CAUSAL_LM")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    shutil.copytree(BASE, folder / "merged")
    (folder / "merged" / "model.safetensors").unlink()
    save_file(merged, folder / "merged" / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture(scope="module")
def adapters(tmp_path_factory) -> dict[str, Path]:
    folder, base = tmp_path_factory.mktemp("adapters"), load_file(BASE / "model.safetensors")
    for seed, (name, what) in enumerate(ADAPTERS.items()):
        write_adapter(folder / name, *what, base, seed)
    return {name: folder / name for name in ADAPTERS}


@pytest.fixture(scope="module")
def merged(adapters, tmp_path_factory) -> dict[str | None, list[list[int]]]:
    """The answers of the base and of each adapter merged into it."""
    models = {None: BASE} | {name: folder / "merged" for name, folder in adapters.items()}
    requests = [dict(model=str(model), dtype="float32", prompts=PROMPTS, max_tokens=MAX_TOKENS) for model in models.values()]
    answers = [answer["completions"] for answer in run("reference.py", requests, tmp_path_factory.mktemp("theirs") / "answers")]
    # Adapters that change nothing would prove nothing.
    for by_model in zip(*answers):
        assert len(set(map(tuple, by_model))) == len(models)
    return dict(zip(models, answers))


def check(adapters: dict[str, Path], merged: dict[str | None, list[list[int]]], out: Path, **options) -> None:
    """One batch of every prompt by the base and by each adapter. With two slots for three adapters some wait for a slot."""
    llm = dict(model=str(BASE), dtype="float32", max_model_len=256, max_num_batched_tokens=64, max_loras=2, max_lora_rank=16)
    asked = [(prompt, name) for prompt in range(len(PROMPTS)) for name in merged]
    request = dict(
        llm=dict(llm, enable_lora=True, **options), prompts=[PROMPTS[prompt] for prompt, _ in asked], max_tokens=MAX_TOKENS,
        adapters=[name and str(adapters[name]) for _, name in asked],
    )  # fmt: skip
    ours = run("generate.py", [request], out)[0]["completions"]
    assert ours == [merged[name][prompt] for prompt, name in asked]


def test_a_batch_of_several_adapters_equals_merged_weights(adapters, merged, tmp_path):
    check(adapters, merged, tmp_path / "ours")


@pytest.mark.full
@pytest.mark.parametrize("options", [dict(tensor_parallel_size=2), dict(tensor_parallel_size=2, fully_sharded_loras=True), dict(enforce_eager=True)])
def test_ranks_and_eager_mode(options, adapters, merged, tmp_path):
    check(adapters, merged, tmp_path / "ours", **options)
