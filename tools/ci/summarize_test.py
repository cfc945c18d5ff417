"""The line that CI reads counts what happened, no more and no less."""

import json
import pathlib

from tools.ci import summarize

PYTEST_XML = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure message="no"/></testcase><testcase name="c"><skipped/></testcase>
</testsuite></testsuites>"""
GTEST_XML = """<testsuites><testsuite>
<testcase name="a" status="run" result="completed"/><testcase name="b" status="run" result="skipped"/>
</testsuite></testsuites>"""


def result(label: str, status: str = "PASSED", xml: pathlib.Path | None = None, **identity: int) -> dict:
    outputs = [{"name": "test.xml", "uri": xml.as_uri()}] if xml else []
    return {
        "id": {"testResult": {"label": label, **identity}},
        "testResult": {"status": status, "testActionOutput": outputs},
    }


def written(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(text)
    return path


def test_cases_of_pytest_and_googletest_are_counted(tmp_path):
    counts, failures = summarize.count([
        result("//a", "FAILED", written(tmp_path / "a b.xml", PYTEST_XML)),
        result("//b", "PASSED", written(tmp_path / "b.xml", GTEST_XML)),
    ])
    assert counts == summarize.Counts(passed=2, failed=1, skipped=2)
    assert failures == ["//a"]


def test_a_test_without_cases_counts_as_one(tmp_path):
    counts, failures = summarize.count([
        result("//a"),
        result("//b", "TIMEOUT"),
        result("//c", "PASSED", written(tmp_path / "c.xml", "not XML")),
    ])
    assert counts == summarize.Counts(passed=2, failed=1)
    assert failures == ["//b"]


def test_a_crash_after_passing_cases_is_a_failure(tmp_path):
    counts, _ = summarize.count([result("//a", "FAILED", written(tmp_path / "a.xml", GTEST_XML))])
    assert counts.failed == 1


def test_the_last_attempt_counts_and_each_shard(tmp_path):
    counts, failures = summarize.count([
        result("//a", "FAILED", attempt=1),
        result("//a", "FLAKY", attempt=2),
        result("//b", shard=1),
        result("//b", shard=2),
    ])
    assert counts == summarize.Counts(passed=3)
    assert failures == []


def test_what_was_not_built_is_a_failure():
    counts, failures = summarize.count([
        {"id": {"targetCompleted": {"label": "//a"}}, "completed": {}},
        {"id": {"targetCompleted": {"label": "//b"}}, "completed": {"success": True}},
    ])
    assert counts == summarize.Counts(failed=1)
    assert failures == ["//a (not built)"]


def test_the_line_is_the_one_that_ci_reads(tmp_path, capsys):
    events = written(tmp_path / "events.json", json.dumps(result("//a")) + "\n")
    summarize.main(str(events))
    assert capsys.readouterr().out == "1 passed, 0 failed, 0 skipped\n"
