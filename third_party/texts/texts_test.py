"""The texts are what they were, so that perplexities can be compared."""

import hashlib
import pathlib

import pytest

TEXTS = pathlib.Path("third_party/texts")
SHA256 = {
    "botchan.txt": "2ae13a13eb53f3d9cfa4c785cc8cb1bd83178bd59fd4f49f88c72315f39b97de",
    "web_bible.txt": "55c689154ecea7592637f00bab91006181eac4946b62d722c899d0f63593afe5",
}


@pytest.mark.parametrize("name", sorted(SHA256))
def test_text_is_the_pinned_bytes(name):
    assert hashlib.sha256((TEXTS / name).read_bytes()).hexdigest() == SHA256[name]


def test_botchan_is_the_book_alone():
    text = (TEXTS / "botchan.txt").read_text(encoding="utf-8")
    assert "Gutenberg" not in text
    assert len(text.split()) > 45_000
    paragraphs = text.splitlines()
    assert 500 < len(paragraphs) < 1000
    assert any(paragraph.startswith("Because of an hereditary recklessness, I have been playing always a") for paragraph in paragraphs)
