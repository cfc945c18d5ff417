"""Checks that fail in a moment what would else fail after a minute, in one line instead of a page.

Each check raises :class:`PreflightError`, whose message names the value, the limit and the mend.
Nothing here touches a device or loads a tensor.
"""

from __future__ import annotations

import difflib
import os
import re
import socket
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving import checkpoint
from serving.tracebacks import UserError

SUPPORTED_PYTHON = (3, 11)  # the one that the lock's torch, torch_npu and vLLM are built for

# What the platform computes in, and the names that vLLM's --dtype has for it.
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}

# KV cache dtypes of one byte; "auto" is the model's.
_KV_BYTES = {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1, "bfloat16": 2, "float16": 2}

# One page, unless --block-size says otherwise (jumar.platform.KV_BLOCK_SIZE).
DEFAULT_BLOCK_SIZE = 128

_REPO_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$", re.ASCII)


class PreflightError(UserError):
    """What is wrong, in one line for the user."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the server, as far as it can be checked. ``None``: the model's or vLLM's own choice."""

    model: str
    tokenizer: str | None = None
    skip_tokenizer: bool = False
    dtype: str = "auto"
    load_format: str = "auto"
    max_model_len: int | None = None
    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    memory_utilization: float = 0.9
    ranks: int = 1  # tensor times pipeline parallel: devices that share the weights
    trust_remote_code: bool = False


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> None:
    if version != SUPPORTED_PYTHON:
        have, want = (".".join(map(str, v)) for v in (version, SUPPORTED_PYTHON))
        raise PreflightError(
            f"Python {have} is not supported, only {want}: install python{want} and name it in JUMAR_PYTHON"
        )


def check_port(host: str | None, port: int) -> None:
    """Binds for a moment to where the server will listen."""
    where = f"{host or '0.0.0.0'}:{port}"
    if not 0 <= port <= 65535:
        raise PreflightError(f"port {port} is not within 0 to 65535: choose another with --port")
    try:
        family, _, _, _, address = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            # SO_REUSEADDR lets a bind succeed beside a socket that is bound but doesn't listen yet.
            probe.listen(1)
    except socket.gaierror as error:
        raise PreflightError(f"host {host!r} is not an address of this machine ({error.strerror}): mend --host") from error
    except OSError as error:
        if error.errno == 98:  # EADDRINUSE
            raise PreflightError(
                f"{where} is in use{_holder(port)}: end that process or choose another port with --port"
            ) from error
        raise PreflightError(f"can't listen on {where} ({error.strerror}): choose others with --host and --port") from error


def _holder(port: int) -> str:
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    except (psutil.Error, OSError):
        pass
    return ""


def check_model_path(model: str, offline: bool) -> Path | None:
    """The model's folder, or ``None`` if it is a repository that will be downloaded or a single file.

    Args:
        offline: downloads are forbidden (HF_HUB_OFFLINE).
    """
    path = Path(model).expanduser()
    if path.is_dir():
        if not os.access(path, os.R_OK | os.X_OK):
            raise PreflightError(f"model folder {model} can't be read by this user: mend its permissions")
        return path
    if path.is_file():
        if path.suffix == ".gguf":
            return None
        raise PreflightError(f"model {model} is a file: give the folder that holds config.json and the weights")
    if not _REPO_ID.match(model) or model.startswith("./"):
        raise PreflightError(f"model {model} does not exist: give a folder, or ORGANISATION/NAME of a Hugging Face model")
    if offline:
        cached = _cached_repository(model)
        if cached is None:
            raise PreflightError(
                f"model {model} is neither a folder nor in the Hugging Face cache, and HF_HUB_OFFLINE is set: "
                "unset it to download the model, or give a folder"
            )
        return cached
    return None


def _cached_repository(model: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model folder."""
    path = folder / "config.json"
    if not path.is_file():
        raise PreflightError(f"{folder} has no config.json: give the folder of a Hugging Face model")
    return checkpoint.read_json(path)


def check_architecture(config: dict[str, Any], known: Collection[str], trust_remote_code: bool = False) -> None:
    """Args:
    known: the architectures that vLLM has, or can take from transformers.
    """
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        raise PreflightError("config.json names no architectures: it is not the configuration of a model that vLLM knows")
    if any(name in known for name in names) or (trust_remote_code and "auto_map" in config):
        return
    near = difflib.get_close_matches(str(names[0]), known, n=3)
    hint = f"the nearest are {', '.join(near)}" if near else "see vLLM's list of supported models"
    raise PreflightError(f"architecture {', '.join(map(str, names))} is not one of the {len(known)} that vLLM knows: {hint}")


def resolve_dtype(asked: str, config: dict[str, Any]) -> str:
    """The dtype that the model will have; as vLLM's "auto" does, float32 checkpoints become bfloat16."""
    supported = "bfloat16, float16, float32"
    if asked != "auto":
        if asked not in DTYPE_BYTES:
            raise PreflightError(f"dtype {asked} is not supported on npu: choose one of {supported} with --dtype")
        return asked
    named = (part.get(key) for part in (_text(config), config) for key in ("dtype", "torch_dtype"))
    stored = str(next(filter(None, named), "bfloat16")).removeprefix("torch.")
    if stored not in DTYPE_BYTES:
        raise PreflightError(
            f"dtype {stored} of config.json is not supported on npu: choose one of {supported} with --dtype"
        )
    return "bfloat16" if stored in ("float32", "float") else stored


def _text(config: dict[str, Any]) -> dict[str, Any]:
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def check_context(max_model_len: int | None, config: dict[str, Any]) -> None:
    """A context beyond what the model was trained for gives wrong text, so vLLM refuses it, too."""
    if max_model_len is None or max_model_len == -1:  # -1: as much as fits
        return
    if max_model_len < 1:
        raise PreflightError(f"--max-model-len {max_model_len} is less than 1 token")
    text = _text(config)
    limit = text.get("max_position_embeddings")
    scaled = text.get("rope_scaling") or text.get("rope_parameters", {}).get("rope_type", "default") != "default"
    if not isinstance(limit, int) or scaled or os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1":
        return
    if max_model_len > limit:
        raise PreflightError(
            f"--max-model-len {max_model_len} is more than the model's {limit} tokens (max_position_embeddings): lower it"
        )


def kv_block_bytes(config: dict[str, Any], block_size: int, bytes_per_element: int) -> int | None:
    """Bytes that one KV block takes over all layers, or ``None`` for a model whose cache has another form."""
    text = _text(config)
    layers = text.get("num_hidden_layers")
    heads = text.get("num_attention_heads")
    if not isinstance(layers, int) or not isinstance(heads, int):
        return None
    if isinstance(text.get("kv_lora_rank"), int):  # MLA: one compressed row for all heads
        width = text["kv_lora_rank"] + text.get("qk_rope_head_dim", 0)
    else:
        head_dim = text.get("head_dim") or text.get("hidden_size", 0) // heads
        width = 2 * (text.get("num_key_value_heads") or heads) * head_dim
    return layers * block_size * width * bytes_per_element


def check_memory(weights: int, block: int, request: Request, total: int, device: str) -> None:
    """Args:
    weights: bytes of the whole model's weights.
    block: bytes of one KV block of the whole model.
    total: bytes of one device.
    """
    share = int(total * request.memory_utilization)
    need = (weights + block) // request.ranks
    if need > share:
        raise PreflightError(
            f"the weights ({_mib(weights // request.ranks)}) and one KV block ({_mib(block // request.ranks)}) need more "
            f"than the {_mib(share)} that {request.memory_utilization:.2f} of {device}'s {_mib(total)} allows: raise "
            "--gpu-memory-utilization or JUMAR_HBM_BYTES, or choose a smaller model"
        )


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"


@dataclass(frozen=True, slots=True)
class Model:
    """What was read of a model's folder."""

    config: dict[str, Any]
    size: checkpoint.CheckpointSize | None  # None: of weights in a format that isn't checked


def check_files(request: Request) -> Model | None:
    """Checks the model's folder, without vLLM; returns ``None`` where there is none (yet).

    Raises:
        UserError: what is wrong.
    """
    folder = check_model_path(request.model, offline=os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"))
    if request.tokenizer and request.tokenizer != request.model:
        check_model_path(request.tokenizer, offline=False)
    if folder is None:
        return None
    config = read_config(folder)
    if not request.skip_tokenizer and request.tokenizer in (None, request.model):
        checkpoint.check_tokenizer(folder)
    checked = request.load_format in ("auto", "safetensors", "hf")
    return Model(config, checkpoint.check_weights(folder) if checked else None)


def check(
    request: Request,
    known_architectures: Callable[[], Collection[str]],
    device_memory: Callable[[], int | None],
    device: str = "npu:0",
) -> None:
    """Runs every check of the model, cheapest first.

    Args:
        known_architectures: asked only when a configuration was read.
        device_memory: bytes of one device, ``None`` if that is known only once it is in use.

    Raises:
        UserError: what is wrong.
    """
    if not 0 < request.memory_utilization <= 1:
        raise PreflightError(f"--gpu-memory-utilization {request.memory_utilization} is not within 0 to 1")
    if request.dtype != "auto":
        resolve_dtype(request.dtype, {})
    model = check_files(request)
    if model is None:
        return
    check_architecture(model.config, known_architectures(), request.trust_remote_code)
    dtype = resolve_dtype(request.dtype, model.config)
    check_context(request.max_model_len, model.config)
    if model.size is None:
        return
    total = device_memory()
    if total is None:
        return
    kv_bytes = _KV_BYTES.get(request.kv_cache_dtype, DTYPE_BYTES[dtype])
    block = kv_block_bytes(model.config, request.block_size or DEFAULT_BLOCK_SIZE, kv_bytes)
    check_memory(model.size.loaded_bytes(DTYPE_BYTES[dtype]), block or 0, request, total, device)


def known_architectures() -> Collection[str]:
    """What vLLM has a class for, or can run through one of transformers'."""
    import transformers
    from vllm.model_executor.models.registry import ModelRegistry

    heads = (name for name in dir(transformers) if name.endswith(("ForCausalLM", "ForConditionalGeneration")))
    return {*ModelRegistry.get_supported_archs(), *heads}


def device_memory() -> int | None:
    """Bytes of one simulated device; ``None`` on hardware, where asking would hold a context in this process."""
    from jumar_hostcann import probe

    if not probe.choose_backend().is_fallback:
        return None
    import torch

    return torch.npu.get_device_properties(0).total_memory
