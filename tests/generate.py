"""Greedy completions by vLLM's engine, in this process. A test runs it with JSON requests on standard input:

    [{"llm": {arguments of vllm.LLM}, "prompts": [[token ids]], "max_tokens": n}, ...]

and reads as many {"completions": [[token ids]], "logprobs": [[of these tokens]]} from the file that the first argument names.
Each request has an engine of its own, one after the other: importing vLLM takes longer than starting a small one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def generate(llm: Any, prompts: list[list[int]], max_tokens: int) -> dict[str, list]:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False, logprobs=1)
    requests = [{"prompt_token_ids": prompt} for prompt in prompts]
    answers = [output.outputs[0] for output in llm.generate(requests, sampling, use_tqdm=False)]
    return {
        "completions": [list(answer.token_ids) for answer in answers],
        "logprobs": [
            [step[token].logprob for token, step in zip(answer.token_ids, answer.logprobs)] for answer in answers
        ],
    }


def main(out: str) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    results = []
    for request in json.load(sys.stdin):
        llm = LLM(**request["llm"], disable_log_stats=True)
        results.append(generate(llm, request["prompts"], request["max_tokens"]))
        llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()
    Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
