"""The examples that need no server, as a user runs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from serving import default_model


def run(example: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(default_model.__file__).parent.parent / "examples" / example
    command = [str(program)] if program.is_file() else [sys.executable, f"{program}.py"]
    environ = {**os.environ, "JUMAR_HBM_BYTES": "2GiB", "HF_HUB_OFFLINE": "1"}
    return subprocess.run([*command, *arguments], env=environ, capture_output=True, text=True, timeout=600)


def test_completion_and_device():
    done = run("offline", "--prompt=The capital of France is", "--prompt=Two plus two is", "--max_tokens=4", "--max_model_len=256")
    assert done.returncode == 0, done.stderr
    assert "The capital of France is Paris" in done.stdout
    assert "Two plus two is" in done.stdout
    assert re.search(r"^device: npu:0, Ascend\w+ on .*; ready in [\d.]+ s, 8 tokens in", done.stdout, re.MULTILINE)


def test_error_is_one_line():
    done = run("offline", "--model=/no/such/model")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("offline: error: model /no/such/model does not exist")
    assert "Traceback" not in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("level", [1, 2])
def test_sleep(level):
    done = run("sleep", f"--level={level}", "--max_tokens=4", "--kv_cache_mib=64")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^asleep .* kv_cache 0, .*weights 0", done.stdout, re.MULTILINE)
    assert done.stdout.rstrip().endswith("the same completion as before: True")
