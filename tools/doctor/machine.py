"""The machine: processor, memory, disk, and the tools that build here."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator

from tools.doctor.finding import Finding, fail, ok, warn

_GIB = 1 << 30
_MIN_MEMORY = 4 * _GIB  # the server with the default model, and one compilation against ATen
_MIN_DISK = 6 * _GIB  # the Python environment, the build's outputs and the default model


def check() -> Iterator[Finding]:
    yield _processor()
    yield _memory()
    yield _disk()
    yield from _compiler()
    yield _bazel()
    yield ok("python", f"CPython {platform.python_version()}, {sys.executable}")
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("JUMAR_")]
    yield ok("settings", ", ".join(settings) or "no JUMAR_ variable is set: see docs/configuration.md for the defaults")


def _processor() -> Finding:
    name, usable = platform.machine(), len(os.sched_getaffinity(0))
    text = f"{name}, {usable} of {os.cpu_count()} processors usable"
    if name not in ("x86_64", "aarch64"):
        return fail("machine", text, "x86_64 and aarch64 are supported")
    with open("/proc/cpuinfo") as file:
        features = next((line.split(":")[1].split() for line in file if line.startswith(("flags", "Features"))), [])
    vectors = [feature for feature in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve") if feature in features]
    if not vectors:
        return warn("machine", f"{text}, no AVX2, NEON or wider vectors", "it works, slowly: take a newer machine")
    return ok("machine", f"{text}, {' '.join(vectors)}")


def _memory() -> Finding:
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    text = f"{available / _GIB:.1f} GiB available"
    if available < _MIN_MEMORY:
        return warn("memory", f"{text}, less than {_MIN_MEMORY // _GIB} GiB", "end other programs, or build with --jobs=1")
    return ok("memory", text)


def _disk() -> Finding:
    free = shutil.disk_usage(os.path.realpath(__file__)).free
    text = f"{free / _GIB:.1f} GiB free where Bazel writes"
    if free < _MIN_DISK:
        return warn("disk", f"{text}, less than {_MIN_DISK // _GIB} GiB", "./bazelw clean, or set --output_user_root")
    return ok("disk", text)


def _compiler() -> Iterator[Finding]:
    name = os.environ.get("CXX") or os.environ.get("CC") or "g++"
    path = shutil.which(name)
    if path is None:
        yield fail("compiler", f"{name} is not on PATH", "install g++ 11 or newer (Debian: apt-get install g++)")
        return
    version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.partition("\n")[0]
    yield ok("compiler", f"{path}: {version}")


def _bazel() -> Finding:
    path = shutil.which("bazel")
    if path is None:
        return ok("bazel", "not on PATH: bazelw runs its own")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, cwd="/").stdout.strip()
    return ok("bazel", f"{path}: {version.replace('no_version', '4.2.3 (Debian)')}")
