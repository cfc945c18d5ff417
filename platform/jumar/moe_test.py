"""Mixture of experts: who is chosen, and the whole layer, against the definitions in float64."""

from types import SimpleNamespace

import pytest
import torch
from transformers import DeepseekV3Config, DeepseekV4Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HashRouter, DeepseekV4TopKRouter
from vllm.model_executor.layers.fused_moe.activation import MoEActivation

from jumar import moe

TOKENS, HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 9, 32, 48, 8, 2


def moe_config(rank: int = 0, ranks: int = 1, **changes) -> SimpleNamespace:
    parallel = SimpleNamespace(use_ep=ranks > 1, ep_size=ranks, ep_rank=rank)
    values = dict(activation=MoEActivation.SILU, swiglu_limit=None, swiglu_alpha=None, swiglu_beta=None, has_bias=False)
    return SimpleNamespace(moe_parallel_config=parallel, **values | changes)


def layer(**changes) -> SimpleNamespace:
    """What the method sees of vLLM's RoutedExperts."""
    values = dict(
        top_k=TOP_K,
        renormalize=True,
        scoring_func="softmax",
        use_grouped_topk=False,
        num_expert_group=None,
        topk_group=None,
        e_score_correction_bias=None,
        routed_scaling_factor=1.0,
        custom_routing_function=None,
        apply_router_weight_on_input=False,
        global_num_experts=EXPERTS,
        local_num_experts=EXPERTS,
        expert_placement_strategy="linear",
        moe_config=moe_config(),
    )
    return SimpleNamespace(**values | changes)


def routed(logits: torch.Tensor, input_ids: torch.Tensor | None = None, **changes) -> torch.Tensor:
    """The weight of every expert for every token, 0 for those not chosen."""
    ids = None if input_ids is None else input_ids.npu()
    weights, experts = moe.route(layer(**changes), torch.zeros(len(logits), HIDDEN).npu(), logits.npu(), ids)
    assert weights.dtype == torch.float32 and experts.dtype == torch.int32
    return torch.zeros(logits.shape).scatter(1, experts.cpu().long(), weights.cpu())


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_the_best_scores_are_chosen(scoring, renormalize, factor):
    logits = torch.randn(TOKENS, EXPERTS)
    scores = logits.double().softmax(-1) if scoring == "softmax" else logits.double().sigmoid()
    best = scores.topk(TOP_K)
    weights = best.values / best.values.sum(-1, keepdim=True) if renormalize else best.values
    want = torch.zeros(logits.shape, dtype=torch.float64).scatter(1, best.indices, weights * factor)
    got = routed(logits, scoring_func=scoring, renormalize=renormalize, routed_scaling_factor=factor)
    assert torch.allclose(got.double(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("renormalize", [True, False])
def test_groups_with_a_bias_are_deepseek_v3s(renormalize):
    config = DeepseekV3Config(
        hidden_size=HIDDEN, n_routed_experts=16, num_experts_per_tok=4, n_group=4, topk_group=2, norm_topk_prob=renormalize, routed_scaling_factor=2.5
    )
    torch.manual_seed(1)
    router = DeepseekV3TopkRouter(config)
    torch.nn.init.normal_(router.weight)
    router.e_score_correction_bias.normal_(std=0.3)
    with torch.no_grad():
        logits, weights, chosen = router(torch.randn(TOKENS, HIDDEN))
    want = torch.zeros(TOKENS, 16).scatter(1, chosen, weights)
    got = routed(
        logits,
        top_k=4,
        scoring_func="sigmoid",
        renormalize=renormalize,
        use_grouped_topk=True,
        num_expert_group=4,
        topk_group=2,
        e_score_correction_bias=router.e_score_correction_bias.npu(),
        routed_scaling_factor=2.5,
    )
    assert torch.allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_bias_keeps_its_precision_beside_16_bit_logits(dtype):
    """DeepSeek V3's biases are fp32 and large next to the scores, which differ by less than bf16 tells apart there."""
    torch.manual_seed(3)
    logits, bias = torch.randn(64, EXPERTS).to(dtype), 18 + torch.rand(EXPERTS) / 8
    scores = logits.double().sigmoid()
    best = (scores + bias.double()).topk(TOP_K).indices
    weights = scores.gather(1, best)
    want = torch.zeros(logits.shape, dtype=torch.float64).scatter(1, best, weights / weights.sum(-1, keepdim=True))
    got = routed(logits, scoring_func="sigmoid", e_score_correction_bias=bias.npu())
    assert torch.allclose(got.double(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by_token_number", [False, True])
def test_square_roots_of_softplus_are_deepseek_v4s(by_token_number):
    config = DeepseekV4Config(
        hidden_size=HIDDEN, vocab_size=50, n_routed_experts=EXPERTS, num_experts_per_tok=TOP_K, routed_scaling_factor=1.5, num_hidden_layers=1
    )
    torch.manual_seed(4)
    router = DeepseekV4HashRouter(config) if by_token_number else DeepseekV4TopKRouter(config)
    torch.nn.init.normal_(router.weight)
    x, ids = torch.randn(TOKENS, HIDDEN), torch.randint(50, (TOKENS,))
    if by_token_number:
        router.tid2eid.copy_(torch.rand(50, EXPERTS).argsort(-1)[:, :TOP_K])
        changes = dict(hash_indices_table=router.tid2eid.int().npu(), input_ids=ids)
    else:
        router.e_score_correction_bias.normal_(std=0.3)
        changes = dict(e_score_correction_bias=router.e_score_correction_bias.npu())
    with torch.no_grad():
        logits, weights, chosen = router(x, ids) if by_token_number else router(x)
    got = routed(logits, scoring_func="sqrtsoftplus", routed_scaling_factor=1.5, **changes)
    assert torch.allclose(got, torch.zeros(TOKENS, EXPERTS).scatter(1, chosen, weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(scoring_func="tanh"), "chosen by 'tanh' are not supported on npu: it has softmax, sigmoid, sqrtsoftplus"),
        (dict(scoring_func="sqrtsoftplus", use_grouped_topk=True, num_expert_group=2, topk_group=1), "sqrtsoftplus .without groups"),
        (dict(scoring_func="sigmoid", hash_indices_table=torch.zeros(1)), "by token numbers and 'sigmoid'"),
    ],
)
def test_scores_that_are_not_supported_are_named(changes, message):
    with pytest.raises(NotImplementedError, match=message):
        routed(torch.randn(TOKENS, EXPERTS), **changes)


def test_a_model_may_bring_its_own_routing():
    def last(hidden_states, gating_output, topk, renormalize):
        chosen = torch.arange(EXPERTS - topk, EXPERTS, device=gating_output.device).expand(len(gating_output), topk)
        return torch.ones(chosen.shape, device=chosen.device), chosen

    got = routed(torch.randn(TOKENS, EXPERTS), custom_routing_function=last)
    assert got[:, :-TOP_K].eq(0).all() and got[:, -TOP_K:].eq(1).all()


class FloatExperts(moe.ExpertsMethod):
    """The common part over plain weights."""

    def __init__(self) -> None:  # without a vLLM configuration
        pass

    def create_weights(self, *args, **kwargs) -> None:
        raise NotImplementedError

    def multiply(self, layer, name, x, counts):
        return moe.grouped_matmul(x, getattr(layer, name).transpose(1, 2), counts)


class CheckedExperts(FloatExperts):
    __init__ = moe.ExpertsMethod.__init__


PLAIN = dict(
    activation=MoEActivation.SILU,
    swiglu_alpha=None,
    swiglu_beta=None,
    has_bias=False,
    has_hash_routing=False,
    dp_size=1,
    is_lora_enabled=False,
    moe_parallel_config=SimpleNamespace(enable_eplb=False),
)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(activation=MoEActivation.GELU), "activation 'gelu'"),
        (dict(swiglu_alpha=1.702), "silu of alpha 1.702"),
        (dict(has_bias=True), "quantised weights and biases"),
        (dict(has_hash_routing=True, dp_size=2), "over data-parallel ranks"),
    ],
)
def test_experts_that_would_be_computed_wrongly_are_refused(change, message):
    CheckedExperts(SimpleNamespace(**PLAIN))
    with pytest.raises(NotImplementedError, match=message):
        CheckedExperts(SimpleNamespace(**PLAIN | change))


def run(x: torch.Tensor, logits: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor, **changes) -> torch.Tensor:
    some = layer(w13=w13.npu(), w2=w2.npu(), **changes)
    return FloatExperts().apply_monolithic(some, x.npu(), logits.npu()).cpu()


def reference(x: torch.Tensor, logits: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    x, w13, w2 = x.double(), w13.double(), w2.double()
    best = logits.double().softmax(-1).topk(TOP_K)
    weights = torch.zeros(logits.shape, dtype=torch.float64).scatter(1, best.indices, best.values / best.values.sum(-1, keepdim=True))
    gate, up = torch.einsum("tk,enk->ten", x, w13).chunk(2, -1)
    return torch.einsum("te,tei,ehi->th", weights, torch.nn.functional.silu(gate) * up, w2)


@pytest.fixture
def problem() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(2)
    logits = torch.randn(TOKENS, EXPERTS)
    logits[:, 3] = -9  # an expert that nobody chooses
    return torch.randn(TOKENS, HIDDEN), logits, torch.randn(EXPERTS, 2 * INTERMEDIATE, HIDDEN) / 6, torch.randn(EXPERTS, HIDDEN, INTERMEDIATE) / 7


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_layer(dtype, problem):
    x, logits, w13, w2 = problem
    x, w13, w2 = x.to(dtype), w13.to(dtype), w2.to(dtype)
    want = reference(x, logits, w13, w2)
    # Rounded to the type: gate and up, their product, each expert's row, weights, the sum.
    bound = 8 * torch.finfo(dtype).eps * want.abs().max() + 1e-5
    assert (run(x, logits, w13, w2).double() - want).abs().max() <= bound


@pytest.mark.parametrize(
    "config, alpha, beta, limit",
    [
        (moe_config(), 1, 0, 1e9),
        (moe_config(swiglu_limit=1.5), 1, 0, 1.5),
        (moe_config(activation=MoEActivation.SWIGLUOAI), 1.702, 1, 7),
        (moe_config(activation=MoEActivation.SWIGLUOAI_UNINTERLEAVE, swiglu_alpha=1.5, swiglu_beta=0.5, swiglu_limit=2.0), 1.5, 0.5, 2),
        (moe_config(activation=MoEActivation.SWIGLUOAI_UNINTERLEAVE, swiglu_beta=1.0), 1, 1, 1e9),
    ],
)
def test_activations(config, alpha, beta, limit):
    torch.manual_seed(5)
    x = 3 * torch.randn(TOKENS, 2 * INTERMEDIATE)
    oai = config.activation == MoEActivation.SWIGLUOAI
    gate, up = (x.double()[:, ::2], x.double()[:, 1::2]) if oai else x.double().chunk(2, -1)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    want = gate * torch.sigmoid(alpha * gate) * (up + beta)
    assert torch.allclose(moe.activate(x.npu(), config).cpu().double(), want, rtol=1e-5, atol=1e-5)


def test_ranks_add_up(problem):
    """Expert parallelism: each of four ranks has two experts, and gives its share of every token's sum."""
    x, logits, w13, w2 = problem
    total = torch.zeros(TOKENS, HIDDEN)
    for rank in range(4):
        mine = slice(2 * rank, 2 * rank + 2)
        total += run(x, logits, w13[mine], w2[mine], local_num_experts=2, moe_config=moe_config(rank, 4))
    assert (total.double() - reference(x, logits, w13, w2)).abs().max() <= 1e-4


def test_a_token_of_nan_spoils_itself_only(problem):
    x, logits, w13, w2 = problem
    clean = run(x, logits, w13, w2)
    x, logits = x.clone(), logits.clone()
    x[4], logits[4] = torch.nan, torch.nan
    got = run(x, logits, w13, w2)
    assert torch.equal(got[:4], clean[:4]) and torch.equal(got[5:], clean[5:])


def test_placement_that_is_not_supported_is_named(problem):
    with pytest.raises(NotImplementedError, match="8 experts over 3 ranks, placed by 'linear'"):
        run(*problem, local_num_experts=2, moe_config=moe_config(0, 3))
