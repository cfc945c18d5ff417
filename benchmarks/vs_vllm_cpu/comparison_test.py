"""The comparison's arithmetic and its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.engines import probe
from benchmarks.vs_vllm_cpu import comparison


class FakeEngine:
    """Takes a known time for a token; notes what it was asked."""

    def __init__(self, name: str, seconds_per_token: float, asked: list[str], text: str = " Paris.") -> None:
        self.name, self._cost, self._asked, self._text = name, seconds_per_token, asked, text

    def ask(self, **request):
        if "text" in request:
            return {"text": self._text, "tokens": [1]}
        self._asked.append(self.name)
        tokens = request["output"] if request["output"] > 1 else request["input"]
        return {"seconds": request["requests"] * tokens * self._cost}


def test_rates_and_ratios_are_what_the_engines_took() -> None:
    asked: list[str] = []
    engines = [FakeEngine("ours", 0.01, asked), FakeEngine("a", 0.02, asked), FakeEngine("b", 0.05, asked)]
    rates = comparison.measure(engines, rounds=3)
    assert all(values == pytest.approx([100, 100, 100]) for values in (of["ours"] for of in rates.values()))
    ratios = list(comparison.compare(rates, "ours", {"a": "fp32", "b": "bf16"}, same="bf16"))
    assert [(r.peer, round(r.median, 6), r.reached) for r in ratios[:2]] == [("a", 2.0, False), ("b", 5.0, False)]
    assert [r.reached for r in ratios if r.load == "prefill of 512"] == [True, False]
    text = comparison.table(rates, ratios)
    assert "ours / a" in text and "2.00x" in text and "NOT reached" in text


def test_each_round_begins_with_another_engine_and_the_first_is_not_counted() -> None:
    asked: list[str] = []
    rates = comparison.measure([FakeEngine("x", 1, asked), FakeEngine("y", 1, asked)], rounds=1)
    assert asked == ["x", "y"] * 3 + ["y", "x"] * 3
    assert [len(v) for of in rates.values() for v in of.values()] == [1] * 6


def test_an_engine_that_talks_nonsense_is_refused() -> None:
    with pytest.raises(probe.NonsenseError, match="x continues .* with 'zzz'"):
        probe.check_text(FakeEngine("x", 1, [], text="zzz"))


def test_plot_is_an_svg(tmp_path: Path) -> None:
    rates = comparison.measure([FakeEngine("x", 1, []), FakeEngine("y", 1, [])], rounds=2)
    comparison.plot(rates, tmp_path / "plot.svg", "title")
    assert "</svg>" in (tmp_path / "plot.svg").read_text()
