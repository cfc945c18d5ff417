"""What the benchmark finds: rows of ours beside another's, their table and their picture. No engine in here."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison, round by round; a ratio is taken within a round, so that a busy machine slows both sides of it."""

    part: str
    what: str
    ours: str
    theirs: str
    our_values: tuple[float, ...]
    their_values: tuple[float, ...]
    unit: str
    goal: float | None = None  # least ratio; None if the figure is for information

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(a / b for a, b in zip(self.our_values, self.their_values, strict=True))

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "reached" if self.ratio >= self.goal else "NOT reached"

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | dict(ratios=self.ratios, ratio=self.ratio, verdict=self.verdict)


def from_json(value: dict[str, Any]) -> Row:
    """The inverse of Row.as_json."""
    fields = {name: value[name] for name in Row.__dataclass_fields__}
    return Row(**fields | dict(our_values=tuple(value["our_values"]), their_values=tuple(value["their_values"])))


_HEADER = ("what", "ours", "theirs", "our rate", "their rate", "ratio", "least to greatest", "goal", "")


def table(rows: Sequence[Row]) -> str:
    """Plain text, a block for each part. Rates are medians over the rounds, ratios the median of the rounds' ratios."""
    lines = [_cells(row) for row in rows]
    widths = [max(len(line[i]) for line in [_HEADER, *lines]) for i in range(len(_HEADER))]
    text, part = [_line(_HEADER, widths)], None
    for row, cells in zip(rows, lines, strict=True):
        if row.part != part:
            part = row.part
            text += ["", part]
        text.append(_line(cells, widths))
    return "\n".join(text)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        "  " + row.what,
        row.ours,
        row.theirs,
        f"{statistics.median(row.our_values):.4g} {row.unit}",
        f"{statistics.median(row.their_values):.4g} {row.unit}",
        f"{row.ratio:.2f}x",
        f"{min(row.ratios):.2f} to {max(row.ratios):.2f}",
        "" if row.goal is None else f"{row.goal:.2f}x",
        row.verdict,
    )


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def plot(rows: Sequence[Row], out: Path, title: str) -> None:
    """Bars of the ratios with the rounds' spread and a mark at the goal, a panel for each part; SVG or PNG by the file's name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    parts = list(dict.fromkeys(row.part for row in rows))
    counts = [sum(row.part == part for row in rows) for part in parts]
    figure, panels = pyplot.subplots(
        len(parts), 1, figsize=(9, 0.9 * len(parts) + 0.38 * len(rows)), height_ratios=[count + 1 for count in counts],
        layout="constrained", squeeze=False,
    )
    colours = {"reached": "C2", "NOT reached": "C3", "": "C7"}
    for axes, part in zip(panels[:, 0], parts, strict=True):
        shown = [row for row in rows if row.part == part]
        places = range(len(shown))
        low = [row.ratio - min(row.ratios) for row in shown]
        high = [max(row.ratios) - row.ratio for row in shown]
        bars = axes.barh(places, [row.ratio for row in shown], xerr=[low, high], capsize=3, height=0.6,
                         color=[colours[row.verdict] for row in shown])
        axes.bar_label(bars, fmt="%.2f", label_type="center", color="white", fontsize=8)
        for place, row in zip(places, shown, strict=True):
            if row.goal is not None:
                axes.plot([row.goal, row.goal], [place - 0.4, place + 0.4], color="black", linewidth=2)
        axes.set_yticks(places, [f"{row.what}: {row.ours} / {row.theirs}" for row in shown], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_title(part, fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1, 0].set_xlabel("ratio; the black mark is the goal", fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.savefig(out)
    pyplot.close(figure)
