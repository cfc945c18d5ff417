"""The banner's curl line must be one that a shell takes as it is."""

import json
import shlex
from argparse import Namespace
from types import SimpleNamespace

import pytest

from serving import banner


def arguments(**changes: object) -> Namespace:
    values = dict(
        host="127.0.0.1", port=8000, uds=None, ssl_keyfile=None, ssl_certfile=None, api_key=None,
        chat_template=None, tokenizer=None, model="/models/it's", served_model_name=None,
    )  # fmt: skip
    return Namespace(**{**values, **changes})


def words(line: str) -> list[str]:
    assert "\n" not in line
    return shlex.split(line)


@pytest.mark.parametrize("model", ["smol", "/models/it's a \"model\""])
def test_curl_line_survives_the_shell(model):
    line = words(banner.curl_line(arguments(), model, has_chat_template=True))
    assert line[:3] == ["curl", "-s", "http://127.0.0.1:8000/v1/chat/completions"]
    body = json.loads(line[-1])
    assert body["model"] == model and body["messages"][0]["content"] == banner.QUESTION


def test_curl_line_for_a_base_model():
    line = words(banner.curl_line(arguments(), "m", has_chat_template=False))
    assert line[2].endswith("/v1/completions") and "prompt" in json.loads(line[-1])


@pytest.mark.parametrize(
    ("changes", "url"),
    [
        (dict(host="0.0.0.0"), "http://127.0.0.1:8000"),
        (dict(host="::"), "http://[::1]:8000"),
        (dict(host="10.0.0.1", port=1), "http://10.0.0.1:1"),
        (dict(ssl_keyfile="k", ssl_certfile="c"), "https://127.0.0.1:8000"),
    ],
)
def test_address_is_one_that_a_client_reaches(changes, url):
    assert banner.base_url(arguments(**changes)) == url


def test_unix_socket():
    line = words(banner.curl_line(arguments(uds="/run/x.sock"), "m", has_chat_template=True))
    assert line[2:5] == ["--unix-socket", "/run/x.sock", "http://localhost/v1/chat/completions"]


def test_chat_template_is_looked_for_in_the_folder(tmp_path):
    assert not banner.has_chat_template(arguments(model=str(tmp_path)))
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    assert banner.has_chat_template(arguments(model=str(tmp_path)))


def test_banner_names_device_memory_and_model():
    config = SimpleNamespace(
        cache_config=SimpleNamespace(num_gpu_blocks=1000, block_size=128),
        compilation_config=SimpleNamespace(
            cudagraph_mode=SimpleNamespace(name="FULL_DECODE_ONLY"), cudagraph_capture_sizes=[4, 2, 1]
        ),
        model_config=SimpleNamespace(dtype="torch.bfloat16", max_model_len=8192),
    )
    gib = 1 << 30
    device = dict(
        device="npu:0", soc="Ascend910B2", backend="hostcann",
        total_bytes=8 * gib, weight_bytes=gib // 4, kv_cache_bytes=6 * gib,
    )  # fmt: skip
    text = banner.text(arguments(served_model_name=["smol"]), config, device, 12.3)
    for expected in (
        "ready after 12 s",
        "npu:0, Ascend910B2 on hostcann",
        "8.00 GiB: weights 0.25 GiB, KV cache 6.00 GiB = 1,000 blocks of 128 = 128,000 tokens",
        "smol, bfloat16, context 8,192 tokens",
        "batches of 1, 2, 4",
        "http://127.0.0.1:8000",
    ):
        assert expected in text
