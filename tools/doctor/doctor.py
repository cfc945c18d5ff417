"""Reports what this machine and this build have, and what is wrong with it.

    ./bazelw run //tools/doctor              one line per finding: OK, WARN or FAIL, each with a mend
    ./bazelw run //tools/doctor -- --json    the same for programs

Exit status 1 if a line says FAIL.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator

from absl import app, flags

from tools.doctor import cann, dependencies, machine, settings
from tools.doctor.finding import Finding, Status

_JSON = flags.DEFINE_bool("json", False, "print one JSON array instead of lines")

CHECKS: list[Callable[[], Iterator[Finding]]] = [
    machine.check,
    dependencies.check,
    cann.check,
    settings.check,
]


def examine() -> Iterator[Finding]:
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:  # One broken check must not hide the others.
            yield Finding(Status.FAIL, check.__module__.rpartition(".")[2], f"{type(error).__name__}: {error}")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    findings = []
    for finding in examine():
        findings.append(finding)
        if not _JSON.value:
            print(finding, flush=True)
    if _JSON.value:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    sys.exit(any(finding.status is Status.FAIL for finding in findings))


if __name__ == "__main__":
    app.run(main)
