"""Greedy tokens of the whole path equal Hugging Face transformers' on the CPU, token for token."""

import pytest

from serving import default_model
from tests import bounds
from tests.programs import run

MAX_TOKENS = 24

# 24 prompts of 1 to 150 tokens: prose, facts, code, numbers, other scripts, repetition.
PROMPTS = [
    "The",
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time there was a little",
    "def fibonacci(n):\n    ",
    "import numpy as np\n\n# Sum of squares\n",
    "1, 2, 3, 5, 8, 13,",
    "Q: What is 17 + 25?\nA:",
    "The three primary colours are red,",
    "Photosynthesis is the process by which",
    "In 1969, Neil Armstrong",
    "A haiku about the sea:\n",
    "To be, or not to be, that is",
    "SELECT name, age FROM people WHERE",
    "<html>\n<head>\n<title>",
    "Dear Sir or Madam,\n\nI am writing to",
    "La capitale de la France est",
    "Der schnelle braune Fuchs",
    "東京は",
    "yes yes yes yes yes",
    "The opposite of hot is cold. The opposite of up is down. The opposite of left is",
    "Monday, Tuesday, Wednesday,",
    "The mitochondria is the powerhouse of the cell. " * 4 + "It",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, " * 5,
]


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(default_model.folder() / "tokenizer.json"))
    encoded = [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in PROMPTS]
    assert len(encoded) == 24 and min(map(len, encoded)) == 1 and max(map(len, encoded)) > 128
    return encoded


MODES = dict(
    # Decode steps replay graphs of 1, 2, 4, 8, 16 and 24 rows.
    graph=dict(max_num_batched_tokens=2048),
    # Nothing is captured, and no step computes more than 32 tokens: most prompts come in chunks.
    eager_chunked=dict(enforce_eager=True, max_num_batched_tokens=32),
    # The others prepare a step while the one before runs.
    eager=dict(enforce_eager=True, max_num_batched_tokens=2048, async_scheduling=False),
)
RUNS = [("float32", "graph"), ("float32", "eager_chunked"), ("bfloat16", "graph"), ("bfloat16", "eager")]


@pytest.fixture(scope="module")
def ours(tmp_path_factory, prompts):
    llm = dict(model=str(default_model.folder()), max_model_len=256, max_num_seqs=24)
    requests = [
        dict(llm=dict(llm, dtype=dtype, **MODES[mode]), prompts=prompts, max_tokens=MAX_TOKENS) for dtype, mode in RUNS
    ]
    results = dict(zip(RUNS, run("generate.py", requests, tmp_path_factory.mktemp("ours") / "results")))
    return lambda dtype, mode: results[dtype, mode]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, prompts):
    dtypes = ["float32", "bfloat16"]
    request = dict(model=str(default_model.folder()), prompts=prompts, max_tokens=MAX_TOKENS)
    requests = [dict(request, dtype=dtype) for dtype in dtypes]
    results = dict(zip(dtypes, run("reference.py", requests, tmp_path_factory.mktemp("theirs") / "results")))
    return lambda dtype: results[dtype]


def assert_equal(got: list[list[int]], want: list[list[int]]) -> None:
    assert len(got) == len(want) == len(PROMPTS)
    for prompt, one, other in zip(PROMPTS, got, want):
        assert len(one) == len(other) == MAX_TOKENS
        assert one == other, f"{prompt[-40:]!r}: {one} instead of {other}"


def test_float32_equals_transformers(ours, theirs):
    assert_equal(ours("float32", "graph")["completions"], theirs("float32")["completions"])


def test_float32_eager_and_chunked_equals_transformers(ours, theirs):
    """With the test above: graph = eager, and chunked = whole."""
    assert_equal(ours("float32", "eager_chunked")["completions"], theirs("float32")["completions"])


def test_bfloat16_graph_equals_eager(ours):
    """The same operators on the same rows: bit for bit. And asynchronous scheduling = the synchronous one."""
    graph, eager = ours("bfloat16", "graph"), ours("bfloat16", "eager")
    assert_equal(graph["completions"], eager["completions"])
    assert graph["logprobs"] == eager["logprobs"]


def common_steps(got: list[int], want: list[int]) -> int:
    return next((step for step, (one, other) in enumerate(zip(got, want)) if one != other), MAX_TOKENS)


def test_bfloat16_parts_from_transformers_only_at_near_ties(ours, theirs):
    import torch

    reference = theirs("bfloat16")
    steps = torch.load(reference["steps"])
    for row, (prompt, got, want) in enumerate(
        zip(PROMPTS, ours("bfloat16", "graph")["completions"], reference["completions"])
    ):
        step = common_steps(got, want)
        if step == MAX_TOKENS:
            continue
        logits = steps["logits"][row, step]
        gap = float(logits[want[step]] - logits[got[step]])
        difference = steps["weight"][want[step]] - steps["weight"][got[step]]
        scale = float(difference.norm() * steps["scale"][row, step])
        bound = bounds.gap_bound(bounds.SMOLLM2_LAYERS, scale, float(logits.abs().max()))
        message = f"{prompt[-30:]!r} parts at step {step}: gap {gap:.3f}, bound {bound:.3f}, scale {scale:.2f}"
        print(message)
        assert 0 <= gap <= bound, message
        assert scale <= bounds.SMOLLM2_SCALE


def test_bfloat16_logprobs_are_as_near_as_rounding_explains(ours, theirs):
    """The sharper test: a mean over hundreds of steps, where one step has to allow for chance."""
    import torch

    mine, reference = ours("bfloat16", "graph"), theirs("bfloat16")
    steps = torch.load(reference["steps"])
    squares = []
    for row, (got, want) in enumerate(zip(mine["completions"], reference["completions"])):
        for step in range(common_steps(got, want)):
            logits, token = steps["logits"][row, step], want[step]
            error = mine["logprobs"][row][step] - float(logits.log_softmax(-1)[token])
            # d logprob_a = (w_a - sum of p_j w_j) . dh
            direction = steps["weight"][token] - logits.softmax(-1) @ steps["weight"]
            scale = float(direction.norm() * steps["scale"][row, step])
            sigma = bounds.deviation(bounds.SMOLLM2_LAYERS, scale, float(logits[token].abs()), logits=1)
            squares.append((error / sigma) ** 2)
    assert len(squares) > 100
    ratio = (sum(squares) / len(squares)) ** 0.5
    print(f"root mean square of {len(squares)} errors: {ratio:.2f} derived standard deviations")
    # 1 is what the derivation allows at its upper ends; it was 0.22 when this was written. Twice that is a change to explain.
    assert ratio <= 0.5
