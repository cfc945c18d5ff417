"""Builds a wheel from a list of files; the build rule python_wheel (wheel.bzl) runs it.

The packing, its hashes and its order are the library `wheel`'s.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from absl import app, flags

_LAYOUT = flags.DEFINE_string("layout", None, "Lines of ARCHIVE_PATH<tab>FILE.", required=True)
_NAME = flags.DEFINE_string("name", None, "The distribution's name.", required=True)
_VERSION = flags.DEFINE_string("version", None, "The distribution's version.", required=True)
_METADATA = flags.DEFINE_multi_string("metadata", [], 'A line of METADATA, such as "Summary: ...".')
_TAG = flags.DEFINE_string("tag", None, "The wheel's tag, PYTHON-ABI-PLATFORM.", required=True)
_WHEEL = flags.DEFINE_string("wheel", None, "The file to write.", required=True)

# The oldest date that a zip archive can hold: the wheel of equal files is equal to the byte.
_EPOCH = "315532800"


def main(argv: list[str]) -> None:
    del argv
    with tempfile.TemporaryDirectory() as tmp:
        tree = pathlib.Path(tmp, "tree")
        for line in pathlib.Path(_LAYOUT.value).read_text().splitlines():
            archive_path, file = line.split("\t")
            target = tree / archive_path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            target.chmod(0o644)
        dist_info = tree / f"{_NAME.value}-{_VERSION.value}.dist-info"
        dist_info.mkdir(exist_ok=True)
        if not (dist_info / "METADATA").exists():
            lines = ["Metadata-Version: 2.1", f"Name: {_NAME.value}", f"Version: {_VERSION.value}", *_METADATA.value]
            (dist_info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (dist_info / "WHEEL").write_text(
            f"Wheel-Version: 1.0\nGenerator: jumar\nRoot-Is-Purelib: false\nTag: {_TAG.value}\n"
        )
        subprocess.run(
            [sys.executable, "-m", "wheel", "pack", str(tree), "--dest-dir", tmp],
            env=dict(os.environ, SOURCE_DATE_EPOCH=_EPOCH),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        (packed,) = pathlib.Path(tmp).glob("*.whl")
        shutil.move(packed, _WHEEL.value)


if __name__ == "__main__":
    app.run(main)
