"""What can't be served ends in one line, with a status that isn't 0, and with no process left.

What serving/preflight_test.py tries in one process is tried here with whole servers: some of it for every change, the rest when asked for.
"""

import re
import shutil
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from serving import default_model
from tests.server_process import ServerProcess


@pytest.fixture
def model(tmp_path) -> Path:
    """A copy of the embedded model that a test may damage; its weights are a link."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in default_model.folder().iterdir():
        if path.suffix == ".safetensors":
            (folder / path.name).symlink_to(path.resolve())
        else:
            shutil.copyfile(path, folder / path.name)
    return folder


def refuse(*arguments: str, **environ: str) -> tuple[int, str]:
    """Starts a server that must not start; returns its status and its one error line."""
    before = set(psutil.pids())
    status, output = ServerProcess(*arguments, **environ).run()
    errors = re.findall(r"^jumar: error: .*$", output, re.MULTILINE)
    assert len(errors) == 1 and output.rstrip().endswith(errors[0]), output
    assert "Traceback" not in output
    left = [p for p in map(psutil.Process, set(psutil.pids()) - before) if "serving" in " ".join(p.cmdline())]
    assert left == []
    return status, errors[0]


def test_model_that_does_not_exist():
    status, line = refuse("--model=/no/such/model")
    assert status == 2 and "/no/such/model does not exist: give a folder" in line


@pytest.mark.full
def test_unknown_architecture(model):
    config = model / "config.json"
    config.write_text(config.read_text().replace("LlamaForCausalLM", "LlamaForCausalLMs"))
    status, line = refuse(f"--model={model}")
    assert status == 2 and "LlamaForCausalLMs" in line and "the nearest are LlamaForCausalLM" in line


def test_truncated_checkpoint(model):
    weights = model / "model.safetensors"
    data = weights.resolve().read_bytes()[:1_000_000]
    weights.unlink()
    weights.write_bytes(data)
    status, line = refuse(f"--model={model}")
    assert status == 2 and f"{weights} is corrupt or truncated" in line


@pytest.mark.full
def test_dtype():
    status, line = refuse("--dtype=float64")
    assert status == 2 and "float64" in line and "bfloat16" in line


@pytest.mark.full
def test_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        status, line = refuse(f"--port={port}")
    assert status == 2 and f"127.0.0.1:{port} is in use" in line and "--port" in line


@pytest.mark.full
def test_too_little_memory_for_the_model():
    status, line = refuse(JUMAR_HBM_BYTES="128MiB")
    assert status == 2 and "128.0 MiB" in line and "JUMAR_HBM_BYTES" in line


def test_too_little_memory_that_only_the_engine_finds():
    status, line = refuse("--kv-cache-memory-bytes=20000000", "--max-model-len=4096")
    assert status == 1 and "4096" in line and "max_model_len" in line


def test_interrupt_while_the_engine_starts():
    server = ServerProcess("--max-model-len=512")
    server.start("--port=0")
    try:
        deadline = time.monotonic() + 120
        while "EngineCore" not in server.output():
            assert time.monotonic() < deadline and server.process.poll() is None, server.output()
            time.sleep(0.1)
        processes = server.processes()
        assert len(processes) >= 3
        start = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        assert time.monotonic() - start < 5
        assert [p for p in processes if p.is_running()] == []
    finally:
        server.__exit__()


def test_engine_that_is_killed_ends_the_server():
    with ServerProcess("--max-model-len=512", "--enforce-eager") as server:
        processes = server.processes()
        (engine,) = [p for p in processes if "EngineCor" in p.name()]
        engine.kill()
        assert server.process.wait(30) == 1
        assert server.output().rstrip().splitlines()[-1].startswith("jumar: error: the engine ended while it served")
        assert [p for p in processes if p.is_running()] == []
