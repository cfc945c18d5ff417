"""Convolution, pooling, padding and resampling of images; losses and distances; linear algebra."""

import ctypes

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from oracle import call, close, covers, floats, ints, near, opapi, same, strict_refuses


def int_array(*values: int) -> ctypes.c_void_p:
    create = opapi().aclCreateIntArray
    create.restype = ctypes.c_void_p
    return ctypes.c_void_p(create((ctypes.c_int64 * len(values))(*values), ctypes.c_uint64(len(values))))


def scalar(value: float) -> ctypes.c_void_p:
    create = opapi().aclCreateScalar
    create.restype = ctypes.c_void_p
    return ctypes.c_void_p(create(ctypes.byref(ctypes.c_float(value)), 0))


@pytest.fixture
def base_formats_only():
    """torch_npu's default. With private formats allowed, it takes a convolution to the legacy path."""
    torch.npu.config.allow_internal_format = False
    yield
    torch.npu.config.allow_internal_format = True


@covers("Convolution")
@pytest.mark.parametrize("dtype, ulps", [(torch.float32, 40), (torch.float16, 2), (torch.bfloat16, 2)])
def test_convolution(dtype, ulps, base_formats_only):
    x, w, b = floats(2, 6, 9, 11, dtype=dtype), floats(8, 3, 3, 2, seed=1, dtype=dtype), floats(8, seed=2, dtype=dtype)
    wide = F.conv2d(x.double(), w.double(), b.double(), (2, 1), (1, 0), (1, 2), 2)
    got = F.conv2d(x.npu(), w.npu(), b.npu(), (2, 1), (1, 0), (1, 2), 2).cpu()
    # 18 products in fp32, in any order, of at most 9, rounded once.
    close(got, wide, ulps=ulps, absolute=18 * 19 * 9 * 2.0**-24)
    same(lambda a, c: F.conv1d(a, c, padding=1), floats(2, 4, 10), floats(5, 4, 3, seed=1))
    for function, a, c in ((F.conv_transpose2d, floats(1, 3, 4, 5), floats(3, 2, 2, 2, seed=1)), (F.conv3d, floats(1, 2, 4, 4, 4), floats(3, 2, 2, 2, 2, seed=1))):
        # At most 16 products in fp32, in any order: 16 roundings of a sum of magnitudes.
        bound = 16 * 2.0**-24 * function(a.double().abs(), c.double().abs())
        close(function(a.npu(), c.npu()).cpu(), function(a.double(), c.double()), absolute=bound)


@covers("AvgPool2d", "AvgPool3d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "MaxPool2dWithMask", "MaxPool3dWithArgmax")
def test_pooling():
    x = floats(2, 3, 9, 8)
    same(lambda t: F.avg_pool2d(t, 3, 2, 1, ceil_mode=True, count_include_pad=False), x)
    same(lambda t: F.avg_pool2d(t, (2, 3), divisor_override=5), x)
    same(lambda t: F.adaptive_avg_pool2d(t, (4, 3)), x)
    same(lambda t: F.max_pool2d(t, 3, 2, 1), x)
    volume = floats(1, 2, 5, 6, 7)
    same(lambda t: F.avg_pool3d(t, 2, 1, 1), volume)
    same(lambda t: F.adaptive_avg_pool3d(t, (2, 3, 4)), volume)
    same(lambda t: F.max_pool3d(t, 2, 2), volume)
    near(lambda t: F.avg_pool2d(t, 3), floats(1, 2, 9, 9, dtype=torch.bfloat16), ulps=1)


@covers("ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "Im2col")
def test_padding_and_unfolding():
    for mode in ("reflect", "replicate"):
        same(lambda t: F.pad(t, (2, 1), mode=mode), floats(2, 3, 7))
        same(lambda t: F.pad(t, (2, 1, 0, 3), mode=mode), floats(2, 3, 6, 7))
        same(lambda t: F.pad(t, (2, 1, 0, 3, 1, 1), mode=mode), floats(1, 2, 4, 6, 7))
    same(lambda t: F.unfold(t, (2, 3), dilation=1, padding=1, stride=2), floats(2, 3, 6, 7))


@covers("UpsampleLinear1d", "UpsampleBilinear2d", "UpsampleBicubic2d", "UpsampleTrilinear3d", "UpsampleBilinear2dAA", "UpsampleBicubic2dAA",
        "UpsampleNearestExact2d", "UpsampleNearest3d", "UpsampleNearestExact3d")
def test_resampling():
    line, plane, volume = floats(2, 3, 7), floats(2, 3, 6, 7), floats(1, 2, 3, 4, 5)
    for corners in (False, True):
        same(lambda t: F.interpolate(t, size=11, mode="linear", align_corners=corners), line)
        same(lambda t: F.interpolate(t, scale_factor=(1.5, 2.0), mode="bilinear", align_corners=corners), plane)
        same(lambda t: F.interpolate(t, size=(9, 4), mode="bicubic", align_corners=corners), plane)
        same(lambda t: F.interpolate(t, size=(4, 5, 9), mode="trilinear", align_corners=corners), volume)
    same(lambda t: F.interpolate(t, size=(3, 4), mode="bilinear", antialias=True), plane)
    same(lambda t: F.interpolate(t, size=(3, 4), mode="bicubic", antialias=True), plane)
    same(lambda t: F.interpolate(t, size=(9, 4), mode="nearest-exact"), plane)
    same(lambda t: F.interpolate(t, size=(4, 5, 9), mode="nearest"), volume)
    same(lambda t: F.interpolate(t, size=(4, 5, 9), mode="nearest-exact"), volume)


@covers("UpsampleNearest1dV2", "UpsampleNearest2dV2", "UpsampleNearestExact1d")
def test_resampling_by_the_nearest():
    same(lambda t: F.interpolate(t, size=11, mode="nearest"), floats(2, 3, 7))
    same(lambda t: F.interpolate(t, scale_factor=2, mode="nearest"), floats(2, 3, 6, 7))
    same(lambda t: F.interpolate(t, size=11, mode="nearest-exact"), floats(2, 3, 7))


@covers("GridSampler2D", "GridSampler3D", "AffineGrid", "ChannelShuffle")
def test_grids():
    same(lambda t, g: F.grid_sample(t, g, align_corners=False), floats(2, 3, 6, 7), floats(2, 4, 5, 2, low=-1.2, high=1.2))
    same(lambda t, g: F.grid_sample(t, g, mode="nearest", align_corners=True), floats(1, 2, 4, 5, 6), floats(1, 3, 4, 5, 3, low=-1.2, high=1.2))
    same(lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), floats(2, 2, 3))
    same(lambda t: F.channel_shuffle(t, 3), floats(2, 6, 3, 3))


@covers("BatchNorm")
def test_batch_normalisation():
    x, w, b, mean, var = floats(4, 3, 5), floats(3, seed=1), floats(3, seed=2), floats(3, seed=3), floats(3, seed=4, low=0.5)
    same(lambda *t: F.batch_norm(t[0], t[3], t[4], t[1], t[2], eps=1e-3), x, w, b, mean, var)
    near(lambda *t: F.batch_norm(t[0], t[3], t[4], t[1], t[2], eps=1e-3), *(t.bfloat16() for t in (x, w, b, mean, var)), ulps=2)

    def trained(*t):
        y = F.batch_norm(t[0], t[3], t[4], t[1], t[2], training=True, momentum=0.3)
        return y, t[3], t[4]

    same(trained, x, w, b, mean, var)


@covers("L1Loss", "MseLoss", "SmoothL1Loss", "SoftMarginLoss", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits", "KlDiv", "NLLLoss", "NLLLoss2d")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses(reduction):
    x, y = floats(5, 7), floats(5, 7, seed=1)
    same(lambda a, b: F.l1_loss(a, b, reduction=reduction), x, y)
    same(lambda a, b: F.mse_loss(a, b, reduction=reduction), x, y)
    same(lambda a, b: F.smooth_l1_loss(a, b, reduction=reduction, beta=0.5), x, y)
    same(lambda a, b: F.soft_margin_loss(a, b, reduction=reduction), x, y.sign())
    p, q = floats(5, 7, low=0.01, high=0.99), floats(5, 7, seed=1, low=0, high=1)
    same(lambda a, b: F.binary_cross_entropy(a, b, reduction=reduction), p, q)
    same(lambda a, b: F.binary_cross_entropy_with_logits(a, b, reduction=reduction), x, q)
    same(lambda a, b: F.kl_div(a.log(), b, reduction=reduction), p, q)
    same(lambda a, b: F.nll_loss(a, b, reduction=reduction, ignore_index=2), x, ints(5, low=0, high=7))
    same(lambda a, b: F.nll_loss(a, b, reduction=reduction), floats(2, 4, 3, 3), ints(2, 3, 3, low=0, high=4))


@covers("LinalgQr", "Renorm", "InplaceRenorm", "Inverse", "LinalgCholesky", "Slogdet", "Svd", "TriangularSolve", "EmbeddingRenorm")
def test_linear_algebra():
    square = floats(2, 5, 5) + 6 * torch.eye(5)
    device = square.npu()
    same(lambda t: torch.linalg.qr(t), square)
    same(lambda t: torch.renorm(t, 2, 0, 1.5), floats(4, 6))
    same(lambda t: t.clone().renorm_(2, 0, 1.5), floats(4, 6))
    inverse = torch.zeros_like(device)
    call("Inverse", device, inverse)
    close(inverse.cpu() @ square, torch.eye(5).expand(2, 5, 5).double(), absolute=1e-5)
    positive = square @ square.mT
    lower = torch.zeros_like(device)
    call("LinalgCholesky", positive.npu(), False, lower)
    close(lower.cpu() @ lower.cpu().mT, positive.double(), ulps=16, absolute=1e-4)
    sign, log = torch.zeros(2, device="npu"), torch.zeros(2, device="npu")
    call("Slogdet", device, sign, log)
    close(log.cpu(), torch.linalg.slogdet(square.double())[1], ulps=16)
    u, s, v = torch.zeros_like(device), torch.zeros(2, 5, device="npu"), torch.zeros_like(device)
    call("Svd", device, False, True, s, u, v)
    close(u.cpu() @ torch.diag_embed(s.cpu()) @ v.cpu().mT, square.double(), absolute=1e-4)
    x, m = torch.zeros(2, 5, 3, device="npu"), torch.zeros_like(device)
    right = floats(2, 5, 3, seed=1)
    call("TriangularSolve", right.npu(), device, True, False, False, x, m)
    close(square.triu() @ x.cpu(), right.double(), absolute=1e-4)
    table = floats(6, 4).npu()
    call("EmbeddingRenorm", table, torch.tensor([1, 4]).npu(), 0.5, 2.0)
    norms = table.cpu().norm(dim=1)
    assert (norms[[1, 4]] <= 0.501).all() and torch.equal(table.cpu()[[0, 2, 3, 5]], floats(6, 4)[[0, 2, 3, 5]])


@covers("Hardshrink", "Softshrink", "Prelu", "XLogYScalarSelf", "XLogYScalarOther", "InplaceXLogYScalarOther", "Polar")
def test_more_pointwise():
    x = floats(4, 6)
    same(lambda t: F.hardshrink(t, 0.7), x)
    same(lambda t: F.softshrink(t, 0.7), x)
    same(lambda t, w: F.prelu(t, w), floats(2, 3, 4), floats(3, seed=1))
    same(lambda t, w: F.prelu(t, w), x, floats(1, seed=1))
    same(lambda t: torch.xlogy(2.5, t), x.abs())
    same(lambda t: torch.xlogy(t, 2.5), x)
    same(lambda t: torch.xlogy_(t, 2.5), x.clone())
    assert torch.equal(torch.polar(x.npu(), x.npu()).cpu(), torch.polar(x, x))


@covers("DropoutGenMaskV2", "DropoutDoMask")
def test_dropout_keeps_the_right_share_and_scales_it():
    x = torch.ones(40000, device="npu")
    y = F.dropout(x, 0.3, training=True).cpu()
    kept = y != 0
    # Binomial: 5 standard deviations of the share of 40,000.
    assert abs(kept.float().mean().item() - 0.7) < 5 * (0.3 * 0.7 / 40000) ** 0.5
    assert torch.allclose(y[kept], torch.tensor(1 / 0.7))
    assert torch.equal(F.dropout(x, 0.0, training=True).cpu(), x.cpu())


@strict_refuses(r"`self` has format ND \(2\); it must be one of NCHW \(0\)")
@covers("ConvDepthwise2d", "ConvTbc", "UpsampleNearest1d", "UpsampleNearest2d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "MaxPool2dWithIndices", "MaxUnpool2d",
        "MaxUnpool3d")
def test_what_torch_npu_calls_on_other_chips_only():
    x, w, bias = floats(1, 4, 6, 6), floats(4, 1, 3, 3, seed=1), floats(4, seed=2)
    out = torch.zeros(1, 4, 6, 6, device="npu")
    call("ConvDepthwise2d", x.npu(), w.npu(), int_array(3, 3), bias.npu(), int_array(1, 1), int_array(1, 1), int_array(1, 1), out, 0)
    close(out.cpu(), F.conv2d(x.double(), w.double(), bias.double(), padding=1, groups=4), ulps=32, absolute=1e-5)
    line, taps, out = floats(7, 2, 3), floats(3, 3, 4, seed=1), torch.zeros(7, 2, 4, device="npu")
    call("ConvTbc", line.npu(), taps.npu(), bias.npu(), 1, out, 0)
    close(out.cpu(), torch.conv_tbc(line.double(), taps.double(), bias.double(), 1), ulps=32, absolute=1e-5)
    for name, t, size in (("UpsampleNearest1d", floats(1, 2, 5), (9,)), ("UpsampleNearest2d", floats(1, 2, 5, 4), (9, 7))):
        out = torch.zeros(1, 2, *size, device="npu")
        call(name, t.npu(), int_array(*size), out)
        assert torch.equal(out.cpu(), F.interpolate(t, size=size, mode="nearest"))
    for name, t, pool in (("AdaptiveMaxPool2d", x, F.adaptive_max_pool2d), ("AdaptiveMaxPool3d", floats(1, 2, 4, 5, 6), F.adaptive_max_pool3d)):
        size = (2, 3, 2)[: t.dim() - 2]
        want, where = pool(t, size, return_indices=True)
        out, indices = torch.zeros_like(want).npu(), torch.zeros_like(where).npu()
        call(name, t.npu(), int_array(*size), out, indices)
        assert torch.equal(out.cpu(), want) and torch.equal(indices.cpu(), where)
    want, where = F.max_pool2d(x, 2, return_indices=True)
    out, indices = torch.zeros_like(want).npu(), torch.zeros_like(where).npu()
    call("MaxPool2dWithIndices", x.npu(), int_array(2, 2), int_array(2, 2), int_array(0, 0), int_array(1, 1), False, out, indices)
    assert torch.equal(out.cpu(), want) and torch.equal(indices.cpu(), where)
    back = torch.zeros_like(x).npu()
    call("MaxUnpool2d", out, indices, int_array(6, 6), back)
    assert torch.equal(back.cpu(), F.max_unpool2d(want, where, 2))
    volume = floats(1, 2, 4, 4, 6)
    want, where = F.max_pool3d(volume, 2, return_indices=True)
    back = torch.zeros_like(volume).npu()
    call("MaxUnpool3d", want.npu(), where.npu(), int_array(4, 4, 6), int_array(2, 2, 2), int_array(0, 0, 0), back)
    assert torch.equal(back.cpu(), F.max_unpool3d(want, where, 2))


@covers("MultilabelMarginLoss", "CtcLoss", "Cdist", "Pdist", "CrossEntropyLoss")
def test_losses_with_targets_of_their_own_kind():
    x, labels = floats(3, 5), torch.tensor([[3, 0, -1, 1, 2], [1, -1, 0, 0, 0], [-1, 0, 0, 0, 0]])
    out, hit = torch.zeros((), device="npu"), torch.zeros(3, 5, device="npu")
    call("MultilabelMarginLoss", x.npu(), labels.npu(), 1, out, hit)
    close(out.cpu(), F.multilabel_margin_loss(x, labels).double(), ulps=4)
    probabilities = floats(12, 2, 6).log_softmax(-1)
    want = F.ctc_loss(probabilities, ints(2, 4, low=1, high=6), (12, 10), (4, 3), reduction="none")
    got, alpha = torch.zeros(2, device="npu"), torch.zeros(2, 12, 9, device="npu")
    call("CtcLoss", probabilities.npu(), ints(2, 4, low=1, high=6).npu(), int_array(12, 10), int_array(4, 3), 0, False, got, alpha)
    close(got.cpu(), want.double(), ulps=4)
    a, b = floats(4, 3), floats(5, 3, seed=1)
    near(torch.cdist, a, b, ulps=16)
    same(F.pdist, a)
    loss, p = torch_npu.npu_cross_entropy_loss(x.npu(), torch.tensor([1, 4, 0]).npu())[:2]
    close(loss.cpu().flatten(), F.cross_entropy(x, torch.tensor([1, 4, 0])).double().view(1), ulps=4)
    close(p.cpu(), x.double().log_softmax(-1), ulps=16)


@covers("AngleV2", "NanMedian", "NanMedianDim", "GroupNormSilu", "GroupNormSwish", "AddLayerNorm", "DeepNorm", "IndexFillTensor", "InplaceIndexFillTensor",
        "EmbeddingBag")
def test_the_others():
    x = floats(4, 6)
    x[1, 2] = torch.nan
    same(torch.angle, x)
    same(torch.nanmedian, x)
    same(lambda t: tuple(torch.nanmedian(t, 1)), x)
    x = floats(2, 6, 3, 4)
    gamma, beta = floats(6, seed=1), floats(6, seed=2)
    y = F.group_norm(x.double(), 3, gamma.double(), beta.double())
    close(torch_npu.npu_group_norm_silu(x.npu(), gamma.npu(), beta.npu(), 3)[0].cpu(), F.silu(y), ulps=16, absolute=1e-5)
    close(torch_npu.npu_group_norm_swish(x.npu(), 3, gamma.npu(), beta.npu(), swish_scale=0.5)[0].cpu(), y * torch.sigmoid(0.5 * y), ulps=16, absolute=1e-5)
    a, b, gamma, beta = floats(4, 8), floats(4, 8, seed=1), floats(8, seed=2), floats(8, seed=3)
    y, _, _, total = torch_npu.npu_add_layer_norm(a.npu(), b.npu(), gamma.npu(), beta.npu(), 1e-5, True)
    close(total.cpu(), a.double() + b.double(), ulps=1)
    close(y.cpu(), F.layer_norm(a.double() + b.double(), (8,), gamma.double(), beta.double()), ulps=16, absolute=1e-5)
    y = torch_npu.npu_deep_norm(a.npu(), b.npu(), beta.npu(), gamma.npu(), 0.5, 1e-5)[2]
    close(y.cpu(), F.layer_norm(0.5 * a.double() + b.double(), (8,), gamma.double(), beta.double()), ulps=16, absolute=1e-5)
    out = torch.zeros(4, 8, device="npu")
    call("IndexFillTensor", a.npu(), 1, int_array(0, 3), scalar(2.5), out)
    assert torch.equal(out.cpu(), a.index_fill(1, torch.tensor([0, 3]), 2.5))
    call("InplaceIndexFillTensor", out, 0, int_array(2), scalar(-1.0))
    assert (out.cpu()[2] == -1).all()
    same(lambda t, i, o: F.embedding_bag(i, t, o, mode="mean"), a, torch.tensor([0, 2, 1, 3, 3]), torch.tensor([0, 2]))
    same(lambda t, i, o: F.embedding_bag(i, t, o, mode="sum"), a, torch.tensor([0, 2, 1, 3, 3]), torch.tensor([0, 2]))


@covers("DropoutGenMask", "DropoutGenMaskV2Tensor")
def test_masks_of_dropout_say_the_same_for_the_same_seed():
    one, two = torch.zeros(16, dtype=torch.uint8, device="npu"), torch.zeros(16, dtype=torch.uint8, device="npu")
    call("DropoutGenMask", int_array(100), 0.5, 7, 3, one)
    call("DropoutGenMaskV2Tensor", int_array(100), 0.5, torch.tensor([7]).npu(), torch.tensor([1]).npu(), 2, 0, two)
    assert torch.equal(one.cpu(), two.cpu()) and one.cpu()[:12].any() and not one.cpu()[13:].any()
