"""llama.cpp as an engine under measurement; subject.py says what is read and written.

Settings: {"model": a GGUF file, "threads": threads, "context": tokens}. It calls libllama directly, as llama-bench does: the Python
class around it copies the logits of each token, which would slow it down. Greedy choice is by llama.cpp's own sampler.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

# In front of an import that may print.
_ANSWERS = os.fdopen(int(sys.argv[1]), "w", buffering=1)
_SETTINGS = json.loads(sys.argv[2])

import llama_cpp as ll  # noqa: E402

_BATCH = 512  # llama.cpp's own choice of tokens that go through the layers together


class Llama:
    def __init__(self, model: str, threads: int, context: int) -> None:
        ll.llama_backend_init()
        self._model = ll.llama_model_load_from_file(model.encode(), ll.llama_model_default_params())
        if not self._model:
            sys.exit(f"llama.cpp can't load {model}")
        params = ll.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, context, _BATCH
        params.n_threads = params.n_threads_batch = threads
        self._context = ll.llama_init_from_model(self._model, params)
        if not self._context:
            sys.exit(f"llama.cpp can't make a context of {context} tokens for {model}")
        self._vocabulary = ll.llama_model_get_vocab(self._model)
        self.vocabulary_size: int = ll.llama_vocab_n_tokens(self._vocabulary)
        self.weight_bytes: int = ll.llama_model_size(self._model)
        self._sampler = ll.llama_sampler_init_greedy()

    def tokens(self, text: str) -> list[int]:
        data = text.encode()
        out = (ll.llama_token * (len(data) + 8))()
        count = ll.llama_tokenize(self._vocabulary, data, len(data), out, len(out), False, True)
        return list(out[:count])

    def text(self, tokens: Sequence[int]) -> str:
        pieces = []
        for token in tokens:
            buffer = ctypes.create_string_buffer(256)
            size = ll.llama_token_to_piece(self._vocabulary, token, buffer, len(buffer), 0, True)
            pieces.append(buffer.raw[:size])
        return b"".join(pieces).decode(errors="replace")

    def generate(self, prompt: Sequence[int], output: int, stop_at_end: bool) -> list[int]:
        """`output` greedy tokens after a prompt, which is forgotten first if it was seen before."""
        ll.llama_memory_clear(ll.llama_get_memory(self._context), True)
        made: list[int] = []
        batch = (ll.llama_token * len(prompt))(*prompt)
        while True:
            if ll.llama_decode(self._context, ll.llama_batch_get_one(batch, len(batch))) != 0:
                raise RuntimeError("llama_decode failed")
            token = ll.llama_sampler_sample(self._sampler, self._context, -1)
            made.append(token)
            if len(made) == output or (stop_at_end and ll.llama_vocab_is_eog(self._vocabulary, token)):
                return made
            batch = (ll.llama_token * 1)(token)


def main() -> None:
    started = time.perf_counter()
    llama = Llama(_SETTINGS["model"], _SETTINGS["threads"], _SETTINGS["context"])

    def answer(**values: Any) -> None:
        _ANSWERS.write(json.dumps(values) + "\n")

    answer(
        ready=time.perf_counter() - started,
        version=ll.__version__,
        device=ll.llama_print_system_info().decode().strip(" |"),
        weight_bytes=llama.weight_bytes,
    )
    for line in sys.stdin:
        request = json.loads(line)
        if "text" in request:
            tokens = llama.generate(llama.tokens(request["text"]), request["output"], stop_at_end=True)
            answer(text=llama.text(tokens), tokens=tokens)
            continue
        choose = random.Random(request["seed"])
        prompts = [[choose.randrange(100, llama.vocabulary_size) for _ in range(request["input"])] for _ in range(request["requests"])]
        start = time.perf_counter()
        for prompt in prompts:
            llama.generate(prompt, request["output"], stop_at_end=False)
        answer(seconds=time.perf_counter() - start)


if __name__ == "__main__":
    main()
