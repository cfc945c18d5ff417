"""Runs a test file in a process of its own until each of its tests has an outcome.

A test that takes the process with it, or is running when the time is up, fails. Then, and after an error of the device,
the file is started again with the tests that are left.
"""

import contextlib
import dataclasses
import json
import multiprocessing
import os
import pathlib
import re
import signal
import tempfile
import time

from tools.peer_tests import child, suite

MOST_STARTS = 60  # of one file; tests that are still left then fail

# A file that sets variables for torch_npu must have them before torch_npu is imported.
_NEEDS_OWN_IMPORT = re.compile(r"^\s*os\.(?:environ\b|putenv)", re.M)


_running: set[int] = set()  # process groups


def stop_all() -> None:
    """Ends the files that are running, with all that they started."""
    for group in list(_running):
        _kill(group)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@dataclasses.dataclass(slots=True)
class Test:
    outcome: str  # "pass", "fail", "skip" (by itself), "left out" (by a rule)
    error: str = ""


@dataclasses.dataclass(slots=True)
class File:
    tests: dict[str, Test] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0

    def complete(self, rules: suite.Rules) -> bool:
        """Whether no rule that has changed since asks for another run."""
        return bool(self.tests) and not any(t.outcome == "left out" and not rules.before(name) for name, t in self.tests.items())


def prepare() -> None:
    """Lets files start from a process that has imported torch already, which saves seconds for each."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["torch", "torch_npu", "pytest", "tools.peer_tests.child"])


def run(checkout: pathlib.Path, name: str, rules: suite.Rules, rules_path: pathlib.Path, timeout: float, keep: pathlib.Path | None = None) -> File:
    """Runs checkout/name. `timeout` is for one start, in seconds. The output is kept as a file below `keep`."""
    started = time.monotonic()
    file = File()
    if rules.before(name) is not None:  # a glob over whole files
        file.tests[f"{name}::*"] = Test("left out")
        return file
    source = (checkout / name).read_text(encoding="utf-8", errors="replace")
    context = multiprocessing.get_context("spawn" if _NEEDS_OWN_IMPORT.search(source) else "forkserver")
    with tempfile.TemporaryDirectory(prefix="peer_tests.", ignore_cleanup_errors=True) as folder:
        for _ in range(MOST_STARTS):
            before = len(file.tests)
            process = context.Process(target=child.main, args=(str(checkout), name, str(rules_path), list(file.tests), folder))
            process.start()
            _running.add(process.pid)
            process.join(timeout)
            late = process.is_alive()
            _kill(process.pid)
            process.join()
            _running.discard(process.pid)
            end = f"time-out after {timeout:g} s" if late else f"the process ended with {_ending(process.exitcode)}"
            left = collect(file, pathlib.Path(folder, "tests.jsonl"), rules, end)
            if not left or len(file.tests) == before:
                break
        for test in left:
            file.tests[test] = Test("fail", f"not reached: {end}")
        if not file.tests:
            code = process.exitcode
            file.tests[f"{name}::{child.IMPORT}"] = Test("skip", "no tests in it") if code == 5 and not late else Test("fail", end)
        _keep_output(pathlib.Path(folder, "output.txt"), keep, name)
    file.seconds = round(time.monotonic() - started, 1)
    return file


def _ending(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def collect(file: File, log: pathlib.Path, rules: suite.Rules, end: str) -> list[str]:
    """Takes over what a start has written, and returns the tests that have no outcome yet.

    end: how the process ended, for the test that was running then.
    """
    collected: list[str] = []
    running = None
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
        row = json.loads(line)
        if "collected" in row:
            collected = row["collected"]
        elif "start" in row:
            running = row["start"]
            file.tests.setdefault(running, Test("running"))
        elif row["test"] not in file.tests or file.tests[row["test"]].outcome in ("running", "pass"):
            file.tests[row["test"]] = Test(row["outcome"], row["error"])
    for test in file.tests.values():
        if test.outcome == "running":
            test.outcome, test.error = "fail", end
    for test in collected:
        if test not in file.tests and rules.before(test) is not None:
            file.tests[test] = Test("left out")
    return [test for test in collected if test not in file.tests]


def _keep_output(output: pathlib.Path, keep: pathlib.Path | None, name: str) -> None:
    if keep is not None and output.exists():
        keep.mkdir(parents=True, exist_ok=True)
        (keep / (name.replace("/", "+") + ".txt")).write_bytes(output.read_bytes())
