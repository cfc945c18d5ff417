"""By hand: our checkpoints in stock vLLM, its CPU wheel in a Python environment of its own (2 GB, fetched at the first run).

    ./bazelw test //tools/quantize:peer_test --test_output=all

Prints a table: what each scheme's checkpoint of the default model says there, or the peer's own reason not to load it.
"""

import json
import os
import pathlib
import subprocess
import sys

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ["TORCHDYNAMO_DISABLE"] = "1"
sys.modules["torch_npu"] = None  # transformers would load it

from serving import default_model
from serving.tracebacks import TracebackFolder
from tools.quantize import run, schemes

ENVIRONMENT = "JUMAR_PEER_ENVIRONMENT"
# What the peer's CPU backend has kernels for.
LOADS = {"w8a8", "w8a8_static", "w4a16"}


class Silent:
    def start(self, what, total):
        return lambda: None


def load_in_peer(python: str, folder: pathlib.Path, scratch: pathlib.Path) -> tuple[bool, str]:
    """Whether the peer loads the checkpoint, and what it says."""
    answer = scratch / f"{folder.name}.json"
    # No compiler of kernels, and no variable that would bring our plugin in.
    environment = {**os.environ, "PYTHONPATH": os.environ.get("JUMAR_PEER_PATH", ""), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    environment.pop("TORCHDYNAMO_DISABLE")
    program = pathlib.Path(__file__).with_name("peer_load.py")
    ended = subprocess.run([python, str(program), str(folder), str(answer)], capture_output=True, text=True, env=environment)
    if answer.is_file():
        return True, json.loads(answer.read_text())["text"]
    reasons = TracebackFolder()
    for line in (ended.stdout + ended.stderr).splitlines():
        reasons.feed(line)
    reasons.finish()
    return False, (reasons.errors or [f"status {ended.returncode}"])[0]


def test_checkpoints_load_in_the_peer(tmp_path):
    python = json.loads(pathlib.Path(os.environ[ENVIRONMENT]).read_text())["python"]
    results = {}
    for scheme in schemes.NAMES:
        needed = scheme.endswith("_static")
        options = run.Options(
            model=default_model.folder(), scheme=scheme, out=tmp_path / scheme, rounding="nearest",
            calibration_text=pathlib.Path("third_party/texts/web_bible.txt"), samples=4 if needed else 0, length=128,
        )  # fmt: skip
        run.quantise(options, Silent())
        results[scheme] = load_in_peer(python, options.out, tmp_path)
        print(f"{scheme:<12} | {'loads' if results[scheme][0] else 'refused'} | {results[scheme][1]!r}", flush=True)
    assert {scheme for scheme, (loads, _) in results.items() if loads} >= LOADS
    assert all("Paris" in results[scheme][1] for scheme in LOADS - {"w8a8_static"})
