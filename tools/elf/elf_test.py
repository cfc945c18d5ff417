"""The reader of ELF libraries, against torch's own."""

import pathlib
import sysconfig

import pytest

from tools.elf import elf

TORCH_LIB = pathlib.Path(sysconfig.get_path("purelib"), "torch", "lib")


def test_elf_symbols_are_told_apart():
    symbols = elf.symbols(TORCH_LIB / "libtorch_python.so")
    assert "THPModule_initExtension" not in symbols.needed
    assert any(name.startswith("_ZN2at") for name in symbols.needed)
    assert any(name.startswith("_ZN5torch") for name in symbols.given)
    assert "malloc" not in symbols.needed  # it has a version


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n" * 20])
def test_a_file_that_is_no_library_is_refused(tmp_path, content):
    path = tmp_path / "libx.so"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="libx.so is no"):
        elf.symbols(path)


def test_libraries_that_are_loaded_with_it():
    symbols = elf.symbols(TORCH_LIB / "libtorch_cpu.so")
    assert "libc10.so" in symbols.libraries and symbols.soname == "libtorch_cpu.so"
    assert "malloc" in symbols.versioned


def test_weak_symbols_are_apart():
    symbols = elf.symbols(TORCH_LIB / "libtorch_python.so")
    assert "__gmon_start__" in symbols.weak and not symbols.weak & symbols.needed


def test_names_of_strings():
    names = elf.names(TORCH_LIB / "libtorch_python.so")
    assert "is_contiguous" in names
    assert not any("\0" in name or " " in name for name in names)


def test_the_c_library_is_found():
    assert "getpid" in elf.symbols(elf.libc()).given
