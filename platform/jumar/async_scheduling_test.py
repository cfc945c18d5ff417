"""Functions that say torch.cuda, on npu."""

from __future__ import annotations

import torch

from jumar.async_scheduling import on_npu
from jumar.model_runner import AscendModelRunner


def test_a_copy_says_torch_npu_and_the_original_torch_cuda():
    cuda = torch.cuda

    def function(value: int, *, factor: int = 3) -> tuple:
        with torch.cuda.stream(torch.cuda.Stream()):
            return type(torch.cuda.Event(blocking=True)), torch.cuda.current_stream().device.type, torch.float16, len([value]) * factor

    assert on_npu(torch.inference_mode()(function), len=lambda values: values[0])(5) == (torch.npu.Event, "npu", torch.float16, 15)
    assert torch.cuda is cuda and torch.cuda.Event is not torch.npu.Event


def test_the_runner_names_its_own_output_copy():
    """vLLM builds the class by its global name: a rename upstream would go unseen until a step is sampled."""
    assert "AsyncGPUModelRunnerOutput" in AscendModelRunner.sample_tokens.__wrapped__.__code__.co_names
