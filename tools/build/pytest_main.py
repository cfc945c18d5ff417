"""Runs pytest as Bazel's test protocol asks. The main program of every py_test."""

import os
import pathlib
import sys

import pytest


class Shard:
    """Keeps every TEST_TOTAL_SHARDS-th test. Bazel sets the variables when shard_count > 1."""

    def __init__(self) -> None:
        self.total = int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
        self.index = int(os.environ.get("TEST_SHARD_INDEX", "0"))
        self.collected = 0
        status = os.environ.get("TEST_SHARD_STATUS_FILE")
        if status:  # tells Bazel that this runner knows how to shard
            pathlib.Path(status).touch()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self.collected = len(items)
        if self.total > 1:
            kept = items[self.index :: self.total]
            keep = {id(item) for item in kept}
            config.hook.pytest_deselected(items=[item for item in items if id(item) not in keep])
            items[:] = kept


def main(argv: list[str]) -> int:
    root = os.getcwd()
    if "TEST_SRCDIR" in os.environ:
        root = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
    args = [
        "--rootdir=" + root,
        "--config-file=" + os.path.join(root, "tools/build/pytest.ini"),
        "--import-mode=importlib",
        "-p", "no:cacheprovider",
        "-ra",
    ]
    if "XML_OUTPUT_FILE" in os.environ:
        args.append("--junitxml=" + os.environ["XML_OUTPUT_FILE"])
    if "TEST_TMPDIR" in os.environ:
        args.append("--basetemp=" + os.path.join(os.environ["TEST_TMPDIR"], "pytest"))
        # Hypothesis keeps the examples that failed; the sandbox's source tree is read-only.
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", os.path.join(os.environ["TEST_TMPDIR"], "hypothesis"))
    only = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if only:
        args += ["-k", only]
    if os.environ.get("TESTBRIDGE_TEST_RUNNER_FAIL_FAST") == "1":
        args.append("-x")
    shard = Shard()
    code = pytest.main(args + argv, plugins=[shard])
    # A shard may be left with nothing to do, and --test_filter may ask for what is elsewhere; otherwise a
    # target without tests is a mistake.
    if code == pytest.ExitCode.NO_TESTS_COLLECTED and (only or (shard.total > 1 and shard.collected)):
        return 0
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
