"""Prints `N passed, N failed, N skipped` for one run of `bazel test`.

    bazel test //... --build_event_json_file=events.json; python3 tools/ci/summarize.py events.json

It counts the test cases in the test.xml files that the run's own events name. So results that Bazel had
in its cache count, and files that an earlier run left behind don't.
"""

import dataclasses
import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0


def cases_of(result: dict) -> list[ElementTree.Element]:
    """The test cases of one testResult event; none if the test wrote no readable XML."""
    for output in result.get("testActionOutput", []):
        if output["name"] == "test.xml":
            path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
            try:
                return list(ElementTree.parse(path).iter("testcase"))
            except (OSError, ElementTree.ParseError):
                return []
    return []


def is_skipped(case: ElementTree.Element) -> bool:
    # pytest writes <skipped>, googletest an attribute.
    return case.find("skipped") is not None or case.get("result") == "skipped" or case.get("status") == "notrun"


def is_failed(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def count(events: list[dict]) -> tuple[Counts, list[str]]:
    """Returns the counts and the labels that failed. Of a test's several attempts, the last counts."""
    runs = {}
    unbuilt = []
    for event in events:
        identity = event.get("id", {})
        if "testResult" in event:
            at = identity["testResult"]
            runs[at["label"], at.get("shard", 1), at.get("run", 1)] = event["testResult"]
        elif "testSummary" in identity and event.get("testSummary", {}).get("overallStatus") == "NO_STATUS":
            unbuilt.append(identity["testSummary"]["label"])
        elif "targetCompleted" in identity and not event.get("completed", {"success": True}).get("success"):
            unbuilt.append(identity["targetCompleted"]["label"])
    counts = Counts()
    failures = []
    for (label, _, _), result in runs.items():
        cases = cases_of(result)
        failed = sum(map(is_failed, cases))
        skipped = sum(map(is_skipped, cases))
        if result["status"] not in ("PASSED", "FLAKY"):
            failures.append(label)
            failed = max(failed, 1)
        counts.failed += failed
        counts.skipped += skipped
        counts.passed += max(len(cases) - failed - skipped, 0) if cases else int(not failed)
    unbuilt = sorted(set(unbuilt) - set(failures))
    counts.failed += len(unbuilt)
    return counts, sorted(set(failures)) + [f"{label} (not built)" for label in unbuilt]


def main(path: str) -> None:
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    counts, failures = count([json.loads(line) for line in lines if line.strip()])
    for label in failures:
        print(f"FAILED: {label}")
    print(f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped")


if __name__ == "__main__":
    main(sys.argv[1])
