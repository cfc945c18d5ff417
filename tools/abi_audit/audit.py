"""Compares what a torch_npu wheel wants of CANN with what a tree of CANN libraries gives."""

import contextlib
import dataclasses
import pathlib
import re
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping

from tools.abi_audit.features import feature_of, is_looked_up
from tools.elf import elf

# What every Linux with a compiler's runtime has. Their symbols have versions, so the loader checks them.
_SYSTEM = re.compile(r"(?:ld-linux.*|lib(?:c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|gomp|atomic))\.so(?:\.\d+)*")


@dataclasses.dataclass(frozen=True)
class Library:
    """One library of the wheel.

    path: within the wheel.
    at_import: `import torch_npu` loads it.
    strong, weak: undefined symbols that torch, Python and the C library don't give: CANN's.
    foreign: how many others it imports.
    unresolved: of `strong`, what CANN doesn't give either.
    absent: libraries that it is linked with and nobody has.
    """

    path: str
    at_import: bool
    strong: tuple[str, ...]
    weak: tuple[str, ...]
    foreign: int
    unresolved: tuple[str, ...]
    absent: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Report:
    """wheel, version, torch: what was looked at, and the torch that it is made for.

    looked_up: names of CANN's functions among the strings, other than the imported ones. An operator, which is two
      functions, aclnnX and aclnnXGetWorkspaceSize, counts once.
    given: what CANN's libraries export, by library.
    """

    wheel: str
    version: str
    torch: str
    libraries: tuple[Library, ...]
    looked_up: tuple[str, ...]
    given: Mapping[str, tuple[str, ...]]

    def missing(self) -> tuple[str, ...]:
        """Looked-up names that nobody gives: torch_npu does without them, or says which feature it hasn't."""
        given = self._all_given()
        return tuple(name for name in self.looked_up if name not in given)

    def failures(self) -> list[str]:
        """What stops `import torch_npu`, or ends the process at the first call."""
        found = []
        for library in self.libraries:
            if library.at_import:
                found += [f"{library.path} is linked with {name}, which nobody has" for name in library.absent]
                found += [f"{library.path} needs {name}, which nobody gives" for name in library.unresolved]
        return found

    def by_feature(self) -> dict[str, dict[str, int]]:
        """Per feature: imported and looked-up names, and how many of each are there."""
        given = self._all_given()
        table: dict[str, dict[str, int]] = {}
        imported = {name for library in self.libraries for name in (*library.strong, *library.weak)}
        for kind, names in (("imported", imported), ("looked_up", self.looked_up)):
            for name in names:
                row = table.setdefault(feature_of(name), {"imported": 0, "imported_given": 0, "looked_up": 0, "looked_up_given": 0})
                row[kind] += 1
                row[kind + "_given"] += name in given
        return table

    def _all_given(self) -> set[str]:
        return {name for names in self.given.values() for name in names}


def audit(wheel: pathlib.Path, cann: pathlib.Path, site: pathlib.Path | None = None) -> Report:
    """
    Args:
        wheel: a .whl file, or the folder that has the package torch_npu, or that package.
        cann: the folder of CANN's libraries.
        site: the folder that has the package torch; this Python's if not given.

    Raises ValueError if `wheel` has no torch_npu.
    """
    site = site or pathlib.Path(sysconfig.get_path("purelib"))
    with _unpacked(wheel) as folder:
        paths = sorted(path for path in (folder / "torch_npu").rglob("*.so*") if path.is_file())
        if not paths:
            raise ValueError(f"{wheel} has no libraries of torch_npu: give a .whl file, or the folder where the package torch_npu is")
        own = {path: elf.symbols(path) for path in paths}
        torch = [elf.symbols(path) for path in sorted((site / "torch" / "lib").glob("*.so*"))]
        given = {path.name: elf.symbols(path) for path in sorted(cann.rglob("*.so*"))}
        names = frozenset().union(*(elf.names(path) for path in paths))
        metadata = next((path.read_text() for path in sorted(folder.glob("torch_npu-*.dist-info/METADATA"))), "")
        libraries = tuple(_libraries(folder, own, torch, given))
    imported = {name for library in libraries for name in (*library.strong, *library.weak)}
    defined = frozenset().union(*(symbols.given for symbols in own.values()))
    return Report(
        wheel=str(wheel),
        version=_field(metadata, r"^Version: (\S+)"),
        torch=_field(metadata, r"^Requires-Dist: torch\s*\(?==\s*(\w+(?:\.\w+)*)"),
        libraries=libraries,
        looked_up=tuple(sorted(_without_first_phase({name for name in names - imported - defined if is_looked_up(name)}))),
        given={name: tuple(sorted(symbols.given)) for name, symbols in given.items()},
    )


def _without_first_phase(names: set[str]) -> set[str]:
    return {name.removesuffix("GetWorkspaceSize").removesuffix("GetMaxWorkspaceSize") for name in names}


def _libraries(
    folder: pathlib.Path, own: Mapping[pathlib.Path, elf.Symbols], torch: Iterable[elf.Symbols], given: Mapping[str, elf.Symbols]
) -> Iterator[Library]:
    outside = frozenset().union(elf.symbols(elf.libc()).given, *(symbols.given for symbols in (*torch, *own.values())))
    cann = frozenset().union(*(symbols.given for symbols in given.values()))
    files = {path.name for path in own} | {symbols.soname for symbols in (*own.values(), *torch, *given.values())} | set(given)
    loaded = _loaded_at_import(own)
    for path, symbols in own.items():
        wanted = {name for name in symbols.needed - outside if feature_of(name) not in ("python", "torch")}
        weak = {name for name in symbols.weak - outside if feature_of(name) not in ("python", "torch", "other")}
        yield Library(
            path=str(path.relative_to(folder)),
            at_import=path in loaded,
            strong=tuple(sorted(wanted)),
            weak=tuple(sorted(weak)),
            foreign=len(symbols.needed | symbols.versioned | symbols.weak) - len(wanted) - len(weak),
            unresolved=tuple(sorted(wanted - cann)),
            absent=tuple(name for name in symbols.libraries if name not in files and not _SYSTEM.fullmatch(name)),
        )


def _loaded_at_import(own: Mapping[pathlib.Path, elf.Symbols]) -> set[pathlib.Path]:
    """The extension module torch_npu._C, and what it is linked with, and so on."""
    by_name = {path.name: path for path in own}
    waiting = [path for path in own if path.name.startswith("_C.") and path.parent.name == "torch_npu"]
    loaded: set[pathlib.Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in loaded:
            loaded.add(path)
            waiting += [by_name[name] for name in own[path].libraries if name in by_name]
    return loaded


@contextlib.contextmanager
def _unpacked(wheel: pathlib.Path) -> Iterator[pathlib.Path]:
    if wheel.is_dir():
        yield wheel.parent if wheel.name == "torch_npu" and not (wheel / "torch_npu").is_dir() else wheel
        return
    if not zipfile.is_zipfile(wheel):
        raise ValueError(f"{wheel} is neither a wheel nor a folder")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        wanted = [name for name in archive.namelist() if re.search(r"\.so(\.|$)|\.dist-info/METADATA$", name)]
        archive.extractall(folder, wanted)
        yield pathlib.Path(folder)


def _field(metadata: str, pattern: str) -> str:
    found = re.search(pattern, metadata, re.M)
    return found.group(1) if found else ""
