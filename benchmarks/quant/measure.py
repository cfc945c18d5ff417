"""Rates of engines, in turn, and of the machine in the same rounds. Engines are anything with `name` and `ask`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.engines.probe import Engine

DECODE, PREFILL = "decode, 1 stream", "prefill of 512"
UNIT = "tok/s"
_PROMPT, _PREFILL = 8, 512


def decode_rate(engine: Engine, tokens: int, seed: int) -> float:
    """Tokens per second after the first one: the time of an answer of tokens + 1 less that of one token."""
    first = engine.ask(requests=1, input=_PROMPT, output=1, seed=seed)["seconds"]
    whole = engine.ask(requests=1, input=_PROMPT, output=tokens + 1, seed=seed)["seconds"]
    # On a machine that is interrupted the difference of a short answer may come out as nothing.
    return tokens / max(whole - first, 1e-9)


def prefill_rate(engine: Engine, seed: int) -> float:
    return _PREFILL / engine.ask(requests=1, input=_PREFILL, output=1, seed=seed)["seconds"]


@dataclass(slots=True)
class Rates:
    """load -> engine's name -> one rate for each round; and the machine's limits, name -> one for each round."""

    loads: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    limits: dict[str, list[float]] = field(default_factory=dict)

    def of(self, load: str, engine: str) -> tuple[float, ...]:
        return tuple(self.loads[load][engine])


def measure(
    engines: Sequence[Engine],
    rounds: int,
    tokens: int,
    limits: Callable[[], Mapping[str, float]] = dict,
    progress: Callable[[str], None] = lambda _: None,
) -> Rates:
    """Every round measures all engines and the machine. Round 0 warms up and isn't counted; the order turns with each round."""
    rates = Rates({load: {engine.name: [] for engine in engines} for load in (DECODE, PREFILL)})
    for number in range(rounds + 1):
        turn = number % len(engines)
        for load in (DECODE, PREFILL):
            for engine in [*engines[turn:], *engines[:turn]]:
                rate = decode_rate(engine, tokens, number) if load == DECODE else prefill_rate(engine, number)
                progress(f"round {number} of {rounds}: {load}: {engine.name}: {rate:.1f} {UNIT}")
                if number:
                    rates.loads[load][engine.name].append(rate)
        if number:
            for name, value in limits().items():
                rates.limits.setdefault(name, []).append(value)
    return rates
