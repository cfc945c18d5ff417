"""JUMAR_SCHEDULE_FUZZ through torch_npu: a forgotten wait between two streams is a wrong result under some seed, a wait never."""

import os
import subprocess
import sys

PROGRAM = """
import sys
import torch, torch_npu
waits = sys.argv[1] == "waits"
first, second = torch.npu.Stream(), torch.npu.Stream()
x = torch.zeros(1000, device="npu")
torch.npu.synchronize()  # the zeros are another stream's
wrong = 0
for step in range(1, 41):
    with torch.npu.stream(first):
        x.fill_(float(step))
    if waits:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y = x + 1
    torch.npu.synchronize()
    wrong += int(not bool((y.cpu() == step + 1).all()))
print(wrong)
"""


def wrong_results(seed: int, mode: str) -> int:
    environment = dict(os.environ, JUMAR_SCHEDULE_FUZZ=str(seed), JUMAR_HBM_BYTES="256MiB")
    done = subprocess.run([sys.executable, "-c", PROGRAM, mode], env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_forgotten_wait_goes_wrong_under_some_seed():
    assert any(wrong_results(seed, "forgets") > 0 for seed in range(4))


def test_a_wait_is_right_under_each_seed():
    assert [wrong_results(seed, "waits") for seed in range(2)] == [0, 0]
