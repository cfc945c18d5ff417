"""Reads what can be checked of a Hugging Face model folder without loading a tensor.

The layout of a safetensors file, from its specification: 8 bytes, the length N of the header (little
endian); N bytes of JSON that map each tensor's name to its dtype, shape and ``data_offsets`` (begin, end)
relative to the byte after the header; then the tensors' bytes without holes or overlaps.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.tracebacks import UserError

# The format's own limit on a header.
MAX_HEADER_BYTES = 100_000_000

# Bits of one element. A dtype that is not here (a newer one) is checked for its offsets only.
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip

# What a loader converts to the model's dtype; integers and 8-bit formats stay as they are.
CONVERTED_DTYPES = frozenset({"F16", "BF16", "F32", "F64"})

_LFS_POINTER = b"version https://git-lfs"


class CheckpointError(UserError):
    """A file of the checkpoint is missing or damaged; the message is for the user."""


@dataclass(frozen=True, slots=True)
class CheckpointSize:
    """Bytes of a checkpoint's tensors."""

    fixed_bytes: int  # loaded as they are stored
    converted_elements: int  # loaded as the model's dtype

    def loaded_bytes(self, bytes_per_element: int) -> int:
        return self.fixed_bytes + self.converted_elements * bytes_per_element


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``.

    Raises:
        CheckpointError: if it can't be read or holds something else.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:  # also UnicodeDecodeError
        raise CheckpointError(f"{path} is not valid JSON ({error}): fetch the model again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a JSON {type(value).__name__} instead of an object: fetch the model again")
    return value


def read_safetensors_header(path: Path) -> dict[str, dict[str, Any]]:
    """The entries of a safetensors file by tensor name, after checking them against the file's size.

    Raises:
        CheckpointError: for a truncated or damaged file.
    """

    def damaged(reason: str) -> CheckpointError:
        return CheckpointError(f"{path} is corrupt or truncated: {reason}; fetch it again")

    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(max(8, len(_LFS_POINTER)))
            if head.startswith(_LFS_POINTER):
                raise CheckpointError(f"{path} is a Git LFS pointer of {size} bytes, not the weights: run `git lfs pull`")
            if size < 8:
                raise damaged(f"{size} bytes, and a safetensors file has at least 8")
            length = int.from_bytes(head[:8], "little")
            if length > MAX_HEADER_BYTES:
                raise damaged(f"its header would have {length} bytes, more than the format's {MAX_HEADER_BYTES}")
            if 8 + length > size:
                raise damaged(f"its header would end at byte {8 + length} of {size}")
            file.seek(8)
            header = json.loads(file.read(length))
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        if isinstance(error, CheckpointError):
            raise
        raise damaged(f"its header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise damaged("its header is not a JSON object")
    header.pop("__metadata__", None)

    available = size - 8 - length
    spans = []
    for name, entry in header.items():
        try:
            begin, end = entry["data_offsets"]
            elements = math.prod(entry["shape"])
            bits = DTYPE_BITS.get(entry["dtype"])
            wanted = end - begin if bits is None else (elements * bits + 7) // 8
        except (TypeError, KeyError, ValueError) as error:
            raise damaged(f"the entry of tensor {name!r} is incomplete") from error
        if not 0 <= begin <= end or end - begin != wanted:
            raise damaged(
                f"tensor {name!r} ({entry['dtype']} {entry['shape']}) needs {wanted} bytes and has {end - begin}"
            )
        spans.append((begin, end, name))
    expected = 0
    for begin, end, name in sorted(spans):
        if begin != expected:
            raise damaged(f"tensor {name!r} starts at byte {begin} of the data instead of {expected}")
        expected = end
    if expected != available:
        raise damaged(f"its tensors take {expected} bytes, and {available} follow the header")
    return header


def check_weights(folder: Path) -> CheckpointSize | None:
    """Checks every safetensors file of a model folder, with its index if there is one.

    Returns:
        The tensors' size, or ``None`` if the weights are in a format whose files can't be checked cheaply.

    Raises:
        CheckpointError: if there are no weights, a shard is missing, or a file is damaged.
    """
    index_path = folder / "model.safetensors.index.json"
    if index_path.is_file():
        weight_map = read_json(index_path).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{index_path} has no weight_map: fetch the model again")
        names = sorted(set(weight_map.values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise CheckpointError(
                f"{folder} lacks {len(missing)} of the {len(names)} weight files that its index names "
                f"({', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}): fetch them"
            )
    else:
        weight_map = {}
        names = sorted(path.name for path in folder.glob("*.safetensors"))
        if not names:
            if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.gguf")):
                return None
            raise CheckpointError(f"{folder} has no weights (*.safetensors, *.bin): fetch them, or check the folder")

    fixed_bytes = converted_elements = 0
    where: dict[str, str] = {}
    for name in names:
        for tensor, entry in read_safetensors_header(folder / name).items():
            where[tensor] = name
            if entry["dtype"] in CONVERTED_DTYPES:
                converted_elements += math.prod(entry["shape"])
            else:
                begin, end = entry["data_offsets"]
                fixed_bytes += end - begin
    for tensor, name in weight_map.items():
        if where.get(tensor) != name:
            raise CheckpointError(f"{folder / name} lacks tensor {tensor!r}, which the index places there: fetch it again")
    return CheckpointSize(fixed_bytes, converted_elements)


# Each row: files that together make a tokenizer.
_TOKENIZER_FILES = (
    ("tokenizer.json",),
    ("tokenizer.model",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
    ("tekken.json",),
    ("tiktoken.model",),
    ("qwen.tiktoken",),
    ("spiece.model",),
)


def check_tokenizer(folder: Path) -> None:
    """Raises CheckpointError if ``folder`` has no tokenizer, or one whose JSON is damaged."""
    for files in _TOKENIZER_FILES:
        if all((folder / name).is_file() for name in files):
            for name in files:
                if name.endswith(".json"):
                    read_json(folder / name)
            return
    raise CheckpointError(
        f"{folder} has no tokenizer (tokenizer.json, tokenizer.model, or vocab.json with merges.txt): "
        "fetch it, or name another folder with --tokenizer"
    )
