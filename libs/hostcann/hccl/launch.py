"""Runs a function of rank_cases.py in several processes, one for each rank, as torchrun would."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

HERE = pathlib.Path(__file__).parent


class Ended(NamedTuple):
    code: int
    text: str


def run_ranks(case: str, ranks: int, env: dict[str, str] | None = None, limit_s: float = 240) -> list[Ended]:
    """Returns how each rank's process ended. All of them have ended then: who is left after `limit_s` is killed, and its code is -9."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [open(os.path.join(folder, f"rank{rank}"), "w+") for rank in range(ranks)]
        processes = [
            subprocess.Popen(
                [sys.executable, str(HERE / "rank_cases.py"), case, str(rank), str(ranks), os.path.join(folder, "store")],
                stdout=outputs[rank],
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "JUMAR_THREADS": "1", **(env or {})},
            )
            for rank in range(ranks)
        ]
        deadline = time.monotonic() + limit_s
        for process in processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        ended = []
        for process, output in zip(processes, outputs):
            output.seek(0)
            ended.append(Ended(process.returncode, output.read()))
            output.close()
        return ended


def check_ranks(case: str, ranks: int, **kwargs) -> list[Ended]:
    """Runs a case of which every rank must succeed."""
    ended = run_ranks(case, ranks, **kwargs)
    for rank, end in enumerate(ended):
        assert end.code == 0, f"rank {rank} of {ranks} in {case} ended with {end.code}:\n{end.text[-4000:]}"
    return ended
