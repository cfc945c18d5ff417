"""INT8 layers against exact integer arithmetic: the same rounding of the input, one rounding of the result."""

import pytest
import torch
from vllm.model_executor.kernels.linear import Int8ScaledMMLinearLayerConfig, init_int8_linear_kernel

from jumar import quantization
from jumar.quantization.int8 import AscendInt8LinearKernel

PARTS = [40, 24]


@pytest.fixture(autouse=True)
def registered():
    quantization.register()


def layer_of(k: int, config: Int8ScaledMMLinearLayerConfig, offsets: list[int]) -> torch.nn.Module:
    """A fused layer of two parts on the device, as CompressedTensorsW8A8Int8 makes it."""
    layer = torch.nn.Module()
    layer.logical_widths = PARTS
    parameters = {
        "weight": torch.randint(-127, 128, (sum(PARTS), k), dtype=torch.int8),
        "weight_scale": torch.rand((sum(PARTS), 1) if config.is_channelwise else len(PARTS)) * 0.01 + 0.001,
        "input_scale": torch.tensor([0.03, 0.02]) if config.is_static_input_scheme else None,
        "input_zero_point": torch.tensor(offsets, dtype=torch.int8) if not config.input_symmetric else None,
        "azp_adj": None,
    }
    for name, value in parameters.items():
        parameter = None if value is None else torch.nn.Parameter(value.npu(), requires_grad=False)
        layer.register_parameter(name, parameter)
    return layer


def rounded_input(x: torch.Tensor, config: Int8ScaledMMLinearLayerConfig, offsets: list[int]) -> torch.Tensor:
    """What the int8 input stands for, float64; the static scale covers both parts' ranges."""
    x = x.float()
    if not config.is_static_input_scheme:
        scale = x.abs().amax(-1, keepdim=True) / 127
        return torch.round(x / scale).double() * scale.double()
    scales, zero_points = torch.tensor([0.03, 0.02]), torch.tensor(offsets)
    if config.input_symmetric:
        scale, offset = torch.tensor(0.03), 0
    else:
        top, bottom = (scales * (127 - zero_points)).max(), (scales * (-128 - zero_points)).min()
        scale = (top - bottom) / 255
        offset = int(-128 - torch.round(bottom / scale))
    return (torch.clamp(torch.round(x / scale) + offset, -128, 127) - offset).double() * scale.double()


@pytest.mark.parametrize("is_static, symmetric", [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("is_channelwise", [True, False])
@pytest.mark.parametrize("tokens, k", [(1, 64), (7, 100), (33, 256)])
def test_fused_layer(is_static, symmetric, is_channelwise, tokens, k):
    torch.manual_seed(tokens)
    kernel = init_int8_linear_kernel(is_channelwise, is_static, symmetric, "test")
    assert type(kernel) is AscendInt8LinearKernel
    offsets = [3, -7]
    layer = layer_of(k, kernel.config, offsets)
    weight, scale = layer.weight.cpu().double(), layer.weight_scale.cpu().double()
    if not is_channelwise:
        scale = scale.repeat_interleave(torch.tensor(PARTS))[:, None]
    kernel.process_weights_after_loading(layer)
    x, bias = torch.randn(tokens, k).bfloat16(), torch.randn(sum(PARTS)).bfloat16()
    rounded = rounded_input(x, kernel.config, offsets)
    # A half may go either way where the quotient is rounded first: one step of one element of the input.
    slack = 1.01 * (rounded - x.double()).abs().max() * 2 * (weight * scale).abs().max()
    for b in (None, bias):
        want = rounded @ (weight * scale).T + (0 if b is None else b.double())
        got = kernel.apply_weights(layer, x.npu(), None if b is None else b.npu())
        assert got.shape == want.shape and got.dtype == torch.bfloat16
        # A rounding of the result, and one before the bias joins it.
        bound = 2 * torch.finfo(torch.bfloat16).eps * want.abs().max() + slack
        assert (got.cpu().double() - want).abs().max() <= bound


def test_offset_per_token_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="symmetric dynamic activations"):
        init_int8_linear_kernel(True, False, False, "test")
