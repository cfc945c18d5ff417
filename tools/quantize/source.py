"""A model's folder as the quantiser reads it: tensor by tensor, without a model in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import torch
import transformers
from safetensors import safe_open

from serving import checkpoint
from serving.tracebacks import UserError, explain

# Experts, which transformers keep in one tensor and checkpoints don't; and what chooses among them, which is never quantised.
_EXPERT = re.compile(r"\.experts\.\d+\.\w+$")
ROUTER = re.compile(r"\.(?:gate|router)$")


class Source:
    """The checkpoint in ``folder``.

    Raises:
        UserError: if a file is missing or damaged, or the model is quantised already or of an unknown architecture.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}: give one of a Hugging Face model with --model")
        self.folder = folder
        self.config = checkpoint.read_json(folder / "config.json")
        if self.config.get("quantization_config"):
            method = self.config["quantization_config"].get("quant_method", "an unknown method")
            raise UserError(f"{folder} is quantised already (by {method}): give the model that it was made from")
        if checkpoint.check_weights(folder) is None:
            raise UserError(f"{folder} has its weights in another format than safetensors: convert it first")
        checkpoint.check_tokenizer(folder)
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            files = sorted(set(checkpoint.read_json(index)["weight_map"].values()))
        else:
            files = sorted(path.name for path in folder.glob("*.safetensors"))
        self.files: dict[str, str] = {}  # tensor -> file, in the files' order
        self._shapes: dict[str, list[int]] = {}
        for file in files:
            for name, entry in checkpoint.read_safetensors_header(folder / file).items():
                self.files[name] = file
                self._shapes[name] = entry["shape"]

    def shape(self, name: str) -> list[int]:
        return self._shapes[name]

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor once, one at a time in memory."""
        file = None
        reader = None
        for name, of in self.files.items():
            if of != file:
                file, reader = of, safe_open(self.folder / of, framework="pt")
            yield name, reader.get_tensor(name)

    def tensor(self, name: str) -> torch.Tensor:
        with safe_open(self.folder / self.files[name], framework="pt") as reader:
            return reader.get_tensor(name)

    def linear_layers(self) -> tuple[list[str], list[str]]:
        """Names of the linear layers that are quantised unless told otherwise, and of those that aren't: the output layer, routers."""
        try:
            config = transformers.AutoConfig.from_pretrained(self.folder)
            with torch.device("meta"):
                model = transformers.AutoModelForCausalLM.from_config(config)
        except Exception as error:  # transformers raises whatever it meets
            raise UserError(f"transformers can't make a causal language model of {self.folder / 'config.json'}: {explain(error)}") from error
        linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
        head = next((name for name, module in model.named_modules() if module is model.get_output_embeddings()), None)
        inner, outer = [], []
        for tensor in self.files:
            name = tensor.removesuffix(".weight")
            if name == tensor or len(self.shape(tensor)) != 2:
                continue
            if name == head or ROUTER.search(name):
                outer.append(name)
            elif name in linear or _EXPERT.search(name):
                inner.append(name)
        if head is not None and head not in outer:
            outer.append(head)  # tied to the embeddings: no tensor of its own, but a reader's model has the layer
        if not inner:
            raise UserError(f"{self.folder} has no linear layers whose names transformers knows: nothing to quantise")
        return inner, outer

    def load_model(self) -> torch.nn.Module:
        """The model of transformers, in the checkpoint's dtype."""
        return transformers.AutoModelForCausalLM.from_pretrained(self.folder, dtype="auto", local_files_only=True).eval()
