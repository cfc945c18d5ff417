"""The survey on a sample of each grid: what has to hold of every problem, and what it prints."""

import math

import jumar_tiling
import jumar_tiling_survey
import pytest

from libs.tiling.python import survey

SAMPLE = 40  # problems of a grid


SOLVERS = [solver.name for solver in jumar_tiling.solvers()]


@pytest.mark.parametrize("chip", ["Ascend910B2", "Ascend950PR", "synthetic"])
@pytest.mark.parametrize("name", SOLVERS)
def test_never_beyond_the_bound_and_never_worse_than_the_fixed_rule(name, chip):
    spec = jumar_tiling_survey.synthetic_spec() if chip == "synthetic" else jumar_tiling.find_hardware(chip)
    grid = jumar_tiling_survey.Grid(name)
    assert len(grid) >= 200
    solved = 0
    for index in range(0, len(grid), max(1, len(grid) // SAMPLE)):
        result = grid.run(index, spec)
        if result.error:
            assert "doesn't compute with" in result.error, f"{grid.describe(index)}: {result.error}"
            continue
        solved += 1
        assert result.seconds >= result.bound * (1 - 1e-9), grid.describe(index)
        assert math.isnan(result.fixed) or result.seconds <= result.fixed * (1 + 1e-9), grid.describe(index)
    assert solved >= SAMPLE // 2


def test_all_grids_together_are_2000_problems():
    assert sum(len(jumar_tiling_survey.Grid(name)) for name in SOLVERS) >= 2000


def test_a_row_of_the_table():
    row = survey.Row("matmul", 4, [1.0, 1.1, 1.2, 3.0], [0.5, 1.0], 21e-6, "matmul --m 1", {})
    assert survey.line(row).split() == ["matmul", "4", "1.20", "3.00", "3.00", "1.00", "1.00", "21", "us"]
    said = list(survey.summary([row]))
    assert said[0].startswith("4 problems.")
    assert said[1] == "matmul misses p95; farthest from its bound: matmul --m 1"


def test_all_problems_together():
    rows = [
        survey.Row("a", 2, [1.0, 1.2], [0.5], 3e-6, "a", {}),
        survey.Row("b", 3, [1.1, 2.0], [0.7, 0.9], 5e-6, "b", {"no figure": 1}),
    ]
    both = survey.together(rows)
    assert (both.solver, both.problems, both.of_bound, both.of_fixed) == ("all", 5, [1.0, 1.1, 1.2, 2.0], [0.5, 0.7, 0.9])
    assert both.worst == "b" and both.solve_seconds == pytest.approx(4e-6)


def test_goals_that_are_missed_are_named():
    row = survey.Row("x", 2, [1.5, 1.5], [1.1], 1e-6, "x", {"no figure": 2})
    said = list(survey.summary([row]))
    assert said[1] == "x misses the median and the fixed rule, which is faster at times; farthest from its bound: x"
    assert said[2] == "x: no tiling for 2: no figure"


def test_nothing_solved_is_no_number():
    row = survey.Row("x", 2, [], [], math.nan, "x", {"no figure": 2})
    assert "nan" in survey.line(row)


def test_runs_and_draws(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    assert survey.main(["--solver", "matmul", "--solver", "kv_store", "--every", "200", "--picture", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "Ascend910B2" in said and "kv_store" in said and f"picture: {picture}" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_wrong_arguments_are_answered(capsys, tmp_path):
    assert survey.main(["--soc", "Ascend910B9"]) == 2
    assert "did you mean Ascend910B1" in capsys.readouterr().err
    for arguments, answer in ((["--solver", "matmull"], "invalid choice"), (["--every", "0"], "is not positive")):
        with pytest.raises(SystemExit):
            survey.main(arguments)
        assert answer in capsys.readouterr().err
    assert survey.main(["--solver", "kv_store", "--every", "1000", "--picture", str(tmp_path / "no" / "x.png")]) == 2


def test_a_problem_is_described_as_explain_takes_it():
    grid = jumar_tiling_survey.Grid("matmul")
    words = grid.describe(7).split()
    fields = dict(zip((word[2:] for word in words[1::2]), words[2::2], strict=True))
    assert jumar_tiling.solve(words[0], **fields).prediction.seconds == grid.run(7, jumar_tiling.find_hardware("Ascend910B2")).seconds
    with pytest.raises(IndexError, match="problems"):
        grid.run(len(grid), jumar_tiling.find_hardware("Ascend910B2"))
