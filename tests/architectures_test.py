"""Other dense architectures than the default model's: tiny checkpoints with random weights, against transformers."""

from pathlib import Path

import pytest

from tests.programs import run

MODELS = Path(__file__).parents[1] / "third_party" / "models"
MAX_TOKENS = 8
PROMPTS = [[504], [504, 3575, 282, 4649, 314], list(range(1000, 1150)), [30, 31, 32] * 7]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_float32_equals_transformers(architecture, tmp_path):
    model = str(MODELS / f"tiny_{architecture}")
    llm = dict(model=model, dtype="float32", max_model_len=256, max_num_seqs=4, max_num_batched_tokens=256)
    common = dict(prompts=PROMPTS, max_tokens=MAX_TOKENS)
    ours = run("generate.py", dict(common, llm=llm), tmp_path / "ours")
    theirs = run("reference.py", dict(common, model=model, dtype="float32"), tmp_path / "theirs")
    assert ours["completions"] == theirs["completions"]
