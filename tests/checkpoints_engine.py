"""Serves checkpoints one after the other by vLLM's engine, in this process. JSON on standard input:

    {"checkpoints": [folders], "llm": {arguments of vllm.LLM}, "prompts": [[token ids]], "max_tokens": n}

and in the file that the first argument names, for each checkpoint that loads
{"completions": [[token ids]], "logprobs": [[of every token but the prompt's first]], "seconds": s}, for others {"error": text}.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from pathlib import Path


def main(out: str) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    from vllm import LLM, SamplingParams
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    request = json.load(sys.stdin)
    sampling = SamplingParams(
        temperature=0,
        max_tokens=request["max_tokens"],
        ignore_eos=True,
        detokenize=False,
        logprobs=0,
        prompt_logprobs=0,
    )
    prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
    results = {}
    for checkpoint in request["checkpoints"]:
        start = time.perf_counter()
        llm = None
        try:
            llm = LLM(model=checkpoint, **request["llm"], disable_log_stats=True)
            outputs = llm.generate(prompts, sampling, use_tqdm=False)
        except Exception as error:  # what a user would see
            traceback.print_exc()
            results[checkpoint] = {"error": str(error)}
        else:
            results[checkpoint] = {
                "completions": [list(output.outputs[0].token_ids) for output in outputs],
                "logprobs": [_logprobs(output) for output in outputs],
                "seconds": time.perf_counter() - start,
            }
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()
        gc.collect()
    Path(out).write_text(json.dumps(results))


def _logprobs(output) -> list[float]:
    prompt = [step[token].logprob for token, step in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:])]
    answer = output.outputs[0]
    return prompt + [step[token].logprob for token, step in zip(answer.token_ids, answer.logprobs)]


if __name__ == "__main__":
    main(sys.argv[1])
