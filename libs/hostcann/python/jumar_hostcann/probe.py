"""Chooses the CANN below torch_npu: the vendor's toolkit with an NPU, or hostcann.

* A toolkit and a device: the toolkit is used. If its release isn't the pinned one, the choice is unusable, and
  says which releases meet and what to do.
* No device, or no toolkit: hostcann.
* ``JUMAR_BACKEND=hostcann`` or ``cann`` decides instead of the machine (``auto`` is the default).

Standard library only, and quick: it runs when torch is imported.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass

from jumar_hostcann import pin

# The toolkit tree of hostcann. It has a file that a vendor's toolkit hasn't, so that a child process whose
# environment names the tree knows what it is.
TOOLKIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "toolkit")
MARKER = "hostcann.info"

_BACKENDS = ("auto", "hostcann", "cann")
_HOME_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_HOME_FOLDERS = ("/usr/local/Ascend/ascend-toolkit/latest", "~/Ascend/ascend-toolkit/latest")
# Where a toolkit says what it is, by age of its layout: (file, key).
_VERSION_FILES = (
    ("version.cfg", "toolkit_installed_version"),
    ("version.cfg", "runtime_running_version"),
    ("compiler/version.info", "version"),
    ("runtime/version.info", "version"),
    ("version.info", "version"),
)


@dataclass(frozen=True)
class Backend:
    """The CANN to use.

    Attributes:
        kind: ``"cann"`` or ``"hostcann"``.
        home: what ``ASCEND_HOME_PATH`` should be.
        version: the CANN release, ``""`` if the toolkit doesn't tell.
        reason: why this one, for people.
        error: why it can't be used, or ``""``.
    """

    kind: str
    home: str
    version: str
    reason: str
    error: str = ""

    @property
    def is_fallback(self) -> bool:
        """True for hostcann: it runs anywhere, so it claims no machine for itself."""
        return self.kind == "hostcann"

    def raise_if_unusable(self) -> None:
        """Raises RuntimeError with the reason if this CANN can't be used."""
        if self.error:
            raise RuntimeError(self.error)


def choose_backend(environ: Mapping[str, str] | None = None, root: str = "/") -> Backend:
    """The CANN to use on this machine.

    Args:
        environ: the environment variables, ``os.environ`` if not given.
        root: the folder that stands for ``/``, for tests.
    """
    environ = os.environ if environ is None else environ
    wanted = environ.get("JUMAR_BACKEND") or "auto"
    if wanted not in _BACKENDS:
        return _hostcann(f"JUMAR_BACKEND={wanted}", error=f"JUMAR_BACKEND={wanted} is none of {', '.join(_BACKENDS)}")
    if wanted == "hostcann":
        return _hostcann("JUMAR_BACKEND=hostcann")
    home = find_toolkit(environ, root)
    devices = sorted(glob.glob(os.path.join(root, "dev/davinci[0-9]*")))
    if wanted == "auto" and not (home and devices):
        return _hostcann("there is no NPU" if not devices else "there is no CANN toolkit")
    if not home:
        return Backend("cann", "", "", "JUMAR_BACKEND=cann", error=_no_toolkit(environ))
    version = read_version(home)
    reason = f"{len(devices)} NPU(s) and the toolkit {home}"
    return Backend("cann", home, version, reason, error=_mismatch(home, version))


def find_toolkit(environ: Mapping[str, str], root: str = "/") -> str:
    """The home of the vendor's toolkit, or ``""``. hostcann's own tree doesn't count."""
    homes = [environ[name] for name in _HOME_VARIABLES if environ.get(name)]
    homes += [os.path.join(root, os.path.expanduser(folder).lstrip("/")) for folder in _HOME_FOLDERS]
    for home in homes:
        if os.path.isdir(home) and not os.path.exists(os.path.join(home, MARKER)):
            return home
    return ""


def read_version(home: str) -> str:
    """The release that a toolkit says it is, such as ``"9.1.0"``; ``""`` if it doesn't say."""
    for name, wanted in _VERSION_FILES:
        try:
            with open(os.path.join(home, name), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        for line in lines:
            key, _, value = line.partition("=")
            if key.strip().lower() == wanted and value.strip():
                # [9.1.0:9.1.0] in version.cfg, 9.1.0 elsewhere.
                return value.strip().strip("[]").split(":")[-1]
    return ""


def _hostcann(reason: str, error: str = "") -> Backend:
    missing = os.path.join(TOOLKIT, "lib64", "libascendcl.so")
    if not error and not os.path.exists(missing):
        error = f"hostcann is incomplete: {missing} is missing; install the wheel again, or build it with Bazel"
    return Backend("hostcann", TOOLKIT, pin.CANN_VERSION, reason, error)


def _no_toolkit(environ: Mapping[str, str]) -> str:
    named = [f"{name}={environ[name]}" for name in _HOME_VARIABLES if environ.get(name)]
    where = f" ({', '.join(named)} is no toolkit of the vendor)" if named else ""
    return (
        f"JUMAR_BACKEND=cann, and there is no CANN toolkit{where}: source the set_env.sh of CANN {pin.CANN_VERSION}, "
        "or unset JUMAR_BACKEND to compute on the CPU"
    )


def _mismatch(home: str, version: str) -> str:
    if version in pin.CANN_RELEASES:
        return ""
    wanted = " or ".join(sorted(pin.CANN_RELEASES))
    return (
        f"the CANN toolkit in {home} is {version or 'of an unknown release'}, and this Jumar is for {wanted}: install CANN "
        f"{wanted}, or take the Jumar for your release, or set JUMAR_BACKEND=hostcann to compute on the CPU"
    )
