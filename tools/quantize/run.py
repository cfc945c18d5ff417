"""The quantiser: a folder to a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
import transformers

from serving.tracebacks import UserError
from tools.quantize import calibration, folding, layers, report, schemes
from tools.quantize.calibration import Call, Inputs, LayerRunner
from tools.quantize.folding import Fold
from tools.quantize.layers import LayerError, Quantised
from tools.quantize.schemes import Scheme
from tools.quantize.source import ROUTER, Source
from tools.quantize.writer import LIBRARY, CheckpointWriter

SAMPLES = 32  # where calibration decides about codes or scales
FOLD_SAMPLES = 8  # where it decides about folding alone
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
    fold: bool = True  # where the scheme gains by it and there is calibration
    calibration_text: Path | None = None
    samples: int | None = None  # 32 if the scheme needs calibration, 8 if it only gains by folding, else 4
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
    norms: dict[str, torch.Tensor] = field(default_factory=dict)  # tensors that folding changed
    folds: list[Fold] = field(default_factory=list)

    def layer(self, name: str, weight: torch.Tensor, inputs: Inputs | None, folded: torch.Tensor | None = None) -> Quantised:
        result = layers.quantise(name, weight, self.scheme, inputs, folded)
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


def _stages(calls: list[Call], wanted: set[str], modules: Collection[str]) -> list[list[str]]:
    """The layers to quantise in the order of their use; those that share an input together."""
    stages: list[tuple[torch.Tensor | None, list[str]]] = []
    for call in calls:
        if call.name in wanted:
            if not stages or stages[-1][0] is not call.inputs:
                stages.append((call.inputs, []))
            stages[-1][1].append(call.name)
    used = {name for _, names in stages for name in names}
    # Experts that the first row didn't reach.
    return [names for _, names in stages] + [[name] for name in modules if name in wanted - used]


def _fold(source: Source, runner: LayerRunner, index: int, calls: list[Call], work: _Work) -> None:
    modules = runner.modules(index)
    found = [site for site in folding.sites(calls, set(work.names)) if f"{site.producer}.weight" in source.files]
    seen = runner.observe(index, [site.consumers[0] for site in found], with_hessians=False)
    for site in found:
        dtype = source.tensor(f"{site.consumers[0]}.weight").dtype
        fold = folding.fold(site, modules, seen[site.consumers[0]], work.scheme, dtype, lambda: runner.outputs(index, rows=1))
        if fold is None:
            continue
        work.folds.append(fold)
        if site.producer not in work.names:
            work.norms[f"{site.producer}.weight"] = modules[site.producer].weight.data.to(dtype)


def _calibrate(source: Source, options: Options, samples: int, work: _Work, progress: Progress) -> None:
    """Quantises every layer that the calibration reaches, in order."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.folder, local_files_only=True)
    assert options.calibration_text is not None
    text = calibration.read_text(options.calibration_text)
    rows = calibration.token_rows(tokenizer, text, samples, options.length)
    model = source.load_model()
    # Only rounding that makes up for errors gains from inputs that have the errors of what comes before, in the same layer as well.
    feed_errors = work.scheme.rounding == "gptq"
    runner = LayerRunner(model, rows)
    wanted = set(work.names)
    tick = progress.start("calibrating", len(runner.layers))
    for index in range(len(runner.layers)):
        calls = runner.calls(index)
        modules = runner.modules(index)
        for name in wanted & modules.keys():
            if f"{name}.weight" not in source.files:
                raise UserError(f"{source.folder} stores {name} under another name: give --samples=0")
        if options.fold and work.scheme.folds:
            _fold(source, runner, index, calls, work)
        stages = _stages(calls, wanted, modules)
        for group in [[stage] for stage in stages] if feed_errors else [stages]:
            seen = runner.observe(index, [stage[0] for stage in group], feed_errors)
            for stage in group:
                for name in stage:
                    weight = modules[name].weight.data
                    result = work.layer(name, source.tensor(f"{name}.weight"), seen[stage[0]], weight)
                    work.done[name] = result.tensors
                    if feed_errors:
                        weight.copy_(result.weight)
        runner.advance(index)
        tick()
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
    uneven = scheme.uneven({name: source.shape(f"{name}.weight")[0] for name in names})
    names = [name for name in names if name not in uneven]
    others += uneven
    if not names:
        raise UserError(f"{scheme.name}: no layer has a whole number of blocks where engines join layers: take a scheme without blocks")
    for name in names:
        scheme.check_width(name, source.shape(f"{name}.weight")[1])
    needed = scheme.needs_calibration or scheme.rounding == "gptq"
    if options.samples == 0 and needed:
        what = f"scheme {scheme.name}" if scheme.needs_calibration else "--rounding=gptq"
        raise UserError(f"--samples=0: {what} needs calibration; give some, {SAMPLES} is the default")
    samples = options.samples
    if samples is None:
        samples = SAMPLES if needed else FOLD_SAMPLES if options.fold and scheme.folds else REPORT_SAMPLES
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
                writer.add(tensor_name, work.norms.get(tensor_name, tensor))
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
            folds=work.folds,
            uneven=uneven,
            length=options.length,
            source_bytes=source_bytes,
            bytes=writer.total_bytes,
            layers=sorted(work.errors, key=lambda error: order[error.name]),
        )
        made.write(writer.folder)
    return made
