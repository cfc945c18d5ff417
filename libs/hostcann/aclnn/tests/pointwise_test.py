"""Operators that treat each element by itself."""

import pytest
import torch
import torch_npu

from oracle import FLOATS, INTS, bools, call, close, covers, floats, ints, layouts, near, same

IN_UNIT = {"low": -0.99, "high": 0.99}
POSITIVE = {"low": 0.05, "high": 4.0}
ANY = {"low": -3.0, "high": 3.0}

# name -> (function, range of its arguments, units in the last place in fp32; for the half types one rounding is added)
UNARY = {
    "Acos": (torch.acos, IN_UNIT, 4), "Acosh": (torch.acosh, {"low": 1.1, "high": 5.0}, 8), "Asin": (torch.asin, IN_UNIT, 4),
    "Asinh": (torch.asinh, ANY, 8), "Atan": (torch.atan, ANY, 4), "Atanh": (torch.atanh, IN_UNIT, 8), "Cos": (torch.cos, ANY, 8),
    "Cosh": (torch.cosh, ANY, 4), "Erf": (torch.erf, ANY, 4), "Erfc": (torch.erfc, ANY, 16), "Erfinv": (torch.erfinv, IN_UNIT, 16),
    "Exp": (torch.exp, ANY, 4), "Exp2": (torch.exp2, ANY, 4), "Expm1": (torch.expm1, ANY, 4), "Log": (torch.log, POSITIVE, 4),
    "Log10": (torch.log10, POSITIVE, 4), "Log1p": (torch.log1p, POSITIVE, 4), "Log2": (torch.log2, POSITIVE, 4),
    "Reciprocal": (torch.reciprocal, POSITIVE, 2), "Rsqrt": (torch.rsqrt, POSITIVE, 4), "Sigmoid": (torch.sigmoid, ANY, 4),
    "Sin": (torch.sin, ANY, 8), "Sinc": (torch.sinc, {"low": 0.05, "high": 0.9}, 32), "Sinh": (torch.sinh, ANY, 4), "Sqrt": (torch.sqrt, POSITIVE, 2),
    "Tan": (torch.tan, {"low": -1.4, "high": 1.4}, 8), "Tanh": (torch.tanh, ANY, 4),
}
UNARY_EXACT = {
    "Abs": torch.abs, "Ceil": torch.ceil, "Floor": torch.floor, "Frac": torch.frac, "Neg": torch.neg, "Round": torch.round, "Sign": torch.sign,
    "Signbit": torch.signbit, "Trunc": torch.trunc, "Relu": torch.relu, "IsFinite": torch.isfinite, "IsPosInf": torch.isposinf,
    "IsNegInf": torch.isneginf, "LogicalNot": torch.logical_not,
}


def slack(dtype, ulps):
    return ulps if dtype == torch.float32 else 1.0


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    function, span, ulps = UNARY[name]
    inplace = getattr(torch.Tensor, function.__name__ + "_")

    @covers(name, "Inplace" + name)
    def check():
        for x in layouts(lambda *shape: floats(*shape, dtype=dtype, **span)):
            near(function, x, ulps=slack(dtype, ulps))
        near(lambda x: inplace(x.clone()), floats(3, 5, dtype=dtype, **span), ulps=slack(dtype, ulps))

    check()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY_EXACT)
def test_unary_exact(name, dtype):
    function = UNARY_EXACT[name]

    @covers(name)
    def check():
        for x in layouts(lambda *shape: floats(*shape, dtype=dtype)):
            same(function, x)
        same(function, torch.tensor([0.5, 1.5, -0.5, 2.5, float("inf"), -float("inf")], dtype=dtype))

    check()


@covers("InplaceCeil", "InplaceFloor", "InplaceFrac", "InplaceRelu", "InplaceLogicalNot")
def test_unary_exact_in_place():
    x = floats(4, 7)
    for function in (torch.ceil, torch.floor, torch.frac, torch.relu):
        same(lambda t, f=getattr(torch.Tensor, function.__name__ + "_"): f(t.clone()), x)
    same(lambda t: t.clone().logical_not_(), bools(4, 7))
    device = x.npu()  # torch_npu's ceil_ goes through aclnnCeil
    call("InplaceCeil", device)
    assert torch.equal(device.cpu(), torch.ceil(x))


@covers("BitwiseNot", "LogicalNot")
def test_not():
    for dtype in (*INTS, torch.bool):
        same(torch.bitwise_not, ints(5, 7, dtype=dtype))
    same(torch.logical_not, bools(5, 7))


@covers("RoundDecimals", "InplaceRoundDecimals", "NanToNum", "InplaceNanToNum")
def test_rounding_and_nan():
    x = torch.tensor([1.2345, -2.5, float("nan"), float("inf"), -float("inf")])
    same(lambda t: torch.round(t, decimals=2), x[:2])
    same(lambda t: t.clone().round_(decimals=1), x[:2])
    same(lambda t: torch.nan_to_num(t, 7.0, 8.0, -9.0), x)
    same(lambda t: t.clone().nan_to_num_(1.0, 2.0, 3.0), x)


@pytest.mark.parametrize("dtype", FLOATS)
@covers("Clamp", "ClampMin", "ClampMax", "InplaceClampMax", "ClampTensor", "ClampMinTensor", "ClampMaxTensor", "InplaceClampMinTensor",
        "InplaceClampMaxTensor")
def test_clamp(dtype):
    x, low, high = floats(4, 9, dtype=dtype), floats(9, dtype=dtype, seed=1, low=-2, high=0), floats(4, 1, dtype=dtype, seed=2, low=0, high=2)
    same(lambda t: torch.clamp(t, -1, 1.5), x)
    same(lambda t: torch.clamp(t, max=0.5), x)
    same(lambda t: torch.clamp_min(t, 0.25), x)
    same(lambda t: torch.clamp_max(t, 0.25), x)
    same(lambda t: t.clone().clamp_max_(0.25), x)
    same(torch.clamp, x, low, high)
    same(torch.clamp_min, x, low)
    same(torch.clamp_max, x, high)
    same(lambda t, m: t.clone().clamp_min_(m), x, low)
    same(lambda t, m: t.clone().clamp_max_(m), x, high)


ACTIVATIONS = {
    "Silu": (torch.nn.functional.silu, 4), "Hardsigmoid": (torch.nn.functional.hardsigmoid, 4), "Hardswish": (torch.nn.functional.hardswish, 8),
    "Mish": (torch.nn.functional.mish, 16), "Elu": (lambda x: torch.nn.functional.elu(x, 1.5), 8),
    "Celu": (lambda x: torch.nn.functional.celu(x, 1.5), 16), "LeakyRelu": (lambda x: torch.nn.functional.leaky_relu(x, 0.1), 2),
    "Hardtanh": (lambda x: torch.nn.functional.hardtanh(x, -1, 1), 1), "Softplus": (lambda x: torch.nn.functional.softplus(x, 2, 10), 16),
    "Threshold": (lambda x: torch.nn.functional.threshold(x, 0.3, -7), 1), "Glu": (lambda x: torch.nn.functional.glu(x, 0), 8),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name, dtype):
    function, ulps = ACTIVATIONS[name]

    @covers(name)
    def check():
        for x in (floats(8, 33, dtype=dtype), floats(6, 10, dtype=dtype).t()):
            # hardsigmoid and hardswish clamp x + 3, which in a half type is computed from the same rounded x
            near(function, x, ulps=slack(dtype, ulps) * 2)

    check()


@covers("InplaceHardsigmoid", "InplaceHardswish", "InplaceMish", "InplaceElu", "InplaceCelu", "InplaceLeakyRelu", "InplaceHardtanh",
        "InplaceThreshold")
def test_activation_in_place():
    x = floats(5, 9)
    functional = torch.nn.functional
    for function in (functional.hardsigmoid, functional.hardswish, functional.mish, functional.elu, functional.celu, functional.leaky_relu,
                     functional.hardtanh):
        same(lambda t, f=function: f(t.clone(), inplace=True), x)
    same(lambda t: functional.threshold_(t.clone(), 0.1, 5.0), x)


@pytest.mark.parametrize("dtype", FLOATS)
@covers("GeluV2", "Gelu", "FastGelu", "LogSigmoid", "LogSigmoidForward", "Logit")
def test_gelu_and_others(dtype):
    x = floats(8, 33, dtype=dtype)
    # Near x = -3 gelu's factor cancels: the error is relative to x, not to the result.
    for mode in ("none", "tanh"):
        got = torch_npu.npu_gelu(x.npu(), approximate=mode).cpu().double()
        want = torch.nn.functional.gelu(x.double(), approximate=mode)
        assert ((got - want).abs() <= slack(dtype, 2) * 2.0 ** {torch.float32: -22, torch.float16: -10, torch.bfloat16: -7}[dtype] * x.double().abs()).all()
    near(lambda t: torch_npu.npu_fast_gelu(t) if t.device.type == "npu" else t * torch.sigmoid(1.702 * t), x, ulps=slack(dtype, 16))
    near(lambda t: torch.nn.functional.logsigmoid(t), x, ulps=slack(dtype, 16))
    # The operator behind torch's gelu has one mode, the hardware's: tanh.
    assert torch.equal(torch.nn.functional.gelu(x.npu()), torch_npu.npu_gelu(x.npu(), approximate="tanh"))
    same(lambda t: torch.logit(t, 1e-3), floats(64, dtype=dtype, low=0.0, high=1.0))
    same(torch.logit, floats(64, dtype=dtype, low=0.1, high=0.9))
    # torch_npu has newer ways to these two.
    out = torch.empty_like(x, device="npu")
    call("LogSigmoid", x.npu(), out)
    close(out.cpu(), torch.nn.functional.logsigmoid(x.double()), ulps=slack(dtype, 16))


# ---- two tensors

BINARY = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Maximum": torch.maximum, "Minimum": torch.minimum,
}


@pytest.mark.parametrize("dtype", (*FLOATS, *INTS))
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    function = BINARY[name]
    make = floats if dtype.is_floating_point else ints

    @covers(name)
    def check():
        for a, b in (((5, 7), (5, 7)), ((5, 7), (7,)), ((5, 1), (1, 7)), ((0, 7), (7,)), ((3, 4, 5), (4, 1)), ((6,), ())):
            same(function, make(*a, dtype=dtype), make(*b, dtype=dtype, seed=1))
        same(function, make(6, 8, dtype=dtype).t(), make(8, 6, dtype=dtype, seed=1))
        same(function, make(6, 8, dtype=dtype)[:, ::2], make(6, 4, dtype=dtype, seed=1))

    check()


@covers("Add", "Sub", "Adds", "Subs", "InplaceAdd", "InplaceAdds", "InplaceSub", "InplaceSubs", "Rsubs", "Muls", "InplaceMul", "InplaceMuls",
        "AddV3", "Rsub")
def test_alpha_scalar_and_in_place():
    for dtype in (*FLOATS, torch.int32, torch.int64):
        make = floats if dtype.is_floating_point else ints
        x, y = make(5, 6, dtype=dtype), make(6, dtype=dtype, seed=1)
        same(lambda a, b: torch.add(a, b, alpha=3), x, y)
        same(lambda a, b: torch.sub(a, b, alpha=2), x, y)
        same(lambda a: a + 3, x)
        same(lambda a: a - 3, x)
        same(lambda a: 3 - a, x)
        same(lambda a: a * 3, x)
        same(lambda a, b: a.clone().add_(b, alpha=2), x, y)
        same(lambda a, b: a.clone().sub_(b, alpha=2), x, y)
        same(lambda a, b: a.clone().mul_(b), x, y)
        same(lambda a: a.clone().add_(4), x)
        same(lambda a: a.clone().sub_(4), x)
        same(lambda a: a.clone().mul_(4), x)
    # A scalar of the CPU on the left is its own operator.
    same(lambda a: torch.add(torch.tensor(2.5), a, alpha=2), floats(5))
    x, y = floats(4, 5), floats(4, 5, seed=1)
    same(lambda a, b: torch.rsub(a, b, alpha=2), x, y)


@covers("AddRelu", "InplaceAddRelu")
def test_add_relu():
    x, y = floats(4, 5), floats(4, 5, seed=1)
    same(lambda a, b: torch._VF._add_relu(a, b), x, y)
    same(lambda a, b: torch._VF._add_relu_(a.clone(), b), x, y)


@pytest.mark.parametrize("dtype", FLOATS)
@covers("Div", "Divs", "InplaceDiv", "InplaceDivs", "DivMod", "DivMods", "InplaceDivMod", "InplaceDivMods", "FloorDivide", "FloorDivides",
        "InplaceFloorDivide", "InplaceFloorDivides", "RemainderTensorTensor", "RemainderTensorScalar", "InplaceRemainderTensorTensor",
        "InplaceRemainderTensorScalar", "RemainderScalarTensor", "FmodTensor", "FmodScalar", "InplaceFmodTensor", "InplaceFmodScalar")
def test_division(dtype):
    x, y = floats(5, 7, dtype=dtype), floats(7, dtype=dtype, seed=1, low=0.5, high=2)
    same(torch.div, x, y)
    same(lambda a: a / 3, x)
    same(lambda a, b: a.clone().div_(b), x, y)
    same(lambda a: a.clone().div_(3), x)
    for mode in ("trunc", "floor"):
        same(lambda a, b: torch.div(a, b, rounding_mode=mode), x, y)
        same(lambda a: torch.div(a, 0.7, rounding_mode=mode), x)
        same(lambda a, b: a.clone().div_(b, rounding_mode=mode), x, y)
        same(lambda a: a.clone().div_(0.7, rounding_mode=mode), x)
    same(torch.floor_divide, x, y)
    same(lambda a: a // 0.7, x)
    same(lambda a, b: a.clone().floor_divide_(b), x, y)
    same(lambda a: a.clone().floor_divide_(0.7), x)
    same(torch.remainder, x, y)
    same(lambda a: a % 0.7, x)
    same(lambda a, b: a.clone().remainder_(b), x, y)
    same(lambda a: a.clone().remainder_(0.7), x)
    same(lambda a: torch.remainder(2.5, a), y)
    same(torch.fmod, x, y)
    same(lambda a: torch.fmod(a, 0.7), x)
    same(lambda a, b: a.clone().fmod_(b), x, y)
    same(lambda a: a.clone().fmod_(0.7), x)


@covers("Div", "FloorDivide", "RemainderTensorTensor", "FmodTensor", "DivMod")
def test_integer_division():
    for dtype in (torch.int32, torch.int64):
        x, y = ints(5, 7, dtype=dtype), ints(7, dtype=dtype, seed=1, low=1, high=6)
        same(torch.div, x, y)
        same(torch.floor_divide, x, y)
        same(torch.remainder, x, y)
        same(torch.fmod, x, y)
        same(lambda a, b: torch.div(a, b, rounding_mode="trunc"), x, y)


@pytest.mark.parametrize("dtype", FLOATS)
@covers("PowTensorTensor", "PowTensorScalar", "PowScalarTensor", "InplacePowTensorTensor", "InplacePowTensorScalar", "Atan2", "InplaceAtan2",
        "LogAddExp", "LogAddExp2", "XLogYTensor")
def test_power_and_logarithm(dtype):
    x, y = floats(5, 7, dtype=dtype, low=0.1), floats(7, dtype=dtype, seed=1)
    near(torch.pow, x, y, ulps=slack(dtype, 16))
    for exponent in (2, 3, 0.5, -1, 1.7):
        near(lambda a, e=exponent: a**e, x, ulps=slack(dtype, 16) * 2)  # the cube is two products, each rounded
    near(lambda a: 2.5**a, y, ulps=slack(dtype, 16))
    near(lambda a, b: a.clone().pow_(b), x, y, ulps=slack(dtype, 16))
    near(lambda a: a.clone().pow_(3), x, ulps=slack(dtype, 16) * 2)
    near(torch.atan2, y, x, ulps=slack(dtype, 4))
    near(lambda a, b: a.clone().atan2_(b), x, y, ulps=slack(dtype, 4))
    wide = floats(5, 7, dtype=dtype, low=1, high=3)
    near(torch.logaddexp, wide, wide.flip(0), ulps=slack(dtype, 8))
    if dtype == torch.float32:
        near(torch.logaddexp2, wide, wide.flip(0), ulps=8)
        near(torch.xlogy, y, x, ulps=8)
    else:
        same(torch.logaddexp2, wide.float(), wide.float().flip(0))
        same(torch.xlogy, y.float(), x.float())


@covers("Gcd", "LeftShift", "LeftShifts", "RightShift", "BitwiseAndTensor", "BitwiseAndScalar", "BitwiseOrTensor", "BitwiseOrScalar",
        "BitwiseXorTensor", "BitwiseXorScalar", "InplaceBitwiseAndTensor", "InplaceBitwiseAndScalar", "InplaceBitwiseXorTensor",
        "InplaceBitwiseXorScalar")
def test_bits():
    for dtype in (torch.int32, torch.int64):
        x, y, few = ints(5, 7, dtype=dtype), ints(7, dtype=dtype, seed=1), ints(5, 7, dtype=dtype, low=0, high=4)
        same(torch.gcd, x, y)
        same(lambda a, b: a << b, x, few)
        same(lambda a: a.__lshift__(2), x)
        same(lambda a, b: a.__rshift__(b), x, few)
        for a, b in ((torch.bitwise_and, "__iand__"), (torch.bitwise_or, None), (torch.bitwise_xor, "__ixor__")):
            same(a, x, y)
            same(lambda t, f=a: f(t, 5), x)
            if b:
                same(lambda t, u, f=b: getattr(t.clone(), f)(u), x, y)
                same(lambda t, f=b: getattr(t.clone(), f)(5), x)
    same(torch.bitwise_and, bools(5, 7), bools(7, seed=1))
    same(torch.bitwise_or, bools(5, 7), bools(7, seed=1))


@covers("Addcdiv", "Addcmul", "InplaceAddcdiv", "InplaceAddcmul", "Lerp", "Lerps", "InplaceLerp", "InplaceLerps", "Complex")
def test_three_tensors():
    for dtype in FLOATS:
        x, y, z = floats(4, 6, dtype=dtype), floats(6, dtype=dtype, seed=1), floats(4, 1, dtype=dtype, seed=2, low=0.5, high=2)
        same(lambda a, b, c: torch.addcdiv(a, b, c, value=0.5), x, y, z)
        same(lambda a, b, c: torch.addcmul(a, b, c, value=0.5), x, y, z)
        same(lambda a, b, c: a.clone().addcdiv_(b, c, value=2), x, y, z)
        same(lambda a, b, c: a.clone().addcmul_(b, c, value=2), x, y, z)
        end, weight = floats(4, 6, dtype=dtype, seed=3), floats(4, 6, dtype=dtype, seed=4, low=0, high=1)
        same(torch.lerp, x, end, weight)
        same(lambda a, b: torch.lerp(a, b, 0.3), x, end)
        same(lambda a, b, c: a.clone().lerp_(b, c), x, end, weight)
        same(lambda a, b: a.clone().lerp_(b, 0.3), x, end)
    same(lambda a, b: torch.view_as_real(torch.complex(a, b)), floats(4, 5), floats(4, 5, seed=1))


@covers("Add", "Mul", "Div")
def test_mixed_types():
    """The result type of torch: a 0-dim tensor or a scalar of the same category doesn't widen."""
    half, single, whole = floats(4, 5, dtype=torch.float16), floats(4, 5), ints(4, 5)
    same(torch.add, half, single)
    same(torch.mul, half, whole)
    same(torch.add, half, torch.tensor(1.5))
    same(torch.mul, whole, torch.tensor(2))
    same(torch.div, whole, single)
    same(torch.add, bools(4, 5), whole)


# ---- comparisons and masks

COMPARE = {"Eq": torch.eq, "Ne": torch.ne, "Lt": torch.lt, "Le": torch.le, "Gt": torch.gt, "Ge": torch.ge}


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int32, torch.int64, torch.uint8))
@pytest.mark.parametrize("name", COMPARE)
def test_compare(name, dtype):
    function = COMPARE[name]
    make = (lambda *s, **k: floats(*s, **k).round()) if dtype.is_floating_point else ints

    @covers(name + "Tensor", name + "Scalar", f"Inplace{name}Tensor", f"Inplace{name}Scalar")
    def check():
        x, y = make(5, 7, dtype=dtype), make(7, dtype=dtype, seed=1)
        same(function, x, y)
        same(function, x.t(), y[:5])
        same(function, make(0, 7, dtype=dtype), y)
        same(lambda a: function(a, 1), x)
        same(lambda a, b: getattr(a.clone(), function.__name__ + "_")(b), x, y)
        same(lambda a: getattr(a.clone(), function.__name__ + "_")(1), x)

    check()


@covers("LogicalAnd", "LogicalOr", "LogicalXor", "InplaceLogicalAnd", "InplaceLogicalOr", "Equal", "IsClose", "IsInTensorScalar",
        "IsInScalarTensor")
def test_logic():
    for x, y in ((bools(5, 7), bools(7, seed=1)), (ints(5, 7, low=-1, high=2), ints(5, 7, low=-1, high=2, seed=1)), (floats(5, 7).round(), floats(5, 7, seed=1).round())):
        same(torch.logical_and, x, y)
        same(torch.logical_or, x, y)
        same(torch.logical_xor, x, y)
        same(lambda a, b: a.clone().logical_and_(b), x, y)
        same(lambda a, b: a.clone().logical_or_(b), x, y)
    x = floats(5, 7)
    assert torch.equal(x.npu(), x.npu()) and not torch.equal(x.npu(), x.npu() + 1)
    same(lambda a: torch.isclose(a, a + 1e-6), x)
    same(lambda a: torch.isin(a, 3), ints(5, 7, low=0, high=5))
    same(lambda a: torch.isin(3, a), ints(5, 7, low=0, high=5))


@covers("SWhere", "InplaceMaskedFillScalar", "InplaceMaskedFillTensor", "InplaceMaskedScatter", "MaskedSelect")
def test_masks():
    for dtype in (*FLOATS, torch.int64, torch.bool):
        x = floats(5, 7, dtype=dtype) if dtype.is_floating_point else ints(5, 7, low=0, high=2, dtype=dtype)
        y = floats(7, dtype=dtype, seed=1) if dtype.is_floating_point else ints(7, low=0, high=2, dtype=dtype, seed=1)
        mask, row = bools(5, 7), bools(7, seed=3)
        same(torch.where, mask, x, y)
        same(lambda m, a: torch.where(m, a, 1), row, x)
        same(lambda a, m: a.masked_fill(m, 1), x, row)
        same(lambda a, m, v: a.clone().masked_fill_(m, v), x, mask, torch.tensor(1, dtype=dtype))
        same(lambda a, m, s: a.clone().masked_scatter_(m, s), x, mask, x.flip(0).contiguous())
        same(torch.masked_select, x, mask)
        same(torch.masked_select, x, torch.zeros(5, 7, dtype=torch.bool))
