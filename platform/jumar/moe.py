"""Mixture of experts on torch_npu's routing and grouped products.

    route     the experts of each token and their weights             npu_moe_gating_top_k, or torch's operators (DeepSeek V4)
    dispatch  a row for each pair of token and expert, by expert      npu_moe_init_routing_v2
    compute   down(act(gate(x), up(x))), all experts at once          npu_grouped_matmul, npu_swiglu or npu_clipped_swiglu
    combine   the weighted sum of a token's rows                      npu_moe_finalize_routing

No length is read on the host, so that all of it can be captured in a graph: how many rows an expert has stays on the device.
vLLM's routers call kernels of CUDA's; a method that is "monolithic" routes by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import FUSED_MOE_UNQUANTIZED_CONFIG, FusedMoEConfig, FusedMoEQuantConfig
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

from jumar.weights import NZ_DTYPES, to_nz

if TYPE_CHECKING:
    from vllm.model_executor.layers.fused_moe import RoutedExperts

# Values of npu_moe_gating_top_k's norm_type and group_select_mode, and of npu_moe_finalize_routing's drop_pad_mode.
NORM_TYPES = {"softmax": 0, "sigmoid": 1}
SOFTPLUS = "sqrtsoftplus"  # torch_npu's operator hasn't it
BEST_OF_GROUP, BEST_TWO_OF_GROUP = 0, 1
PLACES_BY_TOKEN = 2
# Activations, and their alpha, beta and limit where the model doesn't say.
GATED = {
    MoEActivation.SILU: (1.0, 0.0, None),
    MoEActivation.SWIGLUOAI: (1.702, 1.0, 7.0),
    MoEActivation.SWIGLUOAI_UNINTERLEAVE: (1.0, 0.0, None),
}
LEAST_SUM = 1e-20  # of weights; npu_moe_gating_top_k's default as well


def route(
    layer: RoutedExperts, x: torch.Tensor, logits: torch.Tensor, input_ids: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights, fp32 [tokens, k], and experts, int32 [tokens, k], of hidden states x [tokens, hidden] with router logits [tokens, experts].

    Softmax or sigmoid of the logits; with a correction bias the biased scores decide who is chosen, the others how much it counts.
    With groups of experts, only those of the best groups compete: by their best expert, or with a bias by the sum of the best two.
    DeepSeek V4's scores are sqrt(softplus(logits)); its first layers choose by a table with the experts of each token number (input_ids [tokens]).
    """
    import torch_npu

    if layer.custom_routing_function is not None:
        weights, experts = layer.custom_routing_function(
            hidden_states=x, gating_output=logits, topk=layer.top_k, renormalize=layer.renormalize
        )
        return weights.float(), experts.to(torch.int32)
    grouped = layer.use_grouped_topk and layer.num_expert_group > 1
    table = getattr(layer, "hash_indices_table", None)
    if layer.scoring_func == SOFTPLUS and not grouped:
        return _route_by_softplus(layer, logits.float(), table, input_ids)
    if layer.scoring_func not in NORM_TYPES or table is not None:
        names = ", ".join([*NORM_TYPES, f"{SOFTPLUS} (without groups)"])
        by = "token numbers and " if table is not None else ""
        raise NotImplementedError(f"experts chosen by {by}{layer.scoring_func!r} are not supported on npu: it has {names}, and by token numbers the last")
    bias = layer.e_score_correction_bias
    # The operator wants logits and bias of one type. That is fp32, for bf16 has 8 numbers between a bias of 18 and one of 19.
    weights, experts, _ = torch_npu.npu_moe_gating_top_k(
        logits.float(),
        layer.top_k,
        bias=None if bias is None else bias.float(),
        k_group=layer.topk_group if grouped else 1,
        group_count=layer.num_expert_group if grouped else 1,
        group_select_mode=BEST_OF_GROUP if bias is None else BEST_TWO_OF_GROUP,
        norm_type=NORM_TYPES[layer.scoring_func],
    )
    weights = weights.float()
    if layer.scoring_func == "softmax" and layer.renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    elif layer.scoring_func == "sigmoid" and not layer.renormalize:  # the operator always does it for sigmoids
        weights = logits.float().sigmoid().gather(1, experts.long())
    if layer.routed_scaling_factor != 1.0:
        weights = weights * layer.routed_scaling_factor
    return weights, experts


def _route_by_softplus(
    layer: RoutedExperts, logits: torch.Tensor, table: torch.Tensor | None, input_ids: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.nn.functional.softplus(logits).sqrt()
    if table is not None:
        assert input_ids is not None, "experts are chosen by token numbers, which the model doesn't pass"
        experts = table[input_ids[: len(logits)]].long()
    else:
        bias = layer.e_score_correction_bias
        experts = (scores if bias is None else scores + bias.float()).topk(layer.top_k).indices
    weights = scores.gather(1, experts)
    if layer.renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + LEAST_SUM)
    return weights * layer.routed_scaling_factor, experts.to(torch.int32)


class ExpertsMethod(FusedMoEMethodBase):
    """What all methods have in common but the two products: w13 (gate and up, [experts, 2 * intermediate, hidden]) and w2 (down)."""

    takes_biases = False

    def __init__(self, moe: FusedMoEConfig) -> None:
        super().__init__(moe)
        names = ", ".join(activation.value for activation in GATED)
        is_silu = moe.activation == MoEActivation.SILU
        refused = {
            f"activation {moe.activation.value!r}; npu has {names}": moe.activation not in GATED,
            f"silu of alpha {moe.swiglu_alpha} and beta {moe.swiglu_beta}": is_silu and (moe.swiglu_alpha, moe.swiglu_beta) != (None, None),
            "quantised weights and biases": moe.has_bias and not self.takes_biases,
            "routing by token numbers (hash) over data-parallel ranks": moe.has_hash_routing and moe.dp_size > 1,
            "expert load balancing (--enable-eplb)": moe.moe_parallel_config.enable_eplb,
            "LoRA": moe.is_lora_enabled,
        }
        for what, present in refused.items():
            if present:
                raise NotImplementedError(f"experts with {what} are not supported on npu")

    @abstractmethod
    def multiply(self, layer: RoutedExperts, name: str, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Each expert's rows of x times its weight ``name`` ("w13" or "w2"); counts: its rows, int64 [experts]. In x's dtype.

        Rows behind those of the last expert are of no meaning, and neither is what comes of them.
        """

    @property
    def is_monolithic(self) -> bool:
        return True

    @property
    def supports_eplb(self) -> bool:
        return False

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> FusedMoEQuantConfig:
        return FUSED_MOE_UNQUANTIZED_CONFIG  # for vLLM's own kernels

    def apply_monolithic(
        self,
        layer: RoutedExperts,
        x: torch.Tensor,
        router_logits: torch.Tensor,
        input_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        import torch_npu

        if layer.apply_router_weight_on_input:
            raise NotImplementedError("router weights on the input of experts are not supported on npu")
        weights, experts = route(layer, x, router_logits, input_ids)
        first = self.first_expert(layer)
        rows, places, counts, _ = torch_npu.npu_moe_init_routing_v2(
            x,
            experts,
            active_num=experts.numel(),
            expert_num=layer.global_num_experts,
            expert_tokens_num_type=1,  # how many rows each expert has
            expert_tokens_num_flag=True,
            active_expert_range=[first, first + layer.local_num_experts],
        )
        hidden = activate(self.multiply(layer, "w13", rows, counts), layer.moe_config)
        rows = self.multiply(layer, "w2", hidden, counts)
        return torch_npu.npu_moe_finalize_routing(
            rows, None, None, None, weights.to(x.dtype), places, None, drop_pad_mode=PLACES_BY_TOKEN
        )

    @staticmethod
    def first_expert(layer: RoutedExperts) -> int:
        """The first of the consecutive experts that this rank holds."""
        parallel = layer.moe_config.moe_parallel_config
        if not parallel.use_ep:
            return 0
        if layer.expert_placement_strategy != "linear" or layer.global_num_experts % parallel.ep_size:
            raise NotImplementedError(
                f"{layer.global_num_experts} experts over {parallel.ep_size} ranks, placed by {layer.expert_placement_strategy!r}, are not "
                "supported on npu: it takes linear placement and a number of ranks that divides"
            )
        return parallel.ep_rank * layer.local_num_experts


class AscendUnquantizedFusedMoEMethod(ExpertsMethod, UnquantizedFusedMoEMethod):
    """Experts in the model's dtype. Takes the place of vLLM's method (``CustomOp.register_oot``)."""

    takes_biases = True

    def process_weights_after_loading(self, layer: RoutedExperts) -> None:
        for weight in (layer.w13_weight, layer.w2_weight):
            if weight.dtype in NZ_DTYPES:
                weight.data = to_nz(weight.data)

    def multiply(self, layer: RoutedExperts, name: str, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return multiply_experts(layer, name, x, counts)


def activate(x: torch.Tensor, config: FusedMoEConfig) -> torch.Tensor:
    """gate * sigmoid(alpha * gate) * (up + beta) of x [rows, 2 * intermediate]; with a limit, of min(gate, limit) and of up between -limit and limit.

    Silu has alpha 1 and beta 0. GPT-OSS' gates and ups alternate, others' are two halves.
    """
    import torch_npu

    defaults = GATED[config.activation]
    alpha, beta, limit = (
        default if value is None else value
        for value, default in zip((config.swiglu_alpha, config.swiglu_beta, config.swiglu_limit), defaults)
    )
    if limit is None and (alpha, beta) == (1.0, 0.0):
        return torch_npu.npu_swiglu(x)
    interleaved = config.activation == MoEActivation.SWIGLUOAI
    no_limit = torch.finfo(torch.float32).max
    return torch_npu.npu_clipped_swiglu(x, alpha=alpha, limit=no_limit if limit is None else limit, bias=beta, interleaved=interleaved)


def multiply_experts(layer: RoutedExperts, name: str, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """ExpertsMethod.multiply by weights in the model's dtype, with biases if there are."""
    biases = {}
    if layer.moe_config.has_bias:
        bias = getattr(layer, f"{name}_bias")
        biases["bias"] = bias.float() if x.dtype == torch.bfloat16 else bias  # as the operator takes it
    return grouped_matmul(x, getattr(layer, f"{name}_weight").transpose(1, 2), counts, **biases)


def grouped_matmul(x: torch.Tensor, weight: torch.Tensor, counts: torch.Tensor, **arguments: Any) -> torch.Tensor:
    """Rows x [m, k] of experts one after the other, times weight [experts, k, n]; further arguments: as of npu_grouped_matmul."""
    import torch_npu

    lists = {name: [value] if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
    return torch_npu.npu_grouped_matmul(
        [x], [weight], group_list=counts, group_list_type=1, group_type=0, split_item=2, **lists
    )[0]
