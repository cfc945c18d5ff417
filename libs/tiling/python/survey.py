"""How near the solvers come to their bounds, over each solver's grid of realistic problems, and against the fixed rules that others use.

./bazelw run //libs/tiling:survey
"""

import argparse
import dataclasses
import math
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Iterator, Sequence

import jumar_tiling
import jumar_tiling_survey

GOAL_MEDIAN, GOAL_P95 = 1.25, 2.0  # times the bound


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What a solver reaches over its grid.

    of_bound: predicted time over bound, of each problem, ascending. of_fixed: over the fixed rule's time, where that has a tiling, ascending.
    """

    solver: str
    problems: int
    of_bound: list[float]
    of_fixed: list[float]
    solve_seconds: float  # median
    worst: str  # as arguments of explain
    unsolved: dict[str, int]  # why, how often


def quantile(ascending: Sequence[float], part: float) -> float:
    return ascending[min(len(ascending) - 1, int(len(ascending) * part))] if ascending else math.nan


def run(solver: str, spec: jumar_tiling.HardwareSpec, every: int = 1, progress=lambda done, total: None) -> Row:
    """Solves each `every`-th problem of the solver's grid. KeyError if it has none."""
    grid = jumar_tiling_survey.Grid(solver)
    indices = range(0, len(grid), every)
    of_bound, of_fixed, solve_seconds, unsolved = [], [], [], {}
    worst = (0.0, 0)
    for done, index in enumerate(indices):
        result = grid.run(index, spec)
        if result.error:
            unsolved[result.error] = unsolved.get(result.error, 0) + 1
        else:
            of_bound.append(result.seconds / result.bound)
            worst = max(worst, (of_bound[-1], index))
            solve_seconds.append(result.solve_seconds)
            if not math.isnan(result.fixed):
                of_fixed.append(result.seconds / result.fixed)
        if done % 64 == 0:
            progress(done, len(indices))
    median = statistics.median(solve_seconds) if solve_seconds else math.nan
    return Row(solver, len(indices), sorted(of_bound), sorted(of_fixed), median, grid.describe(worst[1]), unsolved)


HEAD = (
    f"{'':<20} {'':>8}   {'predicted / bound':^20}   {'predicted / fixed rule':^22}   {'a solve':>8}\n"
    f"{'solver':<20} {'problems':>8}   {'median':>6} {'p95':>6} {'worst':>6}   {'median':>10} {'worst':>11}   {'median':>8}"
)


def line(row: Row) -> str:
    bound = " ".join(f"{quantile(row.of_bound, part):6.2f}" for part in (0.5, 0.95, 1))
    fixed = f"{quantile(row.of_fixed, 0.5):10.2f} {quantile(row.of_fixed, 1):11.2f}" if row.of_fixed else f"{'-':>10} {'-':>11}"
    return f"{row.solver:<20} {row.problems:>8,}   {bound}   {fixed}   {row.solve_seconds * 1e6:5.0f} us"


def together(rows: Sequence[Row]) -> Row:
    """All problems as if they were one solver's."""
    farthest = max(rows, key=lambda row: quantile(row.of_bound, 1) if row.of_bound else 0.0)
    return Row(
        "all",
        sum(row.problems for row in rows),
        sorted(ratio for row in rows for ratio in row.of_bound),
        sorted(ratio for row in rows for ratio in row.of_fixed),
        statistics.median([row.solve_seconds for row in rows if row.of_bound] or [math.nan]),
        farthest.worst,
        {},
    )


def summary(rows: Sequence[Row]) -> Iterator[str]:
    yield f"{sum(row.problems for row in rows):,} problems. Goals: at most {GOAL_MEDIAN} at the median and {GOAL_P95:g} at p95; never worse than the fixed rule."
    for row in rows:
        missed = []
        if quantile(row.of_bound, 0.5) > GOAL_MEDIAN:
            missed.append("the median")
        if quantile(row.of_bound, 0.95) > GOAL_P95:
            missed.append("p95")
        if quantile(row.of_fixed, 1) > 1 + 1e-9:
            missed.append("the fixed rule, which is faster at times")
        if missed:
            yield f"{row.solver} misses {' and '.join(missed)}; farthest from its bound: {row.worst}"
        for error, times in row.unsolved.items():
            yield f"{row.solver}: no tiling for {times:,}: {error}"


def draw(rows: Sequence[Row], chip: str, path: pathlib.Path) -> None:
    """A line per solver: from the best to the worst problem, a bar from the median to p95, a dot at the median."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(13, 1.6 + 0.42 * len(rows)), sharey=True, constrained_layout=True)
    panels = (
        (axes[0], [row.of_bound for row in rows], "predicted time / bound", "#4c78a8"),
        (axes[1], [sorted(1 / ratio for ratio in row.of_fixed) for row in rows], "the fixed rule's time / predicted time", "#e07b39"),
    )
    for axis, values, label, colour in panels:
        for at, ascending in enumerate(values):
            if not ascending:
                continue
            middle, high = quantile(ascending, 0.5), quantile(ascending, 0.95)
            axis.plot([ascending[0], ascending[-1]], [at, at], color=colour, linewidth=1.2, alpha=0.6, solid_capstyle="butt")
            axis.plot([middle, high], [at, at], color=colour, linewidth=8, alpha=0.5, solid_capstyle="butt")
            axis.plot(middle, at, "o", color=colour, markersize=6)
            axis.annotate(f"{middle:.2f}", (middle, at), textcoords="offset points", xytext=(0, 7), ha="center", fontsize=8, color=colour)
        axis.set_xscale("log")
        shown = [ratio for ascending in values if ascending for ratio in (ascending[0], ascending[-1])]
        top = max(shown, default=2)
        ticks = [tick for tick in (1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000) if tick <= top * 1.2]
        axis.set_xlim(0.96, max(top * 1.1, 1.3))
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=9)
        axis.minorticks_off()
        axis.set_xlabel(label)
        axis.grid(axis="x", color="#dde3ea")
        axis.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    for goal, name in ((GOAL_MEDIAN, "goal: median"), (GOAL_P95, "goal: p95")):
        axes[0].axvline(goal, color="#8a94a0", linestyle="--", linewidth=1)
        axes[0].annotate(name, (goal, -0.75), fontsize=8, color="#5f6b76", rotation=0, ha="left", va="center", xytext=(3, 0), textcoords="offset points")
    axes[0].set_yticks(range(len(rows)), [f"{row.solver} ({row.problems:,})" for row in rows])
    axes[0].set_ylim(len(rows) - 0.4, -1.1)
    for axis in axes:
        axis.tick_params(axis="y", length=0)
    figure.suptitle(f"Tilings of {sum(row.problems for row in rows):,} problems on {chip}: dot = median, bar = to p95, line = best to worst", fontsize=12)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="survey",
        description="How near the solvers come to their bounds, over each solver's grid of problems.",
        epilog="example: ./bazelw run //libs/tiling:survey -- --solver matmul --every 10",
    )
    names = [solver.name for solver in jumar_tiling.solvers()]
    parser.add_argument("--solver", action="append", choices=names, metavar="NAME", help=f"only this one; may be repeated. One of {', '.join(names)}")
    parser.add_argument("--soc", default="Ascend910B2", help="the chip (default %(default)s), or 'synthetic': one with every figure given")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th problem (default %(default)s)")
    parser.add_argument("--picture", default="survey.png", metavar="FILE", help="where to draw (default %(default)s in the folder that you are in)")
    parser.add_argument("--no-picture", action="store_true", help="don't draw")
    options = parser.parse_args(argv)
    if options.every < 1:
        parser.error(f"--every {options.every} is not positive")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments(argv)
    try:
        spec = jumar_tiling_survey.synthetic_spec() if options.soc == "synthetic" else jumar_tiling.find_hardware(options.soc)
    except KeyError as e:
        print(f"survey: {e.args[0]}", file=sys.stderr)
        return 2
    terminal = sys.stderr.isatty()
    print(f"{spec.name}\n\n{HEAD}")
    rows = []
    for name in options.solver or [solver.name for solver in jumar_tiling.solvers()]:
        last = time.monotonic()

        def progress(done: int, total: int, name: str = name) -> None:
            nonlocal last
            if terminal or time.monotonic() - last > 10:
                last = time.monotonic()
                print(f"\r{name}: {done:,} of {total:,}" if terminal else f"{name}: {done:,} of {total:,}", end="" if terminal else "\n", file=sys.stderr)

        try:
            row = run(name, spec, options.every, progress)
        except KeyError as e:
            print(f"{name:<20} {e.args[0]}")
            continue
        if terminal:
            print("\r\033[K", end="", file=sys.stderr)
        print(line(row), flush=True)
        rows.append(row)
    if len(rows) > 1:
        print(line(together(rows)))
    print("\n" + "\n".join(summary(rows)))
    if rows and not options.no_picture:
        path = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), options.picture)
        try:
            draw(rows, spec.name, path)
        except OSError as e:
            print(f"survey: --picture: {path} can't be written: {e.strerror}", file=sys.stderr)
            return 2
        print(f"\npicture: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
