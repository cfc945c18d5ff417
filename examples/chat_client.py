"""./bazelw run //examples:chat_client -- --message "What is the capital of France?"

Talks to a running server (`./bazelw run //serving:server`) with OpenAI's own client and shows the answer as it comes.
Without --message it is a conversation: one message a line, Ctrl-D ends it.
"""

from __future__ import annotations

import sys
import time

import openai
from absl import app, flags

_BASE_URL = flags.DEFINE_string("base_url", "http://127.0.0.1:8000/v1", "where the server listens")
_API_KEY = flags.DEFINE_string("api_key", "none", "the server's --api-key")
_MODEL = flags.DEFINE_string("model", None, "served name (default: the first one that the server lists)")
_MESSAGE = flags.DEFINE_string("message", None, "one message; none: a conversation", short_name="m")
_SYSTEM = flags.DEFINE_string("system", None, "system prompt")
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 256, "most tokens of an answer", lower_bound=1)
_TEMPERATURE = flags.DEFINE_float("temperature", 0.0, "0 takes the likeliest token each time", lower_bound=0.0)


def ask(client: openai.OpenAI, model: str, messages: list[dict[str, str]]) -> str:
    """Streams one answer to standard output and returns it."""
    start = time.monotonic()
    first = None
    answer, usage = "", None
    stream = client.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=_MAX_TOKENS.value,
        temperature=_TEMPERATURE.value,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        usage = chunk.usage or usage
        piece = chunk.choices[0].delta.content if chunk.choices else None
        if piece:
            first = first or time.monotonic()
            answer += piece
            print(piece, end="", flush=True)
    end = time.monotonic()
    print()
    if first is not None and usage is not None:
        rate = (usage.completion_tokens - 1) / max(end - first, 1e-9)
        print(
            f"[{usage.completion_tokens} tokens; first after {first - start:.2f} s, then {rate:.1f} tokens/s]",
            file=sys.stderr,
        )
    return answer


def converse(client: openai.OpenAI, model: str) -> None:
    messages = [{"role": "system", "content": _SYSTEM.value}] if _SYSTEM.value else []
    if _MESSAGE.value is not None:
        ask(client, model, [*messages, {"role": "user", "content": _MESSAGE.value}])
        return
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            return
        if line:
            messages.append({"role": "user", "content": line})
            messages.append({"role": "assistant", "content": ask(client, model, messages)})


def main(argv: list[str]) -> int:
    if len(argv) > 1:
        print(f"chat_client: error: unexpected argument {argv[1]!r}; see --help", file=sys.stderr)
        return 2
    client = openai.OpenAI(base_url=_BASE_URL.value, api_key=_API_KEY.value, max_retries=0)
    try:
        converse(client, _MODEL.value or client.models.list().data[0].id)
    except openai.APIConnectionError:
        print(
            f"chat_client: error: nothing answers at {_BASE_URL.value}: start `./bazelw run //serving:server`, "
            "or name another address with --base_url",
            file=sys.stderr,
        )
        return 1
    except openai.APIStatusError as error:
        print(f"chat_client: error: the server answered {error.status_code}: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print()
    return 0


if __name__ == "__main__":
    app.run(main)
