"""INT4 and INT8 weights with scales per group of inputs, over 16-bit activations: y = x ((q + offset) scale) + bias.

vLLM's loaders hand over three layouts (compressed-tensors, GPTQ and, after its own conversion, AWQ), which differ in
the axis that is packed and in the order of axes. All become rows along k: q [n, k], signed, int8 or eight int4 to an
int32, and scales and offsets [n, k / group]. npu_weight_quant_batchmatmul takes their transposed views.
"""

from __future__ import annotations

import torch
from vllm.model_executor.kernels.linear import MPLinearKernel, MPLinearLayerConfig
from vllm.scalar_type import scalar_types

from jumar.quantization import formats
from jumar.quantization.layout import put, to_nz

# Stored unsigned: by how much, if the checkpoint has no zero points.
_TYPES = {scalar_types.uint4b8: 8, scalar_types.uint8b128: 128, scalar_types.uint4: 0, scalar_types.uint8: 0}

# CANN's limit on antiquantGroupSize.
GROUP_MULTIPLE = 32


def check_groups(module: str, inputs: int, group: int) -> None:
    """Raises ValueError if ``inputs`` can't be cut into groups of ``group``; -1 is one group."""
    if group != -1 and (group <= 0 or inputs % group):
        raise ValueError(
            f"{module}: {inputs} inputs are no multiple of the group size {group}: quantise with one that divides, such as "
            f"{next(size for size in (128, 64, 32, 16, 8, 4, 2, 1) if inputs % size == 0)}"
        )


class AscendWeightOnlyKernel(MPLinearKernel):
    """Takes what vLLM calls mixed precision: weights of fewer bits than the activations."""

    def __init__(
        self, c: MPLinearLayerConfig, w_q_param_name: str, w_s_param_name: str, w_zp_param_name: str | None = None
    ) -> None:
        super().__init__(c, w_q_param_name, w_s_param_name, w_zp_param_name)
        self.emulated = formats.is_emulated(f"int{c.weight_type.size_bits}", weight_only=True)

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @classmethod
    def can_implement(cls, c: MPLinearLayerConfig) -> tuple[bool, str | None]:
        k, _ = c.partition_weight_shape
        if c.weight_type not in _TYPES:
            return False, f"weights are {c.weight_type}; int4 and int8 weights run on npu"
        if c.act_type not in (torch.bfloat16, torch.float16):
            return False, f"activations are {c.act_type}: use --dtype bfloat16 or float16"
        if c.group_size != -1 and (c.group_size <= 0 or c.group_size % GROUP_MULTIPLE):
            return False, f"groups of {c.group_size} inputs; npu takes multiples of {GROUP_MULTIPLE}: quantise with 128"
        if c.group_size != -1 and k % c.group_size:
            return False, f"{k} inputs are no multiple of the group size {c.group_size}: quantise with one that divides"
        if c.weight_type.size_bits == 4 and k % 8:
            return False, f"{k} inputs are no multiple of 8, which an int32 holds"
        return True, None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        bits = self.config.weight_type.size_bits
        packed, scale, zero_point = self._get_weight_params(layer)
        points = None
        if self.config.zero_points:
            points = unpack(zero_point.data, bits, zero_point.packed_dim)
            points = points if zero_point.output_dim == 1 else points.t()
        unsigned = unpack(packed.data, bits, packed.packed_dim)
        self.put_weights(
            layer,
            unsigned if packed.input_dim == 0 else unsigned.t(),
            scale.data if scale.output_dim == 1 else scale.data.t(),
            points,
        )

    def put_weights(
        self, layer: torch.nn.Module, unsigned: torch.Tensor, scales: torch.Tensor, points: torch.Tensor | None
    ) -> None:
        """Makes the layer's parameters of unpacked numbers, padded ones at the ends allowed.

        Args:
            unsigned: the weight [k, n]. scales: [k / group, n]. points: [k / group, n], what stands for zero; None is
                the middle of the range.
        """
        bits = self.config.weight_type.size_bits
        k, n = self.config.partition_weight_shape
        q = unsigned[:k, :n] - (1 << (bits - 1))
        offset = None
        if points is not None:
            offset = ((1 << (bits - 1)) - points[: scales.shape[0], :n]).to(scales.dtype)
        put(layer, self.w_q_name, self._dense(q, scales, offset) if self.emulated else _packed(q.t(), bits))
        put(layer, self.w_s_name, scales.t().contiguous())
        if self.w_zp_name:
            put(layer, self.w_zp_name, None if offset is None else offset.t().contiguous())

    def _dense(self, q: torch.Tensor, scales: torch.Tensor, offset: torch.Tensor | None) -> torch.Tensor:
        """The decoded weight [n, k], for a chip that lacks the format."""
        group = q.shape[0] // scales.shape[0]
        spread = [None if t is None else t.float().repeat_interleave(group, 0) for t in (scales, offset)]
        dense = (q.float() if spread[1] is None else q.float() + spread[1]) * spread[0]
        return to_nz(dense.to(self.config.act_type).t())

    def apply_weights(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        import torch_npu

        weight, scale, offset = self._get_weight_params(layer)
        rows = x.reshape(-1, x.shape[-1])
        if self.emulated:
            y = torch.nn.functional.linear(rows, weight, bias)
        else:
            # CANN takes the bias of a bf16 product in fp32.
            bias = bias.float() if bias is not None and x.dtype == torch.bfloat16 else bias
            groups = scale.shape[1]
            y = torch_npu.npu_weight_quant_batchmatmul(
                rows,
                weight.t(),
                scale.t(),
                antiquant_offset=None if offset is None else offset.t(),
                bias=bias,
                antiquant_group_size=0 if groups == 1 else x.shape[-1] // groups,
            )
        return y.view(*x.shape[:-1], y.shape[-1])


def unpack(packed: torch.Tensor, bits: int, axis: int) -> torch.Tensor:
    """The unsigned numbers that an int32 matrix holds along ``axis``, the first in the lowest bits; int32."""
    # A shift at a time: torch_npu's shift doesn't broadcast (docs/upstream.md).
    numbers = torch.stack([(packed >> shift) & ((1 << bits) - 1) for shift in range(0, 32, bits)], axis + 1)
    return numbers.flatten(axis, axis + 1)


def _packed(q: torch.Tensor, bits: int) -> torch.Tensor:
    """Signed numbers [n, k] as the operator takes them: int8, or eight int4 in an int32 [n, k / 8]."""
    import torch_npu

    if bits == 8:
        return q.to(torch.int8).contiguous()
    return torch_npu.npu_convert_weight_to_int4pack(q.to(torch.int32).contiguous())
