"""An engine that sleeps and wakes, in this process. A test runs it with a JSON request on standard input:

    {"llm": {arguments of vllm.LLM}, "prompts": [[token ids]], "max_tokens": n, "levels": [1, 1, 2]}

and reads a list of stages from the file that the first argument names: each has a name, the completions or the memory of each worker
(describe_memory of the worker, and the resident bytes of its process).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from tests import engines  # noqa: F401  (sets the environment)


def touch_cache(worker) -> None:
    """Writes every byte of the KV cache, whose pages hostcann takes from the system when they are written first."""
    import torch

    for cache in worker.model_runner.kv_caches:
        cache.fill_(0.5)
    torch.npu.synchronize()


def memory(llm) -> list[dict]:
    workers = llm.collective_rpc("describe_memory")
    for worker in workers:
        status = Path(f"/proc/{worker['process_id']}/status").read_text()
        for name, key in (("VmRSS", "resident_bytes"), ("RssShmem", "shared_bytes")):
            worker[key] = int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024
    return workers


def main(out: str) -> None:
    from vllm import LLM, SamplingParams

    request = json.load(sys.stdin)
    llm = LLM(**request["llm"], enable_sleep_mode=True, disable_log_stats=True)
    sampling = SamplingParams(temperature=0, max_tokens=request["max_tokens"], ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
    stages = []

    def generate(name: str) -> None:
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        completions = [list(output.outputs[0].token_ids) for output in outputs]
        cached = sum(output.num_cached_tokens or 0 for output in outputs)
        stages.append(dict(name=name, completions=completions, cached_tokens=cached))

    generate("at first")
    generate("again")
    for level in request["levels"]:
        llm.collective_rpc(touch_cache)
        stages.append(dict(name=f"before level {level}", memory=memory(llm)))
        llm.sleep(level=level)
        stages.append(dict(name=f"asleep at level {level}", memory=memory(llm)))
        if level == 1:
            llm.wake_up()
        else:
            assert llm.wake_up(tags=["weights"]) is False
            llm.collective_rpc("reload_weights")
            assert llm.wake_up(tags=["kv_cache"]) is True
        stages.append(dict(name=f"awake after level {level}", memory=memory(llm)))
        generate(f"after level {level}")
    Path(out).write_text(json.dumps(stages))


if __name__ == "__main__":
    main(sys.argv[1])
