"""An engine in another process, as an object. It runs one of the programs of this folder and talks to it by lines of JSON:

    argv:   the file descriptor to answer on, and settings as JSON
    it says {"ready": seconds of start-up, ...} about itself
    stdin:  {"text": a prompt, "output": tokens}           -> {"text": its greedy completion, "tokens": its tokens}
            {"requests": n, "input": tokens, "output": tokens, "seed": s}  -> {"seconds": wall time}
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

VLLM = Path(__file__).with_name("vllm_engine.py")  # settings: arguments of vllm.LLM
LLAMA = Path(__file__).with_name("llama_engine.py")  # settings: see there
ATTENTION = Path(__file__).with_name("attention_operator.py")  # settings and requests: see there


class SubjectError(RuntimeError):
    """An engine ended; the message has the end of its log."""


class Subject:
    """Starts an engine; use as a context manager, so that its process ends with the block."""

    def __init__(
        self, name: str, python: list[str], environment: dict[str, str], settings: dict[str, Any], log: Path, program: Path = VLLM
    ) -> None:
        self.name = name
        self.log = log
        read_end, write_end = os.pipe()
        with log.open("w") as log_file:
            self._process = subprocess.Popen(
                [*python, str(program), str(write_end), json.dumps(settings)],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                pass_fds=[write_end],
                text=True,
            )
        os.close(write_end)
        self._answers = os.fdopen(read_end)
        self.about = self._read()

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def peak_bytes(self) -> int:
        """Peak of resident memory of the process so far."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])

    def _read(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            self.close()
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-25:])
            raise SubjectError(f"{self.name} ended with status {self._process.returncode}; its log {self.log} ends:\n{tail}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        # It ends at the end of its input; one that hangs is killed.
        killer = threading.Timer(60, self._process.kill)
        killer.start()
        self._process.wait()
        killer.cancel()

    def __enter__(self) -> Subject:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._answers.close()


def own_python() -> tuple[list[str], dict[str, str]]:
    """This interpreter with this program's sys.path, and the environment to run it in."""
    options = ["-P"] * sys.flags.safe_path + ["-s"] * sys.flags.no_user_site
    return [sys.executable, *options], {"PYTHONPATH": os.pathsep.join(sys.path)}


def processor() -> str:
    """The name of this machine's processor, for the title of a report."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
