"""For the tests of wheels: a folder that holds a wheel and nothing else of ours."""

import os
import pathlib
import subprocess
import sys


def install(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    """Installs the wheel alone, without network."""
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", "--target"]
    subprocess.run([*pip, folder, wheel], check=True, capture_output=True)


def run(folder: pathlib.Path, program: str) -> str:
    """What the Python program prints that finds the folder and none of Bazel's.

    Raises:
        AssertionError: it failed; the text is its standard error.
    """
    path = f"import sys\nsys.path.insert(0, {str(folder)!r})\n"
    # -I: neither PYTHONPATH, by which Bazel's targets find each other, nor the script's folder.
    command = [sys.executable, "-I", "-c", path + program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    return done.stdout
