"""Quantised experts: how the weights of a mixture of experts are stored, and their grouped products (jumar.moe has the rest).

vLLM's loader fills parameters ``w13_<suffix>`` (gate and up, as many outputs each) and ``w2_<suffix>`` (down), the experts in the first
dimension. A format says which there are, makes of them what npu_grouped_matmul takes, and multiplies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.utils import set_weight_attrs

from jumar.moe import ExpertsMethod, grouped_matmul
from jumar.quantization import formats
from jumar.quantization.float8 import E4M3, Float8Scheme, quantize_groups
from jumar.quantization.layout import put
from jumar.quantization.weight_only import check_groups, group_operands, unpack, unpack_awq
from jumar.weights import to_nz

if TYPE_CHECKING:
    from vllm.model_executor.layers.fused_moe import RoutedExperts
    from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig

# What vLLM's loader wants to know of a scale: how it is cut for tensor parallelism.
TENSOR, CHANNEL, GROUP, BLOCK = "tensor", "channel", "group", "block"


class ExpertFormat(ABC):
    """Weights of one kind. ``name`` is "w13" or "w2" throughout; a weight is [experts, n, k] for products x [m, k] -> [m, n]."""

    takes_biases = False

    @abstractmethod
    def create(self, layer: RoutedExperts, name: str, experts: int, n: int, k: int, dtype: torch.dtype, loading: dict[str, Any]) -> None:
        """Registers the parameters that a checkpoint fills."""

    @abstractmethod
    def finish(self, layer: RoutedExperts, name: str) -> None:
        """Makes of the loaded parameters what ``multiply`` takes."""

    @abstractmethod
    def multiply(self, layer: RoutedExperts, name: str, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """As jumar.moe's ExpertsMethod.multiply."""


class QuantizedExpertsMethod(ExpertsMethod):
    """Experts in one format."""

    def __init__(self, moe: FusedMoEConfig, form: ExpertFormat) -> None:
        self.takes_biases = form.takes_biases
        super().__init__(moe)
        self.form = form

    def create_weights(
        self,
        layer: RoutedExperts,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        **loading: Any,
    ) -> None:
        self.form.create(layer, "w13", num_experts, 2 * intermediate_size_per_partition, hidden_size, params_dtype, loading)
        self.form.create(layer, "w2", num_experts, hidden_size, intermediate_size_per_partition, params_dtype, loading)

    def process_weights_after_loading(self, layer: RoutedExperts) -> None:
        for name in ("w13", "w2"):
            self.form.finish(layer, name)

    def multiply(self, layer: RoutedExperts, name: str, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return self.form.multiply(layer, name, x, counts)


def register(layer: RoutedExperts, name: str, value: torch.Tensor, loading: dict[str, Any], cut: str = "") -> None:
    parameter = torch.nn.Parameter(value, requires_grad=False)
    layer.register_parameter(name, parameter)
    set_weight_attrs(parameter, loading | ({"quant_method": cut} if cut else {}))


def _register_scales(
    layer: RoutedExperts, name: str, suffix: str, experts: int, n: int, loading: dict[str, Any], per_tensor: bool, dtype: torch.dtype = torch.float32
) -> None:
    """A scale of each output channel, or of each projection."""
    if per_tensor:
        shape = (experts, 2) if name == "w13" else (experts,)
        register(layer, f"{name}_{suffix}", torch.ones(shape, dtype=dtype), loading, TENSOR)
    else:
        register(layer, f"{name}_{suffix}", torch.ones(experts, n, 1, dtype=dtype), loading, CHANNEL)


def _channel_scales(scale: torch.Tensor, n: int) -> torch.Tensor:
    """fp32 [experts, n] of [experts, n, 1], or of one number for each projection: [experts, 2] or [experts]."""
    scale = scale.detach().float().flatten(1) if scale.dim() > 1 else scale.detach().float().unsqueeze(1)
    return scale.repeat_interleave(n // scale.shape[1], 1).contiguous()


class Int8Experts(ExpertFormat):
    """INT8 with a scale per output channel or tensor; activations with a scale per token."""

    def __init__(self, per_tensor: bool = False, has_offset: bool = False) -> None:
        """has_offset: there is a ``weight_offset``, which must be 0."""
        self.per_tensor, self.has_offset = per_tensor, has_offset

    def create(self, layer: RoutedExperts, name: str, experts: int, n: int, k: int, dtype: torch.dtype, loading: dict[str, Any]) -> None:
        register(layer, f"{name}_weight", torch.empty(experts, n, k, dtype=torch.int8), loading)
        _register_scales(layer, name, "weight_scale", experts, n, loading, self.per_tensor)
        if self.has_offset:
            _register_scales(layer, name, "weight_offset", experts, n, loading, self.per_tensor)

    def finish(self, layer: RoutedExperts, name: str) -> None:
        weight = getattr(layer, f"{name}_weight").data
        if self.has_offset:
            if bool(getattr(layer, f"{name}_weight_offset").any()):
                raise ValueError(f"{layer.layer_name}: experts with an offset are not supported: quantise symmetrically")
            put(layer, f"{name}_weight_offset", None)
        put(layer, f"{name}_weight_scale", _channel_scales(getattr(layer, f"{name}_weight_scale"), weight.shape[1]))
        put(layer, f"{name}_weight", to_nz(weight.transpose(1, 2)))

    def multiply(self, layer: RoutedExperts, name: str, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        import torch_npu

        codes, token_scale = torch_npu.npu_dynamic_quant(x)
        weight, scale = getattr(layer, f"{name}_weight"), getattr(layer, f"{name}_weight_scale")
        return grouped_matmul(codes, weight, counts, scale=scale, per_token_scale=token_scale, output_dtype=x.dtype)


class Float8Experts(ExpertFormat):
    """FP8 (E4M3) with scales per tensor, output channel or block; activations as of Float8LinearMethod."""

    def __init__(self, scheme: Float8Scheme) -> None:
        self.scheme = scheme
        self.emulated = formats.is_emulated("fp8", weight_only=not scheme.activations)
        if not scheme.activations and not self.emulated and scheme.weights == "block":
            raise ValueError("FP8 blocks with 16-bit activations have no operator: use a checkpoint with dynamic activations")

    def create(self, layer: RoutedExperts, name: str, experts: int, n: int, k: int, dtype: torch.dtype, loading: dict[str, Any]) -> None:
        scheme = self.scheme
        register(layer, f"{name}_weight", torch.empty(experts, n, k, dtype=E4M3), loading)
        if scheme.weights == "block":
            rows, columns = scheme.block
            if n % (2 * rows if name == "w13" else rows) or k % columns:
                raise ValueError(
                    f"{layer.layer_name}: experts of {n} outputs and {k} inputs a rank, which blocks of {rows} x {columns} don't divide: quantise "
                    "with a scale per output channel, or lower the tensor-parallel size"
                )
            scale = torch.ones(experts, n // rows, k // columns)
            register(layer, f"{name}_{scheme.scale_name}", scale, loading, BLOCK)
        else:
            _register_scales(layer, name, scheme.scale_name, experts, n, loading, scheme.weights == "tensor")
        if scheme.activations == "tensor":
            register(layer, f"{name}_input_scale", torch.ones(experts), loading)

    def finish(self, layer: RoutedExperts, name: str) -> None:
        scheme = self.scheme
        weight, scale = getattr(layer, f"{name}_weight").data, getattr(layer, f"{name}_{scheme.scale_name}").data
        if scheme.weights != "block":
            scale = _channel_scales(scale, weight.shape[1])
        if scheme.activations == "tensor":  # all experts see the same tokens: one range that holds all of theirs
            put(layer, f"{name}_input_scale", getattr(layer, f"{name}_input_scale").max().float().reshape(1))
        if self.emulated:
            wide = scale.unsqueeze(-1)
            if scheme.weights == "block":
                wide = scale.repeat_interleave(scheme.block[0], 1).repeat_interleave(scheme.block[1], 2)
            put(layer, f"{name}_weight", to_nz((weight.float() * wide).to(layer.params_dtype)))
        else:
            put(layer, f"{name}_weight", weight)
        put(layer, f"{name}_{scheme.scale_name}", scale.contiguous())

    def multiply(self, layer: RoutedExperts, name: str, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        import torch_npu

        scheme = self.scheme
        weight, scale = getattr(layer, f"{name}_weight").transpose(1, 2), getattr(layer, f"{name}_{scheme.scale_name}")
        if self.emulated:
            if scheme.activations == "tensor":
                x = formats.emulate_static(x, getattr(layer, f"{name}_input_scale"))
            elif scheme.activations:
                x = formats.emulate_groups(x, scheme.block[1] if scheme.activations == "group" else 0)
            return grouped_matmul(x, weight, counts)
        if not scheme.activations:
            return grouped_matmul(x, weight, counts, antiquant_scale=scale.to(x.dtype))
        if scheme.activations == "group":
            codes, x_scale = quantize_groups(x, scheme.block[1])
            scale = scale.transpose(1, 2)
        elif scheme.activations == "token":
            codes, x_scale = torch_npu.npu_dynamic_quant(x, dst_type=E4M3)
        else:
            x_scale = getattr(layer, f"{name}_input_scale")
            codes = torch_npu.npu_quantize(x, x_scale, None, E4M3, -1, True)
            x_scale = x_scale.expand(len(x)).contiguous()
        return grouped_matmul(codes, weight, counts, scale=scale, per_token_scale=x_scale, output_dtype=x.dtype)


class WeightOnlyExperts(ExpertFormat):
    """INT4 or INT8 with scales per group of inputs, over 16-bit activations; the loaders' layouts differ (compressed-tensors, GPTQ, AWQ)."""

    def __init__(self, bits: int, group: int, zero_points: bool, layout: str) -> None:
        """group: inputs that share a scale, -1 for all. layout: "rows" (compressed-tensors), "gptq" or "awq"."""
        self.bits, self.group, self.zero_points, self.layout = bits, group, zero_points, layout
        self.emulated = formats.is_emulated(f"int{bits}", weight_only=True)

    def create(self, layer: RoutedExperts, name: str, experts: int, n: int, k: int, dtype: torch.dtype, loading: dict[str, Any]) -> None:
        check_groups(f"{layer.layer_name} ({name})", k, self.group)
        words, groups = 32 // self.bits, 1 if self.group == -1 else k // self.group
        int32 = torch.int32
        if self.layout == "rows":
            register(layer, f"{name}_weight_packed", torch.empty(experts, n, k // words, dtype=int32), loading)
            register(layer, f"{name}_weight_scale", torch.empty(experts, n, groups, dtype=dtype), loading, GROUP if groups > 1 else CHANNEL)
            register(layer, f"{name}_weight_shape", torch.empty(experts, 2, dtype=torch.int64), loading)
            if self.zero_points:
                register(layer, f"{name}_weight_zero_point", torch.empty(experts, n // words, groups, dtype=int32), loading, GROUP)
            return
        loading = loading | {"is_transposed": True}
        packed = (k // words, n) if self.layout == "gptq" else (k, n // words)
        register(layer, f"{name}_qweight", torch.empty(experts, *packed, dtype=int32), loading)
        register(layer, f"{name}_scales", torch.empty(experts, groups, n, dtype=dtype), loading, GROUP)
        register(layer, f"{name}_qzeros", torch.empty(experts, groups, n // words, dtype=int32), loading, GROUP)
        if self.layout == "gptq":
            register(layer, f"{name}_g_idx", torch.empty(experts, k, dtype=int32), loading)

    def finish(self, layer: RoutedExperts, name: str) -> None:
        take = lambda suffix: getattr(layer, f"{name}_{suffix}").data  # noqa: E731
        each = range(layer.local_num_experts)
        if self.layout == "rows":
            weights = [unpack(take("weight_packed")[e], self.bits, 1).t() for e in each]
            scales = [take("weight_scale")[e].t() for e in each]
            points = [unpack(take("weight_zero_point")[e], self.bits, 0).t() for e in each] if self.zero_points else None
            stale = ["weight_packed", "weight_shape", *(["weight_zero_point"] if self.zero_points else [])]
        else:
            axis = 0 if self.layout == "gptq" else 1
            read = (lambda words, _: unpack_awq(words)) if self.layout == "awq" else lambda words, axis: unpack(words, self.bits, axis)
            weights = [read(take("qweight")[e], axis) for e in each]
            scales = [take("scales")[e] for e in each]
            points = [read(take("qzeros")[e], 1) for e in each] if self.zero_points else None
            stale = ["qweight", "scales", "qzeros", *(["g_idx"] if self.layout == "gptq" else [])]
        parts = [
            group_operands(weights[e], scales[e], None if points is None else points[e], self.bits, self.emulated, layer.params_dtype)
            for e in each
        ]
        for suffix in stale:
            put(layer, f"{name}_{suffix}", None)
        stacks = [None if part[0] is None else torch.stack(part) for part in zip(*parts)]
        weight, scale, offset = stacks
        put(layer, f"{name}_weight", to_nz(weight) if self.emulated else weight)
        put(layer, f"{name}_weight_scale", scale)
        put(layer, f"{name}_weight_offset", offset)

    def multiply(self, layer: RoutedExperts, name: str, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        weight = getattr(layer, f"{name}_weight").transpose(1, 2)
        if self.emulated:
            return grouped_matmul(x, weight, counts)
        scale, offset = (getattr(layer, f"{name}_{suffix}") for suffix in ("weight_scale", "weight_offset"))
        if scale.shape[2] == 1:  # one group: a number per output
            scale, offset = scale.squeeze(2), None if offset is None else offset.squeeze(2)
        else:
            scale, offset = scale.transpose(1, 2), None if offset is None else offset.transpose(1, 2)
        offset = torch.zeros_like(scale) if offset is None else offset  # the operator wants one
        return grouped_matmul(x, weight, counts, antiquant_scale=scale, antiquant_offset=offset)
