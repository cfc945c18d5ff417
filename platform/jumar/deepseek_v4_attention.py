"""DeepSeek V4's attention: each token sees the last tokens in a window, and compressed entries of all that came before.

A composition of torch_npu's and torch's operators on paged caches (jumar.deepseek_v4_cache); there is no custom operator.

    compress   torch: gather what an entry is made of from this step and from the state, softmax, weighted sum, norm, rotation
    index      npu_lightning_indexer over compressed keys
    attend     npu_sparse_flash_attention over the window (with sinks) and over entries, merged by npu_attention_update

To both operators each token is a request of its own: the first one's causal limit doesn't know of compression, and for packed tokens torch_npu
2.13.0 gives the second one's log-sum-exps a wrong shape.

libs/attention/{compressor,sharedkv} have each of the first and the last as one kernel. On hardware, this composition is untested, and slower
than what Ascend C kernels of those will be.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import ColumnParallelLinear, MergedColumnParallelLinear, ReplicatedLinear, RowParallelLinear
from vllm.model_executor.models.utils import extract_layer_index
from vllm.models.deepseek_v4.common.rope import build_deepseek_v4_rope

from jumar.deepseek_v4_cache import NOWHERE, DeepseekV4Cache, DeepseekV4Metadata, largest_batch, state_rows
from jumar.sparse_mla import ATTENTION_MODE_ABSORBED

SPARSE_MODE_ALL = 0  # the lists of keys say it all
SUM_OF_PARTS = 0  # npu_attention_update's update_type without log-sum-exps of the result
INDEXED_RATIO = 4  # layers of this ratio have an indexer


class Compressor(nn.Module):
    """Makes an entry [head_dim] of every ``ratio`` tokens, in fp32, and writes it to ``entries``.

    Of each token come a row of values and one of scores, of W = head_dim or, with ratio 4, 2 * head_dim features. An entry is the sum of values
    weighted by the softmax of the scores, for each feature by itself, over the tokens of a group; with ratio 4, over the first
    halves of the group before and the second halves of the group. Source: the model's report, section 2.3, equations 9 to 23.
    """

    def __init__(self, vllm_config: VllmConfig, ratio: int, head_dim: int, rotary_emb: nn.Module, entries: DeepseekV4Cache, prefix: str) -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        self.ratio, self.head_dim, self.rotary_emb = ratio, head_dim, rotary_emb
        self.overlaps = state_rows(ratio) > ratio
        width = 2 * head_dim if self.overlaps else head_dim
        self.ape = nn.Parameter(torch.empty(ratio, width, dtype=torch.float32), requires_grad=False)
        self.fused_wkv_wgate = MergedColumnParallelLinear(
            config.hidden_size, [width, width], bias=False, quant_config=None, disable_tp=True, prefix=f"{prefix}.fused_wkv_wgate"
        )
        self.norm = RMSNorm(head_dim, config.rms_norm_eps, dtype=torch.float32)
        self.state = DeepseekV4Cache(f"{prefix}.state_cache", 2 * width, rows_per_block=state_rows(ratio), dtype=torch.float32)
        self.entries = entries

    def forward(self, hidden_states: torch.Tensor, metadata: DeepseekV4Metadata) -> None:
        plan = metadata.compression(self.ratio)
        values, scores = self.fused_wkv_wgate(hidden_states)[0].float().chunk(2, dim=-1)
        new = torch.cat([values, scores + self.ape[plan.bias_rows]], dim=-1)
        state = self.state.pages.flatten(0, 2)
        # What isn't there, in the state or before the sequence, may be anything: it is replaced, not multiplied by 0.
        terms = torch.where(plan.is_new, new[plan.new_rows], state[plan.state_rows])
        values, scores = terms.chunk(2, dim=-1)
        values, scores = values.masked_fill(~plan.exists, 0), scores.masked_fill(~plan.exists, -torch.inf)
        if self.overlaps:
            values, scores = (self._halves(x) for x in (values, scores))
        entries = self.norm((scores.softmax(dim=1) * values).sum(1))
        entries, _ = self.rotary_emb(plan.entry_positions, entries.unsqueeze(1))
        # Only now: a token's row of the ring may be one that was read.
        self.state.write(new, plan.kept_slots)
        self.entries.write(entries.squeeze(1), plan.entry_slots)

    def _halves(self, terms: torch.Tensor) -> torch.Tensor:
        """The features of [entries, 2 * ratio, 2 * head_dim] that count: the first ones of the group before, the second ones of the group."""
        return torch.cat([terms[:, : self.ratio, : self.head_dim], terms[:, self.ratio :, self.head_dim :]], dim=1)


class Indexer(nn.Module):
    """Chooses the ``index_topk`` best entries of each token."""

    def __init__(self, vllm_config: VllmConfig, rotary_emb: nn.Module, prefix: str) -> None:
        super().__init__()
        config, quant_config = vllm_config.model_config.hf_config, vllm_config.quant_config
        self.heads, self.head_dim, self.top_k = config.index_n_heads, config.index_head_dim, config.index_topk
        self.scale = self.head_dim**-0.5 * self.heads**-0.5
        self.rotary_emb = rotary_emb
        self.wq_b = ReplicatedLinear(
            config.q_lora_rank, self.heads * self.head_dim, bias=False, quant_config=quant_config, prefix=f"{prefix}.wq_b"
        )
        self.weights_proj = ReplicatedLinear(config.hidden_size, self.heads, bias=False, quant_config=None, prefix=f"{prefix}.weights_proj")
        self.keys = DeepseekV4Cache(f"{prefix}.k_cache", self.head_dim, tokens_per_row=INDEXED_RATIO)
        self.compressor = Compressor(vllm_config, INDEXED_RATIO, self.head_dim, rotary_emb, self.keys, f"{prefix}.compressor")

    def forward(
        self, hidden_states: torch.Tensor, latent: torch.Tensor, positions: torch.Tensor, metadata: DeepseekV4Metadata
    ) -> torch.Tensor:
        """int32 [tokens, 1, 1, index_topk], -1 behind the chosen. latent: [tokens, q_lora_rank]."""
        import torch_npu

        self.compressor(hidden_states, metadata)
        query, _ = self.rotary_emb(positions, self.wq_b(latent)[0].view(-1, self.heads, self.head_dim))
        weights = self.weights_proj(hidden_states)[0] * self.scale
        entries, _ = torch_npu.npu_lightning_indexer(
            query.unsqueeze(1).contiguous(),
            self.keys.pages,
            weights.unsqueeze(1),
            actual_seq_lengths_key=metadata.visible(INDEXED_RATIO),
            block_table=metadata.token_tables,
            layout_query="BSND",
            layout_key="PA_BSND",
            sparse_count=self.top_k,
            sparse_mode=SPARSE_MODE_ALL,
        )
        return entries


class GroupedProjection(nn.Module):
    """Each group of heads by its own matrix: [tokens, groups, in_features] to [tokens, groups * out_features]. Split by groups between ranks."""

    def __init__(self, groups: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.groups, self.rank = groups, get_tensor_model_parallel_rank()
        self.weight = nn.Parameter(torch.empty(groups * out_features, in_features), requires_grad=False)
        self.weight.weight_loader = self._load

    def _load(self, weight: nn.Parameter, loaded: torch.Tensor) -> None:
        weight.data.copy_(loaded.narrow(0, self.rank * len(weight), len(weight)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight.view(self.groups, -1, x.shape[-1])
        return torch.bmm(x.transpose(0, 1), weight.transpose(1, 2)).transpose(0, 1).flatten(1)


class DeepseekV4Attention(nn.Module):
    """One layer's attention. Names of weights as in the released checkpoints, but for what vLLM's loader fuses."""

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        self.vllm_config = vllm_config
        config, quant_config = vllm_config.model_config.hf_config, vllm_config.quant_config
        ranks = get_tensor_model_parallel_world_size()
        self.ratio = config.compress_ratios[extract_layer_index(prefix)]
        self.window, self.head_dim, self.q_lora_rank = config.sliding_window, config.head_dim, config.q_lora_rank
        self.scale = config.head_dim**-0.5
        self.heads, self.groups = config.num_attention_heads // ranks, config.o_groups // ranks

        self.fused_wqa_wkv = MergedColumnParallelLinear(
            config.hidden_size,
            [config.q_lora_rank, config.head_dim],
            bias=False,
            quant_config=quant_config,
            prefix=f"{prefix}.fused_wqa_wkv",
            disable_tp=True,
        )
        self.q_norm = RMSNorm(config.q_lora_rank, config.rms_norm_eps)
        self.kv_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.head_norm = RMSNorm(config.head_dim, config.rms_norm_eps, has_weight=False)
        self.wq_b = ColumnParallelLinear(
            config.q_lora_rank,
            config.num_attention_heads * config.head_dim,
            bias=False,
            quant_config=quant_config,
            prefix=f"{prefix}.wq_b",
        )
        self.attn_sink = nn.Parameter(torch.empty(self.heads, dtype=torch.float32), requires_grad=False)
        self.wo_a = GroupedProjection(self.groups, self.heads * config.head_dim // self.groups, config.o_lora_rank)
        self.wo_b = RowParallelLinear(
            config.o_groups * config.o_lora_rank, config.hidden_size, bias=False, quant_config=quant_config, prefix=f"{prefix}.wo_b"
        )
        self.rotary_emb = build_deepseek_v4_rope(
            config,
            head_dim=config.head_dim,
            rope_head_dim=config.qk_rope_head_dim,
            max_position_embeddings=config.max_position_embeddings,
            compress_ratio=self.ratio,
        )
        self.tokens = DeepseekV4Cache(f"{prefix}.swa_cache", config.head_dim)
        self.compressor = self.indexer = None
        if self.ratio:
            self.entries = DeepseekV4Cache(f"{prefix}.entries", config.head_dim, tokens_per_row=self.ratio)
            self.compressor = Compressor(vllm_config, self.ratio, config.head_dim, self.rotary_emb, self.entries, f"{prefix}.compressor")
        if self.ratio == INDEXED_RATIO:
            self.indexer = Indexer(vllm_config, self.rotary_emb, f"{prefix}.indexer")

    def forward(self, positions: torch.Tensor, hidden_states: torch.Tensor, llama_4_scaling: None = None) -> torch.Tensor:
        """positions [tokens], hidden_states [tokens, hidden]."""
        latent, kv = self.fused_wqa_wkv(hidden_states)[0].split([self.q_lora_rank, self.head_dim], dim=-1)
        latent, kv = self.q_norm(latent.contiguous()), self.kv_norm(kv.contiguous())
        query = self.head_norm(self.wq_b(latent)[0].view(-1, self.heads, self.head_dim))
        query, kv = self.rotary_emb(positions, query, kv.unsqueeze(1))
        out = torch.zeros_like(query)
        context = get_forward_context()
        if context.attn_metadata is not None:
            metadata, slots = context.attn_metadata[self.tokens.prefix], context.slot_mapping[self.tokens.prefix]
            self._attend(hidden_states, latent, query, kv.squeeze(1), positions, metadata, slots, out)
        elif not self.tokens.is_bound:  # the profiling run, which has no cache yet, but measures what memory a step takes
            metadata = largest_batch(self.vllm_config, len(query))
            self._attend(hidden_states, latent, query, kv.squeeze(1), positions, metadata, torch.full_like(positions, NOWHERE), out)
        # The values carry the keys' rotation.
        out, _ = self.rotary_emb(positions, out, inverse=True)
        return self.wo_b(self.wo_a(out.view(len(out), self.groups, -1)))[0]

    def _attend(
        self,
        hidden_states: torch.Tensor,
        latent: torch.Tensor,
        query: torch.Tensor,
        kv: torch.Tensor,
        positions: torch.Tensor,
        metadata: DeepseekV4Metadata,
        slots: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Writes the caches, then attention into ``out`` [tokens, heads, head_dim]."""
        import torch_npu

        tokens = metadata.num_actual_tokens
        hidden_states, latent, query, positions = hidden_states[:tokens], latent[:tokens], query[:tokens], positions[:tokens]
        slots = slots[:tokens]
        self.tokens.write(kv[: len(slots)], slots)
        query = query.unsqueeze(1).contiguous()
        window, window_lse = self._over(self.tokens, 1, query, metadata.window(self.window), metadata, sinks=self.attn_sink)
        if self.compressor is None:
            out[:tokens] = window.squeeze(1)
            return
        self.compressor(hidden_states, metadata)
        if self.indexer is None:
            chosen = metadata.all_entries(self.ratio)
        else:
            chosen = self.indexer(hidden_states, latent, positions, metadata)
        entries, entries_lse = self._over(self.entries, self.ratio, query, chosen, metadata)
        parts = [window.view(-1, self.head_dim), entries.view(-1, self.head_dim)]
        merged, _ = torch_npu.npu_attention_update([window_lse, entries_lse], parts, SUM_OF_PARTS)
        out[:tokens] = merged.view(tokens, self.heads, self.head_dim)

    def _over(
        self, cache: DeepseekV4Cache, ratio: int, query: torch.Tensor, keys: torch.Tensor, metadata: DeepseekV4Metadata, **arguments: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention of query [tokens, 1, heads, head_dim] to the listed rows of a cache, each of ``ratio`` tokens, and its log-sum-exp, fp32
        [tokens * heads]."""
        import torch_npu

        pages = cache.pages
        out, largest, total = torch_npu.npu_sparse_flash_attention(
            query,
            pages,
            pages,
            keys.contiguous(),
            self.scale,
            block_table=metadata.token_tables,
            actual_seq_lengths_kv=metadata.visible(ratio),
            layout_query="BSND",
            layout_kv="PA_BSND",
            sparse_mode=SPARSE_MODE_ALL,
            attention_mode=ATTENTION_MODE_ABSORBED,
            return_softmax_lse=True,
            **arguments,
        )
        return out, (largest + total.log()).flatten()
