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
        state = {"weight": weight, "weight_scale": scale}
        if not scheme.weights.symmetric:
            state["weight_zero_point"] = zero_point
        tensors = compressor.compress(dict(state), scheme)
        decoded = compressor.decompress(dict(tensors), scheme)["weight"].float()
        # As in checkpoints of 16-bit models.
        if scheme.weights.type == "int" and scheme.format.value == "pack-quantized":
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


SCHEMES: dict[str, Callable[[], Scheme]] = {
    "w8a8": lambda: compressed_tensors("W8A8", "int8_token"),
    "w8a8_static": lambda: compressed_tensors("W8A8", "int8_static"),
    "w8a8_static_offset": lambda: compressed_tensors("W8A8", "int8_static_offset", static_offset=-5),
    "w8a8_tensor": lambda: compressed_tensors("W8A8", "int8_token", strategy="tensor"),
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
