"""Runs one test file, in a process of its own, and writes what becomes of each test, a JSON object a line.

{"start": test} before a test, so that a test which takes the process with it is known; {"test", "outcome", "error"}
after it, where the outcome is "pass", "fail" or "skip". After an error of the device the process ends. A file that can't be imported fails as the test "(import)".
"""

import json
import os
import pathlib
import re
import sys
from collections.abc import Callable

import pytest

from tools.peer_tests import suite

IMPORT = "(import)"
MOST_ERROR = 6000  # characters of a failure that are kept


# torch_npu says itself that the process is to end after such an error; what runs on sees operators that were dropped.
_DEVICE_ERROR = re.compile(r"The process exits for this inner error|PTA call acl api failed")


class Recorder:
    def __init__(self, name: str, log: pathlib.Path, leave_out: Callable[[str], bool]) -> None:
        self.name, self.leave_out = name, leave_out
        self.log = log.open("a", encoding="utf-8")

    def write(self, **row: str | list[str]) -> None:
        self.log.write(json.dumps(row) + "\n")
        self.log.flush()

    def test(self, nodeid: str) -> str:
        return f"{self.name}::{nodeid.partition('::')[2]}"

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self.write(collected=[self.test(item.nodeid) for item in items])
        items[:] = [item for item in items if not self.leave_out(self.test(item.nodeid))]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self.write(test=f"{self.name}::{IMPORT}", outcome=_OUTCOMES[report.outcome], error=_text(report))

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(start=self.test(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Set-up and tear-down count only when they go wrong; a test of several parts is as good as its worst.
        if report.when == "call" or report.outcome != "passed":
            self.write(test=self.test(report.nodeid), outcome=_OUTCOMES[report.outcome], error=_text(report))
        if report.failed and _DEVICE_ERROR.search(_text(report)):
            self.session.shouldstop = "the device has failed"  # the rest runs in the next process


_OUTCOMES = {"passed": "pass", "failed": "fail", "skipped": "skip"}


def _text(report: pytest.CollectReport | pytest.TestReport) -> str:
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):  # of a skip: file, line, "Skipped: why"
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return text[:MOST_ERROR]


def main(checkout: str, name: str, rules: str, done: list[str], folder: str) -> None:
    """Runs checkout/name in a working folder, without what the rules leave out and what is done, and exits.

    Writes tests.jsonl and output.txt there.
    """
    os.setsid()  # so that whoever stops this stops what it started, too
    os.chdir(folder)
    output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    path = pathlib.Path(checkout, name)
    sys.argv = [str(path)]
    sys.path.insert(0, str(pathlib.Path(checkout, "test")))  # where the checkout's helpers lie
    declared = suite.load(pathlib.Path(rules))
    recorder = Recorder(name, pathlib.Path("tests.jsonl"), lambda test: test in done or declared.before(test) is not None)
    arguments = [str(path), f"--config-file={os.devnull}", f"--rootdir={path.parent}", "-p", "no:cacheprovider", "-q", "--tb=short"]
    code = pytest.main(arguments, plugins=[recorder])
    sys.stdout.flush()
    os._exit(int(code))  # whatever the tests left running
