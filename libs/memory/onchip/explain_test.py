"""The command, as a person uses it."""

import os
import pathlib
import shlex
import subprocess
import xml.etree.ElementTree

EXPLAIN = pathlib.Path.cwd() / "libs/memory/onchip/explain"


def explain(*arguments: str, folder: pathlib.Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "BUILD_WORKING_DIRECTORY": str(folder)}
    return subprocess.run([str(EXPLAIN), *arguments], capture_output=True, text=True, env=environment)


def test_the_first_example_of_the_help_works_when_pasted(tmp_path):
    shown = explain("--help", folder=tmp_path)
    assert shown.returncode == 0
    [example] = [line for line in shown.stdout.splitlines() if "./bazelw run" in line]
    result = explain(*shlex.split(example.split(" -- ")[1]), folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "UB: 66048 of 196608 bytes used" in result.stdout
    assert "event ids from MTE2 to V: 2 of 8" in result.stdout
    xml.etree.ElementTree.parse(tmp_path / "onchip.svg")


def test_without_arguments_it_shows_an_example(tmp_path):
    result = explain("--svg", "", folder=tmp_path)
    assert result.returncode == 0, result.stdout
    assert all(f"\n{space}: " in result.stdout for space in ("UB", "L1", "L0A", "L0B", "L0C"))
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_is_explained_and_drawn(tmp_path):
    result = explain("--buffer=tile:UB:100KiB:double", "--buffer", "sums:UB:512", "--svg=a.svg", folder=tmp_path)
    assert result.returncode == 1
    assert result.stdout.startswith('error: buffer "tile": it is the largest in UB at step 0, which needs 205312 of 196608 bytes')
    assert "UB: 205312 of 196608 bytes used (104%), at most 205312 alive in one step, 8704 too many" in result.stdout
    svg = (tmp_path / "a.svg").read_text()
    xml.etree.ElementTree.fromstring(svg)
    assert "tile[1]" in svg and "url(#beyond)" in svg


def test_wrong_arguments_say_what_is_allowed(tmp_path):
    for arguments, words in [
        (["--buffers", "a"], "known are --buffer, --capacity, --events, --svg, --help"),
        (["--buffer"], "--buffer needs a value"),
        (["--buffer", "a:UB"], "write NAME:SPACE:BYTES"),
        (["--capacity", "UB=lots"], "write bytes as"),
        (["--events", "many"], "--events many is not a number"),
        (["--svg", "/nowhere/a.svg"], "cannot write /nowhere/a.svg"),
    ]:
        result = explain(*arguments, folder=tmp_path)
        assert result.returncode == 2 and words in result.stderr, result
