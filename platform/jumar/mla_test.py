"""The latent attention backend against softmax attention in float64, over paged mixed batches."""

import sys
from types import SimpleNamespace

import pytest
import torch
import torch_npu
from vllm.config import LoRAConfig, VllmConfig, get_current_vllm_config, set_current_vllm_config
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention.mla_attention import split_kv_b_proj
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.rotary_embedding import get_rope

from jumar import mla, ops, sparse_mla
from jumar.mla import AscendMLAImpl, AscendMLAMetadata, DecodeBatch, PrefillBatch
from jumar.sparse_mla import AscendLatentAttention

BLOCK = 16
HEADS, LATENT, NOPE, ROPE, VALUE = 4, 64, 32, 16, 24
SCALE = (NOPE + ROPE) ** -0.5


class UpProjection:
    """kv_b_proj: latents to keys and values of each head."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.weight = (torch.randn(HEADS * (NOPE + VALUE), LATENT) / LATENT**0.5).to(dtype)

    def __call__(self, latent: torch.Tensor) -> tuple[torch.Tensor, None]:
        return latent @ self.weight.to(latent.device).T, None

    def by_head(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.weight.view(HEADS, NOPE + VALUE, LATENT).split([NOPE, VALUE], dim=1)


def reference(query, latent, key_rope, projection):
    """query [T, heads, nope + rope] are the last T of the tokens of latent [S, LATENT] and key_rope [S, ROPE]. Gives [T, heads, VALUE]."""
    to_key, to_value = (weight.double() for weight in projection.by_head())
    keys = torch.cat([torch.einsum("hpl,sl->shp", to_key, latent.double()), key_rope.double()[:, None].expand(-1, HEADS, -1)], -1)
    values = torch.einsum("hvl,sl->shv", to_value, latent.double())
    scores = torch.einsum("thd,shd->hts", query.double(), keys) * SCALE
    position = torch.arange(len(latent) - len(query), len(latent))[:, None]
    scores = scores.masked_fill(torch.arange(len(latent))[None] > position, -torch.inf)
    return torch.einsum("hts,shv->thv", scores.softmax(-1), values)


class Batch:
    """Requests (new tokens, computed tokens), decoding ones first, in a cache of NaN but for what they wrote."""

    def __init__(self, dtype: torch.dtype, requests: list[tuple[int, int]]) -> None:
        torch.manual_seed(0)
        self.projection = UpProjection(dtype)
        self.impl = AscendMLAImpl(
            HEADS, LATENT + ROPE, SCALE, 1, None, None, "auto", None, "decoder", None, None, LATENT, NOPE, ROPE, NOPE + ROPE, VALUE, self.projection
        )
        most = max(-(-(new + old) // BLOCK) for new, old in requests)
        blocks = len(requests) * most + 3
        self.cache = torch.full((blocks, BLOCK, LATENT + ROPE), float("nan"), dtype=dtype).npu()
        self.table = torch.randperm(blocks)[: len(requests) * most].view(len(requests), most).to(torch.int32)
        self.queries, self.latents, self.key_ropes, self.wants = [], [], [], []
        for row, (new, old) in enumerate(requests):
            latent, key = torch.randn(new + old, LATENT).to(dtype), torch.randn(new + old, ROPE).to(dtype)
            positions = torch.arange(new + old)
            slots = self.table[row, positions // BLOCK] * BLOCK + positions % BLOCK
            self.impl.do_kv_cache_update(latent.npu(), key.unsqueeze(1).npu(), self.cache, slots.long().npu(), "auto", None)
            query = torch.randn(new, HEADS, NOPE + ROPE).to(dtype)
            self.queries.append(query)
            self.latents.append(latent[old:]), self.key_ropes.append(key[old:])
            self.wants.append(reference(query, latent, key, self.projection))
        decodes = sum(new == 1 for new, _ in requests)
        assert all(new == 1 for new, _ in requests[:decodes])
        ends = torch.tensor([new for new, _ in requests[decodes:]]).cumsum(0).tolist()
        self.metadata = AscendMLAMetadata(
            num_actual_tokens=sum(new for new, _ in requests),
            num_decodes=decodes,
            num_decode_tokens=decodes,
            num_prefills=len(requests) - decodes,
            decode=DecodeBatch([new + old for new, old in requests[:decodes]], self.table[:decodes].npu()) if decodes else None,
            prefill=PrefillBatch(ends, [old for _, old in requests[decodes:]], self.table[decodes:].npu()) if ends else None,
        )

    def run(self) -> torch.Tensor:
        """What vLLM's MLAAttention does around the two: the projections into the latent space and out of it. [tokens, heads, VALUE]."""
        decodes, results = self.metadata.num_decodes, []
        if decodes:
            to_key, to_value = self.projection.by_head()
            nope, rope = torch.cat(self.queries[:decodes]).split([NOPE, ROPE], -1)
            absorbed = torch.einsum("thp,hpl->thl", nope.float(), to_key.float()).to(nope.dtype)
            out, _ = self.impl.forward_mqa((absorbed.npu(), rope.npu()), self.cache, self.metadata, None)
            results.append(torch.einsum("thl,hvl->thv", out.cpu().float(), to_value.float()))
        if self.metadata.prefill is not None:
            query, latent, key = (torch.cat(part[decodes:]) for part in (self.queries, self.latents, self.key_ropes))
            output = torch.full((len(query), HEADS * VALUE), float("nan"), dtype=query.dtype).npu()
            self.impl.forward_mha(query.npu(), latent.npu(), key.unsqueeze(1).npu(), self.cache, self.metadata, None, output)
            results.append(output.cpu().view(-1, HEADS, VALUE).float())
        return torch.cat(results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([(33, 0)], id="prefill"),
        pytest.param([(1, 40), (1, 0), (1, 15), (1, 16)], id="decode"),
        pytest.param([(1, 77), (1, 3), (7, 30), (20, 0), (16, 16)], id="mixed"),
        pytest.param([(5, 250), (3, 9)], id="more pieces than are merged at a time"),
    ],
)
def test_equals_softmax_attention(dtype, requests, monkeypatch):
    monkeypatch.setattr(mla, "CONTEXT_TOKENS", 12)  # several pieces
    merge, parts = torch_npu.npu_attention_update, []
    monkeypatch.setattr(torch_npu, "npu_attention_update", lambda lse, *rest: parts.append(len(lse)) or merge(lse, *rest))
    batch = Batch(dtype, requests)
    want = torch.cat(batch.wants)
    # Queries, keys, values and the parts of a prompt are rounded to the type between the products: a few roundings of what is summed.
    bound = (12 * torch.finfo(dtype).eps + 256 * torch.finfo(torch.float32).eps) * want.abs().max().item()
    assert (batch.run().double() - want).abs().max().item() <= bound
    assert all(count <= 16 for count in parts)  # the operator's limit


def test_padding_rows_are_zero():
    batch = Batch(torch.float32, [(1, 40), (1, 3), (1, 0)])
    batch.metadata.decode.kv_lens[2] = 0
    got = batch.run()
    assert torch.equal(got[2], torch.zeros_like(got[2]))
    assert (got[:2].double() - torch.cat(batch.wants)[:2]).abs().max().item() <= 1e-5


@pytest.mark.parametrize("position, value", [(4, [0.5]), (5, 128), (7, 30.0), (9, "layers.0")])
def test_refuses_what_it_cannot_compute(position, value):
    arguments = [HEADS, LATENT + ROPE, SCALE, 1, None, None, "auto", None, "decoder", None, None, LATENT, NOPE, ROPE, NOPE + ROPE, VALUE, None]
    arguments[position] = value
    with pytest.raises(NotImplementedError, match="not supported by latent attention on npu"):
        AscendMLAImpl(*arguments)


class Linear(torch.nn.Module):
    """A projection of vLLM's, as far as latent attention sees it."""

    def __init__(self, rows: int, cols: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter((torch.randn(rows, cols) / cols**0.5).to(torch.bfloat16).npu(), requires_grad=False)
        self.quant_method = UnquantizedLinearMethod()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return x @ self.weight.T, None


class Attention(torch.nn.Module):
    """vLLM's MLAAttention: the cache's update, and the projections around the two ways of AscendMLAImpl."""

    layer_name, kv_cache_dtype = "attention", "auto"

    def __init__(self, layer, blocks: int) -> None:
        super().__init__()
        self.impl = AscendMLAImpl(
            layer.num_heads, 576, 192**-0.5, 1, None, None, "auto", None, "decoder", None, 1536, 512, 128, 64, 192, 128, layer.kv_b_proj
        )
        self.kv_cache = torch.full((blocks, BLOCK, 576), float("nan"), dtype=torch.bfloat16).npu()
        to_key, to_value = split_kv_b_proj(layer.kv_b_proj, torch.bfloat16, 512, layer.num_heads, 128, 128)
        self.to_key, self.to_value = to_key.permute(1, 2, 0), to_value.transpose(0, 1)

    def forward(self, q, latent, key, output_shape, q_dcp_replicated=None) -> torch.Tensor:
        context = get_forward_context()
        metadata, slots = context.attn_metadata[self.layer_name], context.slot_mapping[self.layer_name]
        self.impl.do_kv_cache_update(latent, key, self.kv_cache, slots, "auto", None)
        out, decodes = q.new_zeros(output_shape), metadata.num_decode_tokens
        if decodes:
            nope, rope = q[:decodes].split([128, 64], -1)
            absorbed = torch.bmm(nope.transpose(0, 1), self.to_key).transpose(0, 1)
            self._v_up_proj(self.impl.forward_mqa((absorbed, rope), self.kv_cache, metadata, self)[0], out[:decodes])
        if metadata.prefill is not None:
            self.impl.forward_mha(q[decodes:], latent[decodes:], key[decodes:], self.kv_cache, metadata, None, out[decodes:])
        return out

    def _v_up_proj(self, latent: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(torch.bmm(latent.transpose(0, 1), self.to_value).transpose(0, 1).flatten(1))


def latent_layer(hidden: int = 1024, fused: bool = True, **changes) -> AscendLatentAttention:
    """A layer of the smallest sizes that npu_mla_prolog_v3 takes."""
    torch.manual_seed(0)
    layer = object.__new__(AscendLatentAttention)
    torch.nn.Module.__init__(layer)
    sizes = dict(hidden_size=hidden, num_heads=2, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, qk_head_dim=192, v_head_dim=128)
    absent = dict(indexer=None, is_sparse=False, skip_topk=False, g_proj=None, dcp_q_replicate=False, fuse_qkv_rmsnorm=False)
    for name, value in (sizes | absent | changes).items():
        setattr(layer, name, value)
    layer.fused_qkv_a_proj, layer.q_b_proj = Linear(1536 + 576, hidden), Linear(layer.num_heads * 192, 1536)
    layer.kv_b_proj, layer.o_proj = Linear(layer.num_heads * 256, 512), Linear(hidden, layer.num_heads * 128)
    layer.q_a_layernorm, layer.kv_a_layernorm = (RMSNorm(n, eps=1e-6, dtype=torch.bfloat16).npu() for n in (1536, 512))
    for norm in (layer.q_a_layernorm, layer.kv_a_layernorm):
        norm.weight.data.uniform_(0.5, 1.5)
    rope = {"rope_type": "deepseek_yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0, "mscale": 1.0, "mscale_all_dim": 1.0}
    layer.rotary_emb = get_rope(64, max_position=256, is_neox_style=False, rope_parameters=rope, dtype=torch.bfloat16).npu()
    layer.mla_attn = Attention(layer, blocks=12)
    if fused:
        layer.fuse()
        assert layer.mla_attn.impl.prolog is not None
        layer.mla_attn.impl.process_weights_after_loading(torch.bfloat16)
    return layer


@pytest.fixture
def vllm_config():
    ops.register()
    with set_current_vllm_config(VllmConfig()):
        yield


def generate(layer: AscendLatentAttention, monkeypatch) -> list[torch.Tensor]:
    """Two prompts, steps that decode with a padding row, a chunk of a prompt beside decoding, another step. What each row gives, per call."""
    generator, table, lengths, given = torch.Generator().manual_seed(1), torch.arange(1, 11, dtype=torch.int32).view(2, 5), [0, 0], []
    for counts, padding in (([9, 20], 0), ([1, 1], 1), ([1, 1], 0), ([1, 7], 0), ([1, 1], 2)):
        decodes = sum(n == 1 for n in counts)
        positions = [torch.arange(old, old + n) for old, n in zip(lengths, counts)]
        slots = [table[i, p // BLOCK] * BLOCK + p % BLOCK for i, p in enumerate(positions)]
        lengths = [old + n for old, n in zip(lengths, counts)]
        rows = decodes + padding
        decode_table = torch.cat([table[:decodes], table.new_zeros(padding, 5)])
        ends, olds = torch.tensor(counts[decodes:]).cumsum(0).tolist(), [length - n for length, n in zip(lengths, counts)][decodes:]
        metadata = AscendMLAMetadata(
            sum(counts) + padding, rows, rows, len(counts) - decodes,
            DecodeBatch(lengths[:decodes] + [0] * padding, decode_table.npu()) if rows else None,
            PrefillBatch(ends, olds, table[decodes:].npu()) if ends else None,
        )
        slots = torch.cat([*slots, torch.full((padding,), -1)]).long().npu()
        context = SimpleNamespace(attn_metadata={"attention": metadata}, slot_mapping={"attention": slots})
        for module in (sparse_mla, sys.modules[__name__]):
            monkeypatch.setattr(module, "get_forward_context", lambda context=context: context)
        hidden = torch.randn(sum(counts) + padding, layer.hidden_size, generator=generator).to(torch.bfloat16)
        out = layer(torch.cat([*positions, torch.zeros(padding)]).long().npu(), hidden.npu())
        given.append(out[: sum(counts)].cpu().double())
    return given


def test_the_fused_pre_work_gives_what_the_separate_operators_give(vllm_config, monkeypatch):
    prolog, calls = torch_npu.npu_mla_prolog_v3, []
    monkeypatch.setattr(torch_npu, "npu_mla_prolog_v3", lambda x, **rest: calls.append(len(x)) or prolog(x, **rest))
    want = generate(latent_layer(fused=False), monkeypatch)
    assert calls == []
    got = generate(latent_layer(), monkeypatch)
    assert calls == [3, 2, 4]  # the steps that only decode
    for g, w in zip(got, want):
        # The rotation's table is rounded to bfloat16; the rest has the same roundings in another order of the sums.
        assert (g - w).abs().max().item() <= 4 * torch.finfo(torch.bfloat16).eps * w.abs().max().item()


def test_weights_that_are_loaded_again_stay_where_they_are(vllm_config, monkeypatch):
    layer = latent_layer()
    before = generate(layer, monkeypatch)
    places = {name: w.data_ptr() for name, w in layer.mla_attn.impl.prolog._weights.items()}
    for projection in (layer.fused_qkv_a_proj, layer.q_b_proj):
        projection.weight.data = torch_npu.npu_format_cast(projection.weight.data * 0.5, 29)  # as the model runner has them
    layer.mla_attn.impl.process_weights_after_loading(torch.bfloat16)
    weights = layer.mla_attn.impl.prolog._weights
    assert {name: w.data_ptr() for name, w in weights.items()} == places
    half = torch_npu.npu_format_cast(weights["weight_uq_qr"], 2).cpu()
    assert torch.equal(half, torch_npu.npu_format_cast(layer.q_b_proj.weight.data, 2).cpu().T)
    layer.mla_attn.kv_cache.fill_(float("nan"))
    assert not torch.equal(generate(layer, monkeypatch)[1], before[1])


@pytest.mark.parametrize(
    "changes",
    [dict(hidden=512), dict(num_heads=3), dict(q_lora_rank=None), dict(is_sparse=True), dict(qk_nope_head_dim=64), dict(dcp_q_replicate=True)],
    ids=str,
)
def test_layers_outside_of_the_operators_page_keep_the_separate_operators(vllm_config, changes):
    layer = latent_layer(fused=False, **changes)
    layer.fuse()
    assert layer.mla_attn.impl.prolog is None


def test_quantised_projections_keep_the_separate_operators(vllm_config):
    layer = latent_layer(fused=False)
    layer.q_b_proj.quant_method = object()
    layer.fuse()
    assert layer.mla_attn.impl.prolog is None


def test_adapters_are_not_passed_by(vllm_config):
    get_current_vllm_config().lora_config = LoRAConfig()
    layer = latent_layer(fused=False)
    layer.fuse()
    assert layer.mla_attn.impl.prolog is None
