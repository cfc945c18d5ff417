"""Every bad input of the server ends in one line that names the value, the limit and the mend."""

import json
import socket
import struct
from pathlib import Path

import pytest

from serving import checkpoint, preflight
from serving.preflight import PreflightError, Request

KNOWN = {"LlamaForCausalLM", "Qwen3ForCausalLM", "DeepseekV3ForCausalLM"}
CONFIG = dict(
    architectures=["LlamaForCausalLM"],
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    hidden_size=64,
    max_position_embeddings=512,
    torch_dtype="bfloat16",
)


def write_safetensors(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> None:
    """tensors: name -> dtype, shape, bytes."""
    header, offset = {}, 0
    for name, (dtype, shape, num_bytes) in tensors.items():
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[offset, offset + num_bytes])
        offset += num_bytes
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(offset))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that passes every check: 96 BF16 elements and 5 bytes that stay as they are."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    tensors = {"a": ("BF16", [4, 8], 64), "b": ("F32", [64], 256), "c": ("I8", [5], 5)}
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def edit_config(folder: Path, **changes: object) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))


def check(folder: Path | str, memory: int | None = 1 << 30, **options: object) -> None:
    preflight.check(Request(model=str(folder), **options), lambda: KNOWN, lambda: memory)


def complaint(folder: Path | str, memory: int | None = 1 << 30, **options: object) -> str:
    with pytest.raises((PreflightError, checkpoint.CheckpointError)) as caught:
        check(folder, memory, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_good_model_passes(folder):
    check(folder)
    check(folder, max_model_len=512, dtype="float32")


def test_python_version():
    preflight.check_python((3, 11))
    with pytest.raises(PreflightError, match=r"Python 3\.9 is not supported, only 3\.11: install python3\.11"):
        preflight.check_python((3, 9))


# ---- The model's folder


def test_path_that_does_not_exist(tmp_path):
    message = complaint(tmp_path / "nothing")
    assert str(tmp_path / "nothing") in message and "does not exist" in message


@pytest.mark.parametrize("model", ["./org/name", "nothing", "a/b/c", "~nobody/x"])
def test_what_can_be_no_repository(model):
    assert "does not exist" in complaint(model)


def test_repository_is_left_to_vllm_unless_offline(monkeypatch, tmp_path):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    check("some-organisation/some-model")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert "unset it to download" in complaint("some-organisation/some-model")


def test_file_instead_of_folder(folder):
    assert "is a file: give the folder" in complaint(folder / "config.json")


def test_missing_config(folder):
    (folder / "config.json").unlink()
    assert "has no config.json" in complaint(folder)


@pytest.mark.parametrize("content", ["", "{", "\xff\xfe", "[1, 2]", "null"])
def test_corrupt_config(folder, content):
    (folder / "config.json").write_text(content, encoding="latin-1")
    assert str(folder / "config.json") in complaint(folder)


def test_unknown_architecture_names_near_ones(folder):
    edit_config(folder, architectures=["LlamaForCausalLMs"])
    message = complaint(folder)
    assert "LlamaForCausalLMs" in message and "the nearest are LlamaForCausalLM" in message


@pytest.mark.parametrize("value", [None, [], "LlamaForCausalLM"])
def test_no_architecture(folder, value):
    edit_config(folder, architectures=value)
    assert "names no architectures" in complaint(folder)


def test_remote_code_may_bring_an_architecture(folder):
    edit_config(folder, architectures=["Mine"], auto_map={"AutoModelForCausalLM": "mine.Mine"})
    check(folder, trust_remote_code=True)
    assert "Mine" in complaint(folder)


# ---- dtype and context


def test_dtype_of_the_flag(folder):
    assert "float64" in complaint(folder, dtype="float64") and "bfloat16, float16, float32" in complaint(
        folder, dtype="float64"
    )


def test_dtype_of_the_configuration(folder):
    edit_config(folder, torch_dtype="float64")
    assert "dtype float64 of config.json is not supported on npu" in complaint(folder)
    check(folder, dtype="float16")


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"torch_dtype": "float16"}, "float16"),
        ({"dtype": "torch.bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float32"}, "bfloat16"),
        ({"text_config": {"dtype": "float16"}, "torch_dtype": "float32"}, "float16"),
        ({}, "bfloat16"),
    ],
)
def test_automatic_dtype(config, dtype):
    assert preflight.resolve_dtype("auto", config) == dtype


def test_context_beyond_the_model(folder):
    message = complaint(folder, max_model_len=513)
    assert "513" in message and "512" in message and "lower it" in message
    assert "less than 1" in complaint(folder, max_model_len=0)
    check(folder, max_model_len=-1)


def test_context_of_a_scaled_rope_is_left_to_vllm(folder):
    edit_config(folder, rope_scaling={"rope_type": "yarn", "factor": 4.0})
    check(folder, max_model_len=2048)


# ---- The checkpoint


def test_missing_tokenizer(folder):
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer" in complaint(folder)
    check(folder, skip_tokenizer=True)
    (folder / "vocab.json").write_text("{}")
    assert "has no tokenizer" in complaint(folder)
    (folder / "merges.txt").write_text("")
    check(folder)


def test_corrupt_tokenizer(folder):
    (folder / "tokenizer.json").write_text('{"model": ')
    assert "tokenizer.json is not valid JSON" in complaint(folder)


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    assert "has no weights" in complaint(folder)
    check(folder, load_format="dummy")


@pytest.mark.parametrize("keep", [0, 7, 8, 60, -1])
def test_truncated_weights(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    message = complaint(folder)
    assert str(path) in message and "corrupt or truncated" in message and "fetch it again" in message


def test_weights_with_extra_bytes(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"\0")
    assert "take 325 bytes, and 326 follow" in complaint(folder)


def test_header_that_is_not_json(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[8] = ord("!")
    path.write_bytes(data)
    assert "header is not JSON" in complaint(folder)


def test_huge_header(folder):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + bytes(100))
    assert f"would have {1 << 60} bytes" in complaint(folder)


def test_git_lfs_pointer(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    assert "git lfs pull" in complaint(folder)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (dict(dtype="BF16", shape=[4], data_offsets=[0, 10]), "needs 8 bytes and has 10"),
        (dict(dtype="BF16", shape=[4], data_offsets=[10, 2]), "needs 8 bytes and has -8"),
        (dict(dtype="BF16", shape=[5], data_offsets=[2, 12]), "starts at byte 2 of the data instead of 0"),
        (dict(dtype="BF16", shape=[4]), "entry of tensor 'x' is incomplete"),
        (dict(dtype="BF16", shape="4", data_offsets=[0, 10]), "entry of tensor 'x' is incomplete"),
        ([], "entry of tensor 'x' is incomplete"),
    ],
)
def test_tensor_offsets(tmp_path, entry, reason):
    header = json.dumps({"x": entry}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
    with pytest.raises(checkpoint.CheckpointError, match=reason):
        checkpoint.read_safetensors_header(path)


def shard(folder: Path, weight_map: dict[str, str]) -> None:
    (folder / "model.safetensors").unlink()
    write_safetensors(folder / "one.safetensors", {"a": ("BF16", [4], 8)})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards(folder):
    shard(folder, {"a": "one.safetensors"})
    check(folder)


def test_missing_shard(folder):
    shard(folder, {"a": "one.safetensors", "b": "two.safetensors"})
    assert "lacks 1 of the 2 weight files that its index names (two.safetensors)" in complaint(folder)


def test_tensor_missing_from_its_shard(folder):
    shard(folder, {"a": "one.safetensors", "b": "one.safetensors"})
    assert "lacks tensor 'b'" in complaint(folder)


def test_corrupt_index(folder):
    shard(folder, {})
    assert "has no weight_map" in complaint(folder)


# ---- Memory


def test_memory_of_weights_and_one_block(folder):
    # 96 elements of 2 bytes + 5 bytes of int8; 2 layers x 16 tokens x (K + V) x 2 heads x 16 elements x 2 bytes.
    weights = 96 * 2 + 5
    block = 2 * 16 * 2 * 2 * 16 * 2
    assert checkpoint.check_weights(folder).loaded_bytes(2) == weights
    assert preflight.kv_block_bytes(CONFIG, 16, 2) == block
    check(folder, weights + block, memory_utilization=1.0, block_size=16)
    message = complaint(folder, weights + block - 1, memory_utilization=1.0, block_size=16)
    assert "raise --gpu-memory-utilization or JUMAR_HBM_BYTES" in message
    check(folder, (weights + block) // 2, memory_utilization=1.0, block_size=16, ranks=2)
    check(folder, weights + block // 2, memory_utilization=1.0, block_size=16, kv_cache_dtype="fp8")


def test_memory_of_latent_attention():
    config = dict(num_hidden_layers=3, num_attention_heads=8, hidden_size=64, kv_lora_rank=32, qk_rope_head_dim=8)
    assert preflight.kv_block_bytes(config, 128, 2) == 3 * 128 * (32 + 8) * 2


def test_memory_that_is_not_known_is_left_to_the_engine(folder):
    check(folder, None)


@pytest.mark.parametrize("value", [0.0, -1.0, 1.5])
def test_utilization(folder, value):
    assert str(value) in complaint(folder, memory_utilization=value)


# ---- The port


def test_port_in_use_names_its_holder():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PreflightError, match=rf"127\.0\.0\.1:{port} is in use.*--port"):
            preflight.check_port("127.0.0.1", port)
    preflight.check_port("127.0.0.1", port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_port_out_of_range(port):
    with pytest.raises(PreflightError, match=f"port {port} is not within 0 to 65535"):
        preflight.check_port("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_host_of_another_machine(host):
    with pytest.raises(PreflightError, match="--host"):
        preflight.check_port(host, 18080)
