"""Operations on lists of tensors."""

import pytest
import torch
from oracle import covers, floats, same

ONE = ("abs", "acos", "asin", "atan", "cos", "cosh", "erf", "erfc", "exp", "expm1", "log", "log10", "log1p", "log2", "neg", "reciprocal",
       "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh")
NUMBER = ("add", "sub", "mul", "div", "pow", "maximum", "minimum")


def lists(*values):
    return [torch.clone(v) for v in values]


def name(operation: str) -> str:
    return "Foreach" + operation.capitalize()


@covers(*(name(operation) for operation in ONE))
def test_one_list():
    for operation in ONE:
        same(lambda *x: getattr(torch, f"_foreach_{operation}")(list(x)), floats(3, 4, low=0.1, high=0.9), floats(5, seed=1, low=0.1, high=0.9))


@covers(*(name(o) + "ScalarV2" for o in NUMBER), *(name(o) + "ScalarList" for o in NUMBER))
def test_a_list_and_numbers():
    for operation in NUMBER:
        run = getattr(torch, f"_foreach_{operation}")
        same(lambda *x: run(list(x), 1.5), floats(3, 4, low=0.5), floats(5, seed=1, low=0.5))
        same(lambda *x: run(list(x), [1.5, 2.5]), floats(3, 4, low=0.5), floats(5, seed=1, low=0.5))


@covers("ForeachMulList", "ForeachDivList", "ForeachMaximumList", "ForeachMinimumList", "ForeachPowList", "ForeachAddListV2", "ForeachSubListV2",
        "ForeachLerpList", "ForeachLerpScalar")
def test_two_lists():
    a, b, c, d = floats(3, 4, low=0.5), floats(5, seed=1, low=0.5), floats(3, 4, seed=2, low=0.5), floats(5, seed=3, low=0.5)
    for operation in ("mul", "div", "maximum", "minimum", "pow"):
        same(lambda *x: getattr(torch, f"_foreach_{operation}")(list(x[:2]), list(x[2:])), a, b, c, d)
    same(lambda *x: torch._foreach_add(list(x[:2]), list(x[2:]), alpha=0.5), a, b, c, d)
    same(lambda *x: torch._foreach_sub(list(x[:2]), list(x[2:]), alpha=0.5), a, b, c, d)
    same(lambda *x: torch._foreach_lerp(list(x[:2]), list(x[2:]), [a.to(x[0].device), b.to(x[0].device)]), a, b, c, d)
    same(lambda *x: torch._foreach_lerp(list(x[:2]), list(x[2:]), 0.3), a, b, c, d)


@covers("ForeachCopy", "ForeachZeroInplace", "ForeachAddcdivScalarV2", "ForeachAddcmulScalarV2", "ForeachNorm", "ForeachPowScalarAndTensor",
        "ForeachRoundOffNumberV2")
def test_the_others():
    a, b, c, d = floats(3, 4, low=0.5), floats(5, seed=1, low=0.5), floats(3, 4, seed=2, low=0.5), floats(5, seed=3, low=0.5)

    def copied(*x):
        to = [torch.empty_like(x[0]), torch.empty_like(x[1])]
        torch._foreach_copy_(to, list(x))
        return to

    def zeroed(*x):
        to = lists(*x)
        torch._foreach_zero_(to)
        return to

    same(copied, a, b)
    same(zeroed, a, b)
    same(lambda *x: torch._foreach_addcdiv(list(x[:2]), list(x[2:]), list(x[2:]), 0.5), a, b, c, d)
    same(lambda *x: torch._foreach_addcmul(list(x[:2]), list(x[2:]), list(x[2:]), 0.5), a, b, c, d)
    same(lambda *x: torch._foreach_norm(list(x)), a, b)
    same(lambda *x: torch._foreach_pow(2.5, list(x)), a, b)
    for operation in ("round", "floor", "ceil", "trunc", "frac"):
        same(lambda *x: getattr(torch, f"_foreach_{operation}")(list(x)), floats(3, 4), floats(5, seed=1))
