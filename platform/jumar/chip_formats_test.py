"""The plugin's list of formats is the hardware table's."""

from pathlib import Path

from jumar import chip_formats


def test_is_the_table():
    committed = (Path(__file__).parent / "quantization" / "chips.py").read_text()
    assert committed == chip_formats.text(), chip_formats.__doc__
