"""Runs the programs of this folder that a test compares, each in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run(program: str, request: dict | list, out: Path, **variables: str) -> dict | list:
    """The JSON that `program` writes to `out` when it reads `request`."""
    execute(program, request, out, **variables)
    return json.loads(out.read_text())


def execute(program: str, request: dict | list, out: Path, **variables: str) -> None:
    """Runs `program`, which writes to `out` what it makes of `request`."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JUMAR_HBM_BYTES": "3GiB", **variables}
    options = ["-P"] * sys.flags.safe_path + ["-s"] * sys.flags.no_user_site
    done = subprocess.run(
        [sys.executable, *options, str(HERE / program), str(out)],
        input=json.dumps(request),
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:]
