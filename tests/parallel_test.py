"""Several devices say what one says: tensor, pipeline and data parallel, and Ray. Real ranks, real collectives."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from serving import default_model
from tests.programs import run
from tests.server_process import ServerProcess

MAX_TOKENS = 16

# Three to a rank of a pipeline, so that both stages are busy at a time; one longer than a chunk.
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 5, 8, 13,",
    "The three primary colours are red,",
    "Der schnelle braune Fuchs",
    "It was the best of times, it was the worst of times, it was the age of wisdom, " * 4,
]


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(default_model.folder() / "tokenizer.json"))
    return [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in PROMPTS]


@pytest.fixture(scope="module")
def generate(tmp_path_factory, prompts):
    """Greedy completions in float32 with arguments of vllm.LLM."""
    folder = tmp_path_factory.mktemp("runs")

    def completions(name: str, **options: object) -> list[list[int]]:
        llm = dict(
            model=str(default_model.folder()), dtype="float32", max_model_len=256, max_num_seqs=8, max_num_batched_tokens=64, **options
        )
        request = dict(llm=llm, prompts=prompts, max_tokens=MAX_TOKENS)
        return run("generate.py", request, folder / name)["completions"]

    return completions


@pytest.fixture(scope="module")
def one_device(generate) -> list[list[int]]:
    return generate("one")


def test_tensor_parallel(generate, one_device):
    """9 heads and 3 KV heads do not divide by 2, so it takes 3 ranks."""
    assert generate("tensor", tensor_parallel_size=3) == one_device


def test_pipeline_parallel(generate, one_device):
    assert generate("pipeline", pipeline_parallel_size=2) == one_device


def test_ray(generate, one_device):
    assert generate("ray", pipeline_parallel_size=2, distributed_executor_backend="ray") == one_device
