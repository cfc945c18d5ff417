"""Faults on demand, seen from the client: each ends in an error that says what happened, with no hang and no process left."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import psutil
import pytest

from serving import default_model
from tests.server_process import ServerProcess

SMALL = ("--dtype=float32", "--max-model-len=256", "--max-num-seqs=4", "--enforce-eager")


def complete(url: str, max_tokens: int) -> str:
    request = dict(model=default_model.NAME, prompt="Once upon a time", max_tokens=max_tokens, temperature=0, ignore_eos=True)
    body = json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", body, headers), timeout=300) as response:
        return json.load(response)["choices"][0]["text"]


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


@pytest.mark.parametrize(
    ("flags", "environ", "text"),
    [
        # About 400 tasks a token: lost in the first request or a few later.
        ((), dict(JUMAR_FAULTS="lose-device device=0 after=40000"), "lost"),
        ((), dict(JUMAR_FAULTS="fail-op op=aclnnSwiGlu nth=6000"), "aclnnSwiGlu"),
        (
            ("--tensor-parallel-size=3",),
            dict(JUMAR_FAULTS="drop-collective op=HcclAllReduce rank=1 nth=3000", HCCL_EXEC_TIMEOUT="5"),
            "HcclAllReduce",
        ),
        (
            ("--tensor-parallel-size=3",),
            dict(JUMAR_FAULTS="exit-collective op=HcclAllReduce rank=2 nth=3000"),
            "rank",
        ),
    ],
    ids=["lost-device", "failed-operator", "dropped-collective", "dead-rank"],
)
def test_a_fault_while_serving_fails_the_request_and_ends_the_server(flags, environ, text):
    with ServerProcess(*SMALL, *flags, **environ) as server:
        processes = server.processes()
        with pytest.raises((urllib.error.HTTPError, urllib.error.URLError, ConnectionError)):
            for _ in range(50):
                assert complete(server.url, 100)
        assert_ended(server, processes, text)
