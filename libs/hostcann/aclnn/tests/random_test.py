"""Random operators: the same numbers for a seed, others after it, and the distribution that the name promises.

Each statistic below is compared with its expectation at 5 standard errors: a right generator fails one such check in
1.7 million; the seeds are fixed, so a pass stays a pass.
"""

import math

import pytest
import torch
import torch_npu

from oracle import FLOATS, call, covers, floats

N = 200_000
CRITICAL = 5.0


def device(make, seed=7):
    torch.npu.manual_seed(seed)
    return make().cpu()


def check_mean(x, mean, deviation, what):
    error = abs(x.double().mean().item() - mean) / (deviation / math.sqrt(x.numel()))
    assert error < CRITICAL, f"{what}: mean {x.double().mean().item()} is {error:.1f} standard errors from {mean}"


def check_uniform(u):
    """Kolmogorov and Smirnov: sqrt(n) D exceeds 2.5 with probability 7e-6."""
    ordered = u.double().sort()[0]
    steps = torch.arange(1, u.numel() + 1, dtype=torch.float64) / u.numel()
    distance = torch.maximum((steps - ordered).abs(), (ordered - steps + 1 / u.numel()).abs()).max().item()
    assert distance * math.sqrt(u.numel()) < 2.5, f"D = {distance}"


def check_independent(u):
    """No correlation with the neighbour, nor with the one 4 (a block of the generator) further."""
    z = (u.double() - u.double().mean()) / u.double().std()
    for lag in (1, 2, 4, 1000):
        check_mean(z[lag:] * z[:-lag], 0, 1, f"correlation at distance {lag}")


def repeatable(make):
    first = device(make)
    assert torch.equal(first, device(make)), "the same seed gives the same numbers"
    assert not torch.equal(first, device(make, seed=8)), "another seed gives others"
    torch.npu.manual_seed(7)
    assert not torch.equal(make().cpu(), make().cpu()), "the next call gives others"
    return first


@pytest.mark.parametrize("dtype", FLOATS)
@covers("InplaceUniform")
def test_uniform(dtype):
    x = repeatable(lambda: torch.empty(N, dtype=dtype, device="npu").uniform_(-1, 3))
    assert x.min() >= -1 and x.max() < 3
    check_mean(x, 1, 4 / math.sqrt(12), "uniform") if dtype == torch.float32 else check_mean(x, 1 - 2 * torch.finfo(dtype).eps, 4 / math.sqrt(12), "uniform")
    if dtype == torch.float32:
        check_uniform((x.double() + 1) / 4)
        check_independent(x)
    strided = device(lambda: torch.zeros(50, 40, dtype=dtype, device="npu").t()[::2].uniform_())
    assert strided.unique().numel() > 100


@pytest.mark.parametrize("dtype", FLOATS)
@covers("InplaceNormal", "NormalFloatFloat", "NormalFloatTensor", "NormalTensorFloat", "NormalTensorTensor")
def test_normal(dtype):
    z = repeatable(lambda: torch.empty(N, dtype=dtype, device="npu").normal_(0, 1))
    check_mean(z, 0, 1, "mean")
    check_mean(z.double() ** 2, 1, math.sqrt(2), "variance")
    check_mean(z.double() ** 4, 3, math.sqrt(96), "fourth moment")
    check_independent(z)
    if dtype == torch.float32:
        check_uniform(0.5 * (1 + torch.erf(z.double() / math.sqrt(2))))
    assert 4 < z.abs().max() < 7
    check_mean(device(lambda: torch.normal(2.0, 3.0, (N,), dtype=dtype, device="npu")), 2, 3, "normal(2, 3)")
    means, deviations = torch.arange(4).repeat(N // 4).to(dtype), torch.tensor([1.0, 2.0]).repeat(N // 2).to(dtype)
    for make in (lambda: torch.normal(means.npu(), deviations.npu()), lambda: torch.normal(means.npu(), 2.0), lambda: torch.normal(1.0, deviations.npu())):
        x = device(make)
        for i in range(4):
            part = x[i::4].double()
            assert abs(part.mean() - part.mean().round()) < 0.1
    check_mean(device(lambda: torch.normal(means.npu(), 2.0))[3::4], 3, 2, "mean by element")
    check_mean(device(lambda: torch.normal(1.0, deviations.npu()))[1::2].double().sub(1) ** 2, 4, 4 * math.sqrt(2), "deviation by element")


@pytest.mark.parametrize("dtype", (torch.int32, torch.int64, torch.float32))
@covers("InplaceRandom")
def test_integers(dtype):
    x = repeatable(lambda: torch.empty(N, dtype=dtype, device="npu").random_(-3, 7))
    assert set(x.unique().tolist()) == set(range(-3, 7))
    counts = torch.bincount((x + 3).long(), minlength=10).double()
    chi2 = ((counts - N / 10) ** 2 / (N / 10)).sum().item()
    assert chi2 < 9 + 5 * math.sqrt(18), f"chi squared {chi2} with 9 degrees of freedom"
    if dtype == torch.int64:
        wide = device(lambda: torch.empty(N, dtype=dtype, device="npu").random_())
        check_mean(wide.double() / 2**63, 0.5, 1 / math.sqrt(12), "63 bits")
        assert torch.equal(device(lambda: torch.randint(5, (9,), device="npu")), device(lambda: torch.randint(5, (9,), device="npu")))


@covers("InplaceBernoulli", "InplaceBernoulliTensor", "SimThreadExponential")
def test_bernoulli_and_exponential():
    x = repeatable(lambda: torch.empty(N, device="npu").bernoulli_(0.3))
    check_mean(x, 0.3, math.sqrt(0.21), "bernoulli")
    assert device(lambda: torch.empty(N, device="npu").bernoulli_(0.0)).sum() == 0 and device(lambda: torch.empty(N, device="npu").bernoulli_(1.0)).sum() == N
    p = torch.tensor([0.1, 0.9]).repeat(N // 2)
    x = device(lambda: torch.bernoulli(p.npu()))
    check_mean(x[::2], 0.1, 0.3, "p by element")
    check_mean(x[1::2], 0.9, 0.3, "p by element")
    for dtype in FLOATS:
        e = repeatable(lambda: torch.empty(N, dtype=dtype, device="npu").exponential_(2))
        assert e.min() >= 0 and e.isfinite().all()
        if dtype == torch.float32:
            check_mean(e, 0.5, 0.5, "exponential")
            check_uniform(1 - torch.exp(-2 * e.double()))
    direct = torch.empty(N, device="npu")
    call("SimThreadExponential", direct, N, 0.5, 3, 4)
    check_mean(direct.cpu(), 2, 2, "exponential")


@covers("Multinomial")
def test_multinomial():
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 6.0])
    for replacement in (True, False):
        draws = repeatable(lambda: torch.multinomial(weights.expand(N // 10, 5).contiguous().npu(), 2 if replacement else 1, replacement=replacement)).flatten()
        share = torch.bincount(draws, minlength=5).double() / draws.numel()
        for i, want in enumerate((0, 0.1, 0.3, 0, 0.6)):
            assert abs(share[i] - want) <= CRITICAL * math.sqrt(want * (1 - want) / draws.numel()), f"category {i}: {share[i]} of {want}"
    pairs = device(lambda: torch.multinomial(weights.expand(N // 10, 5).contiguous().npu(), 2))
    assert (pairs[:, 0] != pairs[:, 1]).all() and not ((pairs == 0) | (pairs == 3)).any()
    # First 2 (p = 0.3), then 4: 0.3 * 6 / 7.
    check_mean(((pairs[:, 0] == 2) & (pairs[:, 1] == 4)).double(), 0.3 * 6 / 7, math.sqrt(0.257 * 0.743), "order without replacement")
    with pytest.raises(RuntimeError, match="num_samples is 4 but row 0 has only 3 categories of positive probability"):
        call("Multinomial", weights.npu(), 4, False, 0, 0, torch.empty(4, dtype=torch.int64, device="npu"))
        torch.npu.synchronize()


@covers("Randperm")
def test_permutation():
    x = repeatable(lambda: torch.randperm(1000, device="npu"))
    assert torch.equal(x.sort()[0], torch.arange(1000))
    first = torch.stack([device(lambda: torch.randperm(5, device="npu"), seed=s) for s in range(2000)])
    for position in range(5):
        check_mean(first[:, position], 2, math.sqrt(2), "a place of a permutation")


@covers("InplaceNormalTensor", "InplaceUniformTensor", "InplaceRandomTensor", "MultinomialTensor")
def test_in_a_graph():
    """While a graph is captured, seed and offset lie on the device: every replay draws anew, and a seed repeats them all."""
    x, u, i = torch.zeros(64, device="npu"), torch.zeros(64, device="npu"), torch.zeros(64, dtype=torch.int64, device="npu")
    weights = torch.ones(1, 500, device="npu")
    graph = torch.npu.NPUGraph()
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        x.normal_()
        u.uniform_()
        i.random_(0, 1000)
        drawn = torch.multinomial(weights, 8)

    def replay():
        graph.replay()
        torch.npu.synchronize()
        return [t.cpu() for t in (x, u, i, drawn)]

    torch.npu.manual_seed(3)
    first, second = replay(), replay()
    torch.npu.manual_seed(3)
    again = replay()
    for a, b, c in zip(first, second, again):
        assert not torch.equal(a, b) and torch.equal(a, c)
