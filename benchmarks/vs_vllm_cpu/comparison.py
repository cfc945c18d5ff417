"""The comparison itself: what is measured, in which order, and what is made of the figures. No engine in here.

Every round measures all subjects one after the other, so that a machine that is busy for a while slows all of them, and ratios
are taken within a round. The median over the rounds is what counts; the least and greatest are shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.probe import Engine


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that arrive together; every token of a prompt is random, so that nothing is cached."""

    name: str
    requests: int
    input: int  # tokens of a prompt
    output: int  # tokens of an answer
    goal: float  # times the peer's faster dtype
    counts: str = "output"  # which tokens make the rate

    def tokens(self) -> int:
        return self.requests * (self.output if self.counts == "output" else self.input)


LOADS = (
    Load("decode, 1 stream", requests=1, input=8, output=64, goal=4.0),
    Load("output, 16 streams", requests=16, input=64, output=64, goal=3.0),
    Load("prefill of 512", requests=1, input=512, output=1, goal=1.3, counts="input"),
)
SAME_DTYPE_GOAL = 6.0  # bf16 against bf16, for every load

Rates = dict[str, dict[str, list[float]]]  # load -> engine -> tokens per second, one for each round


def measure(engines: Sequence[Engine], rounds: int, progress: Callable[[str], None] = lambda _: None) -> Rates:
    """Round 0 warms up and isn't counted. The order of the engines turns with each round."""
    rates: Rates = {load.name: {engine.name: [] for engine in engines} for load in LOADS}
    for number in range(rounds + 1):
        turn = number % len(engines)
        for load in LOADS:
            for engine in [*engines[turn:], *engines[:turn]]:
                seconds = engine.ask(requests=load.requests, input=load.input, output=load.output, seed=number)["seconds"]
                rate = load.tokens() / seconds
                progress(f"round {number} of {rounds}: {load.name}: {engine.name}: {rate:.1f} tok/s")
                if number:
                    rates[load.name][engine.name].append(rate)
    return rates


@dataclass(frozen=True, slots=True)
class Ratio:
    load: str
    ours: str
    peer: str
    ratios: tuple[float, ...]  # one for each round
    goal: float

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def reached(self) -> bool:
        return self.median >= self.goal


def compare(rates: Rates, ours: str, peers: Mapping[str, str], same: str) -> Iterator[Ratio]:
    """Args:
    ours: the name of our engine.
    peers: the peer's engines, name -> dtype.
    same: the dtype of ours.
    """
    for load in LOADS:
        of = rates[load.name]
        faster = max(peers, key=lambda name: statistics.median(of[name]))
        for peer, goal in [(faster, load.goal)] + [(name, SAME_DTYPE_GOAL) for name, dtype in peers.items() if dtype == same]:
            yield Ratio(load.name, ours, peer, tuple(a / b for a, b in zip(of[ours], of[peer], strict=True)), goal)


def table(rates: Rates, ratios: Sequence[Ratio]) -> str:
    names = list(next(iter(rates.values())))
    lines = ["tokens per second, median (least to greatest)", ""]
    for load, of in rates.items():
        lines.append(load)
        for name in names:
            lines.append(f"  {name:<24}{statistics.median(of[name]):>9.1f}   ({min(of[name]):.1f} to {max(of[name]):.1f})")
    lines += ["", "times faster, median of the rounds' ratios (least to greatest)", ""]
    for ratio in ratios:
        verdict = "reached" if ratio.reached else "NOT reached"
        lines.append(
            f"  {ratio.load:<20}{ratio.ours} / {ratio.peer:<22}{ratio.median:>6.2f}x   "
            f"({min(ratio.ratios):.2f} to {max(ratio.ratios):.2f})   goal {ratio.goal:.1f}x {verdict}"
        )
    return "\n".join(lines)


def plot(rates: Rates, out: Path, title: str) -> None:
    """Bars of the medians with the rounds' spread, one panel for each load; SVG or PNG by the file's name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(rates), figsize=(4 * len(rates), 3.6), layout="constrained")
    for axes, (load, of) in zip(panels, rates.items(), strict=True):
        medians = [statistics.median(values) for values in of.values()]
        low = [median - min(values) for median, values in zip(medians, of.values(), strict=True)]
        high = [max(values) - median for median, values in zip(medians, of.values(), strict=True)]
        bars = axes.bar(range(len(of)), medians, yerr=[low, high], capsize=4, color=[f"C{i}" for i in range(len(of))])
        axes.bar_label(bars, fmt="%.0f", label_type="center", color="white")
        axes.set_xticks(range(len(of)), [name.replace(" ", "\n") for name in of], fontsize=8)
        axes.set_title(load, fontsize=10)
        axes.set_ylabel("tokens/s")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(out)
    pyplot.close(figure)
