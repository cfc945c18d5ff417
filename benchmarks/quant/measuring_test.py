"""The benchmark without an engine: order and arithmetic, the table and the picture, files for llama.cpp, bytes of weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from benchmarks.engines import probe
from benchmarks import native, rows
from benchmarks.quant import formats, gguf_file, measure
from benchmarks.rows import Row


CONFIG = dict(
    architectures=["LlamaForCausalLM"], vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=1e4, bos_token_id=1, eos_token_id=2,
    tie_word_embeddings=False,
)  # fmt: skip
LAYER = {
    "input_layernorm": (64,), "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64), "post_attention_layernorm": (64,), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64),
    "mlp.down_proj": (64, 128),
}  # fmt: skip


@pytest.fixture(scope="module")
def tensors() -> dict[str, np.ndarray]:
    shapes = {"model.embed_tokens": (96, 64), "model.norm": (64,), "lm_head": (96, 64)}
    shapes |= {f"model.layers.{layer}.{name}": shape for layer in range(2) for name, shape in LAYER.items()}
    random = np.random.default_rng(5)
    return {f"{name}.weight": random.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, np.ndarray]) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    letters = [chr(ord("A") + index) for index in range(60)]
    tokenizer = dict(
        model=dict(vocab={letter: index + 3 for index, letter in enumerate(letters)}, merges=[["A", "B"], "C D"]),
        added_tokens=[dict(id=index, content=f"<{index}>") for index in range(3)],
    )
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


class FakeEngine:
    """Takes a known time for a prompt and for each token but the first; notes what it was asked."""

    def __init__(self, name: str, prompt: float = 1.0, token: float = 0.1, text: str = " Paris.", tokens: list[int] | None = None) -> None:
        self.name, self._prompt, self._token, self._text, self._tokens = name, prompt, token, text, tokens or [1]
        self.asked: list[dict[str, Any]] = []

    def ask(self, **request: Any) -> dict[str, Any]:
        if "text" in request:
            return {"text": self._text, "tokens": self._tokens}
        self.asked.append(request)
        return {"seconds": self._prompt + self._token * (request["output"] - 1)}


def test_decode_is_the_time_after_the_first_token() -> None:
    engine = FakeEngine("x", prompt=5.0, token=0.25)
    assert measure.decode_rate(engine, tokens=8, seed=3) == pytest.approx(4.0)
    assert [request["output"] for request in engine.asked] == [1, 9] and {request["seed"] for request in engine.asked} == {3}
    assert measure.prefill_rate(engine, seed=0) == pytest.approx(512 / 5)


def test_every_round_has_all_engines_and_the_machine_and_the_first_is_not_counted() -> None:
    engines = [FakeEngine("x"), FakeEngine("y", token=0.2)]
    said: list[str] = []
    rates = measure.measure(engines, rounds=2, tokens=4, limits=lambda: {"bandwidth": 7.0}, progress=said.append)
    assert rates.of(measure.DECODE, "x") == pytest.approx((10, 10)) and rates.of(measure.DECODE, "y") == pytest.approx((5, 5))
    assert rates.limits == {"bandwidth": [7.0, 7.0]}
    order = [line.split(": ")[2] for line in said if "decode" in line]
    assert order == ["x", "y", "y", "x", "x", "y"]


def test_engines_of_another_model_are_refused() -> None:
    with pytest.raises(probe.NonsenseError, match="x continues .* with 'zzz', without 'Paris'"):
        probe.check_text(FakeEngine("x", text="zzz"))
    assert probe.check_agreement(FakeEngine("x"), FakeEngine("y")) == " Paris."
    with pytest.raises(probe.NonsenseError, match="x continues .*, and y with"):
        probe.check_agreement(FakeEngine("x"), FakeEngine("y", text=" Paris!", tokens=[2]))


ROWS = [
    Row("one", "decode", "a", "b", (2.0, 6.0, 3.0), (1.0, 2.0, 2.0), "tok/s", goal=1.9),
    Row("one", "prefill", "a", "b", (1.0,), (2.0,), "tok/s", goal=1.0),
    Row("two", "product", "a", "peak", (1.0,), (2.0,), "Gop/s"),
]


def test_a_rows_ratio_is_the_median_of_the_rounds_ratios() -> None:
    assert ROWS[0].ratio == 2.0 and [row.verdict for row in ROWS] == ["reached", "NOT reached", ""]
    assert [rows.from_json(json.loads(json.dumps(row.as_json()))) for row in ROWS] == ROWS


def test_the_table_has_a_block_for_each_part() -> None:
    lines = rows.table(ROWS).splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [lines[0], "one", "two"]
    assert "2.00x" in lines[3] and "1.50 to 3.00" in lines[3] and "1.90x  reached" in lines[3]
    assert lines[4].endswith("1.00x  NOT reached") and lines[7].endswith("0.50 to 0.50")


@pytest.mark.parametrize("name", ["plot.svg", "plot.png"])
def test_the_plot_is_written(tmp_path: Path, name: str) -> None:
    rows.plot(ROWS, tmp_path / name, "title")
    data = (tmp_path / name).read_bytes()
    assert b"</svg>" in data if name.endswith("svg") else data.startswith(b"\x89PNG")


def test_formats_are_chosen_by_name() -> None:
    assert [format.name for format in formats.chosen(["w8a8", "bf16"])] == ["bf16", "w8a8"]
    with pytest.raises(ValueError, match="int3 is none of the formats bf16, "):
        formats.chosen(["int3"])


@pytest.mark.parametrize("tied", [False, True])
def test_weight_bytes_are_those_that_a_step_reads(tmp_path: Path, tensors: dict[str, np.ndarray], tied: bool) -> None:
    embedding = tensors["model.embed_tokens.weight"].nbytes
    held = {name: values for name, values in tensors.items() if not (tied and name == "lm_head.weight")}
    save_file(held, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | dict(tie_word_embeddings=tied)))
    # The output layer is read once, whatever it is called.
    assert formats.weight_bytes(tmp_path) == sum(values.nbytes for values in tensors.values()) - embedding


@pytest.mark.parametrize("kind", gguf_file.FORMATS)
def test_a_gguf_file_holds_the_models_values(tmp_path: Path, model: Path, tensors: dict[str, np.ndarray], kind: str) -> None:
    file = tmp_path / "model.gguf"
    gguf_file.write(model, file, kind, "F16")
    assert list(tmp_path.iterdir()) == [file]
    reader = gguf.GGUFReader(file)
    assert reader.fields["llama.block_count"].contents() == 2
    words = reader.fields["tokenizer.ggml.tokens"].contents()
    assert len(words) == 96 and words[:4] == ["<0>", "<1>", "<2>", "A"]
    assert reader.fields["tokenizer.ggml.merges"].contents() == ["A B", "C D"]
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert len(found) == len(tensors)
    # A step of the format, relative to the largest value that shares its scale.
    step = {"F16": 0.0, "BF16": 2**-8, "Q8_0": 1 / 127, "Q4_0": 1 / 8}
    for name, wanted in tensors.items():
        tensor = found[gguf_file.gguf_name(name)]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for projection, heads in (("q_proj", 4), ("k_proj", 2)):
            if projection in name:
                # The rotation's pairs are neighbours there: row 2i of a head is its i-th, 2i + 1 the one half a head further.
                by_head = values.reshape(heads, -1, values.shape[1])
                values = np.concatenate([by_head[:, 0::2], by_head[:, 1::2]], axis=1).reshape(wanted.shape)
        exact = wanted.ndim == 1 or "embed" in name or "lm_head" in name
        limit = 0.0 if exact else step[kind] * np.abs(wanted).max()
        assert np.abs(values - wanted.astype(np.float32)).max() <= limit, name


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    with pytest.raises(ValueError, match="Qwen3ForCausalLM"):
        gguf_file.write(tmp_path, tmp_path / "x.gguf", "F16", "F16")
    with pytest.raises(ValueError, match="self_attn.q_norm.weight is no tensor"):
        gguf_file.gguf_name("model.layers.0.self_attn.q_norm.weight")


QUANTIZER = """#!/bin/sh
echo "$@" >> {log}
for argument in "$@"; do case "$argument" in --out=*) mkdir "${{argument#--out=}}";; esac; done
[ -e {broken} ] && {{ echo "it broke" >&2; exit 1; }}
exit 0
"""


def test_a_checkpoint_is_made_once_and_completely(tmp_path: Path, model: Path) -> None:
    log, broken, quantizer = tmp_path / "log", tmp_path / "broken", tmp_path / "quantizer" / "quantize"
    quantizer.parent.mkdir()
    quantizer.write_text(QUANTIZER.format(log=log, broken=broken))
    quantizer.chmod(0o755)
    cache = formats.Cache(tmp_path / "cache", model, quantizer)
    plain, int8 = formats.chosen(["bf16", "w8a8"])
    assert cache.checkpoint(plain) == model
    broken.touch()
    with pytest.raises(formats.CacheError, match="--scheme w8a8 failed(.|\n)*it broke"):
        cache.checkpoint(int8)
    broken.unlink()
    assert cache.checkpoint(int8) == cache.checkpoint(int8) == cache.folder / "w8a8"
    assert log.read_text().count("--scheme=w8a8") == 2 and len(list(cache.folder.iterdir())) == 1
