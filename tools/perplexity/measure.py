"""Runs engine.py for one model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving.tracebacks import TracebackFolder, UserError
from tools.perplexity.scoring import Score, Window

ENGINE = Path(__file__).with_name("engine.py")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured."""

    name: str
    model: Path
    engine: str = "vllm"
    options: dict[str, Any] = field(default_factory=dict)  # arguments of vllm.LLM


def measure(subject: Subject, windows: Sequence[Window], log: Path, progress: Callable[[int, Score], None]) -> Score:
    """Scores every window in order, in a new process whose output goes to ``log``.

    Raises:
        UserError: if the process ends early; the message has its first error.
    """
    read_end, write_end = os.pipe()
    python = [sys.executable, *["-P"] * sys.flags.safe_path, *["-s"] * sys.flags.no_user_site]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    request = dict(
        engine=subject.engine,
        model=str(subject.model),
        options=subject.options,
        windows=[window.tokens for window in windows],
        firsts=[window.first for window in windows],
    )
    losses: list[float] = []
    counts = [window.scored for window in windows]
    with log.open("w") as log_file, os.fdopen(read_end) as answers:
        process = subprocess.Popen(
            [*python, str(ENGINE), str(write_end)],
            env=environment, stdin=subprocess.PIPE, stdout=log_file, stderr=subprocess.STDOUT, pass_fds=[write_end], text=True,
        )  # fmt: skip
        os.close(write_end)
        try:
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(request))
                process.stdin.close()
            except BrokenPipeError:
                pass  # it ended; the log says why
            started = time.monotonic()
            for line in answers:
                answer = json.loads(line)
                if "ready" in answer:
                    started = time.monotonic()
                    continue
                losses.append(answer["loss"])
                done = len(losses)
                progress(done, Score(tuple(losses), tuple(counts[:done]), time.monotonic() - started))
            status = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
    if len(losses) != len(windows):
        raise UserError(f"{subject.name}: the engine ended with status {status}: {_reason(log)}")
    return Score(tuple(losses), tuple(counts), time.monotonic() - started)


def _reason(log: Path) -> str:
    folder = TracebackFolder()
    lines = log.read_text(errors="replace").splitlines()
    for line in lines:
        folder.feed(line)
    folder.finish()
    return f"{(folder.errors or lines[-1:] or ['no output'])[0]} (all of it: {log})"
