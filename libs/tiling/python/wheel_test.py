"""The wheel works where there is nothing of ours but the wheel."""

import os
import pathlib
import subprocess
import sys
import zipfile

# Found by its place, as pip does: tests run in the runfiles of a workspace.
(WHEEL,) = pathlib.Path("libs/tiling/python").glob("*.whl")

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import jumar_tiling
assert jumar_tiling.__file__.startswith(sys.argv[1]), jumar_tiling.__file__
print(jumar_tiling.find_hardware("ascend910b2").ub_bytes)
"""


def test_installs_into_a_fresh_folder_and_imports(tmp_path):
    folder = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", "--target", folder, WHEEL]
    subprocess.run(pip, check=True, capture_output=True)
    assert (folder / "jumar_tiling.pyi").is_file()
    # -I: neither PYTHONPATH, by which Bazel's targets find each other, nor this folder.
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, folder], cwd=tmp_path, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "196608\n"


def test_metadata():
    with zipfile.ZipFile(WHEEL) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        lines = archive.read(name).decode().splitlines()
    assert "Name: jumar_tiling" in lines
    assert "Requires-Python: >=3.11,<3.12" in lines
    assert WHEEL.name.split("-")[1] in name
