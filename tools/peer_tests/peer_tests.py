"""Runs the tests of torch_npu's authors on hostcann, with the unmodified wheel, and counts pass, fail and not applicable.

    git clone https://github.com/Ascend/pytorch; git clone https://github.com/Ascend/op-plugin   # the revisions of the wheel
    ./bazelw run //tools/peer_tests -- --checkout ~/pytorch --json ~/pytorch.json
    ./bazelw run //tools/peer_tests -- --checkout ~/op-plugin --only '*/test_a*.py' --timeout 300

A checkout of Ascend/pytorch gives the tests of memory, streams, events, graphs and tensors, one of Ascend/op-plugin
those of the operators. Each file runs in its own process. With --json, results are written after each file, and a
second run goes on where the first stopped; --again runs the chosen files anew. Which files are taken and which tests
are not applicable, and why, stands in rules.toml. Packages that a test needs and
this repository's environment lacks: `pip install --target DIR NAME`, then --packages DIR.

Exit status 1 if a test fails.
"""

import concurrent.futures
import dataclasses
import fnmatch
import json
import os
import pathlib
import signal
import subprocess
import sys

from absl import app, flags

from tools.peer_tests import processes, report, suite

_CHECKOUT = flags.DEFINE_string("checkout", None, "folder of a checkout of Ascend/pytorch or Ascend/op-plugin", required=True)
_ONLY = flags.DEFINE_multi_string("only", [], "run the files whose path matches this glob; may be given several times")
_JOBS = flags.DEFINE_integer("jobs", 1, "files at a time", lower_bound=1)
_TIMEOUT = flags.DEFINE_float("timeout", 600, "seconds for one start of a file", lower_bound=1)
_JSON = flags.DEFINE_string("json", None, "results, for programs and for going on later")
_AGAIN = flags.DEFINE_bool("again", False, "run files that --json has results of anew")
_EVERY = flags.DEFINE_integer("every", 1, "take only every n-th file: a sample that is spread over the suite", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "folder to keep what each file prints")
_PACKAGES = flags.DEFINE_string("packages", None, "folder with packages that the tests need")
_RULES = flags.DEFINE_string("rules", str(suite.RULES), "the rules")


def chosen(files: list[str], only: list[str], every: int) -> list[str]:
    return [name for name in files if not only or any(fnmatch.fnmatchcase(name, glob) for glob in only)][::every]


def read(path: pathlib.Path) -> dict[str, processes.File]:
    """The results of an earlier run; empty if there are none."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["files"]
    return {name: processes.File({t: processes.Test(**r) for t, r in row["tests"].items()}, row["seconds"]) for name, row in rows.items()}


def write(path: pathlib.Path, checkout: pathlib.Path, files: dict[str, processes.File], rules: suite.Rules) -> None:
    rows = {}
    for name, file in sorted(files.items()):
        rows[name] = dataclasses.asdict(file)
        passed, failed, rest = report.counts(list(report.judge(name, file, rules)))
        rows[name] |= {"pass": passed, "fail": failed, "not_applicable": rest}
    document = {"checkout": str(checkout), "revision": revision(checkout), "files": rows}
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def revision(checkout: pathlib.Path) -> str:
    found = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def set_environment(packages: str | None) -> None:
    """What every test process inherits."""
    if packages:
        sys.path.append(os.path.abspath(packages))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), os.path.abspath(packages)]))
    os.environ.setdefault("JUMAR_HBM_BYTES", "4GiB")


def _stop(number: int, _frame: object) -> None:
    processes.stop_all()
    os._exit(128 + number)  # threads still wait for their files


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    here = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # where `bazelw run` was called
    checkout = (here / pathlib.Path(_CHECKOUT.value).expanduser()).resolve()
    rules_path = here / _RULES.value
    try:
        rules = suite.load(rules_path)
        names = chosen(rules.files(checkout), _ONLY.value, _EVERY.value)
    except (suite.RulesError, OSError) as error:
        raise app.UsageError(str(error)) from error
    set_environment(str(here / _PACKAGES.value) if _PACKAGES.value else None)
    results = here / _JSON.value if _JSON.value else None
    keep = here / _OUTPUT.value if _OUTPUT.value else None
    known = read(results) if results else {}
    left = [name for name in names if _AGAIN.value or name not in known or not known[name].complete(rules)]
    print(f"{len(names)} files, {len(names) - len(left)} of them done before", flush=True)
    processes.prepare()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    with concurrent.futures.ThreadPoolExecutor(_JOBS.value) as pool:
        running = {pool.submit(processes.run, checkout, name, rules, rules_path, _TIMEOUT.value, keep): name for name in left}
        for number, future in enumerate(concurrent.futures.as_completed(running), 1):
            name = running[future]
            known[name] = future.result()
            line = report.line_of(name, list(report.judge(name, known[name], rules)))
            print(f"[{number:>4}/{len(left)}] {line} {known[name].seconds:>7} s", flush=True)
            if results:
                write(results, checkout, known, rules)
    shown = {name: known[name] for name in names}
    print("\n" + report.table(shown, rules))
    sys.exit(any(verdict.outcome == report.FAIL for name, file in shown.items() for verdict in report.judge(name, file, rules)))


if __name__ == "__main__":
    app.run(main)
