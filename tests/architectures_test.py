"""Other architectures than the default model's: tiny checkpoints with random weights, against transformers."""

from pathlib import Path

import pytest

from tests.programs import run

ROOT = Path(__file__).parents[1]
MODELS, DOCS = ROOT / "third_party" / "models", ROOT / "docs"
MAX_TOKENS = 8
# The third is longer than what a step takes, so that it comes in chunks, beside decoding ones; the last waits for a place, and then finds
# the first 128 tokens of the third in the prefix cache.
PROMPTS = [[504], [504, 3575, 282, 4649, 314], list(range(1000, 1150)), [30, 31, 32] * 7, [*range(1000, 1140), 7, 8, 9]]

# The others have nothing that these, or the default model, haven't.
QUICK = ["deepseek_v3", "gemma3_text", "glm_moe_dsa", "qwen2", "qwen3_moe"]
OTHERS = ["deepseek_v32", "deepseek_v4", "llama", "qwen3"]


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


def test_the_documented_table_has_every_architecture():
    rows = [line.split("`")[1] for line in (DOCS / "models.md").read_text().splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(QUICK + OTHERS)
