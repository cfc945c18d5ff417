"""The table of hardware from Python."""

import ast
import pathlib

import jumar_tiling
import pytest

from third_party.cann import versions


def test_finds_a_chip_by_name():
    spec = jumar_tiling.find_hardware("ascend910b2")
    assert (spec.name, spec.architecture, spec.soc_version) == ("Ascend910B2", "A2", 221)
    assert (spec.aic_cores, spec.aiv_cores) == (24, 48)
    assert spec.ub_bytes == 192 * 1024
    assert spec.memory_bytes == 64 << 30
    assert "bf16" in spec.formats and "fp8" not in spec.formats
    assert spec.weight_formats == ["int8", "int4"]
    assert repr(spec) == "HardwareSpec('Ascend910B2')"


def test_an_unknown_figure_is_none():
    assert jumar_tiling.find_hardware("Ascend310P1").aic_cores is None
    assert jumar_tiling.find_hardware("host").soc_version is None


def test_an_unknown_name_is_answered_with_near_ones():
    with pytest.raises(KeyError, match="did you mean .*Ascend910B3"):
        jumar_tiling.find_hardware("Ascend910C3")


def test_lists_every_chip_once():
    names = [spec.name for spec in jumar_tiling.all_hardware()]
    assert len(names) == len(set(names)) >= 18
    assert {"Ascend910B3", "Ascend910_9392", "Ascend950DT", "Ascend310P3", "host"} <= set(names)
    assert all(jumar_tiling.find_hardware(name) == spec for name, spec in zip(names, jumar_tiling.all_hardware(), strict=True))


def test_knows_every_chip_that_a_release_of_cann_is_pinned_for():
    pinned = [soc for release in versions.CANN_RELEASES.values() for socs in release["socs"].values() for soc in socs]
    assert len(pinned) > 10
    assert [jumar_tiling.find_hardware(soc).name for soc in pinned] == pinned


def test_each_known_figure_names_its_source():
    titles = {source.title for source in jumar_tiling.sources()}
    for spec in jumar_tiling.all_hardware():
        assert spec.source("formats").title in titles
        assert spec.source("weight_formats").title in titles
        for figure in jumar_tiling.figures():
            source = spec.source(figure.name)
            assert (source is None) == (getattr(spec, figure.name) is None), (spec, figure)
            assert source is None or (source.title in titles and source.says)


def test_a_figure_can_be_given():
    spec = jumar_tiling.find_hardware("Ascend910B4-1")
    given = spec.replace(memory_bytes_per_second=1_600_000_000_000, clock_hz=1_800_000_000)
    assert spec.memory_bytes_per_second is None
    assert (given.memory_bytes_per_second, given.clock_hz) == (1_600_000_000_000, 1_800_000_000)
    assert given.source("clock_hz").title == "given by the caller"
    assert given != spec and given == given.replace() and given.name == spec.name
    with pytest.raises(KeyError, match="did you mean clock_hz"):
        spec.replace(clock_h=1)
    with pytest.raises(ValueError, match="clock_hz=0 is not positive"):
        spec.replace(clock_hz=0)
    with pytest.raises(KeyError, match="unknown figure"):
        spec.source("colour")


def test_measures_this_machine():
    host = jumar_tiling.measure_host(threads=1)
    assert host.name == "host" and host.aic_cores == 1
    assert host.memory_bytes_per_second > 100_000_000
    assert host.source("memory_bytes_per_second").title == "measured on this machine"


def test_the_stub_names_what_there_is():
    tree = ast.parse(pathlib.Path("libs/tiling/python/jumar_tiling.pyi").read_text(encoding="utf-8"))
    stub = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert stub == {name for name in dir(jumar_tiling) if not name.startswith("_")}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            members = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            assert members == {name for name in dir(getattr(jumar_tiling, node.name)) if not name.startswith("_")}, node.name


def test_everything_is_documented():
    for name in dir(jumar_tiling):
        if not name.startswith("_"):
            assert getattr(jumar_tiling, name).__doc__, name


@pytest.mark.parametrize("solver", jumar_tiling.solvers(), ids=lambda solver: solver.name)
def test_every_solver_solves_its_defaults(solver):
    assert solver.summary and solver.fields
    solution = solver.solve()
    assert repr(solution) == f"Solution('{solver.name}' for Ascend910B2)"
    assert solution.problem == {field.name: field.default for field in solver.fields}
    assert solution.tiling and set(solution.tiling) == set(solution.tiling_docs)
    assert solution.prediction.seconds >= solution.bound.seconds > 0
    assert solution.prediction.limit in ("HBM", "L2", *solution.prediction.busy)
    assert 0 < max(solution.core_seconds) <= solution.prediction.core_seconds * (1 + 1e-9)
    assert solution.slowest.steps > 0
    assert solution.traffic.hbm_read > 0
    for buffer in solution.buffers:
        assert buffer["offset"] >= 0 and buffer["bytes"] > 0 and buffer["copies"] >= 1
    assert all(buffer["name"] in solution.buffer_map() for buffer in solution.buffers)
    for share in solution.shares:
        assert all(0 <= begin <= end <= axis.extent for axis, (begin, end) in zip(solution.axes, share.range, strict=True))


def test_fields_describe_themselves():
    fields = {field.name: field for field in jumar_tiling.find_solver("matmul").fields}
    assert fields["input"].choices[:3] == ["fp32", "fp16", "bf16"] and fields["input"].default == "bf16" and fields["input"].format() == "bf16"
    assert fields["m"].min == 1 and fields["m"].max >= 1 << 20 and not fields["m"].is_list
    assert {field.name: field.is_list for field in jumar_tiling.find_solver("paged_decode").fields}["context"]


def test_fields_are_given_as_one_likes():
    as_text = jumar_tiling.solve("paged_decode", context="4096,8192x3", type="fp16")
    as_numbers = jumar_tiling.find_solver("paged_decode").solve("ascend910b2", context=[4096, 8192, 8192, 8192], type="fp16")
    assert as_text.problem == as_numbers.problem
    assert as_text.problem["context"] == [4096, 8192, 8192, 8192]
    assert as_text.prediction.seconds == as_numbers.prediction.seconds


def test_wrong_fields_and_values_are_named():
    with pytest.raises(KeyError, match="did you mean matmul"):
        jumar_tiling.find_solver("matmull")
    with pytest.raises(ValueError, match="no field of matmul"):
        jumar_tiling.solve("matmul", rows=3)
    with pytest.raises(ValueError, match="m = 0 is not within"):
        jumar_tiling.solve("matmul", m=0)
    with pytest.raises(ValueError, match="one of fp32"):
        jumar_tiling.solve("matmul", input="bf61")
    with pytest.raises(TypeError, match="neither a number"):
        jumar_tiling.solve("matmul", m=1.5)
    with pytest.raises(RuntimeError, match="no public figure for clock_hz"):
        jumar_tiling.solve("matmul", "Ascend910B4-1")


def test_a_given_figure_changes_the_answer():
    spec = jumar_tiling.find_hardware("Ascend910B2")
    slow = jumar_tiling.solve("row_quant", spec.replace(memory_bytes_per_second=spec.memory_bytes_per_second // 10), rows=8192)
    assert slow.prediction.seconds > 5 * jumar_tiling.solve("row_quant", spec, rows=8192).prediction.seconds
    assert slow.prediction.limit == slow.bound.limit == "HBM"


def test_numbers_of_other_types_are_taken_or_named():
    class Eight:
        def __index__(self):
            return 8

    assert jumar_tiling.solve("matmul", m=Eight()).problem["m"] == 8
    with pytest.raises(TypeError, match="context is neither a number"):
        jumar_tiling.solve("paged_decode", context=b"12")
    for spec in (3, 1.5):
        with pytest.raises(TypeError, match="neither a chip's name nor a HardwareSpec"):
            jumar_tiling.solve("matmul", spec)
    chip = jumar_tiling.find_hardware("Ascend910B2")
    for value in (1.5, None, "12"):
        with pytest.raises(TypeError, match="ub_bytes = .* is no whole number"):
            chip.replace(ub_bytes=value)
    with pytest.raises(ValueError, match="ub_bytes is beyond 64 bits"):
        chip.replace(ub_bytes=2**70)
