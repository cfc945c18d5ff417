"""What explain prints and draws, and what it says to wrong arguments."""

import os
import subprocess
import xml.etree.ElementTree as ET

import jumar_tiling
import pytest

from libs.tiling.python import explain, explain_svg, svg, timeline, units

PROGRAM = os.path.join("libs", "tiling", "python", "explain")
SOLVERS = [solver.name for solver in jumar_tiling.solvers()]


def run(*arguments):
    return explain.explain([*arguments])


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_is_explained_and_drawn(name, tmp_path):
    path = tmp_path / "drawing.svg"
    text = run(name, "--svg", str(path))
    for part in (f"{name} on Ascend910B2", "\ntiling\n", "\nbuffers of a core", "\nbytes, all cores", "predicted", "bound", "<- binds", f"drawing: {path}"):
        assert part in text, part
    assert "rename one" not in text and "error" not in text, "the buffers have their places"
    root = ET.parse(path).getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Tiles", "Core loads", "Pipeline"} <= set(texts)
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter("{http://www.w3.org/2000/svg}rect"):
        if element.get("x"):
            assert 0 <= float(element.get("x")) and float(element.get("x")) + float(element.get("width")) <= width + 0.5
            assert 0 <= float(element.get("y")) and float(element.get("y")) + float(element.get("height")) <= height + 0.5


def test_the_issues_example():
    text = run("selected_attention", "--soc", "ascend910b2", "--batch", "8", "--context", "65536", "--no-svg")
    assert "batch 8, context 65,536" in text and "drawing" not in text


def test_lists_ragged_batches_and_given_figures():
    text = run("paged_decode", "--context=4096,8192x3", "--set", "memory_bytes_per_second=3.2e12", "--no-svg")
    assert "context 4 numbers from 4,096 to 8,192" in text
    assert "given: memory_bytes_per_second = 3,200,000,000,000" in text


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("selected_atention", "did you mean selected_attention"),
        ("nothing", "known are matmul"),
        ("matmul --mm 3", "did you mean --m"),
        ("matmul --colour red", "allowed are --m, --n, --k"),
        ("matmul --m x", "a number within 1 to"),
        ("matmul --m 0", "m = 0 is not within 1 to"),
        ("matmul --input bf61", "one of fp32, fp16, bf16"),
        ("matmul --m", "--m lacks its value"),
        ("matmul 3", "write --FIELD VALUE"),
        ("matmul --soc Ascend910B9", "did you mean Ascend910B1"),
        ("matmul --soc Ascend910B4-1", "no public figure for clock_hz"),
        ("matmul --set clockhz=3", "did you mean clock_hz"),
        ("matmul --set clock_hz=fast", "write FIGURE=VALUE"),
        ("matmul --set clock_hz=-1", "is not positive"),
        ("matmul --set clock_hz=inf", "is no whole number"),
        ("matmul --svg /no/such/folder/x.svg", "can't be written"),
    ],
)
def test_a_wrong_argument_says_what_is_allowed(arguments, answer, capsys):
    assert explain.main(arguments.split()) == 2
    said = capsys.readouterr().err
    assert answer in said
    assert said.startswith("explain: ") and "Traceback" not in said


def test_help_lists_solvers_and_fields(capsys):
    assert explain.main([]) == 0
    everything = capsys.readouterr().out
    assert all(name in everything for name in SOLVERS) and explain.EXAMPLE in everything
    for solver in jumar_tiling.solvers():
        assert explain.main([solver.name, "--help"]) == 0
        said = capsys.readouterr().out
        assert all(f"--{field.name} " in said for field in solver.fields)
        assert "--set FIGURE=VALUE" in said


def test_the_default_drawing_is_where_the_user_stands(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    run("kv_store")
    assert (tmp_path / "kv_store.svg").is_file()


@pytest.mark.parametrize("name", SOLVERS)
def test_the_timeline_obeys_the_pipeline(name):
    work = jumar_tiling.solve(name).slowest
    intervals = timeline.first_steps(work, 12)
    assert intervals
    by_turn = {}
    used = timeline.pipes_used(work)
    order = [pipe.name for pipe in used]
    drawn = {}
    for interval in intervals:
        assert interval.end > interval.begin >= 0
        by_turn.setdefault(work.turn[interval.pipe], []).append((interval.begin, interval.end))
        drawn[interval.pipe, interval.step] = interval
    for spans in by_turn.values():
        for (_, end), (begin, _) in zip(sorted(spans), sorted(spans)[1:]):
            assert begin >= end - 1e-15, "pipes that share a turn overlap"
    for interval in intervals:
        at = order.index(interval.pipe)
        if at > 0 and (before := drawn.get((order[at - 1], interval.step))):
            assert interval.begin >= before.begin + used[at - 1].lead - 1e-15, "a step began before its first data was there"
            assert interval.end >= before.end - 1e-15, "a step ended before its last data was there"


def test_nothing_to_do_has_no_timeline():
    work = jumar_tiling.solve("kv_store").slowest
    assert timeline.first_steps(work, 0) == []


def test_text_in_a_drawing_is_escaped():
    drawing = svg.Drawing(10, 10)
    drawing.text(0, 0, "a < b & c")
    assert "a &lt; b &amp; c" in drawing.svg()


def test_ticks_are_round():
    assert svg.ticks(0) == [0.0]
    assert svg.ticks(10, 5) == [0, 2, 4, 6, 8, 10]
    assert len(svg.ticks(3.7e-5, 6)) in range(4, 9)


def test_units():
    assert units.seconds(2.1e-5) == "21 us"
    assert units.seconds(0.0) == "0 ns"
    assert units.bytes_(1536) == "1.5 KiB"
    assert units.bytes_(12) == "12 bytes"
    assert units.count(2.5e9) == "2.5 G"
    assert units.axis_seconds(0.0005, 0.0015) == "500 us"
    assert units.axis_seconds(0.0005, 0.0025) == "0.5 ms"


def test_drawing_of_a_plane_has_a_rectangle_for_each_core():
    solution = jumar_tiling.solve("matmul")
    drawing = explain_svg.draw(solution)
    assert all(f"core {share.core}: m " in drawing for share in solution.shares)
    assert "k (7,168) in steps of" in drawing


def test_ends_quietly_when_nobody_reads_on():
    done = subprocess.run(f"{PROGRAM} kv_row --no-svg | head -n 1", shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("kv_row") and done.stderr == ""


def test_runs_as_a_program():
    done = subprocess.run([PROGRAM, "kv_row", "--no-svg"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("kv_row on Ascend910B2")
