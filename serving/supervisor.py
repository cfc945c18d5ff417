"""Runs a program as a child and answers for its end.

- Ctrl-C or SIGTERM ends it within 5 s and leaves no process, whatever the child is doing: a child
  that loads weights or waits for its engine does not see a signal in time.
- A child that fails has its tracebacks folded into one line on standard error (``JUMAR_TRACEBACK=1`` or
  ``VLLM_LOGGING_LEVEL=DEBUG`` shows them).
- The child tells its state through a pipe (:func:`tell`), so that nothing is guessed from its log.

Linux only: descendants whose parent died are adopted (PR_SET_CHILD_SUBREAPER), so that they can be found and ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from serving.tracebacks import TracebackFolder

# From the first signal to the one that can't be caught; the promise is 5 s to the last process's end.
GRACE_SECONDS = 3.0
# As long as nothing is served there is nothing to finish, and vLLM waits in vain for an engine that loads.
STARTING_GRACE_SECONDS = 1.0

# An unfinished line (a progress bar) is shown after this time.
_PARTIAL_LINE_SECONDS = 0.2

_STATUS_FD = "JUMAR_STATUS_FD"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def shows_tracebacks(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get("JUMAR_TRACEBACK", "0") not in ("", "0") or environ.get("VLLM_LOGGING_LEVEL") == "DEBUG"


def tell(**state: str | bool) -> bool:
    """For the child: sends its state to the supervisor; False if there is none.

    Keys: ``ready`` (serving began), ``error`` (one line, then exit), ``engine_failed`` (the reason was printed by
    another process of the child's).
    """
    fd = os.environ.get(_STATUS_FD)
    if fd is None:
        return False
    os.write(int(fd), json.dumps(state).encode() + b"\n")
    return True


def keep_status_private() -> None:
    """For the child: its own children must not hold the pipe open."""
    fd = os.environ.get(_STATUS_FD)
    if fd is not None:
        os.set_inheritable(int(fd), False)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _descendants() -> list[int]:
    """Process ids below this one, zombies excluded."""
    import psutil

    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end_descendants(timeout: float = 1.0) -> None:
    """Kills every process below this one; returns when they are gone."""
    deadline = time.monotonic() + timeout
    while pids := _descendants():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
    _reap()


@dataclass
class _Stream:
    """One output of the child, copied line by line."""

    source: int
    target: int
    pending: bytes = b""
    since: float = 0.0


@dataclass
class Supervisor:
    """One child, from start to end. Use :func:`run`."""

    name: str
    folds: bool = True
    ready: bool = False
    told_error: str | None = None
    engine_failed: bool = False
    stopped_by: int | None = None
    _folder: TracebackFolder = field(default_factory=TracebackFolder)
    _at_line_start: bool = True
    _held: list[tuple[int, bytes]] = field(default_factory=list)  # errors logged before it was ready

    def run(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        status_read, status_write = os.pipe()
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        previous = {number: signal.signal(number, lambda *_: None) for number in (*_STOP_SIGNALS, signal.SIGCHLD)}
        previous_wakeup = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        child = subprocess.Popen(
            command,
            env={**environ, _STATUS_FD: str(status_write), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(status_write,),
            start_new_session=True,  # the terminal's Ctrl-C reaches us alone
            preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )
        os.close(status_write)
        try:
            self._watch(child, status_read, wake_read)
        finally:
            end_descendants()
            signal.set_wakeup_fd(previous_wakeup)
            for number, handler in previous.items():
                signal.signal(number, handler)
            for fd in (status_read, wake_read, wake_write):
                os.close(fd)
        return self._conclude(child.returncode)

    def _watch(self, child: subprocess.Popen[bytes], status_fd: int, wake_fd: int) -> None:
        """Copies output and answers signals until the child has ended."""
        assert child.stdout is not None and child.stderr is not None
        streams = {
            child.stdout.fileno(): _Stream(child.stdout.fileno(), 1),
            child.stderr.fileno(): _Stream(child.stderr.fileno(), 2),
        }
        selector = selectors.DefaultSelector()
        for fd in (*streams, status_fd, wake_fd):
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ)
        deadline: float | None = None
        status = b""
        while True:
            ended = child.poll() is not None
            for key, _ in selector.select(0 if ended else _PARTIAL_LINE_SECONDS):
                try:
                    data = os.read(key.fd, 65536)
                except BlockingIOError:
                    continue
                if key.fd == wake_fd:
                    for number in data:
                        if number in _STOP_SIGNALS:
                            deadline = self._stop(child, number, deadline)
                elif not data:
                    selector.unregister(key.fd)
                elif key.fd == status_fd:
                    status += data
                    *lines, status = status.split(b"\n")
                    for line in lines:
                        self._take_status(json.loads(line))
                else:
                    self._copy(streams[key.fd], data)
            for stream in streams.values():
                if stream.pending and (ended or time.monotonic() - stream.since > _PARTIAL_LINE_SECONDS):
                    self._show(stream, stream.pending)
                    stream.pending = b""
            if ended:
                return
            if deadline is not None and time.monotonic() > deadline:
                end_descendants()

    def _stop(self, child: subprocess.Popen[bytes], number: int, deadline: float | None) -> float:
        """The first signal asks, the second one forces. Returns when patience ends."""
        if self.stopped_by is not None:
            return time.monotonic()
        self.stopped_by = number
        self._say("stopping (again to force it)")
        # The child's group is the child's own: helpers that it started hear it, too.
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        return time.monotonic() + (GRACE_SECONDS if self.ready else STARTING_GRACE_SECONDS)

    def _take_status(self, state: dict[str, str | bool]) -> None:
        self.engine_failed |= bool(state.get("engine_failed"))
        if "error" in state:
            self.told_error = str(state["error"])
        if state.get("ready"):
            self.ready = True
            for target, line in self._held:
                self._write(target, line)
            self._held.clear()

    def _copy(self, stream: _Stream, data: bytes) -> None:
        if not stream.pending:
            stream.since = time.monotonic()
        lines = (stream.pending + data).splitlines(keepends=True)
        stream.pending = lines.pop() if lines and not lines[-1].endswith((b"\n", b"\r")) else b""
        for line in lines:
            self._show(stream, line)

    def _show(self, stream: _Stream, line: bytes) -> None:
        if not self.folds:
            self._write(stream.target, line)
            return
        if self.stopped_by is not None:
            return  # what its parts complain about while they end
        text = line.decode(errors="replace")
        before = len(self._folder.errors)
        visible = self._folder.feed(text)
        if self.ready:
            for error in self._folder.errors[before:]:
                self._say(f"error: {error}")
            if visible:
                self._write(stream.target, line)
        elif visible:
            if " ERROR " in text or text.startswith("Process "):
                self._held.append((stream.target, line))
            else:
                self._write(stream.target, line)

    def _conclude(self, returncode: int) -> int:
        """The last words; returns the exit status."""
        if self.stopped_by is not None:
            self._say("stopped")
            return 0
        self._folder.finish()
        if returncode == 0:
            return 0
        error = self.told_error
        if (error is None or self.engine_failed) and self._folder.errors:
            error = self._folder.errors[0]
        if error is None and returncode < 0:
            error = f"the server was ended by {signal.Signals(-returncode).name}"
            if returncode == -signal.SIGKILL:
                error += ", likely for want of memory: lower JUMAR_HBM_BYTES or choose a smaller model"
        if error is None and self._held:
            for target, line in self._held:
                self._write(target, line)
        elif error is not None and self.folds:
            hint = "" if self.told_error is not None and not self.engine_failed else " (JUMAR_TRACEBACK=1 shows where)"
            self._say(f"error: {error}{hint}")
        return returncode if returncode > 0 else 1

    def _say(self, message: str) -> None:
        start = "" if self._at_line_start else "\n"
        self._write(2, f"{start}{self.name}: {message}\n".encode())

    def _write(self, fd: int, data: bytes) -> None:
        self._at_line_start = data.endswith(b"\n")
        view = memoryview(data)
        with contextlib.suppress(BrokenPipeError):
            while view:
                view = view[os.write(fd, view) :]


def run(command: Sequence[str], name: str, environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``command`` to its end.

    Returns:
        Its exit status; 0 if it was ended by Ctrl-C, SIGTERM or SIGHUP; 1 if a signal killed it.
    """
    sys.stdout.flush()
    return Supervisor(name, folds=not shows_tracebacks(environ)).run(command, environ)
