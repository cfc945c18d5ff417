"""Faults on demand, seen from the client: each ends in an error that says what happened, with no hang and no process left."""

from __future__ import annotations

import urllib.error

import psutil
import pytest

from tests.server_process import ServerProcess

SMALL = ("--dtype=float32", "--max-model-len=256", "--max-num-seqs=4", "--enforce-eager")


def assert_ended(server: ServerProcess, processes: list[psutil.Process], *texts: str) -> None:
    """The server has given up by itself, with a status, a reason, and nobody left behind."""
    assert server.process.wait(120) != 0
    output = server.output()
    assert all(text in output for text in texts), output[-4000:]
    gone, alive = psutil.wait_procs(processes, timeout=5)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_an_allocation_that_fails_at_the_start_is_out_of_memory():
    server = ServerProcess(*SMALL, JUMAR_FAULTS="fail-alloc nth=8 times=all")
    status, output = server.run("--port=0")
    assert status != 0
    assert "out of memory" in output.lower()


ONE_DEVICE, THREE = (), ("--tensor-parallel-size=3",)


@pytest.mark.parametrize(
    ("flags", "fault", "text"),
    [
        # About 400 tasks a token: lost in the first request or a few later.
        pytest.param(ONE_DEVICE, "lose-device device=0 after=40000", "lost", id="lost-device"),
        pytest.param(
            ONE_DEVICE, "fail-op op=aclnnSwiGlu nth=6000", "aclnnSwiGlu", id="failed-operator", marks=pytest.mark.full
        ),
        pytest.param(THREE, "drop-collective op=HcclAllReduce rank=1 nth=3000", "HcclAllReduce", id="dropped-collective"),
        pytest.param(
            THREE, "exit-collective op=HcclAllReduce rank=2 nth=3000", "rank", id="dead-rank", marks=pytest.mark.full
        ),
    ],
)
def test_a_fault_while_serving_fails_the_request_and_ends_the_server(flags, fault, text):
    with ServerProcess(*SMALL, *flags, JUMAR_FAULTS=fault, HCCL_EXEC_TIMEOUT="5") as server:
        processes = server.processes()
        with pytest.raises((urllib.error.HTTPError, urllib.error.URLError, ConnectionError)):
            for _ in range(50):
                assert server.complete("Once upon a time", 100)
        assert_ended(server, processes, text)
