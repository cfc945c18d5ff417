"""./bazelw run //examples:offline -- --prompt "The capital of France is"

Completes prompts in this process, without a server, and says on which device it ran.
"""

from __future__ import annotations

import os
import sys
import time

from absl import app, flags

from serving import default_model, preflight
from serving.supervisor import shows_tracebacks
from serving.tracebacks import UserError, explain

_PROMPT = flags.DEFINE_multi_string(
    "prompt", ["The capital of France is"], "text to complete; may be given more than once", short_name="p"
)
_CHAT = flags.DEFINE_bool("chat", False, "take each prompt as a message to the model's chat template")
_MODEL = flags.DEFINE_string("model", None, "folder of a Hugging Face model (default: the embedded one)")
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 32, "most tokens of a completion", lower_bound=1)
_TEMPERATURE = flags.DEFINE_float("temperature", 0.0, "0 takes the likeliest token each time", lower_bound=0.0)
_SEED = flags.DEFINE_integer("seed", 0, "makes sampling repeatable")
_DTYPE = flags.DEFINE_enum("dtype", "auto", ["auto", "bfloat16", "float16", "float32"], "what the model computes in")
_MAX_MODEL_LEN = flags.DEFINE_integer("max_model_len", 2048, "most tokens of prompt and completion", lower_bound=1)
_UTILIZATION = flags.DEFINE_float("memory_utilization", 0.5, "share of the device's memory", 0.0, 1.0)
_EAGER = flags.DEFINE_bool("enforce_eager", False, "no graphs: starts sooner, decodes more slowly")


def complete(model: str) -> None:
    # Before vLLM is imported: the engine in this process, and no news but errors.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    from vllm import LLM, SamplingParams

    request = preflight.Request(
        model=model,
        dtype=_DTYPE.value,
        max_model_len=_MAX_MODEL_LEN.value,
        memory_utilization=_UTILIZATION.value,
    )
    preflight.check(request, preflight.known_architectures, preflight.device_memory)
    start = time.monotonic()
    llm = LLM(
        model=model,
        dtype=_DTYPE.value,
        max_model_len=_MAX_MODEL_LEN.value,
        max_num_seqs=max(8, len(_PROMPT.value)),
        gpu_memory_utilization=_UTILIZATION.value,
        enforce_eager=_EAGER.value,
        seed=_SEED.value,
        disable_log_stats=True,
    )
    ready = time.monotonic()
    sampling = SamplingParams(temperature=_TEMPERATURE.value, max_tokens=_MAX_TOKENS.value, seed=_SEED.value)
    if _CHAT.value:
        messages = [[{"role": "user", "content": prompt}] for prompt in _PROMPT.value]
        outputs = llm.chat(messages, sampling, use_tqdm=False)
    else:
        outputs = llm.generate(_PROMPT.value, sampling, use_tqdm=False)
    seconds = time.monotonic() - ready
    for prompt, output in zip(_PROMPT.value, outputs):
        separator = "\n" if _CHAT.value else ""
        print(f"\n{prompt}{separator}{output.outputs[0].text}")
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    (device,) = llm.collective_rpc("describe_device")[:1]
    print(
        f"\ndevice: {device['device']}, {device['soc']} on {device['backend']}; ready in {ready - start:.1f} s, "
        f"{tokens} tokens in {seconds:.1f} s"
    )


def main(argv: list[str]) -> int:
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # `bazel run` starts programs elsewhere
    if len(argv) > 1:
        print(f"offline: error: unexpected argument {argv[1]!r}; prompts are given by --prompt", file=sys.stderr)
        return 2
    try:
        preflight.check_python()
        folder = _MODEL.value or default_model.folder()
        if folder is None:
            raise preflight.PreflightError("there is no embedded model outside of Bazel: give one with --model")
        preflight.check_files(preflight.Request(str(folder)))  # what needs no vLLM, whose import takes seconds
        complete(str(folder))
    except UserError as error:
        print(f"offline: error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if shows_tracebacks():
            raise
        print(f"offline: error: {explain(error)} (JUMAR_TRACEBACK=1 shows where)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    app.run(main)
