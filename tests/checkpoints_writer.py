"""Writes small quantised checkpoints by the formats' public definitions, without vLLM and without the plugin.

Of compressed-tensors, its own compressor packs the weights and its own decompressor says what they are. The others are
packed here: AutoAWQ, AutoGPTQ, DeepSeek's fp8 blocks and ModelSlim's files. Beside each checkpoint stands what a float
program computes: a folder `reference` with the decoded weights, and `activations` in its config.json, which names how
each linear layer's input is rounded (checkpoints_reference.py).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]

# Activations of tiny_llama's layers stay within +-8, but for a few, which are cut off in the reference as well.
STATIC_RANGE = 8.0

E4M3_MAX = 448.0


@dataclasses.dataclass(frozen=True)
class Scheme:
    """One kind of checkpoint.

    config: `quantization_config` of config.json. files: further files, from the names of all tensors.
    encode: a linear layer's weight [n, k] in float32 -> its tensors by suffix, and the weight that they stand for.
    activations: how inputs are rounded: "", "int8_token", "int8_static", "int8_static_offset", "fp8_token",
        "fp8_tensor", "fp8_static", "fp8_group", "mxfp8", "mxfp4".
    """

    writer: str
    config: dict | None
    encode: Callable[[torch.Tensor], tuple[Tensors, torch.Tensor]]
    activations: str = ""
    files: Callable[[Tensors], dict[str, dict]] | None = None


def _scale_of(weight: torch.Tensor, args, block: list[int] | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and zero point of `weight` [n, k] by the largest (and smallest) values of each group."""
    from compressed_tensors.quantization.utils import calculate_qparams

    n, k = weight.shape
    if args.strategy == "tensor":
        low, high = weight.min().reshape(1), weight.max().reshape(1)
    elif args.strategy == "channel":
        low, high = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    elif args.strategy == "group":
        groups = weight.view(n, k // args.group_size, args.group_size)
        low, high = groups.amin(-1), groups.amax(-1)
    else:
        rows, cols = block
        tiles = weight.view(n // rows, rows, k // cols, cols)
        low, high = tiles.amin((1, 3)), tiles.amax((1, 3))
    return calculate_qparams(low, high, args)


def compressed_tensors(preset: str, activations: str = "", static_offset: int = 0, **weights: object) -> Scheme:
    """A scheme of compressed-tensors' list of presets, with `weights` changed in its weights' arguments."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.format import infer_module_format
    from compressed_tensors.quantization import QuantizationScheme, preset_name_to_scheme

    scheme = preset_name_to_scheme(preset, ["Linear"])
    if weights:
        changed = scheme.weights.model_dump() | weights
        scheme = QuantizationScheme.model_validate(scheme.model_dump() | {"weights": changed})
    if activations.startswith("int8_static"):
        inputs = dict(num_bits=8, type="int", strategy="tensor", dynamic=False, symmetric=not static_offset)
        scheme = QuantizationScheme.model_validate(scheme.model_dump() | {"input_activations": inputs})
    scheme.format = infer_module_format(torch.nn.Linear, scheme)
    compressor = BaseCompressor.get_value_from_registry(scheme.format.value)

    def encode(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        scale, zero_point = _scale_of(weight, scheme.weights, scheme.weights.block_structure)
        if scheme.format.value == "pack-quantized":
            scale = scale.bfloat16().float()  # as checkpoints of 16-bit models have it
        state = {"weight": weight, "weight_scale": scale}
        if not scheme.weights.symmetric:
            state["weight_zero_point"] = zero_point
        tensors = compressor.compress(dict(state), scheme)
        decoded = compressor.decompress(dict(tensors), scheme)["weight"].float()
        if scheme.format.value == "pack-quantized":
            tensors["weight_scale"] = tensors["weight_scale"].bfloat16()
        if "static" in activations:
            limit = E4M3_MAX if activations.startswith("fp8") else 127.0
            tensors["input_scale"] = torch.tensor([STATIC_RANGE / limit])
        if static_offset:
            tensors["input_zero_point"] = torch.tensor([static_offset], dtype=torch.int8)
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}, decoded

    config = dict(
        quant_method="compressed-tensors",
        format=scheme.format.value,
        config_groups={"group_0": json.loads(scheme.model_dump_json())},
        ignore=["lm_head"],
        quantization_status="compressed",
    )
    return Scheme("compressed-tensors", config, encode, activations)


def e4m3(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return torch.clamp(weight / scale, -E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def fp8_tensor(static: bool) -> Scheme:
    """``fp8``: a scale per tensor, max / 448."""

    def encode(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        scale = weight.abs().max() / E4M3_MAX
        quantised = e4m3(weight, scale)
        tensors = {"weight": quantised, "weight_scale": scale}
        if static:
            tensors["input_scale"] = torch.tensor(STATIC_RANGE / E4M3_MAX)
        return tensors, quantised.float() * scale

    config = dict(quant_method="fp8", activation_scheme="static" if static else "dynamic", ignored_layers=["lm_head"])
    return Scheme("by hand", config, encode, "fp8_static" if static else "fp8_token")


def deepseek() -> Scheme:
    """``fp8`` with 128 x 128 blocks and ``weight_scale_inv``, which multiplies."""

    def encode(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        n, k = weight.shape
        tiles = weight.view(n // 128, 128, k // 128, 128)
        scale = tiles.abs().amax((1, 3)) / E4M3_MAX
        quantised = e4m3(tiles, scale[:, None, :, None])
        decoded = (quantised.float() * scale[:, None, :, None]).view(n, k)
        return {"weight": quantised.view(n, k), "weight_scale_inv": scale}, decoded

    config = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128])
    return Scheme("by hand", config, encode, "fp8_group")


def _pack(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """Unsigned numbers [.., m] in int32 words [.., m * bits / 32], the first in the lowest bits."""
    words = numbers.to(torch.int64).unflatten(-1, (-1, 32 // bits)) << torch.arange(0, 32, bits)
    return words.sum(-1).to(torch.uint32).view(torch.int32)


def gptq(bits: int, group: int) -> Scheme:
    """AutoGPTQ, symmetric: qweight [k * bits / 32, n], scales [k / group, n], qzeros one less than the middle."""

    def encode(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        n, k = weight.shape
        middle = 1 << (bits - 1)
        size = k if group == -1 else group
        groups = weight.view(n, k // size, size)
        scale = (groups.abs().amax(-1, keepdim=True) / (middle - 1)).bfloat16().float()
        q = torch.clamp(torch.round(groups / scale), -middle, middle - 1)
        zeros = torch.full((k // size, n), middle - 1)
        return {
            "qweight": _pack((q + middle).view(n, k), bits).t(),
            "qzeros": _pack(zeros, bits),
            "scales": scale.view(n, -1).t().bfloat16(),
            "g_idx": torch.arange(k, dtype=torch.int32) // size,
        }, (q * scale).view(n, k)

    config = dict(quant_method="gptq", bits=bits, group_size=group, desc_act=False, sym=True, lm_head=False)
    return Scheme("by hand", config, encode)


# Where AutoAWQ puts each of eight outputs within a word.
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def awq(group: int) -> Scheme:
    """AutoAWQ: qweight [k, n / 8], qzeros [k / group, n / 8] with outputs in AWQ's order, scales [k / group, n]."""

    def words(numbers: torch.Tensor) -> torch.Tensor:
        return _pack(numbers.unflatten(-1, (-1, 8))[..., AWQ_ORDER].flatten(-2), 4)

    def encode(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        n, k = weight.shape
        groups = weight.view(n, k // group, group)
        low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        scale = ((high - low) / 15).bfloat16().float()
        zero = torch.clamp(torch.round(-low / scale), 0, 15)
        q = torch.clamp(torch.round(groups / scale) + zero, 0, 15)
        return {
            "qweight": words(q.view(n, k).t()),
            "qzeros": words(zero.view(n, -1).t()),
            "scales": scale.view(n, -1).t().bfloat16(),
        }, ((q - zero) * scale).view(n, k)

    config = dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm")
    return Scheme("by hand", config | {"modules_to_not_convert": ["lm_head"]}, encode)


def modelslim(kind: str) -> Scheme:
    """ModelSlim's files: a type for each weight in quant_model_description.json."""
    input_scale, input_offset = STATIC_RANGE / 127, -5

    def encode(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        offset = torch.zeros(weight.shape[0], 1)
        if kind == "W8A16":
            low, high = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
            scale = ((high - low) / 255).bfloat16().float()
            offset = torch.round(128 + low / scale)
            q = torch.clamp(torch.round(weight / scale) - offset, -128, 127)
        else:
            scale = weight.abs().amax(1, keepdim=True) / 127
            q = torch.round(weight / scale)
        tensors = {"weight": q.to(torch.int8), "weight_scale": scale, "weight_offset": offset}
        if kind == "W8A8":
            tensors |= {
                "input_scale": torch.tensor([input_scale]),
                "input_offset": torch.tensor([float(input_offset)]),
                "deq_scale": (scale * input_scale).flatten(),
                "quant_bias": (-input_offset * q.sum(1)).to(torch.int32),
            }
        return tensors, (q + offset) * scale

    def describe(tensors: Tensors) -> dict[str, dict]:
        linear = {name.rpartition(".")[0] for name, tensor in tensors.items() if tensor.dtype == torch.int8}
        types = {name: kind if name.rpartition(".")[0] in linear else "FLOAT" for name in tensors}
        return {"quant_model_description.json": {"model_quant_type": kind, "version": "1.0.0", **types}}

    activations = {"W8A8": "int8_static_offset", "W8A8_DYNAMIC": "int8_token", "W8A16": ""}[kind]
    return Scheme("by hand", None, encode, activations, describe)


SCHEMES: dict[str, Callable[[], Scheme]] = {
    "w8a8": lambda: compressed_tensors("W8A8", "int8_token"),
    "w8a8_tensor": lambda: compressed_tensors("W8A8", "int8_token", strategy="tensor"),
    "w8a8_static": lambda: compressed_tensors("W8A8", "int8_static"),
    "w8a8_static_offset": lambda: compressed_tensors("W8A8", "int8_static_offset", static_offset=-5),
    "fp8": lambda: compressed_tensors("FP8_DYNAMIC", "fp8_token"),
    "fp8_static": lambda: compressed_tensors("FP8", "fp8_static"),
    "fp8_block": lambda: compressed_tensors("FP8_BLOCK", "fp8_group"),
    "fp8_tensor": lambda: fp8_tensor(static=False),
    "fp8_tensor_static": lambda: fp8_tensor(static=True),
    "deepseek": deepseek,
    "w4a16": lambda: compressed_tensors("W4A16"),
    "w4a16_g32": lambda: compressed_tensors("W4A16", group_size=32),
    "w4a16_offset": lambda: compressed_tensors("W4A16_ASYM"),
    "w4a16_channel": lambda: compressed_tensors("W4A16", strategy="channel", group_size=None),
    "w8a16": lambda: compressed_tensors("W8A16"),
    "mxfp8": lambda: compressed_tensors("MXFP8", "mxfp8"),
    "mxfp4": lambda: compressed_tensors("MXFP4", "mxfp4"),
    "gptq4": lambda: gptq(4, 128),
    "gptq4_channel": lambda: gptq(4, -1),
    "gptq8": lambda: gptq(8, 32),
    "awq": lambda: awq(128),
    "modelslim_w8a8": lambda: modelslim("W8A8"),
    "modelslim_w8a8_dynamic": lambda: modelslim("W8A8_DYNAMIC"),
    "modelslim_w8a16": lambda: modelslim("W8A16"),
}


def is_linear(name: str) -> bool:
    """Whether the checkpoint's tensor `name` is the weight of a layer that the schemes quantise."""
    return name.endswith("_proj.weight")


def write(scheme: Scheme, source: Path, out: Path) -> None:
    """Writes the checkpoint `out` from the float32 one at `source`, and `out`/reference."""
    reference = out / "reference"
    reference.mkdir(parents=True)
    tensors: Tensors = {}
    decoded: Tensors = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        if is_linear(name):
            parts, decoded[name] = scheme.encode(tensor)
            tensors |= {f"{name.removesuffix('weight')}{suffix}": part for suffix, part in parts.items()}
        else:
            tensors[name] = decoded[name] = tensor
    for folder in (out, reference):
        for file in source.iterdir():
            if file.suffix in (".json", ".jinja") and file.name != "config.json":
                shutil.copyfile(file, folder / file.name)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, out / "model.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in decoded.items()}, reference / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    (reference / "config.json").write_text(json.dumps(config | {"activations": scheme.activations}))
    if scheme.config is not None:
        config["quantization_config"] = scheme.config
    (out / "config.json").write_text(json.dumps(config))
    for name, content in (scheme.files(tensors) if scheme.files else {}).items():
        (out / name).write_text(json.dumps(content))
