"""Strict mode under torch_npu: what a clean program may do, and how a wrong one dies. Each program is a process of its own."""

import os
import signal
import subprocess
import sys

import pytest

READ_WITH_THE_CPU = """
import ctypes, torch
x = torch.arange(1000.0).to("npu")
ctypes.string_at(x[10:].data_ptr(), 4)
"""

# A graph that holds the address of a tensor whose memory is gone.
STALE_GRAPH = """
import gc, torch
x, y = torch.ones(10 << 20, device="npu"), torch.empty(10 << 20, device="npu")
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    torch.add(x, x, out=y)
graph.replay()
torch.npu.synchronize()
del x
gc.collect()
torch.npu.empty_cache()
print("still alive", flush=True)
graph.replay()
torch.npu.synchronize()
"""

CLEAN = """
import torch
kept = torch.arange(5_000_000, dtype=torch.float32).to("npu")      # alive when Python ends
side = torch.npu.Stream()
with torch.npu.stream(side):
    side.wait_stream(torch.npu.default_stream())
    twice = kept + kept
side.synchronize()
assert torch.equal(twice.cpu(), 2 * kept.cpu())
print(twice.sum().item(), kept[7].item(), twice[:3])
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError as error:
    assert "512.00 MiB total capacity" in str(error) or "limit of 512.00 MiB" in str(error), error
else:
    raise AssertionError("no error")
graph, x = torch.npu.NPUGraph(), torch.ones(256, 256, device="npu")
with torch.npu.graph(graph):
    y = torch.nn.functional.softmax(x @ x, dim=-1)
x.copy_(torch.rand(256, 256))
graph.replay()
torch.testing.assert_close(y.cpu(), torch.nn.functional.softmax(x.cpu() @ x.cpu(), dim=-1))
assert kept.cpu().numpy()[3] == 3
"""

LLAMA = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
model, prompt = LlamaForCausalLM(config).eval(), torch.randint(0, 512, (2, 16))
with torch.inference_mode():
    wanted = model(prompt).logits
    torch.testing.assert_close(model.npu()(prompt.npu()).logits.cpu(), wanted, atol=1e-4, rtol=1e-4)
"""


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JUMAR_STRICT": "1", **variables}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("segments", ["expandable_segments:False", "expandable_segments:True"])
def test_a_clean_program_runs_and_is_not_blamed(segments):
    result = run(CLEAN, PYTORCH_NPU_ALLOC_CONF=segments)
    assert result.returncode == 0, result.stderr
    assert "strict mode" not in result.stderr


def test_a_clean_program_runs_without_torchs_cache():
    result = run(CLEAN.partition("graph, x =")[0], PYTORCH_NO_NPU_MEMORY_CACHING="1")
    assert result.returncode == 0, result.stderr
    assert "strict mode" not in result.stderr


def test_llama():
    result = run(LLAMA)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("segments", ["expandable_segments:False", "expandable_segments:True"])
def test_reading_a_tensor_with_the_cpu_names_the_allocation(segments):
    result = run(READ_WITH_THE_CPU, PYTORCH_NPU_ALLOC_CONF=segments)
    assert result.returncode == -signal.SIGSEGV
    assert "host code touched device memory at 0x" in result.stderr
    assert "  the address is 40 bytes into an allocation of " in result.stderr
    assert "libtorch_npu.so" in result.stderr.partition("allocated by:")[2].partition("touched by:")[0]
    assert "tensor.cpu()" in result.stderr


def test_a_graph_with_a_stale_buffer_is_told():
    result = run(STALE_GRAPH)
    assert result.stdout == "still alive\n", result.stderr
    assert result.returncode == -signal.SIGSEGV, result.stderr
    assert "a task touched memory that its device does not hold" in result.stderr
    assert "`aclnnAdd`" in result.stderr
    assert "which was freed\n  allocated by:\n" in result.stderr
    assert "  freed by:\n" in result.stderr


def test_pythons_own_handler_still_runs():
    result = run("import faulthandler; faulthandler.enable()" + READ_WITH_THE_CPU)
    assert "host code touched device memory" in result.stderr
    assert "Fatal Python error: Segmentation fault" in result.stderr
    assert result.returncode == -signal.SIGSEGV
