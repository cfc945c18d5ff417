"""What a torch_npu wheel wants of CANN, what the CANN of this build gives, and the gaps.

    ./bazelw run //tools/abi_audit                            the wheel of the Python environment, against hostcann
    ./bazelw run //tools/abi_audit -- --wheel FILE.whl        another one; or a folder where it is installed
    ./bazelw run //tools/abi_audit -- --list                  every name, too: "+" is there, "-" is not
    ./bazelw run //tools/abi_audit -- --json F                everything as JSON

Two kinds of names: imported symbols, which the loader or the first call needs, and names that torch_npu looks up when
it wants them, and does without when they are absent. Symbols of torch, Python and the C library are left out.
Exit status 1 if `import torch_npu` needs a library or a strong symbol that nobody has.
"""

import dataclasses
import json
import os
import pathlib
import sys
import sysconfig
from collections.abc import Iterator

from absl import app, flags
from jumar_hostcann import probe

from tools.abi_audit import audit
from tools.abi_audit.features import FEATURES, feature_of

_WHEEL = flags.DEFINE_string("wheel", None, "a .whl file, or a folder where torch_npu is installed")
_CANN = flags.DEFINE_string("cann", os.path.join(probe.TOOLKIT, "lib64"), "the folder of CANN's libraries")
_LIST = flags.DEFINE_bool("list", False, "print every name")
_JSON = flags.DEFINE_string("json", None, "write everything to this file")


def lines(report: audit.Report, every_name: bool = False) -> Iterator[str]:
    """The report for people."""
    yield f"torch_npu {report.version or '(unknown)'} for torch {report.torch or '(unknown)'}: {report.wheel}"
    yield ""
    yield f"{'library':56} {'import':>6} {'strong':>7} {'absent':>7} {'weak':>5}"
    for library in report.libraries:
        loaded = "yes" if library.at_import else "no"
        yield f"{library.path:56} {loaded:>6} {len(library.strong):>7} {len(library.unresolved):>7} {len(library.weak):>5}"
        if library.absent:
            yield f"    linked with, and nobody has: {', '.join(library.absent)}"
    yield ""
    yield f"{'given by':56} {'symbols':>7}"
    for name, symbols in report.given.items():
        yield f"{name:56} {len(symbols):>7}"
    yield ""
    yield f"{'feature':56} {'imported':>8} {'absent':>7} {'looked up':>10} {'absent':>7}"
    table = report.by_feature()
    total = [0, 0, 0, 0]
    for feature in sorted(table, key=FEATURES.index):
        row = table[feature]
        figures = [row["imported"], row["imported"] - row["imported_given"], row["looked_up"], row["looked_up"] - row["looked_up_given"]]
        total = [sum(pair) for pair in zip(total, figures)]
        yield _row(feature, figures)
    yield _row("total", total)
    if every_name:
        yield from _every_name(report)
    yield ""
    failures = report.failures()
    yield from failures
    yield f"{len(failures)} things that `import torch_npu` needs are absent" if failures else "`import torch_npu` has all that it needs"


def _row(name: str, figures: list[int]) -> str:
    return f"{name:56} {figures[0]:>8} {figures[1]:>7} {figures[2]:>10} {figures[3]:>7}"


def _every_name(report: audit.Report) -> Iterator[str]:
    given = {name for names in report.given.values() for name in names}
    wanted = [(feature_of(name), "looked up", name) for name in report.looked_up]
    for library in report.libraries:
        where = os.path.basename(library.path)
        wanted += [(feature_of(name), f"strong, {where}", name) for name in library.strong]
        wanted += [(feature_of(name), f"weak, {where}", name) for name in library.weak]
    feature = None
    for of, how, name in sorted(wanted, key=lambda row: (FEATURES.index(row[0]), row[2])):
        if of != feature:
            feature = of
            yield f"\n{feature}"
        yield f"  {'+' if name in given else '-'} {name} ({how})"


def to_json(report: audit.Report) -> str:
    document = dataclasses.asdict(report) | {
        "missing": report.missing(),
        "features": report.by_feature(),
        "failures": report.failures(),
    }
    return json.dumps(document, indent=2)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    # `bazel run` starts in another folder than the one where the path was typed.
    here = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    wheel = here / _WHEEL.value if _WHEEL.value else pathlib.Path(sysconfig.get_path("purelib"))
    try:
        report = audit.audit(wheel, here / _CANN.value)
    except (OSError, ValueError) as error:
        sys.exit(f"abi_audit: {error}")
    print("\n".join(lines(report, _LIST.value)))
    if _JSON.value:
        (here / _JSON.value).write_text(to_json(report) + "\n")
    sys.exit(bool(report.failures()))


if __name__ == "__main__":
    app.run(main)
