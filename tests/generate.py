"""Greedy completions by vLLM's engine, in this process. A test runs it with a JSON request on standard input:

    {"llm": {arguments of vllm.LLM}, "prompts": [[token ids]], "max_tokens": n}

and reads {"completions": [[token ids]], "logprobs": [[of these tokens]]} from the file that the first argument names.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(out: str) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    from vllm import LLM, SamplingParams

    request = json.load(sys.stdin)
    llm = LLM(**request["llm"], disable_log_stats=True)
    sampling = SamplingParams(
        temperature=0, max_tokens=request["max_tokens"], ignore_eos=True, detokenize=False, logprobs=1
    )
    prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
    answers = [output.outputs[0] for output in llm.generate(prompts, sampling, use_tqdm=False)]
    result = {
        "completions": [list(answer.token_ids) for answer in answers],
        "logprobs": [
            [step[token].logprob for token, step in zip(answer.token_ids, answer.logprobs)] for answer in answers
        ],
    }
    Path(out).write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
