"""Writes platform/jumar/quantization/chips.py: the number formats of the hardware table, for the plugin.

The plugin's wheel has none of our libraries, so it takes the table's column along as data:

    ./bazelw run //platform:chip_formats > platform/jumar/quantization/chips.py
"""

from __future__ import annotations

from collections.abc import Iterator

import jumar_tiling

FAMILIES = {"A2": "Ascend910B", "A3": "Ascend910_93", "A5": "Ascend950", "310P": "Ascend310P"}


def lines() -> Iterator[str]:
    yield '"""Number formats of each chip, from libs/tiling/hardware_table.h, which names the sources.'
    yield ""
    yield "Made by `./bazelw run //platform:chip_formats`; a test holds it against the table."
    yield '"""'
    chips = [chip for chip in jumar_tiling.all_hardware() if chip.architecture in FAMILIES]
    for name, comment, value in [
        ("FAMILIES", "What people call a chip's kin.", lambda chip: FAMILIES[chip.architecture]),
        ("COMPUTES", "What its cube or vector unit computes with.", lambda chip: tuple(chip.formats)),
        ("WEIGHTS", "What a weight may be that is multiplied with 16-bit rows.", lambda chip: tuple(chip.weight_formats)),
    ]:
        yield ""
        yield f"# {comment}"
        yield f"{name} = {{"
        for chip in chips:
            quoted = repr(value(chip)).replace("'", '"')
            yield f'    "{chip.name}": {quoted},'
        yield "}"


def text() -> str:
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    print(text(), end="")
