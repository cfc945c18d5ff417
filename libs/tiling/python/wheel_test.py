"""The wheel works where there is nothing of ours but the wheel."""

import pathlib
import zipfile

from tools.build import fresh_install

# Found by its place, as pip does: tests run in the runfiles of a workspace.
(WHEEL,) = pathlib.Path("libs/tiling/python").glob("*.whl")

PROGRAM = """
import jumar_tiling
print(jumar_tiling.__file__, jumar_tiling.find_hardware("ascend910b2").ub_bytes)
"""


def test_installs_into_a_fresh_folder_and_imports(tmp_path):
    fresh_install.install(WHEEL, tmp_path)
    assert (tmp_path / "jumar_tiling.pyi").is_file()
    assert fresh_install.run(tmp_path, PROGRAM) == f"{tmp_path}/jumar_tiling.so 196608\n"


def test_metadata():
    with zipfile.ZipFile(WHEEL) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        lines = archive.read(name).decode().splitlines()
    assert "Name: jumar_tiling" in lines
    assert "Requires-Python: >=3.11,<3.12" in lines
    assert WHEEL.name.split("-")[1] in name
