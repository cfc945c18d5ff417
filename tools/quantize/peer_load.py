"""Loads a checkpoint in vLLM and completes a prompt: argv is the folder and the file to write {"text": ...} to. Imports nothing of ours."""

import json
import os
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

if __name__ == "__main__":
    from vllm import LLM, SamplingParams

    llm = LLM(model=sys.argv[1], max_model_len=256, max_num_seqs=2, kv_cache_memory_bytes=64 << 20, enforce_eager=True, disable_log_stats=True)
    (output,) = llm.generate(["The capital of France is"], SamplingParams(temperature=0, max_tokens=6), use_tqdm=False)
    with open(sys.argv[2], "w") as file:
        json.dump({"text": output.outputs[0].text}, file)
