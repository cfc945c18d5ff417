"""torch_npu.profiler on hostcann: it runs, records the host's side, and says where the device's is."""

import json
import os
import subprocess
import sys

PROGRAM = """
import sys
import torch, torch_npu
from torch_npu.profiler import ProfilerActivity, profile, tensorboard_trace_handler
x = torch.ones(100, device="npu")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU], on_trace_ready=tensorboard_trace_handler(sys.argv[1])) as profiler:
    for step in range(3):
        y = x + step
        torch.npu.synchronize()
        profiler.step()
print(y.cpu().sum().item())
"""


def test_a_profile_holds_the_hosts_side_and_names_the_other(tmp_path):
    environment = dict(os.environ, JUMAR_HBM_BYTES="256MiB")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "300.0" in done.stdout.split("\n")
    output = done.stdout + done.stderr
    assert "records the host's side only; JUMAR_TRACE=out.json traces the device" in output
    assert "Failed to find function" not in output
    traces = list(tmp_path.rglob("trace_view.json"))
    assert traces, output
    names = {event.get("name") for event in json.loads(traces[0].read_text())}
    assert "aten::add" in names
