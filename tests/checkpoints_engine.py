"""Serves checkpoints one after the other by vLLM's engine, in this process. JSON on standard input:

    {"checkpoints": [folders], "llm": {arguments of vllm.LLM}, "prompts": [[token ids]], "max_tokens": n}

and in the file that the first argument names, for each checkpoint that loads
{"completions": [[token ids]], "logprobs": [[of every token but the prompt's first]]}, for others {"error": text}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests import engines


def main(out: str) -> None:
    request = json.load(sys.stdin)

    def score(llm) -> dict:
        from vllm import SamplingParams

        sampling = SamplingParams(
            temperature=0,
            max_tokens=request["max_tokens"],
            ignore_eos=True,
            detokenize=False,
            logprobs=0,
            prompt_logprobs=0,
        )
        prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        return {
            "completions": [list(output.outputs[0].token_ids) for output in outputs],
            "logprobs": [_logprobs(output) for output in outputs],
        }

    results = {
        checkpoint: engines.use(dict(request["llm"], model=checkpoint), score, may_fail=True)
        for checkpoint in request["checkpoints"]
    }
    Path(out).write_text(json.dumps(results))


def _logprobs(output) -> list[float]:
    prompt = [step[token].logprob for token, step in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:])]
    return prompt + engines.answer_logprobs(output.outputs[0])


if __name__ == "__main__":
    main(sys.argv[1])
