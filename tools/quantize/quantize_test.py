"""Checkpoints of a tiny model: codes and scales equal an independent reference, readers agree, and bad input is refused with a mend."""

import json
import os
import pathlib
import shutil
import sys
import xml.etree.ElementTree

import ml_dtypes
import numpy as np
import pytest

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["TORCHDYNAMO_DISABLE"] = "1"  # as quantize.py does
sys.modules["torch_npu"] = None  # transformers would load it

import tokenizers
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from serving.tracebacks import UserError
from tools.quantize import run, schemes
from tools.quantize.run import Options
from tools.quantize.source import Source

TEXT = pathlib.Path("third_party/texts/web_bible.txt")
# The hidden size is no multiple of 128, so that the last blocks of fp8_block are smaller, and groups of 64 are the greatest that divide.
CONFIG = dict(
    vocab_size=256, hidden_size=192, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=64, tie_word_embeddings=False, max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
SCHEMES = schemes.NAMES


class Silent:
    def start(self, what, total):
        return lambda: None


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


def write_model(folder, **changes):
    """Random weights with outliers, an exact power of two, a row of zeros and a group of zeros."""
    torch.manual_seed(5)
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG | changes)).to(torch.bfloat16)
    with torch.no_grad():
        for name, module in network.named_modules():
            if isinstance(module, torch.nn.Linear):
                weight = module.weight
                weight.copy_(torch.randn(weight.shape) * torch.rand(weight.shape[0], 1))
                weight[3, 7] *= 30
                weight[4] = 0
                weight[5, 64:128] = 0
                weight[6, :64] = 2.0**-6
    network.save_pretrained(folder)
    # A token for each byte.
    alphabet = {letter: number for number, letter in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (folder / "chat_template.jinja").write_text("{% for message in messages %}<{{ message.content }}>{% endfor %}")
    return folder


def options(model, scheme, out, **more):
    # The reference doesn't fold.
    return Options(model=model, scheme=scheme, out=out, calibration_text=TEXT, **{"samples": 2, "length": 32, "fold": False, **more})


@pytest.fixture(scope="module")
def checkpoints(model, tmp_path_factory):
    """Each scheme once, rounded to the nearest: scheme -> (folder, report)."""
    folder = tmp_path_factory.mktemp("checkpoints")
    made = {}

    def make(scheme):
        if scheme not in made:
            out = folder / scheme
            made[scheme] = (out, run.quantise(options(model, scheme, out, rounding="nearest"), Silent()))
        return made[scheme]

    return make


# ---- The reference: NumPy and ml_dtypes alone.


def bf16(values):
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def grouped(weight, width):
    return weight.reshape(weight.shape[0], -1, width)


def mx_exponent(maximum, offset):
    """floor(log2(m')) - offset, m' being rounded to the next power of two from 1.75 on; of zero the least."""
    mantissa, exponent = np.frexp(maximum)  # mantissa in [0.5, 1)
    exponent = np.where(mantissa >= 0.875, exponent + 1, exponent) - 1
    return np.where(maximum == 0, -127, np.maximum(exponent - offset, -127))


def reference(scheme, weight):
    """codes (as stored values), scales (as stored) and the values that they mean, float32."""
    weight = weight.astype(np.float32)
    rows, columns = weight.shape
    if scheme in ("w8a8", "w8a8_static"):
        scale = np.abs(weight).max(1, keepdims=True) / np.float32(127.5)
    elif scheme == "fp8":
        scale = np.abs(weight).max(1, keepdims=True) / np.float32(448)
    elif scheme == "fp8_static":
        scale = np.abs(weight).max().reshape(1) / np.float32(448)
    elif scheme in ("w4a16", "w8a16"):
        scale = np.abs(grouped(weight, 64)).max(2) / np.float32(7.5 if scheme == "w4a16" else 127.5)
    elif scheme == "fp8_block":
        scale = np.array(
            [[np.abs(weight[r : r + 128, c : c + 128]).max() for c in range(0, columns, 128)] for r in range(0, rows, 128)]
        ) / np.float32(448)
    else:
        scale = np.float32(2.0) ** mx_exponent(np.abs(grouped(weight, 32)).max(2), 8 if scheme == "mxfp8" else 2)
    scale = np.where(scale == 0, np.finfo(np.float32).eps, scale).astype(np.float32)
    if not scheme.startswith("mx"):
        scale = bf16(scale)
    if scheme == "fp8_block":
        spread = np.repeat(np.repeat(scale, 128, 0), 128, 1)[:rows, :columns]
    elif scale.ndim == 2 and scale.shape[1] > 1:
        spread = np.repeat(scale, columns // scale.shape[1], 1)
    else:
        spread = np.broadcast_to(scale, weight.shape)
    scaled = weight / spread
    if scheme in ("w8a8", "w8a8_static", "w8a16"):
        codes = np.clip(np.rint(scaled), -128, 127)
    elif scheme == "w4a16":
        codes = np.clip(np.rint(scaled), -8, 7)
    elif scheme == "mxfp4":
        codes = np.clip(scaled, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    else:
        codes = np.clip(scaled, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return codes, scale, codes * spread


def unpack_int32(packed, bits):
    """Little-endian fields of int32, each with 2^(bits - 1) added."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    fields = (packed.view(np.uint32)[..., None] >> shifts) & np.uint32(2**bits - 1)
    return fields.reshape(packed.shape[0], -1).astype(np.float32) - 2 ** (bits - 1)


def unpack_e2m1(packed):
    """Two to a byte, the first in the low half."""
    nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1).astype(np.uint8)
    return nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float32)


def stored_codes(scheme, tensors, name):
    if scheme == "w4a16":
        return unpack_int32(tensors[f"{name}.weight_packed"].numpy(), 4)
    if scheme == "w8a16":
        return unpack_int32(tensors[f"{name}.weight_packed"].numpy(), 8)
    if scheme == "mxfp4":
        return unpack_e2m1(tensors[f"{name}.weight_packed"].numpy())
    return tensors[f"{name}.weight"].float().numpy()


def stored_scale(scheme, tensors, name):
    scale = tensors[f"{name}.weight_scale"]
    if scheme.startswith("mx"):
        assert scale.dtype == torch.uint8
        return scale.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    assert scale.dtype == torch.bfloat16
    return scale.float().numpy()


def linear_names(model):
    return Source(model).linear_layers()[0]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_codes_and_scales_equal_the_reference(scheme, model, checkpoints):
    folder, _ = checkpoints(scheme)
    source, tensors = load_file(model / "model.safetensors"), load_file(folder / "model.safetensors")
    names = linear_names(model)
    assert len(names) == 14
    for name in names:
        codes, scale, _ = reference(scheme, source[f"{name}.weight"].float().numpy())
        np.testing.assert_array_equal(stored_scale(scheme, tensors, name), scale, err_msg=name)
        np.testing.assert_array_equal(stored_codes(scheme, tensors, name), codes, err_msg=name)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_not_quantised_stays_bit_for_bit(scheme, model, checkpoints):
    source, tensors = load_file(model / "model.safetensors"), load_file(checkpoints(scheme)[0] / "model.safetensors")
    others = set(source) - {f"{name}.weight" for name in linear_names(model)}
    assert "lm_head.weight" in others and "model.embed_tokens.weight" in others
    for name in others:
        assert torch.equal(tensors[name], source[name]), name
    static = {name for name in tensors if name.endswith("input_scale")}
    assert len(static) == (14 if scheme.endswith("_static") else 0)


# The library's reader of fp8_block guesses the block from the shapes: 192 / 2 = 96 instead of 128.
@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "fp8_block"])
def test_transformers_reads_the_values_that_were_meant(scheme, model, checkpoints):
    folder, _ = checkpoints(scheme)
    loaded, about = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, output_loading_info=True,
        quantization_config=transformers.CompressedTensorsConfig(dequantize=True),
    )  # fmt: skip
    assert not about["missing_keys"] and not about["unexpected_keys"]
    source, state = load_file(model / "model.safetensors"), loaded.state_dict()
    for name in linear_names(model):
        _, _, values = reference(scheme, source[f"{name}.weight"].float().numpy())
        np.testing.assert_array_equal(state[f"{name}.weight"].float().numpy(), bf16(values), err_msg=name)


def test_static_scales_are_those_of_the_greatest_input(model, checkpoints):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    from tools.quantize import calibration

    rows = calibration.token_rows(tokenizer, TEXT.read_text(), 2, 32)
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    greatest = {}
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs, name=name: greatest.__setitem__(name, float(inputs[0].abs().max())))
    with torch.no_grad():
        network(rows)
    for scheme, limit in (("w8a8_static", 127.5), ("fp8_static", 448)):
        tensors = load_file(checkpoints(scheme)[0] / "model.safetensors")
        for name in linear_names(model):
            assert float(tensors[f"{name}.input_scale"]) == pytest.approx(greatest[name] / limit, rel=2**-8)
        # What vLLM fuses must share a scale.
        for layer in (0, 1):
            q, k, v = (tensors[f"model.layers.{layer}.self_attn.{part}_proj.input_scale"] for part in "qkv")
            assert q == k == v


@pytest.mark.parametrize("scheme", SCHEMES)
def test_report_is_whole(scheme, checkpoints):
    folder, made = checkpoints(scheme)
    values = json.loads((folder / "quantization_report.json").read_text())
    assert values["scheme"] == scheme and len(values["layers"]) == len(made.layers) == 14
    # 127 and 15 levels of uniform weights, 3 and 1 bits of mantissa; and activations on top.
    worst = dict(w4a16=0.2, mxfp4=0.25).get(scheme, 0.06)
    for layer in values["layers"]:
        assert 0 < layer["weight_error"] < worst, layer
        assert layer["output_snr_db"] > (8 if worst > 0.1 else 20), layer
    worst_first = [error.output_snr_db for error in made.worst_first()]
    assert worst_first == sorted(worst_first)
    table = (folder / "quantization_report.md").read_text()
    assert all(layer["name"] in table for layer in values["layers"])
    picture = xml.etree.ElementTree.parse(folder / "quantization_report.svg")
    assert picture.getroot().tag.endswith("svg")


def test_folder_has_what_a_server_needs(model, checkpoints):
    folder, _ = checkpoints("w8a8")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (folder / name).read_bytes() == (model / name).read_bytes()
    config = json.loads((folder / "config.json").read_text())
    quantization = config.pop("quantization_config")
    assert config == json.loads((model / "config.json").read_text())
    assert quantization["quant_method"] == "compressed-tensors" and quantization["format"] == "int-quantized"
    assert quantization["ignore"] == ["lm_head"] and quantization["quantization_status"] == "compressed"
    assert not list(folder.parent.glob(".*"))


def test_gptq_is_deterministic_and_its_outputs_err_less(model, checkpoints, tmp_path):
    made = [run.quantise(options(model, "w4a16", tmp_path / name, samples=4, length=64), Silent()) for name in ("one", "two")]
    assert (tmp_path / "one/model.safetensors").read_bytes() == (tmp_path / "two/model.safetensors").read_bytes()
    assert made[0].rounding == "gptq"
    nearest = {error.name: error.output_snr_db for error in checkpoints("w4a16")[1].layers}
    # Not the second layer: its inputs already carry the errors of the first.
    gains = [error.output_snr_db - nearest[error.name] for error in made[0].layers if ".0." in error.name]
    assert min(gains) > 0 and sum(gains) / len(gains) > 2


def test_without_calibration_codes_are_the_same(model, checkpoints, tmp_path):
    made = run.quantise(options(model, "w8a8", tmp_path / "out", samples=0), Silent())
    assert all(error.output_snr_db is None for error in made.layers)
    one, other = load_file(tmp_path / "out/model.safetensors"), load_file(checkpoints("w8a8")[0] / "model.safetensors")
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("scheme", ["w8a8", "w8a8_static"])
def test_folded_checkpoint_means_the_same_model(scheme, model, checkpoints, tmp_path):
    made = run.quantise(options(model, scheme, tmp_path / "out", fold=True), Silent())
    source, tensors = load_file(model / "model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    assert len(made.folds) >= 4 and f"folded {len([f for f in made.folds if 'input' in f.producer])} input_layernorm" in made.about()
    changed = {fold.producer for fold in made.folds}
    for name in set(source) - {f"{name}.weight" for name in linear_names(model)}:
        assert tensors[name].dtype == source[name].dtype
        assert torch.equal(tensors[name], source[name]) != (name.removesuffix(".weight") in changed), name
    # How a fold multiplies the columns of its consumers: known from a norm's weights; of up_proj, what its rows were divided by.
    columns = {name: 1.0 for name in linear_names(model)}
    for fold in made.folds:
        if fold.producer not in columns:
            before, after = (some[f"{fold.producer}.weight"].double() for some in (source, tensors))
            columns |= {name: before / after for name in fold.consumers}

    def weights(name):
        """What the checkpoint means, and what it would mean if no row had been divided."""
        scale = tensors[f"{name}.weight_scale"].double()
        return tensors[f"{name}.weight"].double() * scale, source[f"{name}.weight"].double() * columns[name], scale

    divided = {}
    for fold in made.folds:
        if fold.producer in columns:
            meant, undivided, _ = weights(fold.producer)
            divided[fold.producer] = undivided.square().sum(1) / (meant * undivided).sum(1)
            columns |= {name: divided[fold.producer] for name in fold.consumers}
    for name in columns:
        meant, wanted, scale = weights(name)
        wanted = wanted / divided.get(name, torch.ones(len(wanted)))[:, None]
        # Half a code, or 127.5 (1 + 2^-8) that became 127, by a scale that bfloat16 rounded down; what rows were divided by is an estimate.
        unknown = wanted.isnan()  # of a row of zeros, by which nothing is multiplied
        assert ((meant - wanted).abs() <= scale + 0.02 * meant.abs()).logical_or(unknown).all() and unknown.float().mean() < 0.1, name
    # Random inputs have no outliers; the model's weights have some.
    plain = {error.name: error.output_snr_db for error in checkpoints(scheme)[1].layers}
    gains = [error.output_snr_db - plain[error.name] for error in made.layers]
    assert sum(gains) / len(gains) > 1, gains


def test_output_layer_is_quantised_when_asked_for(model, tmp_path):
    made = run.quantise(options(model, "w8a8", tmp_path / "out", lm_head=True), Silent())
    assert made.layers[-1].name == "lm_head" and made.layers[-1].output_snr_db > 20
    assert load_file(tmp_path / "out/model.safetensors")["lm_head.weight"].dtype == torch.int8
    assert json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]["ignore"] == []


def test_large_checkpoints_are_sharded(model, checkpoints, tmp_path):
    run.quantise(options(model, "w8a8", tmp_path / "out", samples=0, shard_bytes=200_000), Silent())
    index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    whole = load_file(checkpoints("w8a8")[0] / "model.safetensors")
    assert set(index["weight_map"]) == set(whole) and len(set(index["weight_map"].values())) >= 3
    for name, file in index["weight_map"].items():
        with safe_open(tmp_path / "out" / file, framework="pt") as shard:
            assert torch.equal(shard.get_tensor(name), whole[name])
    # And such a checkpoint can be a source.
    shutil.copyfile(model / "config.json", tmp_path / "out/config.json")
    assert len(Source(tmp_path / "out").files) == len(whole)


def broken(model, folder, change):
    """A copy of the model with the tensors that ``change`` makes of its own."""
    shutil.copytree(model, folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_layers_stay_where_a_block_would_span_what_engines_join(tmp_path):
    uneven = write_model(tmp_path / "model", num_key_value_heads=1, intermediate_size=320)
    made = run.quantise(options(uneven, "fp8_block", tmp_path / "out", ignore=("1.self_attn.k_proj",)), Silent())
    # q is whole blocks and k's 64 outputs aren't. Without k, q and v fit: the last of what is joined may be smaller.
    stay = {f"model.layers.0.self_attn.{part}_proj" for part in "qkv"} | {f"model.layers.{i}.mlp.{part}_proj" for i in (0, 1) for part in ("gate", "up")}
    assert set(made.uneven) == stay
    source, tensors = load_file(uneven / "model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    for name in linear_names(uneven):
        kept = name in stay or name == "model.layers.1.self_attn.k_proj"
        assert (tensors[f"{name}.weight"].dtype == torch.bfloat16) == kept, name
        assert not kept or torch.equal(tensors[f"{name}.weight"], source[f"{name}.weight"])
    config = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert stay <= set(config["ignore"])
    assert "2 gate_proj, 1 k_proj, 1 q_proj, 2 up_proj, 1 v_proj left as they are" in (tmp_path / "out/quantization_report.md").read_text()


def test_input_that_cannot_be_quantised_is_refused_with_a_mend(model, checkpoints, tmp_path):
    def refused(message, scheme="w8a8", of=model, **more):
        out = more.pop("out", tmp_path / "out")
        with pytest.raises(UserError, match=message):
            run.quantise(options(of, scheme, out, **more), Silent())
        assert out.name != "out" or not out.exists()
        assert not list(tmp_path.glob(".out*"))

    refused("no scheme 'int3': take one of w8a8, w8a8_static", scheme="int3")
    refused("_proj has rows of 192 weights, which is no multiple of w4a16's group of 128: give --group_size=64", scheme="w4a16", group_size=128)
    refused("--group_size=48: w4a16 has groups of 32, 64, 128", scheme="w4a16", group_size=48)
    refused("--group_size=64: fp8 has no choice of it", scheme="fp8", group_size=64)
    refused("--rounding=gptq: fp8_block has scales that span rows", scheme="fp8_block", rounding="gptq")
    refused("--samples=0: scheme w8a8_static needs calibration", scheme="w8a8_static", samples=0)
    refused("--ignore=nothing matches no linear layer; they have names like model.layers.0", ignore=("nothing",))
    refused("the calibration text has", samples=4, length=5_000_000)
    taken = tmp_path / "taken"
    taken.mkdir()
    refused("taken exists: remove it, or name another folder with --out", out=taken)
    refused("there is no folder", of=tmp_path / "absent")

    lacking = tmp_path / "lacking"
    shutil.copytree(model, lacking)
    (lacking / "tokenizer.json").unlink()
    refused("has no tokenizer", of=lacking)
    (lacking / "model.safetensors").unlink()
    refused("has no weights", of=lacking)
    (lacking / "config.json").unlink()
    refused("config.json can't be read", of=lacking)

    refused("is quantised already \\(by compressed-tensors\\)", of=checkpoints("w8a8")[0])
    name = "model.layers.1.mlp.up_proj.weight"
    poisoned = broken(model, tmp_path / "nan", lambda tensors: tensors[name][2, 3].fill_(float("nan")))
    refused("model.layers.1.mlp.up_proj.weight has 1 NaN or infinite values", of=poisoned, samples=0)
    truncated = tmp_path / "truncated"
    shutil.copytree(model, truncated)
    with (truncated / "model.safetensors").open("r+b") as file:
        file.truncate(1_000_000)
    refused("corrupt or truncated", of=truncated)


def test_interrupted_run_leaves_nothing(model, tmp_path):
    class Interrupting:
        def start(self, what, total):
            def tick():
                if what == "writing":
                    assert list(tmp_path.glob(".out.*"))  # it is under way
                    raise KeyboardInterrupt

            return tick

    with pytest.raises(KeyboardInterrupt):
        run.quantise(options(model, "w8a8", tmp_path / "out"), Interrupting())
    assert not list(tmp_path.iterdir())
