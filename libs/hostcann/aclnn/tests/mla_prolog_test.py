"""The fused pre-work of latent attention, against its formula in float64 and the operators that it stands for."""

import pytest
import torch
import torch_npu
from oracle import EPS, STRICT, covers, floats, launches

LATENT, ROPE, BLOCK, BLOCKS = 512, 64, 16, 3
BF16 = torch.bfloat16
# hidden size, rank of the queries, heads, head size without rope: the smallest that the pages allow.
V2_SIZES, V3_SIZES = (7168, 1536, 1, 128), (1024, 1536, 2, 128)
FORMS = ("bfloat16", "int8 up", "int8")


def rms_norm(x, gamma, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gamma


def to_int8(x, dim):
    scale = x.abs().amax(dim, keepdim=True) / 127
    return (x / scale).round().to(torch.int8), scale


def rope(x, cos, sin):
    """Pairs of neighbours to halves, then rotated."""
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.cat([even, odd], -1) * cos + torch.cat([-odd, even], -1) * sin


class Problem:
    """Arguments of the operator by its names, on the CPU; weights are [k, n] and int8 where `form` says so."""

    def __init__(self, sizes, tokens: int, form: str = "bfloat16") -> None:
        hidden, q_rank, self.heads, self.nope = sizes
        self.form, self.tokens = form, tokens
        weights = {"weight_dq": (hidden, q_rank), "weight_uq_qr": (q_rank, self.heads * (self.nope + ROPE)), "weight_dkv_kr": (hidden, LATENT + ROPE)}
        self.exact = {name: (floats(*shape, seed=i).double() * shape[0] ** -0.5) for i, (name, shape) in enumerate(weights.items())}
        self.exact["token_x"] = floats(tokens, hidden, seed=5).double()
        self.tensors, self.scales = {}, {}
        coded = {"bfloat16": (), "int8 up": ("weight_uq_qr",), "int8": ("token_x", *weights)}[form]
        for name, value in self.exact.items():
            if name in coded:
                codes, scale = to_int8(value, -1 if name == "token_x" else 0)
                self.tensors[name], self.scales[f"dequant_scale_{name.replace('weight', 'w').replace('token_', '')}"] = codes, scale.float()
                self.exact[name] = codes.double() * scale.float().double()
            else:
                self.tensors[name] = value.to(BF16)
                self.exact[name] = self.tensors[name].double()
        if coded:
            self.scales["smooth_scales_cq"] = floats(1, q_rank, seed=9).abs() + 0.5
        for i, (name, shape) in enumerate(
            {"weight_uk": (self.heads, self.nope, LATENT), "rmsnorm_gamma_cq": (q_rank,), "rmsnorm_gamma_ckv": (LATENT,), "rope_sin": (tokens, ROPE), "rope_cos": (tokens, ROPE)}.items()
        ):
            value = floats(*shape, seed=20 + i) * (shape[1] ** -0.5 if name == "weight_uk" else 1)
            if name.startswith("rope"):  # not of one angle: the operator takes the two tables as they are
                value = value.sin()
            self.tensors[name] = value.to(BF16)
            self.exact[name] = self.tensors[name].double()
        self.index = torch.randperm(BLOCK * BLOCKS, generator=torch.Generator().manual_seed(3))[:tokens]

    def formula(self, qc_qr_scale=1.0, kc_scale=1.0):
        """query, query_rope, latents, rotated keys in float64; the quantisation per token is left out."""
        e, tokens = self.exact, self.tokens
        cq = rms_norm(e["token_x"] @ e["weight_dq"], e["rmsnorm_gamma_cq"], 1e-5) * qc_qr_scale
        if "smooth_scales_cq" in self.scales:
            cq = cq * self.scales["smooth_scales_cq"].double()
        up = (cq @ e["weight_uq_qr"]).view(tokens, self.heads, self.nope + ROPE)
        query = torch.einsum("thd,hdl->thl", up[..., : self.nope], e["weight_uk"])
        down = e["token_x"] @ e["weight_dkv_kr"]
        cos, sin = e["rope_cos"], e["rope_sin"]
        return (
            query, rope(up[..., self.nope :], cos[:, None], sin[:, None]), rms_norm(down[:, :LATENT], e["rmsnorm_gamma_ckv"], 1e-5) * kc_scale,
            rope(down[:, LATENT:], cos, sin),
        )

    def run(self, version: int, mode: str = "PA_BSND", index=None, shape=None, weights=None, **settings):
        """What the operator gives, and the rows of the caches at the tokens' slots, on the CPU; the rest of the caches must stay NaN."""
        index = self.index if index is None else index
        lead = shape or (self.tokens,)
        inputs = {name: t.npu() for name, t in self.tensors.items()}
        for name in ("weight_dq", "weight_uq_qr", "weight_dkv_kr"):
            inputs[name] = torch_npu.npu_format_cast(inputs[name], 29)
        for name in ("token_x", "rope_sin", "rope_cos"):
            inputs[name] = inputs[name].view(*lead, inputs[name].shape[-1])
        inputs |= weights or {}
        caches = [torch.full((BLOCKS, BLOCK, 1, width), float("nan"), dtype=BF16).npu() for width in (LATENT, ROPE)]
        index_npu = index.view(lead).npu()
        options = {name: t.npu() for name, t in self.scales.items()} | {"cache_mode": mode} | settings
        if version == 2:
            query, query_rope = torch_npu.npu_mla_prolog_v2(**inputs, cache_index=index_npu, kv_cache=caches[0], kr_cache=caches[1], **options)[:2]
        else:
            options.setdefault("weight_quant_mode", FORMS.index(self.form))
            query, query_rope = torch_npu.npu_mla_prolog_v3(**inputs, cache_index=index_npu, kv_cache=caches[0], kr_cache=caches[1], **options)[:2]
        assert query.shape == (*lead, self.heads, LATENT) and query_rope.shape == (*lead, self.heads, ROPE)
        rows = []
        for cache in caches:
            cache = cache.cpu()
            if mode == "PA_NZ":  # [blocks, width / 16, block, 16]
                cache = cache.view(BLOCKS, cache.shape[-1] // 16, BLOCK, 16).transpose(1, 2).contiguous()
            flat = cache.view(BLOCK * BLOCKS, -1)
            rows.append(flat[index.clamp_min(0)])
            kept = torch.zeros(len(flat), dtype=torch.bool)
            kept[index[index >= 0]] = True
            assert flat[~kept].isnan().all() and not flat[kept].isnan().any()
        return query.cpu().flatten(0, len(lead) - 1), query_rope.cpu().flatten(0, len(lead) - 1), *rows


def check(got, want, form: str = "bfloat16"):
    """Errors are random and of the size of a row: of some roundings to bfloat16, one after the other, and where queries are int8, of half a step of
    1 / 127 of the largest of a row, which is 4 of its mean."""
    steps = 6 if form == "bfloat16" else 10
    for name, g, w in zip(("query", "query_rope", "latents", "keys"), got, want):
        size = w.square().mean(-1, keepdim=True).sqrt()
        error = (g.double() - w).abs() / size
        assert error.max() <= steps * EPS[BF16], f"{name}: {error.max().item() / EPS[BF16]} steps"


@pytest.mark.parametrize("form", FORMS)
@covers("MlaPrologV3WeightNz")
def test_mla_prolog_v3(form):
    problem = Problem(V3_SIZES, 5, form)
    check(problem.run(3), problem.formula(), form)
    check(problem.run(3, "PA_NZ"), problem.formula(), form)
    check(problem.run(3, qc_qr_scale=0.5, kc_scale=3.0), problem.formula(0.5, 3.0), form)


@covers("MlaPrologV2WeightNz")
def test_mla_prolog_v2():
    for form in FORMS:
        problem = Problem(V2_SIZES, 3, form)
        check(problem.run(2), problem.formula(), form)


@covers("MlaPrologV3WeightNz")
def test_batches_and_empty_ones():
    problem = Problem(V3_SIZES, 6)
    want = problem.run(3)
    for got, w in zip(problem.run(3, shape=(2, 3)), want):
        assert torch.equal(got, w)
    empty = Problem(V3_SIZES, 0)
    assert empty.run(3)[0].shape == (0, 2, LATENT)


@covers("MlaPrologV3WeightNz", "RmsNorm", "BatchMatMul")
def test_has_the_bits_of_the_separate_operators():
    problem = Problem(V3_SIZES, 4)
    t = {name: value.npu() for name, value in problem.tensors.items()}
    cq = torch_npu.npu_rms_norm(t["token_x"] @ t["weight_dq"], t["rmsnorm_gamma_cq"], 1e-5)[0]
    up = (cq @ t["weight_uq_qr"]).view(4, problem.heads, -1)
    query = torch.bmm(up[..., : problem.nope].transpose(0, 1), t["weight_uk"]).transpose(0, 1)
    down = t["token_x"] @ t["weight_dkv_kr"]
    latent = torch_npu.npu_rms_norm(down[:, :LATENT].contiguous(), t["rmsnorm_gamma_ckv"], 1e-5)[0]
    got = problem.run(3)
    assert torch.equal(got[0], query.cpu()) and torch.equal(got[2], latent.cpu())


@covers("MlaPrologV3WeightNz")
def test_slot_minus_one_is_skipped():
    problem = Problem(V3_SIZES, 4)
    index = torch.tensor([7, -1, 40, -1])
    got = problem.run(3, index=index)
    want = problem.formula()
    check(got[:2], want[:2])
    check([g[index >= 0] for g in got[2:]], [w[index >= 0] for w in want[2:]])


@pytest.mark.parametrize(
    "sizes, settings, message",
    [
        ((64, 1536, 2, 128), {}, "the hidden size is 64; the operator takes 1024, 2048"),
        ((1024, 1536, 3, 128), {}, "the number of heads is 3"),
        ((1024, 512, 2, 128), {}, "the rank of the queries is 512"),
        (V3_SIZES, {"query_norm_flag": True}, "query_norm is asked for"),
        (V3_SIZES, {"weight_quant_mode": 1}, "weight_quant_mode is 1, but weightDq is bfloat16"),
        (V3_SIZES, {"cache_mode": "TND"}, 'cacheMode is "TND"'),
        (V3_SIZES, {"kv_cache_quant_mode": 2}, "kv_quant_mode is 2"),
    ],
)
def test_refuses_what_the_pages_exclude(sizes, settings, message):
    problem = Problem(sizes, 2)
    before = launches("MlaPrologV3WeightNz")
    with pytest.raises(RuntimeError, match=message):
        problem.run(3, **({"mode": settings.pop("cache_mode")} if "cache_mode" in settings else {}), **settings)
    assert launches("MlaPrologV3WeightNz") == before


def test_refuses_a_weight_of_rows():
    problem = Problem(V3_SIZES, 2)
    with pytest.raises(RuntimeError, match=r"(weightDq.*FRACTAL_NZ)"):
        problem.run(3, weights={"weight_dq": problem.tensors["weight_dq"].npu()})


@pytest.mark.skipif(not STRICT, reason="what hostcann's own checks would say otherwise")
def test_strict_mode_checks_the_types():
    problem = Problem(V3_SIZES, 2)
    problem.tensors["rmsnorm_gamma_cq"] = problem.tensors["rmsnorm_gamma_cq"].float()
    with pytest.raises(RuntimeError, match="argument `rmsnormGammaCq` is float32; it must be one of bfloat16 on"):
        problem.run(3)
    problem = Problem(V3_SIZES, 2)
    with pytest.raises(RuntimeError, match="argument `cacheIndexOptional` is int32; it must be one of int64 on"):
        problem.run(3, index=problem.index.int())
