"""Writes a checkpoint so that it is there completely or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

import compressed_tensors
import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig, QuantizationStatus
from safetensors.torch import save_file

from serving.tracebacks import UserError
from tools.quantize.schemes import Scheme
from tools.quantize.source import Source

# What a reader needs beside the weights and config.json.
_COPIED_SUFFIXES = frozenset({".json", ".jinja", ".model", ".tiktoken", ".txt", ".md"})
_NOT_COPIED = frozenset({"config.json", "model.safetensors.index.json"})


class CheckpointWriter:
    """A folder in the making beside ``out``, which becomes ``out`` when the block ends without an error.

    Raises:
        UserError: if ``out`` exists or can't be made.
    """

    def __init__(self, out: Path, shard_bytes: int) -> None:
        self.out = out
        self._shard_bytes = shard_bytes
        self._pending: dict[str, torch.Tensor] = {}
        self._pending_bytes = 0
        self._shards: list[list[str]] = []
        self.total_bytes = 0

    def __enter__(self) -> CheckpointWriter:
        if self.out.exists() or self.out.is_symlink():
            raise UserError(f"{self.out} exists: remove it, or name another folder with --out")
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.folder = Path(tempfile.mkdtemp(prefix=f".{self.out.name}.", dir=self.out.parent))
        except OSError as error:
            raise UserError(f"{self.out} can't be made: {error.strerror}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        self.folder.chmod(0o755)
        self.folder.rename(self.out)

    def add(self, name: str, tensor: torch.Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        if self._pending and self._pending_bytes + size > self._shard_bytes:
            self._flush()
        self._pending[name] = tensor.contiguous()
        self._pending_bytes += size
        self.total_bytes += size

    def _shard(self, number: int, of: int) -> str:
        return f"model-{number:05}-of-{of:05}.safetensors"

    def _flush(self) -> None:
        save_file(self._pending, self.folder / self._shard(len(self._shards) + 1, 0), metadata={"format": "pt"})
        self._shards.append(list(self._pending))
        self._pending, self._pending_bytes = {}, 0

    def finish(self, source: Source, scheme: Scheme, ignore: list[str]) -> None:
        """Ends the weights, and adds the configuration and what the source has beside its weights."""
        self._flush()
        count = len(self._shards)
        weight_map = {}
        for number, names in enumerate(self._shards, 1):
            final = "model.safetensors" if count == 1 else self._shard(number, count)
            path = self.folder / self._shard(number, 0)
            path.chmod(0o644)
            path.rename(self.folder / final)
            weight_map.update(dict.fromkeys(names, final))
        if count > 1:
            index = {"metadata": {"total_size": self.total_bytes}, "weight_map": dict(sorted(weight_map.items()))}
            (self.folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
        for path in sorted(source.folder.iterdir()):
            if path.is_file() and path.suffix in _COPIED_SUFFIXES and path.name not in _NOT_COPIED:
                shutil.copyfile(path, self.folder / path.name)
        (self.folder / "config.json").write_text(json.dumps(source.config, indent=2) + "\n")
        # The library's own writer of the configuration, so that the file is what its readers expect.
        quantization = QuantizationConfig(
            config_groups={"group_0": scheme.quantization},
            format=scheme.format.value,
            quantization_status=QuantizationStatus.COMPRESSED,
            ignore=ignore,
        )
        ModelCompressor(quantization_config=quantization).update_config(str(self.folder))


LIBRARY = f"compressed-tensors {compressed_tensors.__version__}"
