"""The example that needs no server, as a user runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from serving import default_model


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(default_model.__file__).parent.parent / "examples"
    command = [str(root / "offline")] if (root / "offline").is_file() else [sys.executable, str(root / "offline.py")]
    environ = {**os.environ, "JUMAR_HBM_BYTES": "2GiB", "HF_HUB_OFFLINE": "1"}
    return subprocess.run([*command, *arguments], env=environ, capture_output=True, text=True, timeout=600)


def test_completion_and_device():
    done = run("--prompt=The capital of France is", "--prompt=Two plus two is", "--max_tokens=4", "--max_model_len=256")
    assert done.returncode == 0, done.stderr
    assert "The capital of France is Paris" in done.stdout
    assert "Two plus two is" in done.stdout
    assert re.search(r"^device: npu:0, Ascend\w+ on .*; ready in [\d.]+ s, 8 tokens in", done.stdout, re.MULTILINE)


def test_error_is_one_line():
    done = run("--model=/no/such/model")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("offline: error: model /no/such/model does not exist")
    assert "Traceback" not in done.stderr
