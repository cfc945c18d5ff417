"""The wheel works where there is nothing of ours but the wheel."""

import pathlib
import zipfile

from tools.build import fresh_install

# Found by its place, as pip does: tests run in the runfiles of a workspace.
(WHEEL,) = pathlib.Path("libs/quant/python").glob("*.whl")

PROGRAM = """
import jumar_quant, numpy
codes, scales = jumar_quant.quantize(numpy.array([[1.0, -448.0]], numpy.float32), "e4m3", "cann_dynamic", (1, 0))
print(jumar_quant.__file__, codes.tolist(), scales.tolist())
"""


def test_installs_into_a_fresh_folder_and_quantises(tmp_path):
    fresh_install.install(WHEEL, tmp_path)
    assert (tmp_path / "jumar_quant.pyi").is_file()
    assert fresh_install.run(tmp_path, PROGRAM) == f"{tmp_path}/jumar_quant.so [[56, 254]] [[1.0]]\n"


def test_metadata():
    with zipfile.ZipFile(WHEEL) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        lines = archive.read(name).decode().splitlines()
    assert "Name: jumar_quant" in lines
    assert "Requires-Dist: numpy" in lines
    assert WHEEL.name.split("-")[1] in name
