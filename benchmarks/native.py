"""The figures of google-benchmark programs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path


def native(program: Path, pattern: str, counter: str, threads: int, seconds: float = 0.3) -> dict[str, float]:
    """Runs the cases of a google-benchmark program that match; returns each one's counter."""
    command = [str(program), f"--benchmark_filter={pattern}", f"--benchmark_min_time={seconds}", "--benchmark_format=json"]
    environment = {**os.environ, "JUMAR_BENCH_THREADS": str(threads)}
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    # Warnings about the machine go to standard error, an empty selection to standard output.
    start = result.stdout.find("{")
    cases = json.loads(result.stdout[start:])["benchmarks"] if start >= 0 else []
    return {case["name"].removesuffix("/real_time"): case[counter] for case in cases if counter in case}
