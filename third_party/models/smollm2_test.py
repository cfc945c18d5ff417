"""The default model: its bytes are pinned, and it knows what it should."""

import hashlib
import os
import pathlib
import sys

import pytest

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
sys.modules["torch_npu"] = None  # transformers would load it

import torch
import transformers

MODEL = pathlib.Path("third_party/models/smollm2")
SHA256 = {
    "chat_template.jinja": "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
    "config.json": "4df30f769862bb698e9467440402646b94ce64455f67fda1febd62763edb3d83",
    "generation_config.json": "8025b6679dcf077f5d339bd154238d70891decb48f35f294bfaa33a343140439",
    "model.safetensors": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
    "tokenizer.json": "7d27c493c729a66ecefc837280b05d948b1ed50d130eebdbf911b1b36cf38ed7",
    "tokenizer_config.json": "7731ccf5e468c87ec19449be418dcddb89be54e7be57875c6ff1ba56455f8b8b",
}


def test_conversion_gives_the_pinned_bytes():
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in MODEL.iterdir()} == SHA256


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(MODEL)


def test_tokenizer_splits_digits_and_returns_what_it_was_given(tokenizer):
    text = "In 2024, the café's “naïve” bill: 1,234 €\n\tyes\n"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert len(tokenizer("2024")["input_ids"]) == 4


def test_chat_template_adds_the_default_system_prompt(tokenizer):
    text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    # Each marker is one token, not its letters.
    assert tokenizer(text)["input_ids"].count(tokenizer.convert_tokens_to_ids("<|im_start|>")) == 3


def test_model_knows_the_capital_of_france(tokenizer):
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL)
    assert model.dtype == torch.bfloat16
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    output = model.generate(**prompt, max_new_tokens=1, do_sample=False)
    assert tokenizer.decode(output[0, -1]) == " Paris"
