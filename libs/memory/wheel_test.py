"""The wheel's modules work where there is nothing of ours but the wheel."""

import pathlib

from tools.build import fresh_install

(WHEEL,) = pathlib.Path("libs/memory").glob("*.whl")

PROGRAM = """
import jumar_kv, jumar_onchip
print(jumar_kv.__file__, jumar_onchip.__file__)
tile = jumar_onchip.Buffer("scores", "UB", 32768, "double", (0, 3), ("MTE2", "V"))
print(jumar_onchip.plan([tile], {"UB": 65536})["scores"].offsets)
"""


def test_installs_into_a_fresh_folder_and_imports(tmp_path):
    fresh_install.install(WHEEL, tmp_path)
    files, offsets = fresh_install.run(tmp_path, PROGRAM).splitlines()
    assert files == f"{tmp_path}/jumar_kv.so {tmp_path}/jumar_onchip.so"
    assert offsets == "[0, 32768]"
