"""What hostcann is configured to be: every variable with the value in force, and where that came from."""

import ctypes
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from jumar_hostcann import probe
from tools.doctor.finding import Finding, fail, ok, warn

_LIBRARY = pathlib.Path(probe.TOOLKIT, "lib64", "libascendcl.so")


def describe() -> dict[str, Any]:
    """What the runtime itself says of its settings; see libs/hostcann/acl/config.h."""
    library = ctypes.CDLL(str(_LIBRARY))
    library.JumarDescribeConfig.restype = ctypes.c_char_p
    return json.loads(library.JumarDescribeConfig())


def check() -> Iterator[Finding]:
    if probe.choose_backend().kind != "hostcann":
        return
    description = describe()
    for warning in description["warnings"]:
        yield warn("hostcann", warning, "unset it, or see docs/configuration.md")
    if description["error"]:
        yield fail("hostcann", description["error"], "correct the variable")
    for variable in description["variables"]:
        yield ok("hostcann", f"{variable['name']}: {variable['value']} ({variable['source']}), {variable['meaning']}")
