"""Whole engines over a quantised KV cache: cached = uncached, chunked = whole, graph = eager, and twice the blocks."""

import json
import random
from pathlib import Path

import pytest

from serving import default_model
from tests.programs import run

TINY = Path(__file__).parents[1] / "third_party" / "models" / "tiny_llama"
MAX_TOKENS = 8
BLOCK = 128

# Nothing is captured and nothing cached; a prompt is computed in one step.
PLAIN = dict(enforce_eager=True, max_num_batched_tokens=512, enable_prefix_caching=False)
# Decode steps are replays; no step computes more than 96 tokens; the second run finds the prompts' first blocks.
OTHERWISE = dict(enforce_eager=False, max_num_batched_tokens=96, enable_prefix_caching=True)
EMULATED = dict(additional_config={"emulate_formats": True})


ENGINES = {
    "bf16": PLAIN,
    "int8": dict(PLAIN, kv_cache_dtype="int8_per_token_head"),
    "int8 otherwise": dict(OTHERWISE, kv_cache_dtype="int8_per_token_head"),
    "fp8 per tensor": dict(PLAIN, **EMULATED, kv_cache_dtype="fp8"),
    "fp8 refused": dict(PLAIN, kv_cache_dtype="fp8"),
}
MORE_ENGINES = {
    "fp8": dict(PLAIN, **EMULATED, kv_cache_dtype="fp8_per_token_head"),
    "fp8 per tensor otherwise": dict(OTHERWISE, **EMULATED, kv_cache_dtype="fp8"),
}


def config() -> dict:
    return json.loads((TINY / "config.json").read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of an engine by its name. Each group of engines runs once, in one process."""
    generator = random.Random(0)
    prompts = [[generator.randrange(config()["vocab_size"]) for _ in range(n)] for n in (1, 40, 129, 300)]
    common = dict(model=str(TINY), dtype="bfloat16", max_model_len=512, max_num_seqs=4, block_size=BLOCK, skip_tokenizer_init=True)
    done: dict[str, dict] = {}

    def of(name: str) -> dict:
        if name not in done:
            group = ENGINES if name in ENGINES else MORE_ENGINES
            request = dict(engines={k: {**common, **v} for k, v in group.items()}, prompts=prompts, max_tokens=MAX_TOKENS)
            done.update(run("kv_cache.py", request, tmp_path_factory.mktemp("runs") / "out", JUMAR_HBM_BYTES="1GiB"))
        return done[name]

    return of


@pytest.mark.parametrize("name", ["int8", pytest.param("fp8 per tensor", marks=pytest.mark.full)])
def test_cached_chunked_and_replayed_equal_plain_bit_for_bit(results, name):
    plain, otherwise = results(name)["runs"], results(f"{name} otherwise")["runs"]
    assert [r["cached_tokens"] for r in plain] == [0, 0]
    assert otherwise[0]["cached_tokens"] == 0 and otherwise[1]["cached_tokens"] == 3 * BLOCK  # of 129 and 300 tokens
    for one in plain[1:] + otherwise:
        assert one["completions"] == plain[0]["completions"]
        assert one["logprobs"] == plain[0]["logprobs"]


NAMES = ["int8", "fp8 per tensor", pytest.param("fp8", marks=pytest.mark.full)]


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_near_those_of_a_whole_cache(results, name):
    """The first token's log-probability, before answers part ways. Codes of 3 bits of mantissa err by up to 1/16."""
    for want, got in zip(results("bf16")["runs"][0]["logprobs"], results(name)["runs"][0]["logprobs"]):
        assert abs(want[0] - got[0]) < 0.05


@pytest.mark.parametrize("name", NAMES)
def test_a_quantised_cache_holds_more_blocks_in_the_same_memory(results, name):
    size = config().get("head_dim") or config()["hidden_size"] // config()["num_attention_heads"]
    expected = 2 if name == "fp8 per tensor" else 2 * 2 * size / (2 * size + 8)
    ratio = results(name)["blocks"] / results("bf16")["blocks"]
    assert 0.97 * expected < ratio < 1.03 * expected


def test_a_chip_without_fp8_refuses_it(results):
    error = results("fp8 refused")["error"]
    assert "Ascend910B2 has no FP8" in error and "int8_per_token_head" in error


@pytest.mark.full
@pytest.mark.parametrize("kv_cache_dtype", ["int8_per_token_head", "fp8_per_token_head", "fp8"])
def test_the_default_model_answers_alike(kv_cache_dtype, tmp_path):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(default_model.folder() / "tokenizer.json"))
    text = "The capital of France is Paris. The capital of Germany is Berlin. The capital of Italy is"
    prompts = [tokenizer.encode(text, add_special_tokens=False).ids]
    common = dict(model=str(default_model.folder()), dtype="bfloat16", max_model_len=256, max_num_seqs=4, **PLAIN, **EMULATED)
    engines = {"bf16": common, "quantised": dict(common, kv_cache_dtype=kv_cache_dtype)}
    done = run("kv_cache.py", dict(engines=engines, prompts=prompts, max_tokens=2), tmp_path / "out", JUMAR_HBM_BYTES="2GiB")
    answers = {name: result["runs"][0]["completions"][0] for name, result in done.items()}
    assert tokenizer.decode(answers["quantised"]).startswith(" Rome") and answers["quantised"] == answers["bf16"]
