"""The quantiser: a folder to a folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
import transformers

from serving.tracebacks import UserError
from tools.quantize import calibration, layers, report, schemes
from tools.quantize.calibration import Inputs, LayerRunner
from tools.quantize.layers import LayerError, Quantised
from tools.quantize.schemes import Scheme
from tools.quantize.source import ROUTER, Source
from tools.quantize.writer import LIBRARY, CheckpointWriter

SAMPLES = 32  # where calibration decides about codes or scales
REPORT_SAMPLES = 4  # where it only measures


@dataclass(frozen=True, slots=True)
class Options:
    model: Path
    scheme: str
    out: Path
    group_size: int | None = None
    rounding: str = "auto"
    lm_head: bool = False
    ignore: tuple[str, ...] = ()  # regular expressions of layers' names
    calibration_text: Path | None = None
    samples: int | None = None  # 32 if the scheme needs calibration, else 4
    length: int = 512
    shard_bytes: int = 5 << 30


class Progress(Protocol):
    """A bar: ``tick`` moves it by one of ``total``."""

    def start(self, what: str, total: int) -> Callable[[], None]: ...


@dataclass(slots=True)
class _Work:
    scheme: Scheme
    names: list[str]
    done: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    errors: list[LayerError] = field(default_factory=list)

    def layer(self, name: str, weight: torch.Tensor, inputs: Inputs | None) -> Quantised:
        result = layers.quantise(name, weight, self.scheme, inputs)
        self.errors.append(result.error)
        return result


def _choose(source: Source, options: Options) -> tuple[list[str], list[str]]:
    """The layers to quantise, and the linear layers that stay."""
    names, others = source.linear_layers()
    heads = [name for name in others if not ROUTER.search(name)]
    if options.lm_head:
        stored = [name for name in heads if f"{name}.weight" in source.files]
        if not stored:
            raise UserError("--lm_head: the output layer is tied to the embeddings, which stay as they are: leave the flag out")
        names += stored
        others = [name for name in others if name not in stored]
    for pattern in options.ignore:
        try:
            matching = [name for name in names if re.search(pattern, name)]
        except re.error as error:
            raise UserError(f"--ignore={pattern} is no regular expression: {error}") from error
        if not matching:
            raise UserError(f"--ignore={pattern} matches no linear layer; they have names like {names[0]}")
        names = [name for name in names if name not in matching]
        others += matching
    if not names:
        raise UserError("--ignore leaves no layer to quantise: give a narrower expression")
    return names, others


def _calibrate(source: Source, options: Options, samples: int, work: _Work, progress: Progress) -> None:
    """Quantises every layer that the calibration reaches, in order."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.folder, local_files_only=True)
    assert options.calibration_text is not None
    text = calibration.read_text(options.calibration_text)
    rows = calibration.token_rows(tokenizer, text, samples, options.length)
    model = source.load_model()
    # Only rounding that makes up for errors gains from inputs that have the errors of the layers before.
    feed_errors = work.scheme.rounding == "gptq"
    runner = LayerRunner(model, rows, with_hessians=feed_errors)
    wanted = set(work.names)
    tick = progress.start("calibrating", len(runner.layers) * runner.batches * (2 if feed_errors else 1))
    for index in range(len(runner.layers)):
        seen, outputs = runner.observe(index, wanted, tick)
        for name, module in runner.modules(index):
            if name not in wanted:
                continue
            if f"{name}.weight" not in source.files:
                raise UserError(f"{source.folder} stores {name} under another name: give --samples=0")
            result = work.layer(name, source.tensor(f"{name}.weight"), seen[name])
            work.done[name] = result.tensors
            if feed_errors:
                module.weight.data.copy_(result.weight)
        runner.advance(index, runner.outputs(index, tick) if feed_errors else outputs)
    for name in wanted - set(work.done):
        if model.get_output_embeddings() is not None and name == "lm_head":
            work.done[name] = work.layer(name, source.tensor(f"{name}.weight"), runner.observe_output_layer()).tensors


def quantise(options: Options, progress: Progress) -> report.Report:
    """Writes the checkpoint ``options.out``.

    Raises:
        UserError: for input that can't be quantised as asked; then nothing is left at ``options.out``.
    """
    source = Source(options.model)
    names, others = _choose(source, options)
    widths = {source.shape(f"{name}.weight")[1] for name in names}
    scheme = schemes.make(options.scheme, widths, options.group_size, options.rounding)
    for name in names:
        scheme.check_width(name, source.shape(f"{name}.weight")[1])
    needed = scheme.needs_calibration or scheme.rounding == "gptq"
    if options.samples == 0 and needed:
        what = f"scheme {scheme.name}" if scheme.needs_calibration else "--rounding=gptq"
        raise UserError(f"--samples=0: {what} needs calibration; give some, {SAMPLES} is the default")
    samples = options.samples if options.samples is not None else SAMPLES if needed else REPORT_SAMPLES
    work = _Work(scheme, names)
    with CheckpointWriter(options.out, options.shard_bytes) as writer:
        if samples:
            _calibrate(source, options, samples, work, progress)
        tick = progress.start("writing", len(source.files))
        wanted = set(names)
        source_bytes = 0
        for tensor_name, tensor in source.tensors():
            source_bytes += tensor.numel() * tensor.element_size()
            name = tensor_name.removesuffix(".weight")
            if name != tensor_name and name in wanted:
                compressed = work.done.pop(name, None)
                if compressed is None:
                    compressed = work.layer(name, tensor, None).tensors
                for local, value in sorted(compressed.items()):
                    writer.add(f"{name}.{local}", value)
            else:
                writer.add(tensor_name, tensor)
            tick()
        writer.finish(source, scheme, others)
        order = {name: position for position, name in enumerate(names)}
        made = report.Report(
            model=source.folder.name,
            scheme=scheme.name,
            library=LIBRARY,
            rounding=scheme.rounding,
            group_size=scheme.weights.group_size,
            calibration=options.calibration_text.name if samples and options.calibration_text else None,
            samples=samples,
            length=options.length,
            source_bytes=source_bytes,
            bytes=writer.total_bytes,
            layers=sorted(work.errors, key=lambda error: order[error.name]),
        )
        made.write(writer.folder)
    return made
