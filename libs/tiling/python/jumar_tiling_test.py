import jumar_tiling
import pytest


def test_finds_a_chip_by_name():
    spec = jumar_tiling.find_hardware("ascend910b2")
    assert (spec.name, spec.architecture, spec.soc_version) == ("Ascend910B2", "A2", 221)
    assert (spec.aic_cores, spec.aiv_cores) == (24, 48)
    assert spec.ub_bytes == 192 * 1024
    assert spec.memory_bytes == 64 << 30
    assert "bf16" in spec.formats and "fp8" not in spec.formats
    assert repr(spec) == "HardwareSpec('Ascend910B2')"


def test_an_unknown_figure_is_none():
    assert jumar_tiling.find_hardware("Ascend910B1").aic_cores is None
    assert jumar_tiling.find_hardware("host").soc_version is None


def test_an_unknown_name_is_answered_with_near_ones():
    with pytest.raises(KeyError, match="did you mean .*Ascend910B3"):
        jumar_tiling.find_hardware("Ascend910C3")


def test_lists_every_chip_once():
    names = [spec.name for spec in jumar_tiling.all_hardware()]
    assert len(names) == len(set(names)) >= 18
    assert {"Ascend910B3", "Ascend910_9392", "Ascend950DT", "Ascend310P3", "host"} <= set(names)
    assert all(jumar_tiling.find_hardware(name).name == name for name in names)
