"""Another workspace builds and runs a program of its own with Jumar's libraries. It takes minutes: a Bazel with nothing built yet."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(os.path.realpath("WORKSPACE")).parent  # not the runfiles: the nested Bazel needs every file
BAZEL = os.environ.get("JUMAR_BAZEL") or shutil.which("bazel")


@pytest.mark.skipif(BAZEL is None, reason="Bazel is not on PATH")
def test_builds_and_runs(tmp_path):
    nested = [BAZEL, f"--output_base={tmp_path / 'output'}", "--max_idle_secs=5"]
    command = [*nested, "run", "--symlink_prefix=/", "//:tile", "--", "Ascend910B3", "8", "4096", "4096"]
    try:
        done = subprocess.run(command, cwd=ROOT / "examples/outside_workspace", capture_output=True, text=True, check=False)
    finally:
        subprocess.run([*nested, "shutdown"], cwd=ROOT / "examples/outside_workspace", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.startswith("Ascend910B3, 8 x 4096 x 4096: cores ")
