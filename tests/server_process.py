"""A server under test: the real //serving:server in its own process, on a free port."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

from serving import default_model

# From start to ready, on a machine that is busy with other tests.
READY_SECONDS = 300.0

# Small enough that a few servers fit on a small machine at a time.
SMALL = {"JUMAR_HBM_BYTES": "2GiB"}


def server_command() -> list[str]:
    """The binary that Bazel built, or the script where there is none."""
    root = Path(default_model.__file__).parent
    binary = root / "server"
    return [str(binary)] if binary.is_file() else [sys.executable, str(root / "server.py")]


class ServerProcess:
    """Starts on entry, waits until it is ready, and is ended on exit.

    Args:
        arguments: vLLM's flags; a free port is added.
        environ: variables beside the inherited ones.
    """

    def __init__(self, *arguments: str, **environ: str) -> None:
        self.arguments = arguments
        self.environ = {**os.environ, **SMALL, **environ}
        self.environ.pop("JUMAR_TRACEBACK", None)
        self.environ.pop("VLLM_LOGGING_LEVEL", None)
        self.log = tempfile.NamedTemporaryFile(prefix="server", suffix=".log", dir=os.environ.get("TEST_TMPDIR"))

    def __enter__(self) -> ServerProcess:
        self.start("--port=0")
        self.url = self.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def start(self, *more: str) -> None:
        self.process = subprocess.Popen(
            [*server_command(), *self.arguments, *more],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def output(self) -> str:
        return Path(self.log.name).read_text(errors="replace")

    def wait_until_ready(self) -> str:
        """The server's address, as its banner tells it."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            found = re.search(r"^  address  (http\S+)", self.output(), re.MULTILINE)
            if found:
                return found[1]
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.output()}")
            time.sleep(0.1)
        raise AssertionError(f"the server was not ready after {READY_SECONDS} s:\n{self.output()}")

    def run(self, *more: str) -> tuple[int, str]:
        """For a server that must not start: its exit status and all that it printed."""
        self.start(*more)
        try:
            self.process.wait(READY_SECONDS)
        finally:
            self.__exit__()
        return self.process.returncode, self.output()

    def processes(self) -> list[psutil.Process]:
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def interrupt(self) -> tuple[float, list[psutil.Process]]:
        """Ctrl-C. Returns the seconds until the end, and the server's processes that outlived it."""
        processes = self.processes()
        start = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        return time.monotonic() - start, [p for p in processes if p.is_running()]

    def complete(self, prompt: str | list[int], max_tokens: int) -> list[int]:
        """Exactly `max_tokens` greedy tokens."""
        request = dict(
            model=default_model.NAME, prompt=prompt, max_tokens=max_tokens, temperature=0, ignore_eos=True,
            return_token_ids=True,
        )
        headers = {"Content-Type": "application/json"}
        body = json.dumps(request).encode()
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/v1/completions", body, headers), timeout=300
        ) as response:
            return json.load(response)["choices"][0]["token_ids"]

    def metrics(self) -> dict[str, float]:
        """Sums over all labels but finished_reason, by the metric's name without its vllm: prefix."""
        values: dict[str, float] = {}
        with urllib.request.urlopen(f"{self.url}/metrics") as response:
            for line in response.read().decode().splitlines():
                found = re.match(r"vllm:(\w+)(?:\{(.*)\})? (\S+)$", line)
                if found:
                    reason = re.search(r'finished_reason="(\w+)"', found[2] or "")
                    name = f"{found[1]}:{reason[1]}" if reason else found[1]
                    values[name] = values.get(name, 0.0) + float(found[3])
        return values
