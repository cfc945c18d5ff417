"""One model under measurement, in a process of its own. perplexity.py talks to it:

    argv:   the file descriptor to answer on
    stdin:  {"engine": "vllm" or "transformers", "model": folder, "options": {arguments of vllm.LLM}, "windows": [[token ids]], "firsts": [n]}
    it says {"ready": seconds}, then for each window {"loss": -sum of ln p over its tokens from firsts[i] on}

With "vllm" the figures are the engine's own prompt_logprobs: the path that serves. With "transformers", an independent model on the CPU.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def vllm_losses(request: dict[str, Any], say: Callable[..., None]) -> None:
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    started = time.perf_counter()
    from vllm import LLM, SamplingParams

    longest = max(map(len, request["windows"]))
    options = dict(
        max_model_len=longest + 1,
        max_num_seqs=1,
        # Log-probabilities are taken over all of a step's tokens at once: 512 x the vocabulary in float32.
        max_num_batched_tokens=512,
        kv_cache_memory_bytes=256 << 20,
        enable_prefix_caching=False,
        enforce_eager=True,
        seed=0,
    )
    llm = LLM(model=request["model"], disable_log_stats=True, **{**options, **request["options"]})
    say(ready=time.perf_counter() - started)
    sampling = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0, detokenize=False)
    for tokens, first in zip(request["windows"], request["firsts"]):
        (output,) = llm.generate([{"prompt_token_ids": tokens}], sampling, use_tqdm=False)
        scored = [output.prompt_logprobs[index][tokens[index]].logprob for index in range(first, len(tokens))]
        say(loss=-math.fsum(scored))


def transformers_losses(request: dict[str, Any], say: Callable[..., None]) -> None:
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    sys.modules["torch_npu"] = None  # type: ignore[assignment]  # transformers would load it, and it wants a CANN
    started = time.perf_counter()
    import torch
    import transformers

    dtype = request["options"].get("dtype", "auto")
    model = transformers.AutoModelForCausalLM.from_pretrained(request["model"], dtype=dtype, local_files_only=True).eval()
    say(ready=time.perf_counter() - started)
    with torch.inference_mode():
        for tokens, first in zip(request["windows"], request["firsts"]):
            ids = torch.tensor([tokens])
            logprobs = model(ids, use_cache=False).logits[0, first - 1 : -1].float().log_softmax(-1)
            say(loss=-float(logprobs.gather(1, ids[0, first:, None]).double().sum()))


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)

    def say(**values: float) -> None:
        answers.write(json.dumps(values) + "\n")

    request = json.load(sys.stdin)
    {"vllm": vllm_losses, "transformers": transformers_losses}[request["engine"]](request, say)


if __name__ == "__main__":
    main()
