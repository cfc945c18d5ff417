"""The number formats that are measured: their checkpoints, their peers' files, and what each is to reach."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quant import gguf_file
from serving.checkpoint import read_json, read_safetensors_header


class CacheError(RuntimeError):
    """A checkpoint could not be made; the message has the end of the quantiser's."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format of a model's weights.

    Attributes:
        scheme: //tools:quantize's name; "" for the model as it is.
        times_bf16: goal of single-stream decode, as a multiple of bf16's.
        share: goal of single-stream decode, as a share of what reading the weights at the memory's bandwidth allows.
        gguf: (format of the layers, of the embedding) of llama.cpp's files with about the same bits; the first is the one of the goal.
        vllm_cpu: goal against vLLM's CPU backend on the same checkpoint.
        chip: what the simulated device says it is, where the default one lacks the format.
    """

    name: str
    scheme: str = ""
    times_bf16: float | None = None
    share: float | None = None
    gguf: tuple[tuple[str, str], ...] = ()
    vllm_cpu: float | None = None
    chip: str = ""


_CHIP_WITH_FP8 = "Ascend950PR"

# The quantiser leaves the embedding, which is the default model's output layer too, in 16 bits; so do the first files of llama.cpp.
# Its usual files have 8 bits there: they read less, and compute something else.
FORMATS = (
    Format("bf16", share=0.8, gguf=(("F16", "F16"), ("BF16", "BF16"))),
    Format("w8a8", "w8a8", times_bf16=1.6, gguf=(("Q8_0", "F16"), ("Q8_0", "Q8_0")), vllm_cpu=2.0),
    Format("w8a16", "w8a16"),
    Format("fp8", "fp8", chip=_CHIP_WITH_FP8),
    Format("fp8_block", "fp8_block", chip=_CHIP_WITH_FP8),
    Format("w4a16", "w4a16", times_bf16=2.4, gguf=(("Q4_0", "F16"), ("Q4_0", "Q8_0"))),
    Format("mxfp8", "mxfp8", chip=_CHIP_WITH_FP8),
)
NAMES = tuple(format.name for format in FORMATS)
LLAMA_GOAL = 1.0


def chosen(names: Iterable[str]) -> list[Format]:
    """The formats of these names, in the order of FORMATS.

    Raises:
        ValueError: for a name that isn't there.
    """
    names = list(names)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"{unknown[0]} is none of the formats {', '.join(NAMES)}")
    return [format for format in FORMATS if format.name in names]


class Cache:
    """Checkpoints and GGUF files of one model, made when they are first asked for, in a folder that outlives the run."""

    def __init__(self, folder: Path, model: Path, quantizer: Path, progress: Callable[[str], None] = lambda _: None) -> None:
        self._model, self._quantizer, self._progress = model, quantizer, progress
        # Another model, or another quantiser or writer, has another folder.
        digest = hashlib.sha256()
        for file in [*sorted(model.iterdir()), *sorted(quantizer.parent.glob("*.py")), Path(gguf_file.__file__)]:
            digest.update(file.read_bytes() if file.is_file() else b"")
        self.folder = folder / f"{model.name}-{digest.hexdigest()[:12]}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def checkpoint(self, format: Format) -> Path:
        if not format.scheme:
            return self._model
        out = self.folder / format.scheme
        if not out.exists():
            self._progress(f"quantising the model to {format.scheme}, into {out}")
            part = self.folder / f"{format.scheme}.part"
            shutil.rmtree(part, ignore_errors=True)
            command = [str(self._quantizer), f"--model={self._model}", f"--scheme={format.scheme}", f"--out={part}"]
            # The program is Python of another Bazel target, which sets its own path.
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if result.returncode:
                raise CacheError(f"//tools:quantize --scheme {format.scheme} failed:\n{result.stderr[-2000:]}")
            part.rename(out)
        return out

    def gguf(self, weights: str, embedding: str) -> Path:
        out = self.folder / f"{weights}-embedding-{embedding}.gguf"
        if not out.exists():
            self._progress(f"writing {out}")
            gguf_file.write(self._model, out, weights, embedding)
        return out


def weight_bytes(checkpoint: Path) -> int:
    """Bytes of weights that a decode step reads: all tensors, but of an embedding that isn't the output layer next to nothing."""
    config = read_json(checkpoint / "config.json")
    total = 0
    for file in checkpoint.glob("*.safetensors"):
        for name, tensor in read_safetensors_header(file).items():
            if name.endswith("embed_tokens.weight") and not config.get("tie_word_embeddings"):
                continue
            begin, end = tensor["data_offsets"]
            total += end - begin
    return total
