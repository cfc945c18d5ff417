"""Several devices say what one says: tensor, pipeline and data parallel, and Ray. Real ranks, real collectives."""

from __future__ import annotations

import contextlib
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from serving import default_model
from tests.programs import run
from tests.server_process import ServerProcess

MODELS = Path(__file__).parents[1] / "third_party" / "models"
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
        llm = dict(model=str(default_model.folder()), dtype="float32", max_model_len=256, max_num_seqs=8)
        llm |= dict(max_num_batched_tokens=64, **options)
        request = dict(llm=llm, prompts=prompts, max_tokens=MAX_TOKENS)
        # Ray writes a token into the home folder, which a sandbox may not.
        return run("generate.py", [request], folder / name, HOME=str(folder))[0]["completions"]

    return completions


@pytest.fixture(scope="module")
def one_device(generate) -> list[list[int]]:
    return generate("one")


def test_tensor_parallel(generate, one_device):
    """The model's 9 heads and 3 KV heads don't divide by 2, so it takes 3 ranks; see below for 2."""
    assert generate("tensor", tensor_parallel_size=3) == one_device


@pytest.mark.full
def test_tensor_parallel_of_2(generate):
    """Prompts run eagerly, decode steps as graphs: both with collectives inside."""
    tiny = str(MODELS / "tiny_llama")
    assert generate("tiny-tensor", model=tiny, tensor_parallel_size=2) == generate("tiny", model=tiny)


EXPERTS = str(MODELS / "tiny_qwen3_moe")


@pytest.fixture(scope="module")
def experts_on_one_device(generate) -> list[list[int]]:
    return generate("experts", model=EXPERTS)


@pytest.mark.full
@pytest.mark.parametrize("enable_expert_parallel", [False, True])
def test_experts_over_ranks(enable_expert_parallel, generate, experts_on_one_device):
    """Each rank has a part of every expert, or some experts whole."""
    options = dict(tensor_parallel_size=2, enable_expert_parallel=enable_expert_parallel)
    assert generate(f"experts-{enable_expert_parallel}", model=EXPERTS, **options) == experts_on_one_device


def test_pipeline_parallel(generate, one_device):
    assert generate("pipeline", pipeline_parallel_size=2) == one_device


@pytest.mark.full
def test_ray(generate, one_device):
    assert generate("ray", pipeline_parallel_size=2, distributed_executor_backend="ray") == one_device


SERVER = ("--dtype=float32", "--max-model-len=256", "--max-num-seqs=8")


@pytest.mark.full
def test_data_parallel_over_http(one_device, prompts):
    with ServerProcess(*SERVER, "--data-parallel-size=2") as server, ThreadPoolExecutor(len(prompts)) as pool:
        assert list(pool.map(lambda prompt: server.complete(prompt, MAX_TOKENS), prompts)) == one_device
        seconds, left = server.interrupt()
        assert left == []


@pytest.mark.full
@pytest.mark.parametrize("more", [(), ("--enable-expert-parallel",)])
def test_experts_and_data_parallel_over_http(more, experts_on_one_device, prompts):
    model = f"--model={EXPERTS}", f"--served-model-name={default_model.NAME}"
    with ServerProcess(*SERVER, *model, "--data-parallel-size=2", *more) as server, ThreadPoolExecutor(len(prompts)) as pool:
        assert list(pool.map(lambda prompt: server.complete(prompt, MAX_TOKENS), prompts)) == experts_on_one_device


def test_a_killed_rank_ends_the_server_and_its_requests(prompts):
    with ServerProcess(*SERVER, "--pipeline-parallel-size=2") as server:
        processes = server.processes()
        worker = next(p for p in processes if "Worker" in p.name() or "Worker" in " ".join(p.cmdline()[:1]))
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.complete, prompts[0], MAX_TOKENS)
            worker.kill()
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                answer.result(timeout=120)  # finished before, or an error: never a hang
        assert server.process.wait(120) != 0
        assert "rank" in server.output()
        time.sleep(0.5)
        assert [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
