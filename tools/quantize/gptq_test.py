"""GPTQ against its textbook form in NumPy float64, and against rounding to the nearest."""

import os
import sys

import numpy as np
import pytest

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
sys.modules["torch_npu"] = None  # transformers would load it

import torch

from tools.quantize import gptq, scales, schemes

ROWS, COLUMNS, TOKENS = 24, 192, 400


def problem(seed):
    """Weights, and inputs whose columns depend on each other as those of a model do."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    mix = rng.standard_normal((COLUMNS // 4, COLUMNS))
    inputs = rng.standard_normal((TOKENS, COLUMNS // 4)) @ mix + 0.3 * rng.standard_normal((TOKENS, COLUMNS))
    return torch.from_numpy(weight), torch.from_numpy(inputs.astype(np.float32))


def textbook(weight, hessian, scale):
    """Algorithm 1 of the paper without its blocks, columns by falling diagonal, for INT8 with a scale for each row: codes."""
    weight = weight.astype(np.float64).copy()
    damped = hessian.astype(np.float64) + 0.01 * np.mean(np.diag(hessian)) * np.eye(len(hessian))
    inverse = np.linalg.inv(damped)
    codes = np.empty_like(weight)
    left = np.ones(weight.shape[1], dtype=bool)
    for column in np.argsort(-np.diag(damped), kind="stable"):
        codes[:, column] = np.clip(np.rint(weight[:, column] / scale), -128, 127)
        error = (weight[:, column] - codes[:, column] * scale) / inverse[column, column]
        weight[:, left] -= np.outer(error, inverse[column, left])
        left[column] = False
        # Gaussian elimination of the column: what Cholesky does in advance.
        inverse -= np.outer(inverse[:, column], inverse[column]) / inverse[column, column]
    return codes


@pytest.mark.parametrize("seed", range(4))
def test_codes_are_the_textbooks(seed):
    weight, inputs = problem(seed)
    scheme = schemes.make("w8a8", rounding="gptq")
    hessian = inputs.T @ inputs
    values, scale = gptq.quantise(weight, hessian, scheme, torch.bfloat16)
    want = textbook(weight.numpy(), hessian.numpy(), scale[:, 0].double().numpy())
    got = np.rint((values / scale).numpy())
    # float32 against float64: a code differs only where a weight lies next to a rounding boundary, and then by one.
    assert np.mean(got != want) < 0.01 and np.abs(got - want).max() <= 1


@pytest.mark.parametrize("group", [32, 64])
@pytest.mark.parametrize("name", ["w4a16", "mxfp4"])
def test_outputs_err_less_than_rounded_to_the_nearest(name, group):
    if name == "mxfp4" and group != 32:
        pytest.skip("MX has groups of 32")
    weight, inputs = problem(11)
    scheme = schemes.make(name, group_size=group if name == "w4a16" else None)
    assert scheme.rounding == "gptq"
    values, scale = gptq.quantise(weight, inputs.T @ inputs, scheme, torch.bfloat16)
    nearest = scales.dequantised(weight, scales.scale_of(weight, scheme, torch.bfloat16), scheme)

    def error(quantised):
        return float((inputs @ (quantised - weight).T).norm())

    assert error(values) < 0.6 * error(nearest)
    # The checkpoint's codes and scales mean exactly these values.
    assert torch.equal(scales.dequantised(values, scale, scheme), values)


def test_independent_inputs_leave_nothing_to_make_up_for():
    weight, _ = problem(3)
    scheme = schemes.make("w8a8", rounding="gptq")
    values, scale = gptq.quantise(weight, 5 * torch.eye(COLUMNS), scheme, torch.bfloat16)
    assert torch.equal(values, scales.dequantised(weight, scale, scheme))


def test_inputs_that_calibration_never_saw_do_no_harm():
    weight, inputs = problem(4)
    inputs[:, 10:20] = 0
    values, _ = gptq.quantise(weight, inputs.T @ inputs, schemes.make("w4a16", group_size=32), torch.bfloat16)
    assert torch.isfinite(values).all()
    assert float((values[:, 10:20] - weight[:, 10:20]).abs().max()) < 0.5
