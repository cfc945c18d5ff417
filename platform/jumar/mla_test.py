"""The latent attention backend against softmax attention in float64, over paged mixed batches."""

import pytest
import torch
import torch_npu

from jumar import mla
from jumar.mla import AscendMLAImpl, AscendMLAMetadata, DecodeBatch, PrefillBatch

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
