"""What bazelw says where it can't work: one line that names the value, the limit and the mend."""

import os
import pathlib
import subprocess

import pytest


@pytest.fixture
def program(tmp_path):
    """Returns a function that makes a program which prints `output`, whatever its arguments."""

    def make(name: str, output: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{output}'\n")
        path.chmod(0o755)
        return str(path)

    return make


def bazelw(*args: str, **variables: str) -> subprocess.CompletedProcess:
    environment = {"PATH": "/usr/bin:/bin", "HOME": os.environ["TEST_TMPDIR"], **variables}
    return subprocess.run(["./bazelw", *args], env=environment, capture_output=True, text=True)


def refusal(**variables: str) -> str:
    result = bazelw("build", "//tools/ci:summarize", **variables)
    assert result.returncode == 1 and not result.stdout
    assert result.stderr.startswith("bazelw: ") and result.stderr.count("\n") == 1
    return result.stderr


def test_help_names_the_two_commands():
    output = bazelw("--help").stdout
    assert "./bazelw run //serving:server" in output and "./bazelw test //..." in output


@pytest.mark.parametrize("version", ["bazel 3.7.2", "bazel 8.4.1", "bazel 10.0.0", "Usage: something else"])
def test_another_bazel_is_refused(program, version):
    message = refusal(JUMAR_BAZEL=program("bazel", version))
    assert version in message and "4.2 to 7" in message


def test_a_missing_bazel_that_was_asked_for_is_named():
    assert "JUMAR_BAZEL=/nowhere/bazel is not there" in refusal(JUMAR_BAZEL="/nowhere/bazel")


def test_an_old_compiler_is_refused(program):
    message = refusal(JUMAR_BAZEL=program("bazel", "bazel no_version"), CXX=program("g++", "9"))
    assert "is version 9" in message and "g++ 11" in message


@pytest.mark.parametrize("version", ["CPython 3.10.13", "CPython 3.12.1", "PyPy 3.11.2"])
def test_another_python_is_refused(program, version):
    message = refusal(
        JUMAR_BAZEL=program("bazel", "bazel no_version"),
        CXX=program("g++", "12"),
        JUMAR_PYTHON=program("python", version),
    )
    assert version in message and "CPython 3.11 is needed" in message


def test_the_arguments_and_the_exit_status_are_bazels(tmp_path):
    fake = pathlib.Path(tmp_path, "bazel")
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "bazel no_version" && exit\necho "$@"\nexit 34\n')
    fake.chmod(0o755)
    result = bazelw("--max_idle_secs=1", "query", "//...", JUMAR_BAZEL=str(fake))
    assert (result.returncode, result.stdout) == (34, "--max_idle_secs=1 query //...\n")
