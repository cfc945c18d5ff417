"""The OpenAI API of a real server, by OpenAI's own client: embedded model, bfloat16, graphs, every default."""

import json
import math
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from serving import default_model
from tests import bounds
from tests.server_process import ServerProcess

MODEL = default_model.NAME
MAX_MODEL_LEN = 512
STORY = "Once upon a time there was a little girl who lived in a village near the forest."


@pytest.fixture(scope="module")
def server():
    # 128 tokens a step: longer prompts are prefilled in chunks.
    flags = [f"--max-model-len={MAX_MODEL_LEN}", "--max-num-seqs=16", "--max-num-batched-tokens=128"]
    model = [] if default_model.folder() else [f"--served-model-name={MODEL}"]
    with ServerProcess(*flags, *model) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300) as client:
        yield client


def complete(client, prompt=STORY, max_tokens=16, temperature=0.0, extra=None, **options):
    return client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=max_tokens, temperature=temperature, extra_body=extra, **options
    )


def text(client, *args, **options) -> str:
    return complete(client, *args, **options).choices[0].text


# ---- Start


def test_banner_tells_device_memory_model_and_address(server):
    banner = server.output()
    assert re.search(r"device   npu:0, Ascend\w+ on ", banner)
    blocks, size, tokens = (
        int(n.replace(",", "")) for n in re.search(r"= ([\d,]+) blocks of (\d+) = ([\d,]+) tokens", banner).groups()
    )
    assert blocks * size == tokens >= MAX_MODEL_LEN
    assert f"model    {MODEL}, bfloat16, context {MAX_MODEL_LEN} tokens" in banner
    assert re.search(r"address  http://127\.0\.0\.1:\d+", banner)
    assert "Traceback" not in banner


def test_curl_line_works_when_pasted(server):
    line = re.search(r"^curl .*$", server.output(), re.MULTILINE)[0]
    answer = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=120).stdout
    assert "Paris" in json.loads(answer)["choices"][0]["message"]["content"]


def test_served_model(client):
    (model,) = client.models.list().data
    assert (model.id, model.max_model_len) == (MODEL, MAX_MODEL_LEN)


# ---- Answers


def test_completion(client):
    answer = complete(client, "The capital of France is", max_tokens=4)
    assert "Paris" in answer.choices[0].text
    assert answer.choices[0].finish_reason == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 4)


def test_chat(client):
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        max_tokens=24,
        temperature=0,
    )
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"


def test_streaming_equals_whole(client):
    whole = complete(client, max_tokens=24)
    pieces, usage = [], None
    for chunk in complete(client, max_tokens=24, stream=True, stream_options={"include_usage": True}):
        pieces += [choice.text for choice in chunk.choices]
        usage = chunk.usage or usage
    assert len(pieces) > 10
    assert "".join(pieces) == whole.choices[0].text
    assert usage.completion_tokens == whole.usage.completion_tokens == 24


def test_streamed_chat_equals_whole(client):
    request = dict(
        model=MODEL, messages=[{"role": "user", "content": "Count to five."}], max_tokens=16, temperature=0
    )
    whole = client.chat.completions.create(**request).choices[0].message.content
    chunks = client.chat.completions.create(**request, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def test_logprobs(client):
    logprobs = complete(client, max_tokens=8, logprobs=5).choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 8
    for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert value <= 0 and top[token] == value == max(top.values())  # greedy
        assert 5 <= len(top) <= 6 and sum(map(math.exp, top.values())) <= 1 + 1e-5


def test_n_answers(client):
    choices = complete(client, n=3, temperature=1.0, seed=7, max_tokens=12).choices
    assert [choice.index for choice in choices] == [0, 1, 2]
    assert len({choice.text for choice in choices}) == 3
    again = complete(client, n=3, temperature=1.0, seed=7, max_tokens=12).choices
    assert [choice.text for choice in again] == [choice.text for choice in choices]


def test_stop_string(client):
    free = text(client, max_tokens=32)
    stop = free.split()[4]
    answer = complete(client, max_tokens=32, stop=[stop]).choices[0]
    assert answer.finish_reason == "stop"
    assert answer.text == free[: free.index(stop)]


def test_example_client(server):
    root = Path(default_model.__file__).parent.parent / "examples"
    binary = root / "chat_client"
    command = [str(binary)] if binary.is_file() else [sys.executable, str(root / "chat_client.py")]
    done = subprocess.run(
        [*command, f"--base_url={server.url}/v1", "--message=What is the capital of France?"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert re.search(r"\[\d+ tokens; first after [\d.]+ s, then [\d.]+ tokens/s\]", done.stderr)


# ---- Sampling


def test_seed_makes_sampling_repeatable(client):
    texts = [text(client, temperature=1.0, seed=seed) for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len({*texts}) == 3


@pytest.mark.parametrize("extra", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}], ids=str)
def test_a_filter_that_leaves_one_token_is_greedy(client, extra):
    def takes_the_likeliest(extra):
        logprobs = complete(client, temperature=1.5, seed=3, extra=extra, logprobs=1).choices[0].logprobs
        # The values, not the tokens: two logits of 8 significant bits are often equal.
        return all(value == max(top.values()) for value, top in zip(logprobs.token_logprobs, logprobs.top_logprobs))

    assert takes_the_likeliest(extra)
    assert not takes_the_likeliest(None)  # so it is the filter that did it


@pytest.mark.parametrize("extra", [{"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}], ids=str)
def test_a_filter_keeps_to_the_likely_tokens(client, extra):
    sampled = complete(client, temperature=2.0, seed=11, max_tokens=24, extra=extra, logprobs=5).choices[0].logprobs
    free = complete(client, temperature=2.0, seed=11, max_tokens=24, logprobs=5).choices[0].logprobs
    assert sum(sampled.token_logprobs) > sum(free.token_logprobs)
    if "top_k" in extra:
        for value, top in zip(sampled.token_logprobs, sampled.top_logprobs):
            assert value >= min(top.values())


@pytest.mark.parametrize(
    "options",
    [{"frequency_penalty": 2.0}, {"presence_penalty": 2.0}, {"extra": {"repetition_penalty": 1.8}}],
    ids=str,
)
def test_penalties_reduce_repetition(client, options):
    def distinct_tokens(extra=None, **options):
        prompt = "I like cats. " * 4
        extra = {**(extra or {}), "return_token_ids": True}
        return len({*complete(client, prompt.rstrip(), max_tokens=32, extra=extra, **options).choices[0].token_ids})

    assert distinct_tokens() <= 10  # if nothing stops it, the model says the same again and again
    assert distinct_tokens(**options) >= 16


def test_logit_bias(client):
    first = complete(client, "The capital of France is", max_tokens=1, extra={"return_token_ids": True}).choices[0]
    (banned,) = first.token_ids
    other = complete(
        client, "The capital of France is", max_tokens=1, logit_bias={str(banned): -100}, extra={"return_token_ids": True}
    ).choices[0]
    assert other.token_ids != [banned]


# ---- Batches, caching, cancellation


def test_sixteen_concurrent_requests_equal_their_answers_alone(client):
    """Mixed prompt and answer lengths, so that prefills, chunks and decodes share batches.

    The rows of a batch don't meet in any operator, but the order of a sum may depend on the batch's size (how a
    matrix product is tiled, how a long context is split), and in bfloat16 the last bit of a logit with it. So texts
    may part where the two best tokens are nearly tied, and only there.
    """
    words = (STORY + " " + "The wolf said that the forest was dark and the road was long. " * 20).split()
    requests = [(" ".join(words[: 3 + 11 * i]), 4 + (5 * i) % 17) for i in range(16)]

    def ask(request):
        prompt, max_tokens = request
        return complete(client, prompt, max_tokens=max_tokens, logprobs=2).choices[0].logprobs

    alone = [ask(request) for request in requests]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, requests))
    parted = 0
    for one, other in zip(alone, together):
        parted += bounds.assert_equal_up_to_near_ties(one, other)
    assert parted <= 2


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_cancellation_frees_the_blocks(server, client):
    before = server.metrics()["generation_tokens_total"]
    stream = complete(client, max_tokens=450, stream=True, extra={"ignore_eos": True})
    for _, _chunk in zip(range(5), stream):
        pass
    wait_for(lambda: server.metrics()["num_requests_running"] == 1)
    assert server.metrics()["kv_cache_usage_perc"] > 0
    stream.close()
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    wait_for(lambda: all(server.metrics()[name] == 0 for name in names))
    # It was the cancellation that ended it, not its length.
    assert server.metrics()["generation_tokens_total"] - before < 400


def test_prefix_cache_hits_and_answers_are_equal(server, client):
    prompt = "Chapter one. " + "The old lighthouse keeper wrote in his book every evening. " * 25
    before = server.metrics()["prefix_cache_hits_total"]
    cold = complete(client, prompt, logprobs=2)
    assert cold.usage.prompt_tokens > 256
    middle = server.metrics()["prefix_cache_hits_total"]
    warm = complete(client, prompt, logprobs=2)
    after = server.metrics()["prefix_cache_hits_total"]
    assert middle - before < 128 <= after - middle
    bounds.assert_equal_up_to_near_ties(cold.choices[0].logprobs, warm.choices[0].logprobs)


# ---- Bad requests


def test_prompt_beyond_the_context(client):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, "word " * 2 * MAX_MODEL_LEN)
    assert str(MAX_MODEL_LEN) in caught.value.message
    with pytest.raises(openai.BadRequestError, match=str(MAX_MODEL_LEN)):
        complete(client, "word", max_tokens=MAX_MODEL_LEN + 1)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"extra": {"top_p": 1.5}}, "top_p"),
        ({"extra": {"top_k": -5}}, "top_k"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"logprobs": 1000}, "logprobs"),
    ],
)
def test_values_out_of_range(client, options, name):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, **options)
    assert name in caught.value.message


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError, match="nothing-like-it"):
        client.completions.create(model="nothing-like-it", prompt="a")


def test_body_that_is_not_json(server):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.url}/v1/completions", data=b"{", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code in (400, 422)


def test_server_still_answers_after_all_that(client):
    assert "Paris" in text(client, "The capital of France is", max_tokens=4)


# ---- The end. Last in the file: it ends the server.


def test_interrupt_ends_everything_within_five_seconds(server, client):
    stream = complete(client, max_tokens=450, stream=True, extra={"ignore_eos": True})
    next(iter(stream))
    seconds, left = server.interrupt()
    assert left == []
    assert seconds < 5
    assert server.process.returncode == 0
    assert server.output().endswith("jumar: stopped\n")
    assert "Traceback" not in server.output()
    with socket.create_server(("127.0.0.1", int(server.url.rpartition(":")[2]))):
        pass  # the port is free again
