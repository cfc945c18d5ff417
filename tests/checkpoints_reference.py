"""What decoded checkpoints answer, by Hugging Face transformers in float32 on the CPU. JSON on standard input:

    {"checkpoints": {name: folder}, "sequences": {name: [[token ids]]}}

and in the file that the first argument names, by torch.save, for each name and sequence the logprob of every token but
the first, "logprobs", and "scales": |w| |h| / sqrt(H) of d logprob = w . dh (tests/bounds.py). `activations` in a
folder's config.json says how each linear layer's input is rounded.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

# The reference has nothing to do with NPUs; transformers imports torch_npu where it finds it.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
# Threads that wait spinning starve each other on a busy machine.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
sys.modules["torch_npu"] = None  # type: ignore[assignment]

import torch
import transformers

STATIC_RANGE = 8.0  # checkpoints_writer's
INT8_OFFSET = -5
E4M3_MAX = 448.0


def int8(x: torch.Tensor, scale: torch.Tensor | float, offset: int = 0) -> torch.Tensor:
    return (torch.clamp(torch.round(x / scale) + offset, -128, 127) - offset) * scale


def fp8(x: torch.Tensor, scale: torch.Tensor | float) -> torch.Tensor:
    return torch.clamp(x / scale, -E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float() * scale


def fp8_groups(x: torch.Tensor, size: int) -> torch.Tensor:
    groups = x.unflatten(-1, (-1, size))
    return fp8(groups, groups.abs().amax(-1, keepdim=True).clamp(min=1e-10) / E4M3_MAX).flatten(-2)


def e2m1(x: torch.Tensor) -> torch.Tensor:
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6; a tie goes to the even mantissa."""
    step = torch.where(x.abs() < 2, 0.5, torch.where(x.abs() < 4, 1.0, 2.0))
    return torch.clamp(torch.round(x / step) * step, -6, 6)


def mx(x: torch.Tensor, largest_exponent: int, cast: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """OCP MX: of 32 numbers, a power of two by the largest one's exponent."""
    groups = x.unflatten(-1, (-1, 32))
    exponent = torch.floor(torch.log2(groups.abs().amax(-1, keepdim=True).clamp(min=2.0**-126))) - largest_exponent
    scale = torch.exp2(exponent)
    return (cast(groups / scale) * scale).flatten(-2)


def _token_max(x: torch.Tensor) -> torch.Tensor:
    return x.abs().amax(-1, keepdim=True).clamp(min=1e-10)


ROUND: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "": lambda x: x,
    "int8_token": lambda x: int8(x, _token_max(x) / 127),
    "int8_static": lambda x: int8(x, STATIC_RANGE / 127),
    "int8_static_offset": lambda x: int8(x, STATIC_RANGE / 127, INT8_OFFSET),
    "fp8_token": lambda x: fp8(x, _token_max(x) / E4M3_MAX),
    "fp8_static": lambda x: fp8(x, STATIC_RANGE / E4M3_MAX),
    "fp8_group": lambda x: fp8_groups(x, 128),
    "mxfp8": lambda x: mx(x, 8, lambda y: fp8(y, 1.0)),
    "mxfp4": lambda x: mx(x, 2, e2m1),
}


def experts_forward(experts: torch.nn.Module, rounded: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """transformers' experts, gate_up_proj [experts, 2 n, k] and down_proj [experts, k, n], with rounded inputs."""

    def forward(hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        shape, total = hidden.shape, torch.zeros_like(hidden).flatten(0, -2)
        hidden = rounded(hidden.flatten(0, -2))
        for expert in range(experts.num_experts):
            token, place = (chosen == expert).nonzero(as_tuple=True)
            gate, up = (hidden[token] @ experts.gate_up_proj[expert].T).chunk(2, -1)
            out = rounded(experts.act_fn(gate) * up) @ experts.down_proj[expert].T
            total.index_add_(0, token, out * weights[token, place, None])
        return total.view(shape)

    return forward


@torch.inference_mode()
def answer(folder: Path, sequences: list[list[int]]) -> list[dict[str, torch.Tensor]]:
    """For each sequence: logprobs [tokens - 1] and their scales [tokens - 1]."""
    activations = json.loads((folder / "config.json").read_text())["activations"]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name.endswith("_proj"):
            module.register_forward_pre_hook(lambda _, inputs: (ROUND[activations](inputs[0]),))
        elif name.endswith(".experts"):
            module.forward = experts_forward(module, ROUND[activations])
    weight = model.get_output_embeddings().weight
    results = []
    for sequence in sequences:
        out = model(torch.tensor([sequence]), output_hidden_states=True)
        hidden, logits = out.hidden_states[-1][0, :-1], out.logits[0, :-1]
        tokens = torch.tensor(sequence[1:])
        logprobs = logits.log_softmax(-1)
        # d logprob_a = (w_a - sum of p_j w_j) . dh
        directions = weight[tokens] - logprobs.exp() @ weight
        scales = directions.norm(dim=-1) * hidden.norm(dim=-1) / hidden.shape[-1] ** 0.5
        picked = torch.arange(len(tokens)), tokens
        results.append(dict(logprobs=logprobs[picked], scales=scales, logits=logits[picked]))
    return results


def main(out: str) -> None:
    request = json.load(sys.stdin)
    torch.save(
        {name: answer(Path(folder), request["sequences"][name]) for name, folder in request["checkpoints"].items()},
        out,
    )


if __name__ == "__main__":
    main(sys.argv[1])
