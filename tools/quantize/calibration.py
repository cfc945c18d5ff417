"""The rows of tokens that a model is calibrated with, and the inputs that its linear layers see for them."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from serving.tracebacks import UserError

_BATCH = 4  # samples that run together
KEPT_ROWS = 512  # inputs of each layer that output errors are taken over


def token_rows(tokenizer: Any, text: str, samples: int, length: int) -> torch.Tensor:
    """int64 [samples, length]: pieces of ``text``, evenly spaced. With a chat template every other one is a user's message.

    Raises:
        UserError: if the text is too short.
    """
    # A token has at most some 8 characters of prose on average: enough text for `length` tokens from each start.
    span = 8 * length
    if len(text) < span + samples:
        raise UserError(f"the calibration text has {len(text)} characters; {samples} samples of {length} tokens need {span + samples}")
    rows = []
    for sample in range(samples):
        start = sample * (len(text) - span) // max(samples - 1, 1)
        start = text.find(" ", start) + 1  # not within a word
        piece = text[start : start + span]
        if sample % 2 and tokenizer.chat_template:
            message = [{"role": "user", "content": piece}]
            piece = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            ids = tokenizer(piece, add_special_tokens=False)["input_ids"]
        else:
            ids = tokenizer(piece)["input_ids"]
        if len(ids) < length:
            raise UserError(f"sample {sample} of the calibration text has {len(ids)} tokens instead of {length}: give another text")
        rows.append(ids[:length])
    return torch.tensor(rows)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the calibration text {path} can't be read as UTF-8: {error}") from error


class Inputs:
    """What a linear layer saw: the greatest input, some of the inputs themselves, and, for GPTQ, the Hessian of its squared error."""

    def __init__(self, columns: int, rows: int, with_hessian: bool) -> None:
        self.hessian = torch.zeros(columns, columns, dtype=torch.float32) if with_hessian else None
        self.absmax = torch.zeros(())
        self.kept: list[torch.Tensor] = []
        self._step = max(1, rows // KEPT_ROWS)
        self._seen = 0

    def add(self, inputs: torch.Tensor) -> None:
        """inputs: [..., columns]."""
        flat = inputs.reshape(-1, inputs.shape[-1]).float()
        if self.hessian is not None:
            self.hessian.addmm_(flat.T, flat)
        self.absmax = torch.maximum(self.absmax, flat.abs().max())
        first = -self._seen % self._step
        self.kept.append(flat[first :: self._step].clone())
        self._seen += flat.shape[0]

    def rows(self) -> torch.Tensor:
        return torch.cat(self.kept)


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a leaf module of a decoder layer."""

    name: str  # the module's full one
    module: torch.nn.Module
    inputs: torch.Tensor
    outputs: torch.Tensor


class _Enough(Exception):
    """Ends a run of a layer whose outputs nobody needs."""


def _to_float(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.float()
    if isinstance(value, (tuple, list)):
        return type(value)(_to_float(item) for item in value)
    return value


class LayerRunner:
    """Runs a causal model of transformers one decoder layer at a time, in float32, on all the calibration rows.

    Memory: the model as it was loaded, one layer in float32, and the hidden states of all the rows.
    """

    def __init__(self, model: torch.nn.Module, rows: torch.Tensor) -> None:
        self._model = model
        decoder = model.get_decoder()
        lists = [(name, module) for name, module in decoder.named_modules() if isinstance(module, torch.nn.ModuleList)]
        if not lists:
            raise UserError(f"{type(model).__name__} has no list of decoder layers, so that it can't be calibrated: give --samples=0")
        name, self.layers = lists[0]
        prefix = next(n for n, module in model.named_modules() if module is decoder)
        self.prefix = ".".join(part for part in (prefix, name) if part)
        self._capture(decoder, rows)

    @torch.no_grad()
    def _capture(self, decoder: torch.nn.Module, rows: torch.Tensor) -> None:
        """The embeddings of all the rows, and each layer's other arguments, which are the same for rows of one length."""
        self._arguments: list[tuple[tuple, dict]] = []
        originals = [layer.forward for layer in self.layers]

        def record(hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            self._arguments.append((_to_float(args), {key: _to_float(value) for key, value in kwargs.items()}))
            return hidden

        embed = self._model.get_input_embeddings()
        self.hidden = torch.stack([embed(row).float() for row in rows])
        for layer in self.layers:
            layer.forward = record
        try:
            last = decoder(inputs_embeds=self.hidden[:1], use_cache=False).last_hidden_state
        finally:
            for layer, forward in zip(self.layers, originals):
                layer.forward = forward
        if len(self._arguments) != len(self.layers) or last.shape != self.hidden[:1].shape:
            raise UserError(f"{type(self._model).__name__} runs its layers in a way that calibration doesn't know: give --samples=0")
        # The final norm's input isn't needed, its module is: the output layer's inputs come from it.
        self._norm = getattr(decoder, "norm", None)

    def _inputs(self, columns: int, with_hessian: bool = False) -> Inputs:
        return Inputs(columns, self.hidden.shape[0] * self.hidden.shape[1], with_hessian)

    def _run(self, index: int, hidden: torch.Tensor) -> torch.Tensor:
        args, kwargs = self._arguments[index]
        output = self.layers[index](hidden, *args, **kwargs)
        return output[0] if isinstance(output, tuple) else output

    @torch.no_grad()
    def outputs(self, index: int, rows: int | None = None) -> torch.Tensor:
        """Layer ``index``'s outputs for the hidden states, or for the first ``rows`` of them. They stay."""
        return torch.cat([self._run(index, batch) for batch in self.hidden[:rows].split(_BATCH)])

    @torch.no_grad()
    def calls(self, index: int) -> list[Call]:
        """The uses of layer ``index``'s leaf modules for the first row, in order. It becomes float32."""
        calls: list[Call] = []

        def record(name: str, module: torch.nn.Module, inputs: tuple, outputs: Any) -> None:
            if inputs:
                calls.append(Call(name, module, inputs[0], outputs))

        leaves = [(name, module) for name, module in self.modules(index).items() if next(module.children(), None) is None]
        handles = [module.register_forward_hook(functools.partial(record, name)) for name, module in leaves]
        self.outputs(index, rows=1)
        for handle in handles:
            handle.remove()
        return calls

    @torch.no_grad()
    def observe(self, index: int, names: Collection[str], with_hessians: bool) -> dict[str, Inputs]:
        """The inputs of those linear modules of layer ``index`` whose full names are in ``names``. It becomes float32."""
        seen: dict[str, Inputs] = {}
        missing: set[str] = set()

        def add(name: str, inputs: torch.Tensor) -> None:
            seen[name].add(inputs)
            missing.discard(name)
            if not missing:
                raise _Enough

        handles = []
        for name, module in self.modules(index).items():
            if name in names:
                seen[name] = self._inputs(module.in_features, with_hessians)
                handles.append(module.register_forward_pre_hook(lambda _, inputs, name=name: add(name, inputs[0])))
        for batch in self.hidden.split(_BATCH):
            missing |= seen.keys()
            try:
                self._run(index, batch)
            except _Enough:
                pass
        for handle in handles:
            handle.remove()
        return seen

    def advance(self, index: int) -> None:
        """Makes layer ``index``'s outputs the hidden states, and frees the layer."""
        self.hidden = self.outputs(index)
        self.layers[index].to("meta")

    def modules(self, index: int) -> dict[str, torch.nn.Module]:
        """By full names. The layer becomes float32."""
        return {f"{self.prefix}.{index}.{name}": module for name, module in self.layers[index].float().named_modules() if name}

    @torch.no_grad()
    def observe_output_layer(self) -> Inputs:
        """The inputs of the output layer, once every layer has been advanced over."""
        inputs = self._inputs(self.hidden.shape[2])
        for row in range(self.hidden.shape[0]):
            hidden = self.hidden[row : row + 1]
            inputs.add(self._norm.float()(hidden) if self._norm is not None else hidden)
        return inputs
