"""Folds the Python tracebacks in a program's output: keeps their last line, the error, and hides the rest.

A server that can't start prints the same failure three times (in the engine, in its process's bootstrap and in the
API server), 150 lines in all. What a user needs is the first error's message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# What vLLM's log formatter and torch put before a line, each optional, in this order.
_PREFIX = re.compile(
    r"^(?P<process>\((?P<name>[\w.:-]+) pid=\d+\) )?"
    r"(?P<record>(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?"
    r"(?P<rank>\[rank\d+\]:(?=\s|$) ?)?"
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_START = re.compile(r"^\s*(\+ )?(Exception Group )?Traceback \(most recent call last\):")
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(: (?P<message>.*))?$", re.DOTALL)

# How the lines after the first one of an error's message start, when no log record tells: torch_npu's.
_CONTINUATION = (" ", "\t", "[ERROR]", "[PID", "EZ", "ERR", "aclnn")

# Errors that are raised for the user: their message says it all.
_SELF_EXPLAINING = frozenset({"ValueError", "RuntimeError", "NotImplementedError", "OSError", "TypeError", "Exception"})

MAX_MESSAGE_CHARS = 900


def describe(type_name: str, message: str) -> str:
    """An exception, of which only the text is known, as one line."""
    short = type_name.rpartition(".")[2]
    message = " ".join(message.split())
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[:MAX_MESSAGE_CHARS] + " ..."
    if not message:
        return short
    return message if short in _SELF_EXPLAINING else f"{short}: {message}"


class UserError(ValueError):
    """An error of the user's making, with a message for the user: one line with the value, the limit and the mend."""


def explain(error: BaseException) -> str:
    """An exception as one line."""
    if isinstance(error, UserError):
        return str(error)
    problems = getattr(error, "errors", None)
    if type(error).__name__ == "ValidationError" and callable(problems):  # pydantic's, of vLLM's configuration
        return "; ".join(str(problem["msg"]).removeprefix("Value error, ") for problem in problems())
    return describe(type(error).__name__, str(error))


@dataclass
class _Block:
    """A traceback that is being read."""

    record: str | None  # the log record that it is part of, if it was logged
    error: list[str] = field(default_factory=list)  # lines of the last exception seen
    in_frames: bool = True


@dataclass
class TracebackFolder:
    """Takes lines one by one; keeps a state per process, whose lines may be interleaved."""

    errors: list[str] = field(default_factory=list)  # one line for each folded traceback, in order
    _blocks: dict[str, _Block] = field(default_factory=dict)

    def feed(self, line: str) -> bool:
        """Whether ``line`` (without its end) is to be shown: False for a part of a traceback."""
        plain = _ANSI.sub("", line).rstrip("\r\n")
        match = _PREFIX.match(plain)
        assert match is not None  # every part is optional
        key = match["name"] or match["rank"] or ""
        text = plain[match.end() :]
        block = self._blocks.get(key)
        if _START.match(text):
            if block is None:
                self._blocks[key] = _Block(match["record"])
            else:
                block.in_frames = True
            return False
        if block is None:
            return True
        if block.in_frames:
            if not text.strip() or text.startswith((" ", "\t")):
                return False
            block.in_frames = False
            block.error = [text]
            return False
        if not text.strip() or text.startswith(_CHAIN):
            return False
        if match["record"] == block.record if block.record else text.startswith(_CONTINUATION):
            block.error.append(text)
            return False
        self._close(key)
        return True

    def _close(self, key: str) -> None:
        block = self._blocks.pop(key)
        if not block.error:
            return
        joined = "\n".join(block.error)
        match = _ERROR.match(joined)
        if match is None:
            self.errors.append(describe("", joined))
        elif match["type"].rpartition(".")[2] not in ("KeyboardInterrupt", "SystemExit", "CancelledError"):
            self.errors.append(describe(match["type"], match["message"] or ""))

    def finish(self) -> None:
        """Ends every traceback that is still open."""
        for key in list(self._blocks):
            self._close(key)
