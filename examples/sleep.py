"""./bazelw run //examples:sleep

An engine that gives its memory back while nobody needs it: prints the memory awake, asleep and awake again, and the same completion before
and after.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from absl import app, flags

from examples import command

_PROMPT = flags.DEFINE_string("prompt", "The capital of France is", "text to complete before and after", short_name="p")
_LEVEL = flags.DEFINE_integer(
    "level", 1, "1 keeps the weights in host memory; 2 forgets them and loads the model again", 1, 2
)
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 16, "most tokens of a completion", lower_bound=1)
_KV_CACHE_MIB = flags.DEFINE_integer("kv_cache_mib", 512, "size of the KV cache", lower_bound=16)


def show(llm, stage: str) -> None:
    """One line: the device's memory, and that of the process, which on hostcann includes the device's."""
    (worker,) = llm.collective_rpc("describe_memory")[:1]
    status = Path(f"/proc/{worker['process_id']}/status").read_text()
    resident = int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) // 1024
    tags = ", ".join(
        f"{tag} {figures['device_bytes'] >> 20}" + (f" (host {figures['host_bytes'] >> 20})" if figures["host_bytes"] else "")
        for tag, figures in worker["tags"].items()
    )
    used = (worker["total_bytes"] - worker["free_bytes"]) >> 20
    print(f"{stage:7} device {used:6} MiB used: {tags}; process {resident} MiB resident", flush=True)


def fill_cache(worker) -> None:
    """Writes the whole KV cache, as a busy engine would: hostcann takes memory from the system when it is written first."""
    for cache in worker.model_runner.kv_caches:
        cache.zero_().add_(1)
    worker.synchronize_device()


def sleep_and_wake(model: str) -> None:
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=model,
        enable_sleep_mode=True,
        max_model_len=512,
        max_num_seqs=8,
        kv_cache_memory_bytes=_KV_CACHE_MIB.value << 20,
        disable_log_stats=True,
    )
    sampling = SamplingParams(temperature=0, max_tokens=_MAX_TOKENS.value)

    def complete() -> str:
        return llm.generate(_PROMPT.value, sampling, use_tqdm=False)[0].outputs[0].text

    before = complete()
    llm.collective_rpc(fill_cache)
    show(llm, "awake")
    start = time.monotonic()
    llm.sleep(level=_LEVEL.value)
    slept = time.monotonic()
    show(llm, "asleep")
    woken = time.monotonic()
    if _LEVEL.value == 1:
        llm.wake_up()
    else:
        llm.wake_up(tags=["weights"])
        llm.collective_rpc("reload_weights")
        llm.wake_up(tags=["kv_cache"])
    ready = time.monotonic()
    after = complete()
    show(llm, "awake")
    print(f"\n{_PROMPT.value}{after}")
    print(f"\nasleep in {slept - start:.2f} s, awake in {ready - woken:.2f} s; the same completion as before: {after == before}")


def main(argv: list[str]) -> int:
    return command.run("sleep", argv, sleep_and_wake)


if __name__ == "__main__":
    app.run(main)
