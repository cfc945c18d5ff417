"""Reads a 64-bit little-endian ELF library: what it needs, what it gives, and the names in its read-only data."""

import dataclasses
import mmap
import os
import pathlib
import re
import struct

_SHT_PROGBITS, _SHT_DYNAMIC, _SHT_DYNSYM, _SHT_GNU_VERSYM = 1, 6, 11, 0x6FFFFFFF
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR = 1, 2, 4
_DT_NEEDED, _DT_SONAME = 1, 14
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_STB_WEAK = 2
# A C identifier between two zero bytes.
_NAME = re.compile(rb"(?<=\0)[A-Za-z_]\w{3,}(?=\0)")


@dataclasses.dataclass(frozen=True)
class Symbols:
    """Names of a library's dynamic symbols.

    needed: undefined, not weak, and of no version. What glibc and libstdc++ give has versions, and the
      loader itself refuses a library whose versions are missing: so these are the symbols that only fail
      when they are first called.
    given: defined.
    weak: undefined and weak: nothing fails without them.
    versioned: undefined, not weak, of a version.
    libraries: the files that the loader loads with it.
    soname: the name that others load it by; "" if it has none.
    """

    needed: frozenset[str]
    given: frozenset[str]
    weak: frozenset[str] = frozenset()
    versioned: frozenset[str] = frozenset()
    libraries: tuple[str, ...] = ()
    soname: str = ""


def symbols(path: str | os.PathLike) -> Symbols:
    """Raises ValueError if `path` is no such ELF file."""
    return _read(path, _symbols)


def names(path: str | os.PathLike) -> frozenset[str]:
    """The read-only strings that are C identifiers: among them is every name that the library looks up by dlsym.

    Raises ValueError if `path` is no such ELF file.
    """
    return _read(path, _names)


def libc() -> pathlib.Path:
    """The C library of this process. Libraries call some of it without versions."""
    with open("/proc/self/maps") as maps:
        return next(pathlib.Path(line.split()[-1]) for line in maps if line.rstrip().endswith("/libc.so.6"))


def _read(path, parse):
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 64:
            raise ValueError(f"{path} is no ELF library")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:6] != b"\x7fELF\x02\x01":
                raise ValueError(f"{path} is no 64-bit little-endian ELF library")
            (table,) = struct.unpack_from("<Q", data, 40)
            (count,) = struct.unpack_from("<H", data, 60)
            return parse(data, [_SECTION.unpack_from(data, table + index * _SECTION.size) for index in range(count)])


def _content(data: mmap.mmap, section: tuple) -> bytes:
    return data[section[4] : section[4] + section[5]]


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def _symbols(data: mmap.mmap, sections: list[tuple]) -> Symbols:
    versions = next((_content(data, section) for section in sections if section[1] == _SHT_GNU_VERSYM), b"")
    needed, given, weak, versioned = set(), set(), set(), set()
    libraries, soname = [], ""
    for section in sections:
        if section[1] == _SHT_DYNAMIC:
            strings = _content(data, sections[section[6]])
            for tag, value in _DYNAMIC.iter_unpack(_content(data, section)):
                if tag == _DT_NEEDED:
                    libraries.append(_text(strings, value))
                elif tag == _DT_SONAME:
                    soname = _text(strings, value)
        if section[1] != _SHT_DYNSYM:
            continue
        strings = _content(data, sections[section[6]])
        for index, (name_at, info, _, home, _, _) in enumerate(_SYMBOL.iter_unpack(_content(data, section))):
            name = _text(strings, name_at)
            version = struct.unpack_from("<H", versions, 2 * index)[0] & 0x7FFF if versions else 1
            if not name:
                continue
            if home:
                given.add(name)
            elif info >> 4 == _STB_WEAK:
                weak.add(name)
            else:
                (needed if version <= 1 else versioned).add(name)
    return Symbols(
        frozenset(needed), frozenset(given), frozenset(weak), frozenset(versioned), tuple(libraries), soname
    )


def _names(data: mmap.mmap, sections: list[tuple]) -> frozenset[str]:
    found = set()
    for section in sections:
        flags = section[2]
        if section[1] == _SHT_PROGBITS and flags & _SHF_ALLOC and not flags & (_SHF_WRITE | _SHF_EXECINSTR):
            # The first string of a section has no zero before it.
            found.update(name.decode() for name in _NAME.findall(b"\0" + _content(data, section)))
    return frozenset(found)
