"""The runner, on a tiny made-up checkout: outcomes, rules, crashes and time-outs, going on, and the report."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tools.peer_tests import peer_tests, processes, report, suite

FILES = {
    "test_mixed.py": """
        import os, signal, unittest

        class TestMixed(unittest.TestCase):
            def test_good(self): pass
            def test_wrong(self): self.assertEqual(1, 2, "off by one")
            def test_training(self): raise RuntimeError("operator FooGrad is not available: no aclnn")
            @unittest.skip("needs 2 devices")
            def test_skipped(self): pass
            def test_dies(self): os.kill(os.getpid(), signal.SIGSEGV)
            def test_zz_after_the_crash(self): pass
    """,
    "test_hangs.py": """
        import time, unittest

        class TestHangs(unittest.TestCase):
            def test_a(self): pass
            def test_b(self): time.sleep(1000)
            def test_c(self): pass
    """,
    "test_broken.py": "import no_such_package\n",
    "test_profiler.py": "def test_it(): pass\n",
    "test_teardown.py": """
        import unittest

        class TestTeardown(unittest.TestCase):
            def test_it(self): pass
            def tearDown(self): raise ValueError("left something")
    """,
    "helper.py": "",
}

RULES = """
    [[scope]]
    has = "op_plugin"
    files = ["test/ops/test_*.py"]

    [[rule]]
    kind = "training"
    reason = "backward pass"
    error = 'operator \\\\w+Grad\\\\b'

    [[rule]]
    kind = "profiler"
    reason = "asks the hardware's profiler"
    tests = ["test/ops/test_profiler.py"]

    [[rule]]
    kind = "other"
    reason = "never"
    tests = ["*::test_nowhere"]
"""


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout/test/ops"
    folder.mkdir(parents=True)
    (tmp_path / "checkout/op_plugin").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(textwrap.dedent(text))
    return tmp_path / "checkout"


@pytest.fixture
def rules_path(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(textwrap.dedent(RULES).replace("\\\\", "\\"))
    return path


def run(checkout: pathlib.Path, rules_path: pathlib.Path, name: str, timeout: float = 120) -> processes.File:
    return processes.run(checkout, f"test/ops/{name}", suite.load(rules_path), rules_path, timeout)


def outcomes(file: processes.File, rules_path: pathlib.Path, name: str) -> dict[str, str]:
    return {v.test.rpartition("::")[2]: v.outcome for v in report.judge(f"test/ops/{name}", file, suite.load(rules_path))}


def test_only_test_files_of_the_scope_are_taken(checkout, rules_path):
    names = suite.load(rules_path).files(checkout)
    assert names == sorted(f"test/ops/{name}" for name in FILES if name.startswith("test_"))
    assert peer_tests.chosen(names, ["*hangs*", "*/test_b*"], 1) == ["test/ops/test_broken.py", "test/ops/test_hangs.py"]
    assert peer_tests.chosen(names, [], 2) == names[::2]


def test_another_folder_is_refused(tmp_path, rules_path):
    with pytest.raises(suite.RulesError, match="no folder `op_plugin/`"):
        suite.load(rules_path).files(tmp_path)


def test_each_test_has_its_outcome_also_behind_a_crash(checkout, rules_path):
    file = run(checkout, rules_path, "test_mixed.py")
    assert outcomes(file, rules_path, "test_mixed.py") == {
        "test_good": "pass", "test_wrong": "fail", "test_training": "n/a", "test_skipped": "n/a", "test_dies": "fail", "test_zz_after_the_crash": "pass",
    }
    errors = {name.rpartition("::")[2]: test.error for name, test in file.tests.items()}
    assert "off by one" in errors["test_wrong"]
    assert errors["test_dies"] == "the process ended with SIGSEGV"
    assert errors["test_skipped"] == "needs 2 devices"


def test_a_test_that_hangs_fails_and_the_others_run(checkout, rules_path):
    file = run(checkout, rules_path, "test_hangs.py", timeout=20)
    assert outcomes(file, rules_path, "test_hangs.py") == {"test_a": "pass", "test_b": "fail", "test_c": "pass"}
    assert "time-out after 20 s" in file.tests["test/ops/test_hangs.py::TestHangs::test_b"].error


def test_a_file_that_cannot_be_imported_fails(checkout, rules_path):
    file = run(checkout, rules_path, "test_broken.py")
    (test,) = file.tests.values()
    assert test.outcome == "fail" and "no_such_package" in test.error


def test_what_goes_wrong_in_tear_down_is_a_failure(checkout, rules_path):
    assert outcomes(run(checkout, rules_path, "test_teardown.py"), rules_path, "test_teardown.py") == {"test_it": "fail"}


def test_a_file_that_a_rule_names_is_not_run(checkout, rules_path):
    file = run(checkout, rules_path, "test_profiler.py")
    assert list(file.tests) == ["test/ops/test_profiler.py::*"]
    assert outcomes(file, rules_path, "test_profiler.py") == {"*": "n/a"}
    rules_path.write_text('[[scope]]\nhas = "op_plugin"\nfiles = []\n')
    assert not file.complete(suite.load(rules_path)), "without the rule, the file must be run"


@pytest.mark.parametrize("text, message", [
    ('kind = "x"\ntests = ["*a"]', "no reason"),
    ('reason = "x"\ntests = ["*a"]', "no kind"),
    ('kind = "x"\nreason = "y"', "would match every test"),
    ('kind = "x"\nreason = "y"\ntests = ["a"]\nfile = "b"', r"unknown keys \['file'\]"),
])
def test_a_rule_must_say_enough(tmp_path, text, message):
    path = tmp_path / "rules.toml"
    path.write_text("[[rule]]\n" + text)
    with pytest.raises(suite.RulesError, match=message):
        suite.load(path)


def test_the_rules_of_the_tool_are_well_formed():
    rules = suite.load()
    assert len(rules.scopes) == 2
    assert not rules.after("test/test_base_ops/test_add.py::TestAdd::test_add", "AssertionError: Tensor-likes are not close!")
    assert not rules.after("test/test_base_ops/test_add.py::TestAdd::test_add", "operator Add is not available: hostcann has no aclnn operator")


def test_results_survive_and_the_table_adds_up(checkout, rules_path, tmp_path):
    rules = suite.load(rules_path)
    files = {f"test/ops/{name}": run(checkout, rules_path, name) for name in ("test_mixed.py", "test_profiler.py")}
    path = tmp_path / "out.json"
    peer_tests.write(path, checkout, files, rules)
    assert peer_tests.read(path) == files
    row = json.loads(path.read_text())["files"]["test/ops/test_mixed.py"]
    assert (row["pass"], row["fail"], row["not_applicable"]) == (2, 2, 2)
    lines = report.table(files, rules).splitlines()
    (total,) = [line.split() for line in lines if line.startswith("in all")]
    assert total == ["in", "all", "2", "2", "3", "50.0%"]
    assert any(line.split() == ["1", "training:", "backward", "pass"] for line in lines)
    assert lines[-2:] == ["rules that matched nothing here", "        never"]


def test_stopping_the_runner_leaves_no_process(checkout, rules_path, tmp_path):
    script = f"""
import signal, sys, threading, time, pathlib
from tools.peer_tests import peer_tests, processes, suite
signal.signal(signal.SIGTERM, peer_tests._stop)
rules = pathlib.Path({str(rules_path)!r})
threading.Thread(target=processes.run, args=(pathlib.Path({str(checkout)!r}), "test/ops/test_hangs.py", suite.load(rules), rules, 600)).start()
while not processes._running: time.sleep(0.1)
print(*processes._running, flush=True)
while True: time.sleep(0.1)  # a signal that comes just before a long sleep would wait for its end
"""
    path = tmp_path / "stop.py"
    path.write_text(f"if __name__ == '__main__':\n{textwrap.indent(script, '    ')}")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    runner = subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True, env=environment)
    group = int(runner.stdout.readline())
    runner.terminate()
    assert runner.wait(60) == 128 + signal.SIGTERM
    for _ in range(600):  # the fork server, its parent, takes note of its end
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail(f"process group {group} is still there")


def test_failures_that_differ_in_numbers_are_of_one_kind():
    assert report.kind_of("shape is [2, 3], at 0x7f00") == report.kind_of("shape is [4, 5, 6], at 0x12")
    text = "RuntimeError: The Inner error\n[ERROR] aclnnFoo: self has 3 dimensions; it must have 2\n"
    assert report.first_line(text) == "[ERROR] aclnnFoo: self has 3 dimensions; it must have 2"
