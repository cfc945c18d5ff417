"""Sleep mode of whole engines: the same tokens before and after, and memory that the system really gets back.

What is measured. *Device memory* is what torch.npu.mem_get_info tells. *Resident* is the process's VmRSS: hostcann's device memory is
memory of the process, so it falls by all that was mapped at level 2; at level 1 the weights move to the host and stay resident there
(on hardware: pinned host memory), so it falls by the rest. *Shared* is RssShmem, the mapped device memory alone.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path

import pytest

from serving import default_model
from tests.programs import run
from tests.server_process import ServerProcess

MIB = 1 << 20
TINY = str(Path(__file__).parents[1] / "third_party" / "models" / "tiny_llama")
PROMPTS = ["The capital of France is", "def fibonacci(n):\n    ", "It was the best of times, it was the worst of times. " * 12]


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(default_model.folder() / "tokenizer.json"))
    return [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in PROMPTS]


def completions(stages: list[dict]) -> list[list[list[int]]]:
    return [stage["completions"] for stage in stages if "completions" in stage]


def check_memory(before: dict, asleep: dict, awake: dict, level: int) -> None:
    """One worker's memory at three stages."""
    mapped = sum(tag["device_bytes"] for tag in before["tags"].values())
    copies = sum(tag["host_bytes"] for tag in asleep["tags"].values())
    resident = before["resident_bytes"] - asleep["resident_bytes"]
    print(
        f"level {level}: {mapped / MIB:.0f} MiB mapped, {copies / MIB:.0f} MiB copied to the host; resident "
        f"{before['resident_bytes'] / MIB:.0f} -> {asleep['resident_bytes'] / MIB:.0f} -> {awake['resident_bytes'] / MIB:.0f} MiB"
    )
    assert asleep["free_bytes"] - before["free_bytes"] >= mapped
    assert [tag["device_bytes"] for tag in asleep["tags"].values()] == [0] * len(asleep["tags"])
    assert before["shared_bytes"] - asleep["shared_bytes"] >= 0.95 * mapped
    assert resident >= 0.95 * mapped - copies
    assert sum(tag["device_bytes"] for tag in awake["tags"].values()) == mapped
    weights = before["tags"]["weights"]["device_bytes"]
    assert asleep["tags"]["weights"]["host_bytes"] == (weights if level == 1 else 0)
    assert asleep["tags"]["kv_cache"]["host_bytes"] == 0


def check(stages: list[dict], levels: list[int]) -> None:
    first, *others = completions(stages)
    assert others == [first] * (1 + len(levels))
    for i, level in enumerate(levels):
        three = stages[2 + 4 * i : 5 + 4 * i]
        for before, asleep, awake in zip(*(stage["memory"] for stage in three)):
            check_memory(before, asleep, awake, level)
    # The cache of prefixes knows the prompts while awake, and nothing after sleep.
    cached = {stage["name"]: stage["cached_tokens"] for stage in stages if "cached_tokens" in stage}
    assert cached["again"] > 0
    assert all(count == 0 for name, count in cached.items() if name.startswith("after"))


def test_levels_in_bfloat16_with_graphs_and_nz_weights(prompts, tmp_path):
    levels = [1, 1, 2, 1]
    llm = dict(model=str(default_model.folder()), dtype="bfloat16", max_model_len=256, max_num_seqs=4)
    request = dict(llm=llm | dict(kv_cache_memory_bytes=512 * MIB), prompts=prompts, max_tokens=16, levels=levels)
    check(run("sleep.py", request, tmp_path / "stages"), levels)


@pytest.mark.full
def test_every_rank_sleeps(tmp_path):
    """Tensor parallel: each rank's memory, and collectives in the graphs that are replayed afterwards."""
    levels = [1, 2]
    llm = dict(model=TINY, dtype="bfloat16", max_model_len=512, max_num_seqs=4, tensor_parallel_size=2)
    request = dict(
        llm=llm | dict(kv_cache_memory_bytes=256 * MIB, load_format="auto"),
        prompts=[list(range(3, 30)), [7, 8, 9] * 60],
        max_tokens=8,
        levels=levels,
    )
    check(run("sleep.py", request, tmp_path / "stages"), levels)


def call(url: str, body: dict | None = None, method: str = "POST") -> dict:
    data = None if method == "GET" else json.dumps(body or {}).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def test_over_http():
    """A request that comes while the server sleeps waits until it wakes."""
    flags = ("--enable-sleep-mode", "--max-model-len=256", "--max-num-seqs=4", "--enforce-eager")
    prompt = dict(model=default_model.NAME, prompt="The capital of France is", max_tokens=4, temperature=0)
    with ServerProcess(*flags, VLLM_SERVER_DEV_MODE="1") as server:

        def complete() -> str:
            return call(f"{server.url}/v1/completions", prompt)["choices"][0]["text"]

        def is_sleeping() -> bool:
            return call(f"{server.url}/is_sleeping", method="GET")["is_sleeping"]

        want = complete()
        assert not is_sleeping()
        call(f"{server.url}/sleep?level=1")
        assert is_sleeping()
        answers: list[str] = []
        waiting = threading.Thread(target=lambda: answers.append(complete()))
        waiting.start()
        waiting.join(1)
        assert not answers and is_sleeping()
        call(f"{server.url}/wake_up")
        waiting.join(60)
        assert answers == [want]
        assert not is_sleeping()
        call(f"{server.url}/sleep?level=1")  # ends asleep
        _, left = server.interrupt()
        assert left == []
