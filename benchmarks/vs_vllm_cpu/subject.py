"""An engine in another process (engine.py), as an object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ENGINE = Path(__file__).with_name("engine.py")


class SubjectError(RuntimeError):
    """An engine ended; the message has the end of its log."""


class Subject:
    """Starts an engine; use as a context manager, so that its process ends with the block."""

    def __init__(self, name: str, python: list[str], environment: dict[str, str], llm: dict[str, Any], log: Path) -> None:
        self.name = name
        self.log = log
        read_end, write_end = os.pipe()
        with log.open("w") as log_file:
            self._process = subprocess.Popen(
                [*python, str(ENGINE), str(write_end), json.dumps(llm)],
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
