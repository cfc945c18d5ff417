"""What the server prints when it is ready."""

from __future__ import annotations

import json
import shlex
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.config import VllmConfig

QUESTION = "What is the capital of France?"


def client_host(host: str | None) -> str:
    """The address at which a client on this machine reaches a server that is bound to ``host``."""
    if host in (None, "", "0.0.0.0"):
        return "127.0.0.1"
    return "::1" if host == "::" else str(host)


def base_url(args: Namespace) -> str:
    scheme = "https" if args.ssl_keyfile and args.ssl_certfile else "http"
    host = client_host(args.host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{args.port}"


def curl_line(args: Namespace, model: str, has_chat_template: bool) -> str:
    """A command that works when pasted into a shell on this machine."""
    body: dict[str, Any] = {"model": model, "max_tokens": 32, "temperature": 0}
    if has_chat_template:
        path = "/v1/chat/completions"
        body["messages"] = [{"role": "user", "content": QUESTION}]
    else:
        path = "/v1/completions"
        body["prompt"] = "The capital of France is"
    words = ["curl", "-s"]
    if args.uds:
        words += ["--unix-socket", args.uds, "http://localhost" + path]
    else:
        words += (["-k"] if args.ssl_keyfile else []) + [base_url(args) + path]
    words += ["-H", "Content-Type: application/json"]
    if args.api_key:
        words += ["-H", "Authorization: Bearer YOUR_API_KEY"]
    return shlex.join([*words, "-d", json.dumps(body)])


def has_chat_template(args: Namespace) -> bool:
    folder = Path(args.tokenizer or args.model)
    if args.chat_template or not folder.is_dir() or (folder / "chat_template.jinja").is_file():
        return True
    try:
        return "chat_template" in json.loads((folder / "tokenizer_config.json").read_text())
    except (OSError, ValueError):
        return False


def text(args: Namespace, config: VllmConfig, device: dict[str, Any], seconds: float) -> str:
    """The banner.

    Args:
        device: what the worker's describe_device() returns: strings, and bytes of memory.
        seconds: from start to ready.
    """
    model = (args.served_model_name or [args.model])[0]
    cache = config.cache_config
    blocks = cache.num_gpu_blocks or 0
    dtype = str(config.model_config.dtype).removeprefix("torch.")
    graphs = config.compilation_config.cudagraph_mode
    sizes = config.compilation_config.cudagraph_capture_sizes or []
    where = f"unix:{args.uds}" if args.uds else base_url(args)
    decode = (
        f"whole graphs for batches of {', '.join(map(str, sorted(sizes)))}"
        if graphs is not None and graphs.name != "NONE" and sizes
        else "eager"
    )
    rows = {
        "device": f"{device['device']}, {device['soc']} on {device['backend']}",
        "memory": (
            f"{_gib(device['total_bytes'])}: weights {_gib(device['weight_bytes'])}, KV cache "
            f"{_gib(device['kv_cache_bytes'])} = {blocks:,} blocks of {cache.block_size} = "
            f"{blocks * cache.block_size:,} tokens"
        ),
        "model": f"{model}, {dtype}, context {config.model_config.max_model_len:,} tokens",
        "decode": decode,
        "address": f"{where} (OpenAI API; /docs lists it, /metrics measures it)",
    }
    lines = [f"jumar: ready after {seconds:.0f} s"]
    lines += [f"  {name:<8} {value}" for name, value in rows.items()]
    lines += ["  try it:", "", curl_line(args, model, has_chat_template(args)), "", "  Ctrl-C ends it."]
    return "\n" + "\n".join(lines) + "\n"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
