"""Resolves requirements.in to requirements.lock: every wheel by version and SHA-256.

    ./bazelw run //third_party/python:lock              writes the lock of this machine's architecture
    ./bazelw run //third_party/python:lock -- --check   exit status 1 if it is out of date
    python3.11 third_party/python/lock.py               the same without Bazel

Only pip's own resolver is used (`pip install --dry-run --report`), so the lock resolves from the same
package indexes that the build installs from.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

FOLDER = "third_party/python"
# Where the PyTorch project publishes its CPU builds, for machines whose pip configuration doesn't have them.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def folder() -> pathlib.Path:
    """This file's folder in the source tree, also under `bazel run`."""
    root = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    return pathlib.Path(root, FOLDER) if root else pathlib.Path(__file__).resolve().parent


def lock_name(machine: str) -> str:
    return "requirements.lock" if machine == "x86_64" else f"requirements.{machine}.lock"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def excluded(requirements: str) -> set[str]:
    """The names in `# exclude: NAME` lines."""
    return {canonical(name) for name in re.findall(r"^# exclude: (\S+)$", requirements, re.M)}


def resolve(source: pathlib.Path, constraints: pathlib.Path | None) -> dict[str, tuple[str, str]]:
    """Returns {name: (version, sha256)} of everything that `source` needs on this machine."""
    with tempfile.TemporaryDirectory() as tmp:
        report = pathlib.Path(tmp, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--only-binary=:all:", f"--report={report}", f"--requirement={source}"]
        if constraints:
            command.append(f"--constraint={constraints}")
        attempt = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if attempt.returncode and re.search(r"No matching distribution found for torch==\S+\+cpu", attempt.stderr):
            attempt = subprocess.run(
                [*command, f"--extra-index-url={TORCH_CPU_INDEX}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if attempt.returncode:
            sys.exit(f"pip could not resolve {source}:\n{attempt.stderr}")
        installs = json.loads(report.read_text())["install"]
    skip = excluded(source.read_text())
    pins = {}
    for item in installs:
        name = canonical(item["metadata"]["name"])
        if name not in skip:
            pins[name] = (item["metadata"]["version"], item["download_info"]["archive_info"]["hashes"]["sha256"])
    return pins


def render(pins: dict[str, tuple[str, str]], machine: str) -> str:
    lines = [
        f"# Made by `./bazelw run //{FOLDER}:lock` from requirements.in. Do not edit.",
        f"# CPython {sys.version_info.major}.{sys.version_info.minor}, linux, {machine}",
    ]
    lines += [f"{name}=={version} --hash=sha256:{sha256}" for name, (version, sha256) in sorted(pins.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if the lock is out of date")
    parser.add_argument("--constraint", type=pathlib.Path, help="a pip constraints file, to hold versions back")
    args = parser.parse_args()
    if sys.version_info[:2] != (3, 11):
        sys.exit(f"Python {platform.python_version()} would resolve other wheels than 3.11, which the build uses: "
                 "run this with python3.11")
    machine = platform.machine()
    lock = folder() / lock_name(machine)
    text = render(resolve(folder() / "requirements.in", args.constraint), machine)
    if not args.check:
        lock.write_text(text)
        print(f"{lock}: {text.count('--hash')} packages")
    elif not lock.exists() or lock.read_text() != text:
        sys.exit(f"{lock} is out of date: run ./bazelw run //{FOLDER}:lock")


if __name__ == "__main__":
    main()
