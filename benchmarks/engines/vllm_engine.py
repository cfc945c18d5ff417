"""vLLM as an engine under measurement; subject.py says what is read and written. Settings: arguments of vllm.LLM.

It imports nothing of ours: the same file runs on vLLM's CPU backend and on Jumar.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any


def main() -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    started = time.perf_counter()
    import vllm
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    llm = LLM(**json.loads(sys.argv[2]), disable_log_stats=True)
    answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")

    answer(
        ready=time.perf_counter() - started,
        version=vllm.__version__,
        device=f"{current_platform.device_type} ({current_platform.get_device_name()})",
    )
    vocabulary = llm.llm_engine.model_config.get_vocab_size()
    for line in sys.stdin:
        request = json.loads(line)
        if "text" in request:
            sampling = SamplingParams(temperature=0, max_tokens=request["output"])
            completion = llm.generate([request["text"]], sampling, use_tqdm=False)[0].outputs[0]
            answer(text=completion.text, tokens=list(completion.token_ids))
            continue
        choose = random.Random(request["seed"])
        prompts = [
            {"prompt_token_ids": [choose.randrange(100, vocabulary) for _ in range(request["input"])]}
            for _ in range(request["requests"])
        ]
        sampling = SamplingParams(temperature=0, max_tokens=request["output"], ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - start
        short = [len(o.outputs[0].token_ids) for o in outputs if len(o.outputs[0].token_ids) != request["output"]]
        if short:
            raise RuntimeError(f"asked for {request['output']} tokens, got {short}")
        answer(seconds=seconds)


if __name__ == "__main__":
    main()
