"""docs/hardware.md is what the generator prints."""

import pathlib

import jumar_tiling

from libs.tiling.python import hardware_page


def test_the_committed_page_is_current():
    committed = pathlib.Path("docs/hardware.md").read_text(encoding="utf-8")
    assert committed == hardware_page.current() + "\n", "docs/hardware.md is old: ./bazelw run //libs/tiling:hardware_page > docs/hardware.md"


def test_every_chip_and_every_source_is_on_it():
    page = hardware_page.current()
    for chip in jumar_tiling.all_hardware():
        assert chip.name.removeprefix("Ascend") in page
    for source in jumar_tiling.sources():
        assert source.title in page


def test_units():
    shown = hardware_page.shown
    assert shown(196608, "bytes") == "192 KiB"
    assert shown(512, "bytes") == "512 bytes"
    assert shown(5_200_000_000_000, "bytes/s") == "5.2 TB/s"
    assert shown(800_000_000_000, "bytes/s") == "800 GB/s"
    assert shown(1_850_000_000, "Hz") == "1.85 GHz"
    assert shown(4096, "MAC/cycle") == "4,096 MAC/cycle"
    assert shown(65535, "") == "65,535"
    assert shown(None, "bytes") == "unknown"
