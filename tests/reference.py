"""Greedy completions by Hugging Face transformers on the CPU, without torch_npu. JSON on standard input:

    [{"model": folder, "dtype": "float32", "prompts": [[token ids]], "max_tokens": n}, ...]

and in the file that the first argument names as many {"completions": [[token ids]], "steps": file}, where the file holds for
each prompt and step the logits [prompts, max_tokens, vocabulary] and |h| / sqrt(H) [prompts, max_tokens] of the final
hidden state h, float32, and the output layer's weight.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

# The reference has nothing to do with NPUs; transformers imports torch_npu where it finds it.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
# Threads that wait spinning starve each other on a busy machine.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
sys.modules["torch_npu"] = None  # type: ignore[assignment]

import torch
import transformers

# Prompts up to this length are one batch, the others another: padding is computed as well.
SHORT = 32


@torch.inference_mode()
def generate(model: transformers.PreTrainedModel, prompts: list[list[int]], steps: int) -> dict[str, torch.Tensor]:
    """Greedy completions of prompts of similar length, with the logits and hidden states of each step."""
    longest = max(map(len, prompts))
    # Padded on the left, so that every prompt's last token stands at the end; padding is masked out.
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    result = model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=steps,
        min_new_tokens=steps,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        output_hidden_states=True,
        return_dict_in_generate=True,
    )
    # hidden_states: for each step one tensor a layer; the last one is after the final norm.
    hidden = torch.stack([step[-1][:, -1] for step in result.hidden_states], dim=1).float()
    return {
        "completions": result.sequences[:, longest:],
        "logits": torch.stack(result.logits, dim=1).float(),
        "scale": hidden.norm(dim=-1) / hidden.shape[-1] ** 0.5,
    }


def answer(request: dict, steps_file: str) -> dict:
    model = transformers.AutoModelForCausalLM.from_pretrained(request["model"], dtype=getattr(torch, request["dtype"]))
    model.eval()
    prompts = request["prompts"]
    parts: list[dict[str, torch.Tensor] | None] = [None] * len(prompts)
    # A model with a state (DeepSeek V4's compressors) takes padding for tokens: only prompts of one length go together.
    kinds = [len(prompt) if model._is_stateful else len(prompt) <= SHORT for prompt in prompts]
    for wanted in {*kinds}:
        rows = [row for row, kind in enumerate(kinds) if kind == wanted]
        result = generate(model, [prompts[row] for row in rows], request["max_tokens"])
        for index, row in enumerate(rows):
            parts[row] = {name: value[index] for name, value in result.items()}
    steps = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    completions = steps.pop("completions").tolist()
    steps["weight"] = model.get_output_embeddings().weight.detach().float()
    torch.save(steps, steps_file)
    return {"completions": completions, "steps": steps_file}


def main(out: str) -> None:
    requests = json.load(sys.stdin)
    Path(out).write_text(json.dumps([answer(request, f"{out}.{i}.pt") for i, request in enumerate(requests)]))


if __name__ == "__main__":
    main(sys.argv[1])
