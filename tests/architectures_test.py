"""Other architectures than the default model's: tiny checkpoints with random weights, against transformers."""

from pathlib import Path

import pytest

from tests.programs import run

MODELS = Path(__file__).parents[1] / "third_party" / "models"
MAX_TOKENS = 8
PROMPTS = [[504], [504, 3575, 282, 4649, 314], list(range(1000, 1150)), [30, 31, 32] * 7]


ARCHITECTURES = ["deepseek_v3", "llama", "qwen2", "qwen3", "qwen3_moe"]


@pytest.fixture(scope="module")
def completions(tmp_path_factory) -> dict[str, tuple[list, list]]:
    """Of each architecture: ours, and transformers'."""
    folder = tmp_path_factory.mktemp("runs")
    common = dict(prompts=PROMPTS, max_tokens=MAX_TOKENS)
    options = dict(dtype="float32", max_model_len=256, max_num_seqs=4, max_num_batched_tokens=256)
    models = [str(MODELS / f"tiny_{architecture}") for architecture in ARCHITECTURES]
    ours = run("generate.py", [dict(common, llm=dict(model=model, **options)) for model in models], folder / "ours")
    theirs = run("reference.py", [dict(common, model=model, dtype="float32") for model in models], folder / "theirs")
    pairs = ((mine["completions"], reference["completions"]) for mine, reference in zip(ours, theirs))
    return dict(zip(ARCHITECTURES, pairs))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_float32_equals_transformers(architecture, completions):
    ours, theirs = completions[architecture]
    assert ours == theirs
