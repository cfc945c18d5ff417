"""Folding: moves a part of the size of an input's channels into the weights, before both are rounded. The model stays the same function.

A linear layer's output x W^T is (x / s)(W s)^T for any s > 0, one for each input channel. x / s costs nothing where it can be moved into
what makes x:

    a norm        g * normalised(h) becomes (g / s) * normalised(h), for all the layers that read it: q, k and v, or gate and up
    up_proj       act(gate) * up becomes act(gate) * (up / s), for down_proj

Where activations are rounded, few channels far greater than the others set the scale for all. Xiao, Lin, Seznec, Wu, Demouth, Han:
"SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models", ICML 2023, arXiv:2211.10438, equation 4:
s_j = max|x_j|^a / max|w_j|^(1-a). Where weights alone are, channels of great inputs deserve finer weights. Lin et al.: "AWQ:
Activation-aware Weight Quantization for LLM Compression and Acceleration", MLSys 2024, arXiv:2306.00978, equation 4: s_j = mean|x_j|^a.
The exponent a is the one of a grid with which the layers' outputs err least on the calibration's inputs, as both papers search it; no
folding is one of the candidates.

Whether a module is what the table above says is not taken from its name alone: a fold that changes the decoder layer's outputs by more
than float32 rounds is undone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch

from tools.quantize import layers
from tools.quantize.calibration import Call, Inputs
from tools.quantize.schemes import Scheme

_ALPHAS = tuple(step / 10 for step in range(1, 11))
_SAME = 1e-4  # of the outputs' norm: float32 rounds by some 1e-6, a wrong fold changes all of it


@dataclass(frozen=True, slots=True)
class Site:
    """Where a fold is possible. Modules by their full names."""

    producer: str
    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """One that was done."""

    producer: str
    consumers: tuple[str, ...]
    alpha: float
    gain_db: float  # by how much the consumers' output error, as a share of their outputs, shrank


def sites(calls: Collection[Call], wanted: Collection[str]) -> list[Site]:
    """The sites among a decoder layer's ``calls``, of one run of it. Every consumer is in ``wanted``, the layers to quantise."""
    found = []
    for call in calls:
        if isinstance(call.module, torch.nn.Linear) or not _is_norm(call):
            continue
        consumers = [reader for reader in calls if reader.inputs is call.outputs]
        if consumers and all(reader.name in wanted for reader in consumers):
            found.append(Site(call.name, tuple(reader.name for reader in consumers)))
    names = {call.name for call in calls}
    for name in sorted(names):
        parent, _, local = name.rpartition(".")
        if local == "down_proj" and {name, f"{parent}.up_proj"} <= names & set(wanted):
            found.append(Site(f"{parent}.up_proj", (name,)))
    return found


def _is_norm(call: Call) -> bool:
    weight = getattr(call.module, "weight", None)
    return weight is not None and weight.dim() == 1 and getattr(call.module, "bias", None) is None


def _spread(values: torch.Tensor) -> torch.Tensor:
    """Divided by their geometric mean, so that what a fold moves is the channels' difference only."""
    return values / values.log().mean().exp()


def candidates(inputs: torch.Tensor, weights: list[torch.Tensor], scheme: Scheme) -> dict[float, torch.Tensor]:
    """exponent -> scales [columns] for inputs [rows, columns] that layers with weights [_, columns] share."""
    least = torch.finfo(torch.float32).eps
    if scheme.activations is None:
        size = inputs.abs().mean(0)
        size = size.clamp_min(least * float(size.max()))
        return {alpha: _spread(size**alpha) for alpha in _ALPHAS}
    size = inputs.abs().amax(0)
    weight = torch.stack([w.abs().amax(0) for w in weights]).amax(0)
    size, weight = size.clamp_min(least * float(size.max())), weight.clamp_min(least * float(weight.max()))
    return {alpha: _spread(size**alpha / weight ** (1 - alpha)) for alpha in _ALPHAS}


def _error(inputs: torch.Tensor, weights: list[torch.Tensor], scale: torch.Tensor, scheme: Scheme, dtype: torch.dtype) -> float:
    """Mean over the layers of |X W^T - X' W'^T|^2 / |X W^T|^2, rounded to the nearest under ``scale``."""
    seen = inputs / scale
    if scheme.activations is not None:
        static = layers.static_scale(seen.abs().amax(), scheme.activations, dtype) if scheme.needs_calibration else None
        seen = layers.quantise_inputs(seen, scheme.activations, static)
    total = 0.0
    for weight in weights:
        exact = inputs @ weight.T
        noise = (seen @ layers.nearest(weight * scale, scheme, dtype).T - exact).square().sum()
        total += float(noise) / max(float(exact.square().sum()), 1e-30)
    return total / len(weights)


def _divide(producer: torch.nn.Module, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Makes the producer's outputs smaller by ``scale``, and returns by how much they really are: a norm's weights are stored in ``dtype``."""
    weight = producer.weight.data
    if weight.dim() == 2:
        weight.div_(scale[:, None])
        return scale
    stored = (weight / scale).to(dtype).float()
    lost = stored == 0
    scale = torch.where(lost, 1, weight / torch.where(lost, 1, stored))
    weight.copy_(torch.where(lost, weight, stored))
    return scale


@torch.no_grad()
def fold(
    site: Site,
    modules: Mapping[str, torch.nn.Module],
    inputs: Inputs,
    scheme: Scheme,
    dtype: torch.dtype,
    outputs: Callable[[], torch.Tensor],
) -> Fold | None:
    """Folds the best of the candidates into ``modules``, which are float32, if one is better than none.

    Args:
        inputs: what the consumers saw.
        dtype: what the checkpoint stores norms and scales in.
        outputs: runs the decoder layer on a few rows.
    """
    producer, consumers = modules[site.producer], [modules[name] for name in site.consumers]
    # A bias of up_proj isn't quantised: it would have to be stored again.
    if getattr(producer, "bias", None) is not None or producer.weight.shape[0] != consumers[0].in_features:
        return None
    weights = [module.weight.data for module in consumers]
    rows = inputs.rows()
    plain = _error(rows, weights, torch.ones(rows.shape[1]), scheme, dtype)
    tried = candidates(rows, weights, scheme)
    errors = {alpha: _error(rows, weights, scale, scheme, dtype) for alpha, scale in tried.items()}
    alpha = min(errors, key=errors.__getitem__)
    if not errors[alpha] < plain:
        return None
    before = outputs()
    kept = [module.weight.data.clone() for module in (producer, *consumers)]
    scale = _divide(producer, tried[alpha], dtype)
    for module in consumers:
        module.weight.data.mul_(scale)
    if not (outputs() - before).norm() <= _SAME * before.norm():
        for module, weight in zip((producer, *consumers), kept):
            module.weight.data.copy_(weight)
        return None
    return Fold(site.producer, site.consumers, alpha, 10 * math.log10(plain / max(errors[alpha], 1e-30)))
