"""./bazelw run //examples:offline -- --prompt "The capital of France is"

Completes prompts in this process, without a server, and says on which device it ran.
"""

from __future__ import annotations

import time

from absl import app, flags

from examples import command
from serving import preflight

_PROMPT = flags.DEFINE_multi_string(
    "prompt", ["The capital of France is"], "text to complete; may be given more than once", short_name="p"
)
_CHAT = flags.DEFINE_bool("chat", False, "take each prompt as a message to the model's chat template")
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 32, "most tokens of a completion", lower_bound=1)
_TEMPERATURE = flags.DEFINE_float("temperature", 0.0, "0 takes the likeliest token each time", lower_bound=0.0)
_SEED = flags.DEFINE_integer("seed", 0, "makes sampling repeatable")
_DTYPE = flags.DEFINE_enum("dtype", "auto", ["auto", "bfloat16", "float16", "float32"], "what the model computes in")
_MAX_MODEL_LEN = flags.DEFINE_integer("max_model_len", 2048, "most tokens of prompt and completion", lower_bound=1)
_UTILIZATION = flags.DEFINE_float("memory_utilization", 0.5, "share of the device's memory", 0.0, 1.0)
_EAGER = flags.DEFINE_bool("enforce_eager", False, "no graphs: starts sooner, decodes more slowly")


def complete(model: str) -> None:
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
    return command.run("offline", argv, complete)


if __name__ == "__main__":
    app.run(main)
