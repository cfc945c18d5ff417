"""Rates of engines, in turn, and of the machine in the same rounds. Engines are anything with `name` and `ask`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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


def native(program: Path, pattern: str, counter: str, threads: int, seconds: float = 0.3) -> dict[str, float]:
    """Runs the cases of a google-benchmark program that match; returns each one's counter."""
    command = [str(program), f"--benchmark_filter={pattern}", f"--benchmark_min_time={seconds}", "--benchmark_format=json"]
    environment = {**os.environ, "JUMAR_BENCH_THREADS": str(threads)}
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    # Warnings about the machine go to standard error, an empty selection to standard output.
    start = result.stdout.find("{")
    cases = json.loads(result.stdout[start:])["benchmarks"] if start >= 0 else []
    return {case["name"].removesuffix("/real_time"): case[counter] for case in cases if counter in case}
