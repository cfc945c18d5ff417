"""What does not fit does not compile, and the compiler says which buffer and why."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path.cwd()
EXAMPLES = "libs/memory/onchip/examples/"
PREAMBLE = """
#include "libs/memory/onchip/onchip.h"
using namespace jumar::memory::onchip;
"""


def compiler() -> str:
    found = shutil.which(os.environ.get("CXX", "g++"))
    assert found, "no C++ compiler"
    return found


def compile_source(source: str, standard: str, tmp_path: pathlib.Path, *flags: str) -> subprocess.CompletedProcess:
    """Compiles a file of the repository, or a text."""
    if source.endswith(".cc"):
        path = ROOT / source
    else:
        path = tmp_path / "source.cc"
        path.write_text(PREAMBLE + source)
    output = str(tmp_path / "out.o")
    command = [compiler(), f"-std={standard}", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", "-c", str(path), "-o", output, *flags]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})


@pytest.mark.parametrize("standard", ["c++17", "c++20", "c++23"])
def test_a_tile_that_fits_compiles(standard, tmp_path):
    result = compile_source(EXAMPLES + "fits.cc", standard, tmp_path)
    assert result.returncode == 0, result.stderr


def test_without_exceptions_run_time_types_and_containers(tmp_path):
    listing = tmp_path / "headers"
    result = compile_source(EXAMPLES + "fits.cc", "c++17", tmp_path, "-fno-exceptions", "-fno-rtti", "-MD", "-MF", str(listing))
    assert result.returncode == 0, result.stderr
    headers = listing.read_text()
    for unwanted in ("/string", "/vector", "/new", "/memory", "/map", "absl/"):
        assert not re.search(re.escape(unwanted) + r"\s", headers), unwanted


def test_a_tile_that_is_too_large_does_not_compile(tmp_path):
    result = compile_source(EXAMPLES + "too_large.cc", "c++20", tmp_path)
    assert result.returncode != 0
    message = result.stderr.replace('\\"', '"')
    assert 'buffer "results": it is the largest in UB at step 2, which needs 264192 of 196608 bytes' in message
    for name, row in {
        "scores": "UB 0 131072 2 x 65536 0-2 MTE2>V 0 1, V>MTE2 0 1",
        "maxima": "UB 262144 264192 1 x 2048 1-2",
        "results": "UB 131072 262144 2 x 65536 2-5 V>MTE3 0 1, MTE3>V 0 1",
        "sums": "UB 0 2048 1 x 2048 3-4",
    }.items():
        assert f"{name} {row}" in re.sub(r"\s+", " ", message), message


def test_in_cpp17_it_says_which_kind_of_error_and_which_buffer(tmp_path):
    result = compile_source(EXAMPLES + "too_large.cc", "c++17", tmp_path)
    assert result.returncode != 0
    assert "kOverCapacity, 2, " in result.stderr
    assert "BufferName<'r', 'e', 's', 'u', 'l', 't', 's'>, 264192, 196608>" in result.stderr


FAILURES = {
    "misaligned": ('{.name = "tile", .bytes = 64, .pinned_offset = 48}', "kMisaligned", "offset 48 is not a multiple of its alignment, 32"),
    "alignment": ('{.name = "tile", .bytes = 64, .alignment = 100}', "kBadAlignment", "alignment 100 must be a power of two"),
    "reuse": (
        '{.name = "a", .bytes = 64, .pinned_offset = 0}, {.name = "tile", .bytes = 64, .pinned_offset = 32}',
        "kReusesLiveBuffer",
        'takes bytes of "a" while that is alive',
    ),
    "alias": (
        '{.name = "a", .bytes = 64, .lifetime = {0, 3}}, {.name = "tile", .bytes = 64, .lifetime = {3, 4}, .alias_of = "a"}',
        "kReusesLiveBuffer",
        'takes bytes of "a" while that is alive',
    ),
    "events": (
        '{.name = "tile", .bytes = 64, .policy = Policy::kTriple, .handover = {Pipe::kMte2, Pipe::kVector}}',
        "kOutOfEvents",
        "out of event ids from MTE2 to V, 3 of 2 needed at step 0",
    ),
    "size": ('{.name = "tile", .bytes = -5}', "kBadSize", "-5 bytes, must be at least 1"),
    "overflow": ('{.name = "tile", .bytes = INT64_MAX}', "kSizeOverflow", "9223372036854775807 is more than sizes"),
    "lifetime": ('{.name = "tile", .bytes = 64, .lifetime = {4, 3}}', "kBadLifetime", "lifetime is reversed, steps 4 to 3"),
    "name": ('{.name = "tile", .bytes = 64}, {.name = "tile", .bytes = 64}', "kDuplicateName", "buffers 0 and 1 have this name"),
}


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
@pytest.mark.parametrize("case", FAILURES)
def test_every_error_stops_the_compiler(case, standard, tmp_path):
    buffers, kind, words = FAILURES[case]
    source = f"""
    constexpr Capacities kCore = {{.ub = 1024, .events_per_pair = 2}};
    constexpr Buffer kBuffers[] = {{{buffers}}};
    constexpr const auto& kMap = Planned<kCore, kBuffers>();
    static_assert(kMap.count > 0);
    """
    result = compile_source(source, standard, tmp_path, "-Wno-missing-field-initializers")
    assert result.returncode != 0
    message = result.stderr.replace('\\"', '"')
    if "PlanFails<" in message:
        assert re.search(kind + r", \d, .*BufferName<'t', 'i', 'l', 'e'>", message), message
    else:
        assert 'buffer "tile": ' in message and words in message, message


def test_an_unknown_buffer_does_not_compile(tmp_path):
    source = """
    constexpr Buffer kBuffers[] = {{.name = "tile", .bytes = 64}};
    constexpr auto kMap = Plan(Capacities{.ub = 1024}, kBuffers);
    static_assert(kMap.At("%s").offset == 0);
    """
    assert compile_source(source % "tile", "c++17", tmp_path, "-Wno-missing-field-initializers").returncode == 0
    result = compile_source(source % "tail", "c++17", tmp_path, "-Wno-missing-field-initializers")
    assert result.returncode != 0 and "NoBufferOfThatName" in result.stderr
