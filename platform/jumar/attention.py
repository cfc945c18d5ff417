"""Paged attention over torch_npu's fused-attention operator.

The KV cache of a layer is one allocation of vLLM's, used as two halves: keys
``[blocks, block_size, kv_heads, head_size]``, then values of the same shape.
Queries are packed without padding (layout TND); the lengths of the requests go
to the operator as host integers, as CANN wants them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import torch
from vllm.config import get_current_vllm_config_or_none
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionLayer,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheLayout

from jumar import kv_quantization

# Tokens of a KV page. CANN's fused attention takes multiples of 128 in every mode, of 16 in decode only.
KV_BLOCK_SIZE = 128

# Values of the operator's sparse_mode (CANN, FusedInferAttentionScore).
SPARSE_MODE_RIGHT_DOWN_CAUSAL = 3
SPARSE_MODE_BAND = 4

# CANN's compressed causal mask: 1 = masked, above the diagonal; of this size whatever the lengths.
COMPRESSED_MASK_SIZE = 2048


@cache
def compressed_causal_mask(device: torch.device) -> torch.Tensor:
    """int8 [2048, 2048], ones above the diagonal."""
    ones = torch.ones(COMPRESSED_MASK_SIZE, COMPRESSED_MASK_SIZE, dtype=torch.int8)
    return ones.triu(1).to(device)


# What the second version of the operator, which has sinks, calls arguments of the first.
SECOND_VERSION_NAMES = {
    "actual_seq_lengths": "actual_seq_qlen",
    "actual_seq_lengths_kv": "actual_seq_kvlen",
    "num_heads": "num_query_heads",
    "scale": "softmax_scale",
    "softmax_lse_flag": "return_softmax_lse",
}
# The greatest head that the operator's documents allow beside sinks.
MAX_SINK_HEAD_SIZE = 128


def fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    with_lse: bool = False,
    sinks: torch.Tensor | None = None,
    **arguments: Any,
) -> torch.Tensor:
    """torch_npu's fused inference attention into ``out``, also while a graph is captured.

    Args:
        with_lse: ask for the log-sum-exp of the scores, which layout TND has.
        sinks: [heads], one more score of each head, without a value.
        arguments: as of torch_npu.npu_fused_infer_attention_score.

    Returns:
        fp32 [tokens, heads, 1] if asked for, else of no meaning.
    """
    import torch_npu

    operator, workspace_of = torch_npu.npu_fused_infer_attention_score, torch_npu._npu_fused_infer_attention_score_get_max_workspace
    if sinks is not None:
        operator, workspace_of = torch_npu.npu_fused_infer_attention_score_v2, torch_npu._npu_fused_infer_attention_score_v2_get_max_workspace
        arguments = {SECOND_VERSION_NAMES.get(name, name): argument for name, argument in arguments.items()} | dict(learnable_sink=sinks)
    lse_flag = "softmax_lse_flag" if sinks is None else SECOND_VERSION_NAMES["softmax_lse_flag"]
    operands = (query, key, value)
    workspace = None
    if torch.npu.is_current_stream_capturing():
        # A captured call is issued again with other lengths, and may not allocate then.
        workspace = workspace_of(*operands, **arguments)
    shape = (*query.shape[:2], 1) if with_lse else (1,)
    lse = torch.empty(shape, dtype=torch.float32, device=query.device)
    operator.out(*operands, **{lse_flag: with_lse}, **arguments, workspace=workspace, out=[out, lse])
    return lse


@register_backend(AttentionBackendEnum.CUSTOM, "jumar.attention.AscendAttentionBackend")
class AscendAttentionBackend(AttentionBackend):
    """Causal GQA/MQA attention with a paged KV cache, fp16, bf16 and fp32 or quantised, sliding window."""

    forward_includes_kv_cache_update: bool = False
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "float16", "bfloat16", *kv_quantization.FORMATS]

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None) -> list[int | MultipleOf]:
        return [MultipleOf(16)]

    @classmethod
    def get_preferred_block_size(cls, default_block_size: int) -> int:
        return KV_BLOCK_SIZE

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        # A layer's blocks must be one contiguous range, which _split_cache reinterprets.
        return (KVCacheLayout.LBNHC,)

    @classmethod
    def customize_spec(cls, spec: AttentionSpec) -> AttentionSpec:
        return kv_quantization.customize_spec(spec)

    @classmethod
    def supports_per_head_quant_scales(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_kv_connector(cls) -> bool:
        # Connectors copy pages as contiguous bytes; ours are two halves.
        return False

    @staticmethod
    def get_impl_cls() -> type[AscendAttentionImpl]:
        return AscendAttentionImpl

    @staticmethod
    def get_builder_cls() -> type[AscendMetadataBuilder]:
        return AscendMetadataBuilder


@dataclass
class AscendMetadata:
    """One batch, as every layer of a KV cache group sees it."""

    num_actual_tokens: int
    query_ends: list[int]  # prefix sums of the requests' query lengths, without the leading 0
    kv_lens: list[int]  # keys of each request, the new ones included; 0 for a padding row
    block_table: torch.Tensor  # int32 [requests, max_blocks]
    slot_mapping: torch.Tensor  # int64 [tokens]
    causal: bool
    single_queries: bool = False  # one token of every request: a decode

    def graph_lengths(self) -> dict[str, list[int]]:
        """The host lengths of a captured decode step, under the argument names of both versions of the operator."""
        lengths = dict(actual_seq_lengths=self.query_ends, actual_seq_lengths_kv=self.kv_lens)
        return lengths | {SECOND_VERSION_NAMES[name]: values for name, values in lengths.items()}


class AscendMetadataBuilder(AttentionMetadataBuilder[AscendMetadata]):
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        if not isinstance(kv_cache_spec, AttentionSpec):
            raise NotImplementedError(f"KV cache of kind {type(kv_cache_spec).__name__} is not supported on npu")

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> AscendMetadata:
        common = common_attn_metadata
        if common.seq_lens_cpu_upper_bound is None:
            raise NotImplementedError("lengths that are known on the device only are not supported on npu")
        starts = common.query_start_loc_cpu.tolist()
        ends = starts[1:]
        kv_lens = common.seq_lens_cpu_upper_bound.tolist()
        num_tokens = common.num_actual_tokens
        single_queries = common.max_query_len == 1 and num_tokens == len(ends)
        if single_queries:
            # A decode batch padded to a graph's size: the operator wants every token in some
            # row, so a padding token becomes a row without keys.
            kv_lens = [kv if end > start else 0 for kv, start, end in zip(kv_lens, starts, ends)]
            ends = list(range(1, num_tokens + 1))
        return AscendMetadata(
            num_actual_tokens=num_tokens,
            query_ends=ends,
            kv_lens=kv_lens,
            block_table=common.block_table_tensor,
            slot_mapping=common.slot_mapping,
            causal=bool(common.causal),
            single_queries=single_queries,
        )


class AscendAttentionImpl(AttentionImpl[AscendMetadata]):
    """One layer's attention; see vLLM's AttentionImpl for the arguments."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        unsupported = {
            f"a sink beside heads of {head_size} elements (up to {MAX_SINK_HEAD_SIZE} are)": sinks is not None and head_size > MAX_SINK_HEAD_SIZE,
            f"a sink beside a KV cache in {kv_cache_dtype}": sinks is not None and kv_cache_dtype in kv_quantization.FORMATS,
            "ALiBi": alibi_slopes is not None,
            "a soft cap of the logits": bool(logits_soft_cap),
            f"attention type {attn_type!r}": attn_type != AttentionType.DECODER,
        }
        for what, present in unsupported.items():
            if present:
                raise NotImplementedError(f"{what} is not supported by attention on npu")
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.sliding_window = sliding_window
        self.kv_cache_dtype = kv_cache_dtype
        # Also here, because a checkpoint may have chosen the dtype.
        kv_quantization.check(kv_cache_dtype, get_current_vllm_config_or_none())
        kv_format = kv_quantization.FORMATS.get(kv_cache_dtype)
        self.quantizer = kv_quantization.KVQuantizer(kv_format, head_size) if kv_format is not None else None
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.sinks = sinks
        self._split: tuple[tuple[int, torch.Size], torch.Tensor, torch.Tensor] | None = None

    def _split_cache(self, kv_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values, each [blocks, block_size, kv_heads, head_size], of vLLM's [blocks, kv_heads, block_size, 2 * head_size]."""
        place = (kv_cache.data_ptr(), kv_cache.shape)
        if self._split is None or self._split[0] != place:
            blocks, heads, block_size, content = kv_cache.shape
            shape = (blocks, block_size, heads, content // 2)
            half = blocks * block_size * heads * (content // 2)
            flat = kv_cache.as_strided((2 * half,), (1,))
            self._split = (place, flat[:half].view(shape), flat[half:].view(shape))
        return self._split[1], self._split[2]

    def do_kv_cache_update(
        self,
        layer: AttentionLayer,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Writes key and value [tokens, kv_heads, head_size] to their slots; slot -1 is skipped."""
        import torch_npu

        tokens = slot_mapping.shape[0]
        key, value = key[:tokens].contiguous(), value[:tokens].contiguous()
        if self.quantizer is not None:
            self.quantizer.write(layer, key, value, self.quantizer.pages(kv_cache), slot_mapping)
            return
        key_cache, value_cache = self._split_cache(kv_cache)
        torch_npu.npu_scatter_pa_kv_cache(key, value, key_cache, value_cache, slot_mapping, cache_mode="Norm")

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: AscendMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attention of query [tokens, heads, head_size] over the cache, into ``output``."""
        if attn_metadata is None:  # the profiling run has no cache yet
            return output.zero_()
        quantised = {}
        if self.quantizer is None:
            key_cache, value_cache = self._split_cache(kv_cache)
        else:
            pages = self.quantizer.pages(kv_cache)
            key_cache, value_cache = pages.keys, pages.values
            quantised = self.quantizer.attention_arguments(layer, pages)
        blocks, block_size = key_cache.shape[:2]
        tokens = attn_metadata.num_actual_tokens
        query, out, layout = query[:tokens], output[:tokens], "TND"
        mask = self._mask(attn_metadata, query.device)
        if quantised and attn_metadata.single_queries and self.sliding_window is None:
            # CANN describes quantised pages for layouts with one query per sequence, which sees all keys.
            query, out, layout, mask = query.unsqueeze(1), out.unsqueeze(1), "BSND", {}
        operands = (
            query,
            key_cache.view(blocks, block_size, -1),
            value_cache.view(blocks, block_size, -1),
        )
        arguments = dict(
            actual_seq_lengths=attn_metadata.query_ends,
            actual_seq_lengths_kv=attn_metadata.kv_lens,
            block_table=attn_metadata.block_table,
            num_heads=self.num_heads,
            num_key_value_heads=self.num_kv_heads,
            scale=self.scale,
            input_layout=layout,
            block_size=block_size,
            **quantised,
            **mask,
        )
        fused_attention(*operands, out, sinks=self.sinks, **arguments)
        return output

    def _mask(self, metadata: AscendMetadata, device: torch.device) -> dict:
        if not metadata.causal:
            return {}
        mask = compressed_causal_mask(device)
        if self.sliding_window is None:
            return dict(atten_mask=mask, sparse_mode=SPARSE_MODE_RIGHT_DOWN_CAUSAL)
        return dict(atten_mask=mask, sparse_mode=SPARSE_MODE_BAND, pre_tokens=self.sliding_window - 1, next_tokens=0)
