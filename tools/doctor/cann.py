"""The CANN below torch_npu: a toolkit or hostcann, its libraries, its devices."""

import json
import pathlib
import subprocess
import sys
import sysconfig
from collections.abc import Iterator

from jumar_hostcann import probe
from third_party.cann import versions
from tools.doctor.finding import Finding, fail, ok, warn
from tools.elf import elf

_CONFIGURED = pathlib.Path(__file__).parents[3] / "cann" / "cann.json"
_SITE = pathlib.Path(sysconfig.get_path("purelib"))
# Graph mode's compiler, which torch_npu loads when it is asked for and this project never does.
_LOADED_ON_DEMAND = ("torchair",)

_DEVICES = """
import torch
for index in range(torch.npu.device_count()):
    memory = torch.npu.get_device_properties(index).total_memory
    print(f"npu:{index} {torch.npu.get_device_name(index)}, {memory / 2**30:.1f} GiB")
"""


def check() -> Iterator[Finding]:
    configured = json.loads(_CONFIGURED.read_text())
    if configured["error"]:
        yield warn("cann (build)", *configured["error"].split(": ", 1))
    else:
        yield ok("cann (build)", f"C++ that names @cann is built with {configured['kind']} {configured['version']}")
    backend = probe.choose_backend()
    if backend.error:
        yield fail("cann", backend.error, "the line says it")
        return
    yield ok("cann", f"{backend.kind} {backend.version}, since {backend.reason}: {backend.home}")
    yield from unresolved_symbols(pathlib.Path(backend.home, "lib64"))
    yield from _devices()


def unresolved_symbols(libraries: pathlib.Path) -> Iterator[Finding]:
    """Symbols that torch_npu's libraries need and nobody gives: a call of one ends the process."""
    users = [
        path
        for path in sorted((_SITE / "torch_npu").rglob("*.so"))
        if not any(part in _LOADED_ON_DEMAND for part in path.parts)
    ]
    given = set()
    for path in [*users, *(_SITE / "torch" / "lib").glob("*.so*"), *libraries.rglob("*.so*"), elf.libc()]:
        given |= elf.symbols(path).given
    for path in users:
        missing = sorted(
            name for name in elf.symbols(path).needed - given if not name.startswith(("Py", "_Py"))  # the interpreter's
        )
        if missing:
            yield warn(
                "symbols",
                f"{path.name}: nobody gives {len(missing)} symbols, such as {', '.join(missing[:3])}",
                f"CANN {versions.CANN_VERSION} has them all; with hostcann, what calls them can't be used",
            )
        else:
            yield ok("symbols", f"{path.name}: all resolved")


def _devices() -> Iterator[Finding]:
    # In a process of its own: a broken library may end it.
    result = subprocess.run([sys.executable, "-c", _DEVICES], capture_output=True, text=True, timeout=120)
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or [f"exit status {result.returncode}"])[-1]
        yield fail("devices", f"torch can't use torch_npu: {reason}", "see the symbols above, and the driver if there is an NPU")
        return
    for line in result.stdout.splitlines():
        if line.startswith("npu:"):
            yield ok("devices", line)
    if "npu:" not in result.stdout:
        yield fail("devices", "CANN has no device", "set JUMAR_DEVICES to at least 1, or see the NPU's driver")
