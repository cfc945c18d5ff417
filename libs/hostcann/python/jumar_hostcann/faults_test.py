"""JUMAR_FAULTS as a torch_npu program meets it: each fault is one clear exception, and the process ends."""

import os
import subprocess
import sys

import pytest

PREAMBLE = """
import torch, torch_npu
x = torch.ones(1 << 20, device="npu")
torch.npu.synchronize()
"""


def run(faults: str, body: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, JUMAR_FAULTS=faults, JUMAR_HBM_BYTES="256MiB", JUMAR_DEVICES="2")
    return subprocess.run([sys.executable, "-c", PREAMBLE + body], env=environment, capture_output=True, text=True, timeout=200)


def test_a_failed_allocation_is_torchs_out_of_memory_error_and_the_program_goes_on():
    done = run(
        "fail-alloc above=50000000 times=2",
        """
try:
    torch.empty(64 << 20, dtype=torch.uint8, device="npu")
    print("no error")
except torch.OutOfMemoryError as error:
    print("out of memory")
print(torch.empty(64 << 20, dtype=torch.uint8, device="npu").numel())
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["out of memory", str(64 << 20)]


def test_one_failure_is_mended_by_torch_npus_retry():
    done = run("fail-alloc above=50000000", 'print(torch.empty(64 << 20, dtype=torch.uint8, device="npu").numel())')
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(64 << 20)


def test_a_failed_operator_is_told_at_the_next_synchronisation():
    done = run(
        "fail-op op=aclnnMul nth=2",
        """
y = x * x
torch.npu.synchronize()
z = y * y
try:
    torch.npu.synchronize()
    print("no error")
except RuntimeError as error:
    print("507015" in str(error), "aclnnMul" in str(error), "fail-op op=aclnnMul nth=2" in str(error))
""",
    )
    assert done.stdout.strip() == "True True True", done.stdout + done.stderr


def test_a_lost_device_is_an_exception_and_not_a_hang():
    done = run(
        "lose-device device=0 after=20",
        """
try:
    for _ in range(100):
        x = x + 1
    torch.npu.synchronize()
    print("no error")
except RuntimeError as error:
    print("507010" in str(error), "device 0 is lost" in str(error))
try:
    print(x.cpu())
except RuntimeError as error:
    print("device 0 is lost" in str(error))
print((torch.ones(3, device="npu:1") + 1).cpu().tolist())
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["True True", "True", "[2.0, 2.0, 2.0]"], done.stdout


def test_a_slow_stream_is_slow():
    done = run(
        "slow-stream stream=all us=20000",
        """
import time
start = time.perf_counter()
for _ in range(5):
    x.add_(1)
torch.npu.synchronize()
print(time.perf_counter() - start >= 0.1, x[0].item())
""",
    )
    assert done.stdout.strip() == "True 6.0", done.stdout + done.stderr


@pytest.mark.parametrize("rule", ["fail-alloc nth=0", "explode", "@/no/such/file"])
def test_a_wrong_rule_is_refused_at_the_start(rule):
    done = run(rule, "")
    assert done.returncode != 0
    assert "JUMAR_FAULTS" in done.stderr and rule in done.stderr
