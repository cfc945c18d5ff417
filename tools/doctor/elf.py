"""Reads the dynamic symbols of a 64-bit little-endian ELF library: what it needs and what it gives."""

import dataclasses
import mmap
import os
import struct

_SHT_DYNSYM, _SHT_GNU_VERSYM = 11, 0x6FFFFFFF
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_STB_WEAK = 2


@dataclasses.dataclass(frozen=True)
class Symbols:
    """Names of a library's dynamic symbols.

    needed: undefined, not weak, and of no version. What glibc and libstdc++ give has versions, and the
      loader itself refuses a library whose versions are missing: so these are the symbols that only fail
      when they are first called.
    given: defined.
    """

    needed: frozenset[str]
    given: frozenset[str]


def symbols(path: str | os.PathLike) -> Symbols:
    """Raises ValueError if `path` is no such ELF file."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 64:
            raise ValueError(f"{path} is no ELF library")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:6] != b"\x7fELF\x02\x01":
                raise ValueError(f"{path} is no 64-bit little-endian ELF library")
            return _parse(data)


def _parse(data: mmap.mmap) -> Symbols:
    (table,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    sections = [_SECTION.unpack_from(data, table + index * _SECTION.size) for index in range(count)]
    versions = next((data[s[4] : s[4] + s[5]] for s in sections if s[1] == _SHT_GNU_VERSYM), b"")
    needed, given = set(), set()
    for section in sections:
        if section[1] != _SHT_DYNSYM:
            continue
        _, _, _, _, offset, size, link, *_ = section
        names = data[sections[link][4] : sections[link][4] + sections[link][5]]
        for index, symbol in enumerate(_SYMBOL.iter_unpack(data[offset : offset + size])):
            name_at, info, _, home, _, _ = symbol
            name = names[name_at : names.index(b"\0", name_at)].decode()
            version = struct.unpack_from("<H", versions, 2 * index)[0] & 0x7FFF if versions else 1
            if not name:
                continue
            if home:
                given.add(name)
            elif info >> 4 != _STB_WEAK and version <= 1:
                needed.add(name)
    return Symbols(frozenset(needed), frozenset(given))
