"""The quantised KV cache: what is written, and attention over it against float64 of the numbers that codes and scales make."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
from vllm.v1.kv_cache_interface import FullAttentionSpec, get_kv_quant_mode

from jumar import kv_quantization
from jumar.attention import AscendAttentionImpl, AscendMetadata
from jumar.attention_test import reference
from jumar.kv_quantization import FORMATS, customize_spec, refusal, scale_slots

BLOCK = 16
HEADS, KV_HEADS, HEAD_SIZE = 6, 2, 32
LARGEST = {torch.int8: 127, torch.float8_e4m3fn: 448, torch.float8_e5m2: 57344}


@pytest.fixture(autouse=True)
def chip_with_every_format(monkeypatch):
    monkeypatch.setattr(kv_quantization, "check", lambda kv_cache_dtype, config: None)


def spec_of(name):
    return customize_spec(
        FullAttentionSpec(
            block_size=BLOCK,
            num_kv_heads=KV_HEADS,
            head_size=HEAD_SIZE,
            dtype=STR_DTYPE_TO_TORCH_DTYPE[name],
            kv_quant_mode=get_kv_quant_mode(name),
        )
    )


def layer_with(k_scale, v_scale):
    return SimpleNamespace(_k_scale=torch.tensor(k_scale).npu(), _v_scale=torch.tensor(v_scale).npu())


def expected_codes(x, codes, scale):
    numbers = x.float() / scale
    return numbers.round() if codes == torch.int8 else numbers.clamp(-LARGEST[codes], LARGEST[codes]).to(codes).float()


class Problem:
    """Requests of (new tokens, computed tokens) in a cache whose unused bytes are all set: NaN as scales and FP8."""

    def __init__(self, name, requests, window=None, dtype=torch.bfloat16, layer=None):
        torch.manual_seed(0)
        self.format, self.layer = FORMATS[name], layer
        self.impl = AscendAttentionImpl(
            HEADS, HEAD_SIZE, HEAD_SIZE**-0.5, KV_HEADS, sliding_window=window, kv_cache_dtype=name
        )
        spec = spec_of(name)
        max_blocks = max(-(-(new + old) // BLOCK) for new, old in requests)
        num_blocks = len(requests) * max_blocks + 3
        raw = torch.full((num_blocks, BLOCK, KV_HEADS, spec.state_content_size_bytes), 255, dtype=torch.uint8)
        self.cache = raw.view(spec.dtype).npu().transpose(1, 2)
        self.table = torch.randperm(num_blocks)[: len(requests) * max_blocks].view(len(requests), max_blocks)
        self.requests, self.window = requests, window
        self.keys, self.values, self.queries, self.slots, ends = [], [], [], [], []
        for row, (new, old) in enumerate(requests):
            positions = torch.arange(new + old)
            self.slots.append(self.table[row, positions // BLOCK] * BLOCK + positions % BLOCK)
            self.keys.append(torch.randn(new + old, KV_HEADS, HEAD_SIZE).to(dtype))
            self.values.append((10 * torch.randn(new + old, KV_HEADS, HEAD_SIZE)).to(dtype))
            self.queries.append(torch.randn(new, HEADS, HEAD_SIZE).to(dtype))
            ends.append(new + (ends[-1] if ends else 0))
        skipped = torch.randn(1, KV_HEADS, HEAD_SIZE).to(dtype)  # a padding token's
        write = (torch.cat([*tensors, skipped]).npu() for tensors in (self.keys, self.values))
        slots = torch.cat([*self.slots, torch.tensor([-1])]).npu()
        self.impl.do_kv_cache_update(layer, *write, self.cache, slots)
        self.metadata = AscendMetadata(
            num_actual_tokens=ends[-1],
            query_ends=ends,
            kv_lens=[new + old for new, old in requests],
            block_table=self.table.to(torch.int32).npu(),
            slot_mapping=torch.empty(0),
            causal=True,
            single_queries=all(new == 1 for new, _ in requests),
        )

    def cached(self):
        """Codes as numbers, and scales that fit them, of each request's keys and values."""
        pages = self.impl.quantizer.pages(self.cache)
        for codes, scales in ((pages.keys, pages.key_scales), (pages.values, pages.value_scales)):
            flat = codes.cpu().view(-1, KV_HEADS, HEAD_SIZE)
            by_token = None if scales is None else scales.cpu().transpose(1, 2).reshape(-1, KV_HEADS)
            yield [(flat[s].float(), None if by_token is None else by_token[s]) for s in self.slots]

    def run(self):
        query = torch.cat(self.queries)
        output = torch.full_like(query, float("nan")).npu()
        self.impl.forward(self.layer, query.npu(), None, None, self.cache, self.metadata, output)
        return output.cpu()


REQUESTS = {
    "prefill": [(33, 0)],
    "decode": [(1, 40), (1, 0), (1, 15), (1, 16)],
    "mixed": [(7, 30), (1, 77), (20, 0), (16, 16)],
}


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("requests", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("name", ["int8_per_token_head", "fp8_per_token_head"])
def test_scales_of_each_token_and_head(name, requests, window):
    problem = Problem(name, requests, window)
    largest = LARGEST[problem.format.codes]
    wants = []
    numbers = []
    for tensors, cached in zip((problem.keys, problem.values), problem.cached()):
        for x, (codes, scales) in zip(tensors, cached):
            want = x.float().abs().amax(-1) / largest
            assert torch.allclose(scales, want, rtol=2**-22, atol=0)
            # One step of the format where x / scale is a tie to within fp32's rounding.
            step = 1 if problem.format.codes == torch.int8 else codes.abs() / 8 + 2**-9
            assert ((codes - expected_codes(x, problem.format.codes, scales[..., None])).abs() <= step).all()
            numbers.append(codes.double() * scales[..., None].double())
    count = len(requests)
    for query, keys, values in zip(problem.queries, numbers[:count], numbers[count:]):
        wants.append(reference(query, keys, values, problem.impl.scale, window))
    got, want = problem.run(), torch.cat(wants)
    # Convex combinations of values: one rounding of the result, and float32 softmax over at most 78 keys.
    bound = (torch.finfo(torch.bfloat16).eps + 128 * torch.finfo(torch.float32).eps) * want.abs().max().item()
    assert (got.double() - want).abs().max().item() <= bound


@pytest.mark.parametrize("k_scale, v_scale", [(0.0625, 0.25), ([0.0625, 0.125], [0.25, 0.5])], ids=["tensor", "head"])
@pytest.mark.parametrize("requests", [REQUESTS["mixed"], REQUESTS["decode"]], ids=["mixed", "decode"])
@pytest.mark.parametrize("name", ["fp8", "fp8_e4m3", "fp8_e5m2"])
def test_scales_of_the_checkpoint(name, requests, k_scale, v_scale):
    problem = Problem(name, requests, layer=layer_with(k_scale, v_scale))
    numbers = []
    for tensors, cached, scale in zip((problem.keys, problem.values), problem.cached(), (k_scale, v_scale)):
        of_heads = torch.tensor(scale).view(-1, 1)
        for x, (codes, _) in zip(tensors, cached):
            assert torch.equal(codes, expected_codes(x, problem.format.codes, of_heads))  # the scales are powers of two
            numbers.append(codes.double() * of_heads)
    count = len(requests)
    want = torch.cat(
        [reference(q, k, v, problem.impl.scale, None) for q, k, v in zip(problem.queries, numbers[:count], numbers[count:])]
    )
    bound = (torch.finfo(torch.bfloat16).eps + 128 * torch.finfo(torch.float32).eps) * want.abs().max().item()
    assert (problem.run().double() - want).abs().max().item() <= bound


def test_numbers_past_the_largest_code_saturate():
    problem = Problem("fp8", [(1, 3)], layer=layer_with(2.0**-12, 1.0))
    keys = next(iter(problem.cached()))
    assert all(codes.abs().max() == 448 for codes, _ in keys)


def test_nothing_is_written_beside_the_slots():
    problem = Problem("int8_per_token_head", [(3, 0), (1, 20)])
    pages = problem.impl.quantizer.pages(problem.cache)
    used = torch.zeros(pages.keys.shape[0] * BLOCK, dtype=torch.bool)
    used[torch.cat(problem.slots)] = True
    for codes, scales in ((pages.keys, pages.key_scales), (pages.values, pages.value_scales)):
        assert (codes.cpu().view(-1, KV_HEADS * HEAD_SIZE)[~used] == -1).all()
        assert scales.cpu().transpose(1, 2).reshape(-1, KV_HEADS)[~used].isnan().all()
        assert not scales.cpu().transpose(1, 2).reshape(-1, KV_HEADS)[used].isnan().any()


def test_a_zero_row_stays_zero():
    problem = Problem("int8_per_token_head", [(1, 0)])
    zero = torch.zeros(1, KV_HEADS, HEAD_SIZE, dtype=torch.bfloat16).npu()
    problem.impl.do_kv_cache_update(None, zero, zero, problem.cache, problem.slots[0].npu())
    assert torch.equal(problem.run(), torch.zeros(1, HEADS, HEAD_SIZE, dtype=torch.bfloat16))


@given(
    st.lists(st.integers(-1, 1023), min_size=1, max_size=30), st.integers(1, 9), st.sampled_from([16, 32, 128]),
)
@settings(max_examples=30, deadline=None)
def test_slots_of_scales(slots, heads, block_size):
    got = scale_slots(torch.tensor(slots).npu(), heads, block_size).cpu().view(len(slots), heads).tolist()
    for slot, row in zip(slots, got):
        block, offset = divmod(slot, block_size)
        assert row == ([-1] * heads if slot < 0 else [(block * heads + h) * block_size + offset for h in range(heads)])


@pytest.mark.parametrize("name", FORMATS)
def test_a_page_has_room_for_codes_and_scales(name):
    scales = 2 * 4 if FORMATS[name].per_token_head else 0
    assert spec_of(name).page_size_bytes == BLOCK * KV_HEADS * (2 * HEAD_SIZE + scales)


def test_a_chip_without_fp8_refuses_it_and_names_the_alternative():
    said = refusal("fp8", "Ascend910B2", emulate=False)
    assert "Ascend910B2 has no FP8" in said and "int8_per_token_head" in said and "emulate_formats" in said
    assert refusal("fp8", "Ascend910B2", emulate=True) is None
    assert refusal("fp8", "Ascend950PR", emulate=False) is None
    assert refusal("int8_per_token_head", "Ascend910B2", emulate=False) is None
    assert refusal("auto", "Ascend910B2", emulate=False) is None
