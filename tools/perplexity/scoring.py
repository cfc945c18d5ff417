"""What is scored, and what is made of it. No engine in here.

The text is one sequence of tokens t_0, t_1, ... Window i starts at token i * stride, and each token is scored once, in the first window
that has a token before it: window 0 scores its tokens but the first, later ones the tokens that the windows before lack. With
stride = window, windows don't overlap, and the first token of each has no context and isn't scored by any. A smaller stride gives every
token a context of at least window - stride tokens (but for the beginning), and costs window / stride times the time.

    perplexity = exp(-sum over scored tokens of ln p(t | the tokens before it in its window) / their number)

Two models are compared over the same windows. The ratio of their perplexities is exp of the difference d of their mean losses, and its
standard error comes from the windows' differences, which vary far less than the losses themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Window:
    tokens: list[int]
    first: int  # index in `tokens` of the first that is scored

    @property
    def scored(self) -> int:
        return len(self.tokens) - self.first


def windows(tokens: Sequence[int], window: int, stride: int, limit: int | None = None) -> list[Window]:
    """Splits ``tokens``; a last window of fewer than ``window`` tokens is left out.

    Args:
        limit: enough windows to score that many tokens, if there are.

    Raises:
        ValueError: if the text doesn't fill a window.
    """
    if not 2 <= window or not 1 <= stride <= window:
        raise ValueError(f"window {window} and stride {stride}: a window has at least 2 tokens, and a stride 1 to a window")
    result: list[Window] = []
    scored = 0
    for start in range(0, len(tokens) - window + 1, stride):
        if limit is not None and scored >= limit:
            break
        first = max(1, window - stride) if start else 1
        result.append(Window(list(tokens[start : start + window]), first))
        scored += result[-1].scored
    if not result:
        raise ValueError(f"the text has {len(tokens)} tokens, fewer than a window of {window}: give a longer one or a smaller --window")
    return result


@dataclass(frozen=True, slots=True)
class Score:
    """A model's losses, in nats."""

    losses: tuple[float, ...]  # of each window, summed over its scored tokens
    counts: tuple[int, ...]
    seconds: float

    @property
    def mean_loss(self) -> float:
        return math.fsum(self.losses) / sum(self.counts)

    @property
    def perplexity(self) -> float:
        return math.exp(self.mean_loss)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Perplexity relative to a baseline's, less one; ``error`` is its standard error, NaN for a single window."""

    relative: float
    error: float


def compare(score: Score, baseline: Score) -> Ratio:
    if score.counts != baseline.counts:
        raise ValueError("the two were not scored over the same windows")
    ratio = math.exp(score.mean_loss - baseline.mean_loss)
    differences = [(a - b) / n for a, b, n in zip(score.losses, baseline.losses, score.counts)]
    mean = math.fsum(differences) / len(differences)
    if len(differences) < 2:
        return Ratio(ratio - 1, math.nan)
    variance = math.fsum((d - mean) ** 2 for d in differences) / (len(differences) - 1)
    return Ratio(ratio - 1, ratio * math.sqrt(variance / len(differences)))


def table(scores: Mapping[str, Score]) -> str:
    """The first is the baseline."""
    baseline = next(iter(scores.values()))
    width = max(6, *map(len, scores))
    lines = [f"{'scheme':<{width}} | perplexity | relative to the first | tokens/s", f"{'-' * width} | ---------: | --------------------: | -------:"]
    for name, score in scores.items():
        relative = ""
        if score is not baseline:
            ratio = compare(score, baseline)
            relative = f"{ratio.relative:+.2%} ± {ratio.error:.2%}"
        rate = sum(score.counts) / score.seconds if score.seconds else math.nan
        lines.append(f"{name:<{width}} | {score.perplexity:>10.4f} | {relative:>21} | {rate:>8.0f}")
    return "\n".join(lines)


def plot(scores: Mapping[str, Score], title: str, path: Path) -> None:
    """Bars of the relative perplexity with two standard errors, in percent; for a single model, its windows' perplexities."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "jumar"
    from matplotlib import pyplot

    names = list(scores)
    figure, axes = pyplot.subplots(figsize=(max(5, 1.1 * len(names) + 2), 3.8), layout="constrained")
    baseline = scores[names[0]]
    if len(names) == 1:
        axes.plot([math.exp(loss / count) for loss, count in zip(baseline.losses, baseline.counts)], ".-")
        axes.set_xlabel("window")
        axes.set_ylabel("perplexity")
    else:
        ratios = [compare(scores[name], baseline) for name in names[1:]]
        errors = [0 if math.isnan(r.error) else 200 * r.error for r in ratios]
        bars = axes.bar(range(len(ratios)), [100 * r.relative for r in ratios], yerr=errors, capsize=4)
        axes.bar_label(bars, labels=[f"{100 * r.relative:+.2f}%" for r in ratios], padding=3, fontsize=8)
        axes.set_xticks(range(len(ratios)), names[1:], fontsize=8, rotation=20)
        axes.set_ylabel(f"perplexity against {names[0]} ({baseline.perplexity:.2f}), %")
        axes.axhline(0, color="black", linewidth=0.8)
    axes.set_title(title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
