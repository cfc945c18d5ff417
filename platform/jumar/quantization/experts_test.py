"""Each format of experts: loaded parameters to grouped products, against float64 over the decoded weights."""

import pytest
import torch
import torch_npu

from jumar.quantization import experts, formats
from jumar.quantization.experts import Float8Experts, Int8Experts, WeightOnlyExperts
from jumar.quantization.float8 import Float8Scheme

EXPERTS, N, K = 3, 64, 256
COUNTS = [5, 0, 2]
E4M3 = torch.float8_e4m3fn


class Layer(torch.nn.Module):
    """What a format sees of vLLM's RoutedExperts."""

    layer_name, local_num_experts, params_dtype = "layers.0.mlp.experts", EXPERTS, torch.bfloat16


def codes(bits: int) -> torch.Tensor:
    return torch.randint(-(1 << (bits - 1)), 1 << (bits - 1), (EXPERTS, N, K), dtype=torch.int32)


def pack(numbers: torch.Tensor, bits: int, axis: int) -> torch.Tensor:
    """Unsigned numbers in int32 words along ``axis``, the first in the lowest bits."""
    words = numbers.to(torch.int64).movedim(axis, -1).unflatten(-1, (-1, 32 // bits)) << torch.arange(0, 32, bits)
    return words.sum(-1).to(torch.uint32).view(torch.int32).movedim(-1, axis).contiguous()


def multiply(form: experts.ExpertFormat, loaded: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The format's way from a checkpoint's tensors, as the loader leaves them in the parameters of "w13", to the product."""
    layer = Layer()
    form.create(layer, "w13", EXPERTS, N, K, torch.bfloat16, {"weight_loader": None})
    parameters = dict(layer.named_parameters())
    assert {name.removeprefix("w13_") for name in parameters} == {*loaded}
    for name, value in loaded.items():
        parameter = parameters[f"w13_{name}"]
        assert (parameter.shape, parameter.dtype) == (value.shape, value.dtype), name
        parameter.data = value.npu()
    form.finish(layer, "w13")
    return form.multiply(layer, "w13", x.npu(), torch.tensor(COUNTS).npu()).cpu()


def check(got: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """x and weight in float64 as the scheme rounds them; sums in fp32 of K terms, one rounding to bf16."""
    begin = 0
    for expert, count in enumerate(COUNTS):
        rows = x[begin : begin + count]
        want, magnitude = rows @ weight[expert].T, rows.abs() @ weight[expert].abs().T
        bound = want.abs() * 2.0**-8 + magnitude * (K + 16) * 2.0**-23
        assert ((got[begin : begin + count].double() - want).abs() <= bound).all(), f"expert {expert}"
        begin += count


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(formats, "is_emulated", lambda *_, **__: False)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(sum(COUNTS), K).bfloat16()


def by_token(x: torch.Tensor, largest: float, rounded) -> torch.Tensor:
    scale = x.double().abs().amax(-1, keepdim=True) / largest
    return rounded(x.double() / scale) * scale


def to_e4m3(x: torch.Tensor) -> torch.Tensor:
    return x.float().clamp(-448, 448).to(E4M3).double()


@pytest.mark.parametrize("scales", ["channel", "tensor", "with an offset"])
def test_int8(scales, x):
    q = codes(8)
    scale = torch.rand(EXPERTS, 2) + 0.5 if scales == "tensor" else torch.rand(EXPERTS, N, 1) + 0.5
    wide = scale.repeat_interleave(N // 2, 1).unsqueeze(-1) if scales == "tensor" else scale
    loaded = {"weight": q.to(torch.int8), "weight_scale": scale}
    if scales == "with an offset":
        loaded["weight_offset"] = torch.zeros(EXPERTS, N, 1)
    got = multiply(Int8Experts(scales == "tensor", scales == "with an offset"), loaded, x)
    # Which of two codes a tie gets hangs on the last bit of a quotient: the operator's own codes, which have tests of their own.
    rows, token_scale = torch_npu.npu_dynamic_quant(x.npu())
    check(got, rows.cpu().double() * token_scale.cpu().double().unsqueeze(1), q.double() * wide.double())


def test_an_offset_that_is_not_zero_is_refused(x):
    loaded = {"weight": codes(8).to(torch.int8), "weight_scale": torch.ones(EXPERTS, N, 1), "weight_offset": torch.ones(EXPERTS, N, 1)}
    with pytest.raises(ValueError, match="quantise symmetrically"):
        multiply(Int8Experts(has_offset=True), loaded, x)


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("weights, activations", [("channel", "token"), ("tensor", "token"), ("tensor", "tensor"), ("block", "group"), ("channel", "")])
def test_float8(weights, activations, emulated, x, monkeypatch):
    monkeypatch.setattr(formats, "is_emulated", lambda *_, **__: emulated)
    q = torch.randn(EXPERTS, N, K).to(E4M3)
    block, shape = (16, 128), {"channel": (EXPERTS, N, 1), "tensor": (EXPERTS, 2), "block": (EXPERTS, N // 16, K // 128)}[weights]
    # Powers of two, so that an emulated weight is exact in bf16.
    scale = 2.0 ** torch.randint(-3, 3, shape)
    wide = scale if weights == "channel" else scale.repeat_interleave(N // 2, 1).unsqueeze(-1)
    if weights == "block":
        wide = scale.repeat_interleave(16, 1).repeat_interleave(128, 2)
    name = "weight_scale_inv" if weights == "block" else "weight_scale"
    loaded = {"weight": q, name: scale}
    rows = x.double()
    if activations == "token":
        rows = by_token(x, 448, to_e4m3)
    elif activations == "group":
        rows = by_token(x.unflatten(-1, (-1, 128)), 448, to_e4m3).flatten(-2)
    elif activations == "tensor":
        loaded["input_scale"] = torch.tensor([0.01, 0.02, 0.015])
        rows = to_e4m3(x.double() / 0.02) * 0.02
    if emulated:
        rows = rows.bfloat16().double()  # arithmetic of 16 bits
    form = Float8Experts(Float8Scheme(weights, activations, block if weights == "block" else None, name))
    check(multiply(form, loaded, x), rows, q.double() * wide.double())


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("layout", ["rows", "gptq", "awq"])
@pytest.mark.parametrize("bits, group, points", [(4, 128, False), (4, 32, True), (4, -1, False), (8, 128, False)])
def test_weight_only(layout, bits, group, points, emulated, x, monkeypatch):
    if (layout == "awq" and bits == 8) or (layout == "gptq" and points):
        pytest.skip("there are no such checkpoints")
    monkeypatch.setattr(formats, "is_emulated", lambda *_, **__: emulated)
    groups, middle = 1 if group == -1 else K // group, 1 << (bits - 1)
    q, scale = codes(bits) + middle, (2.0 ** torch.randint(-3, 3, (EXPERTS, N, groups))).bfloat16()
    zero = torch.randint(0, 1 << bits, (EXPERTS, N, groups)) if points else torch.full((EXPERTS, N, groups), middle)
    spread = K // groups
    weight = (q - zero.repeat_interleave(spread, 2)).double() * scale.double().repeat_interleave(spread, 2)
    if layout == "rows":
        loaded = {"weight_packed": pack(q, bits, 2), "weight_scale": scale, "weight_shape": torch.tensor([[N, K]] * EXPERTS)}
        if points:
            loaded["weight_zero_point"] = pack(zero, bits, 1)
    else:
        order = [0, 2, 4, 6, 1, 3, 5, 7]  # AWQ's, of the eight outputs in a word
        by_k = q.transpose(1, 2), zero.transpose(1, 2)
        if layout == "awq":
            by_k = tuple(t.unflatten(2, (-1, 8))[..., order].flatten(2) for t in by_k)
        loaded = {
            "qweight": pack(by_k[0], bits, 1 if layout == "gptq" else 2),
            "qzeros": pack(by_k[1], bits, 2),
            "scales": scale.transpose(1, 2).contiguous(),
        }
        if layout == "gptq":
            loaded["g_idx"] = (torch.arange(K, dtype=torch.int32) // spread).expand(EXPERTS, K).contiguous()
    check(multiply(WeightOnlyExperts(bits, group, points or layout == "awq", layout), loaded, x), x.double(), weight)


def test_sizes_that_do_not_fit_are_named():
    layer = Layer()
    with pytest.raises(ValueError, match=r"layers.0.mlp.experts \(w2\): 96 inputs are no multiple of the group size 64"):
        WeightOnlyExperts(4, 64, False, "rows").create(layer, "w2", EXPERTS, N, 96, torch.bfloat16, {})
    with pytest.raises(ValueError, match="experts of 192 outputs and 256 inputs a rank, which blocks of 128 x 128 don't divide"):
        scheme = Float8Scheme("block", "group", (128, 128), "weight_scale_inv")
        Float8Experts(scheme).create(layer, "w13", EXPERTS, 192, K, torch.bfloat16, {})
