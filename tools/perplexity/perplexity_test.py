"""The served engine's perplexity is that of plain transformers, and errors are for people."""

import json
import os
import pathlib
import subprocess

import pytest

PROGRAM = pathlib.Path("tools/perplexity/perplexity")
MODEL = pathlib.Path("third_party/models/tiny_llama")


def program(*arguments, status=0):
    environment = {**os.environ, "JUMAR_HBM_BYTES": "1GiB"}
    ended = subprocess.run([str(PROGRAM.absolute()), *arguments], capture_output=True, text=True, env=environment)
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def losses(folder):
    return json.loads((folder / "perplexity.json").read_text())["subjects"]["model"]["losses"]


def test_engine_scores_as_transformers_do(tmp_path):
    """A window longer than a step of the engine, so that a prompt comes in chunks; overlapping windows; float32 on both sides."""
    common = ["--model", str(MODEL.absolute()), "--tokens", "900", "--window", "700", "--stride", "300", "--dtype", "float32"]
    shown = program(*common, "--out", str(tmp_path / "ours"))
    assert "999 tokens scored in 2 windows of 700, stride 300, vllm" in shown
    program(*common, "--engine", "transformers", "--out", str(tmp_path / "theirs"))
    ours, theirs = losses(tmp_path / "ours"), losses(tmp_path / "theirs")
    assert len(ours) == len(theirs) == 2
    # float32 through three layers errs by about 1e-5 in a logit, and losses are sums over 300 tokens or more.
    assert ours == pytest.approx(theirs, rel=1e-5)
    for name in ("perplexity.json", "perplexity.md", "perplexity.svg"):
        assert (tmp_path / "ours" / name).stat().st_size > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "/nowhere"], "/nowhere has no config.json: give the folder of a model"),
        (["stray"], "unexpected argument 'stray'; a model is given by --model, several after --compare"),
        (["--compare"], "--compare wants one NAME=FOLDER or more"),
        (["--compare", "bf16"], "'bf16' is not NAME=FOLDER"),
        (["--compare", "a=", "a="], "two of a, a have the same name"),
        (["--window", "100000"], "fewer than a window of 100000: give a longer one or a smaller --window"),
        (["--engine", "transformers", "--kv_cache_dtype", "fp8"], "--kv_cache_dtype is an option of the engine vllm"),
    ],
)
def test_input_that_cannot_be_measured_is_refused_with_a_mend(arguments, message):
    shown = program(*arguments, status=2)
    assert "perplexity: error: " in shown and message in shown
    assert "Traceback" not in shown
