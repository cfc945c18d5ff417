"""vLLM's engine in this process, for the programs that tests run. Import it before vllm: it sets the environment."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_NO_USAGE_STATS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"


def use(options: dict[str, Any], work: Callable[[Any], dict], may_fail: bool = False) -> dict:
    """What ``work`` makes of an engine, which is gone afterwards, so that the next one finds its memory.

    Args:
        options: arguments of vllm.LLM.
        may_fail: an error, such as a user would see, becomes {"error": text}.
    """
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    llm = None
    try:
        llm = LLM(**options, disable_log_stats=True)
        return work(llm)
    except Exception as error:
        if not may_fail:
            raise
        traceback.print_exc()
        return {"error": str(error)}
    finally:
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()
        gc.collect()


def generate(llm: Any, prompts: list[list[int]], max_tokens: int, adapters: list[str | None] | None = None) -> dict[str, Any]:
    """Greedy completions: {"completions": [[token ids]], "logprobs": [[of these tokens]], "cached_tokens": of the prompts}.

    Args:
        adapters: for each prompt the folder of a LoRA adapter, or none.
    """
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False, logprobs=1)
    numbers = {folder: number for number, folder in enumerate(dict.fromkeys(filter(None, adapters or [])), start=1)}
    lora = [folder and LoRARequest(folder, numbers[folder], folder) for folder in adapters] if adapters else None
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False, lora_request=lora)
    answers = [output.outputs[0] for output in outputs]
    return {
        "completions": [list(answer.token_ids) for answer in answers],
        "logprobs": [answer_logprobs(answer) for answer in answers],
        "cached_tokens": sum(output.num_cached_tokens or 0 for output in outputs),
    }


def answer_logprobs(answer: Any) -> list[float]:
    return [step[token].logprob for token, step in zip(answer.token_ids, answer.logprobs)]
