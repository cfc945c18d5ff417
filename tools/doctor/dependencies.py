"""Where each dependency comes from, and whether what is installed is what is pinned."""

import hashlib
import importlib.metadata
import pathlib
import re
from collections.abc import Iterator

from tools.doctor.finding import Finding, fail, ok
from third_party.cann import versions

_ROOT = pathlib.Path(__file__).parents[2]
_LOCKS = [_ROOT / "third_party/python" / name for name in ("requirements.lock", "vllm.lock")]
_TARBALLS = _ROOT / "third_party/debian/repositories.bzl"
_PINNED_TOGETHER = ("torch", "torch_npu", "vllm")


def locked() -> dict[str, tuple[str, str]]:
    """{distribution: (version, sha256)} of the locks."""
    rows = re.findall(r"^(\S+)==(\S+) --hash=sha256:(\w+)", "".join(lock.read_text() for lock in _LOCKS), re.M)
    return {name: (version, sha256) for name, version, sha256 in rows}


def check() -> Iterator[Finding]:
    for source, suite, tarball, sha256 in re.findall(
        r'"(\S+) (\S+) (\S+\.tar\.\w+) ([0-9a-f]{64})"', _TARBALLS.read_text()
    ):
        yield ok("c++", f"{tarball}, from Debian {suite}'s source package {source}, sha256 {sha256[:12]}")
    pins = locked()
    wrong = []
    for name, (version, _) in pins.items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = "nothing"
        if installed != version:
            wrong.append(f"{name} {installed} instead of {version}")
    lock_hash = hashlib.sha256(b"".join(lock.read_bytes() for lock in _LOCKS)).hexdigest()
    if wrong:
        yield fail("python", f"installed are {', '.join(wrong)}", "./bazelw sync --only=py_env")
    else:
        yield ok("python", f"{len(pins)} packages installed as locked by hash (locks' sha256 {lock_hash[:12]})")
    yield from _together(pins)


def _together(pins: dict[str, tuple[str, str]]) -> Iterator[Finding]:
    """torch, torch_npu and vLLM only work in the combination of the pin table."""
    row = versions.CANN_RELEASES[versions.CANN_VERSION]
    for name in _PINNED_TOGETHER:
        version, sha256 = pins[name.replace("_", "-")]
        if version.partition("+")[0] != row[name]:
            yield fail(
                name,
                f"{version} is locked, and CANN {versions.CANN_VERSION} goes with {row[name]}",
                "update the lock or third_party/cann/versions.bzl (CONTRIBUTING.md, Update a pin)",
            )
        else:
            yield ok(name, f"{version}, the one for CANN {versions.CANN_VERSION}, sha256 {sha256[:12]}")
