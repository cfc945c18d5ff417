"""House rules that hold for every file of the repository."""

import ast
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(os.path.realpath("WORKSPACE")).parent
SELF = "tools/lint/repository_test.py"

# Packages come from wherever the machine's own clients are set up to take them.
REGISTRY_HOST = re.compile(
    r"\b(?:"
    r"(?:test\.)?pypi\.org|files\.pythonhosted\.org"
    r"|(?:deb|security|ftp\.\w+|snapshot)\.debian\.org|archive\.ubuntu\.com"
    r"|registry\.npmjs\.org|registry\.yarnpkg\.com|conda\.anaconda\.org"
    r"|(?:static\.)?crates\.io|proxy\.golang\.org|repo1?\.maven\.(?:apache\.)?org"
    r"|pypi\.tuna\.tsinghua\.edu\.cn|mirrors\.\w+\.(?:com|edu\.cn)"
    r")\b"
)
OWN_PATH = re.compile(r"(?<![\w.~$}])/(?:root|work|home/\w+)/\w|/tmp/(?:jumar|venv|ref|sd)\b")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
LOADED = re.compile(r"^(?:cc|py|sh)_\w+(?=\()", re.M)


def files() -> list[str]:
    """The repository's files: what git knows or would add; every file where there is no git."""
    listing = subprocess.run(
        ["git", "-C", ROOT, "-c", f"safe.directory={ROOT}", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True,
    )
    if listing.returncode == 0:
        return [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in (".git", "__pycache__") and not name.startswith("bazel-")]
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
    return found


FILES = sorted(files())


def text_of(name: str) -> str:
    try:
        return (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def hits(pattern: re.Pattern) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name in FILES
        if name != SELF
        for number, line in enumerate(text_of(name).splitlines(), 1)
        if pattern.search(line)
    ]


def test_there_are_files_to_look_at():
    assert "WORKSPACE" in FILES and len(FILES) > 50


@pytest.mark.parametrize(
    "host", ["pypi.org/simple", "deb.debian.org/debian", "ftp.de.debian.org/debian"]
)
def test_registry_pattern_finds(host):
    assert REGISTRY_HOST.search("https://" + host)


def test_no_package_registry_is_named():
    assert not hits(REGISTRY_HOST)


def test_no_path_of_one_machine_is_named():
    assert not hits(OWN_PATH)


def test_nothing_is_left_unfinished():
    assert not hits(UNFINISHED)


def test_platform_is_no_package():
    # It would hide Python's standard module of that name.
    assert "platform/__init__.py" not in FILES


def test_build_files_take_their_rules_from_one_place():
    wrong = []
    other_workspaces = tuple(folder + "/" for folder in text_of(".bazelignore").split())
    for name in FILES:
        if pathlib.Path(name).name != "BUILD.bazel" or name.startswith(other_workspaces):
            continue
        text = text_of(name)
        loads = "".join(re.findall(r'^load\(\s*"//tools/build:rules\.bzl",(.*?)\)', text, re.M | re.S))
        wrong += [f"{name}: {rule}" for rule in sorted(set(LOADED.findall(text))) if f'"{rule}"' not in loads]
    assert not wrong


def test_python_files_parse():
    for name in FILES:
        if name.endswith(".py"):
            ast.parse(text_of(name), name)


def test_texts_end_with_one_newline_and_have_no_trailing_blanks():
    wrong = []
    for name in FILES:
        if name.endswith((".py", ".cc", ".h", ".bzl", ".bazel", ".sh", ".bazelrc")):
            text = text_of(name)
            if text and (not text.endswith("\n") or text.endswith("\n\n") or re.search(r"[ \t]$", text, re.M)):
                wrong.append(name)
    assert not wrong
