"""Engines with different KV caches, one after the other, in this process. A test runs it with a JSON request on standard input:

    {"engines": {name: {arguments of vllm.LLM}}, "prompts": [[token ids]], "max_tokens": n}

and reads from the file that the first argument names, for each engine, {"runs": [of the prompts, twice], "blocks": of the cache}, or
{"error": text}. A run is {"completions": [[token ids]], "logprobs": [[of these tokens]], "cached_tokens": n}.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from pathlib import Path


def generate(llm, prompts, sampling) -> dict:
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    answers = [output.outputs[0] for output in outputs]
    return {
        "completions": [list(answer.token_ids) for answer in answers],
        "logprobs": [
            [step[token].logprob for token, step in zip(answer.token_ids, answer.logprobs)] for answer in answers
        ],
        "cached_tokens": sum(output.num_cached_tokens or 0 for output in outputs),
    }


def main(out: str) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    from vllm import LLM, SamplingParams
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    request = json.load(sys.stdin)
    sampling = SamplingParams(
        temperature=0, max_tokens=request["max_tokens"], ignore_eos=True, detokenize=False, logprobs=1
    )
    prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
    results = {}
    for name, options in request["engines"].items():
        llm = None
        try:
            llm = LLM(**options, disable_log_stats=True)
            results[name] = {
                "runs": [generate(llm, prompts, sampling) for _ in range(2)],
                "blocks": llm.llm_engine.vllm_config.cache_config.num_gpu_blocks,
            }
        except Exception as error:  # what a user would see
            traceback.print_exc()
            results[name] = {"error": str(error)}
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()
        gc.collect()
    Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
