"""jumar_kv against numpy written as the shapes and formulas read."""

import jumar_kv
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ORDERS = ["token", "head", "fractal"]
seeds = st.integers(0, 2**32 - 1)


def cache_of(layout, blocks, rng):
    return [rng.integers(0, 256, (blocks, page), dtype=np.uint8) for page in layout.page_bytes]


def tokens_of(page, order, heads, row_bytes, bs, c0_bytes):
    """[bs, row_bytes] of one part's bytes of a page."""
    if order == "head":
        return page.reshape(heads, bs, row_bytes // heads).swapaxes(0, 1).reshape(bs, row_bytes)
    if order == "fractal":
        return page.reshape(row_bytes // c0_bytes, bs, c0_bytes).swapaxes(0, 1).reshape(bs, row_bytes)
    return page.reshape(bs, row_bytes)


@settings(max_examples=150, deadline=None)
@given(seeds, st.integers(1, 4), st.sampled_from([16, 64, 80]), st.integers(1, 40), st.sampled_from(ORDERS), st.sampled_from(ORDERS),
       st.sampled_from(["bf16", "int8"]))
def test_transposition_is_reshape_and_swapaxes(seed, heads, dim, bs, a, b, element):
    rng, size = np.random.default_rng(seed), 2 if element == "bf16" else 1
    row, c0 = heads * dim * size, 32
    if row % c0 or (heads * dim) % (c0 // size):
        a = b = "token"
    source, destination = (jumar_kv.separate_kv(heads, dim, bs, order, element) for order in (a, b))
    planes, out = cache_of(source, 3, rng), cache_of(destination, 5, rng)
    before = [plane.copy() for plane in out]
    jumar_kv.transpose_blocks(planes, source, out, destination, [(2, 0), (1, 4)])
    for plane, old, got in zip(planes, before, out):
        for s, d in ((2, 0), (1, 4)):
            assert np.array_equal(tokens_of(got[d], b, heads, row, bs, c0), tokens_of(plane[s], a, heads, row, bs, c0))
        assert np.array_equal(got[1:4], old[1:4])


@st.composite
def batches(draw):
    bs, size = draw(st.sampled_from([1, 2, 12, 16, 128])), draw(st.integers(1, 4))
    interleave = draw(st.sampled_from([i for i in range(1, bs + 1) if bs % i == 0]))
    width = draw(st.integers(1, 4))
    spans = draw(st.lists(st.tuples(st.integers(0, width * bs * size), st.integers(0, 60)), max_size=5))
    positions, starts = [], [0]
    for first, count in spans:
        positions += range(first, min(first + count, width * bs * size))
        starts.append(len(positions))
    for i in draw(st.sets(st.integers(0, max(len(positions) - 1, 0)), max_size=3)):
        if positions:
            positions[i] = -1
    table = np.array(draw(st.permutations(range(len(spans) * width))), dtype=np.int32).reshape(len(spans), width)
    return bs, size, interleave, starts, positions, table


@settings(max_examples=200, deadline=None)
@given(batches(), st.integers(0, 3))
def test_slot_mapping_is_its_formula(batch, tail):
    bs, size, interleave, starts, positions, table = batch
    for rank in range(size):
        got = jumar_kv.slot_mapping(starts, np.array(positions, dtype=np.int64), table, bs, table.size, total=len(positions) + tail,
                                    cp_size=size, cp_rank=rank, interleave=interleave)
        want = []
        for r in range(len(starts) - 1):
            for p in positions[starts[r] : starts[r + 1]]:
                column, o = divmod(p, bs * size)
                mine = p >= 0 and o // interleave % size == rank
                want.append(int(table[r, column]) * bs + o // (interleave * size) * interleave + o % interleave if mine else -1)
        assert got.dtype == np.int64 and got.tolist() == want + [-1] * tail


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-1, 30), max_size=40), st.integers(0, 9), st.integers(0, 5))
def test_runs_cover_every_slot_once(slots, block_size, longest):
    runs = jumar_kv.merge_slots(np.array(slots, dtype=np.int32), 31, block_size, longest)
    seen = [-1] * len(slots)
    for src, dst, length in runs.tolist():
        for i in range(length):
            assert seen[src + i] == -1
            seen[src + i] = dst + i
        assert not block_size or dst // block_size == (dst + length - 1) // block_size
        assert not longest or length <= longest
    assert seen == slots


LAYOUTS = {
    "separate": lambda bs: jumar_kv.separate_kv(2, 64, bs, "head"),
    "joint": lambda bs: jumar_kv.joint_kv(2, 64, bs, "fractal"),
    "mla": jumar_kv.mla,
    "656": jumar_kv.packed656,
    "640": jumar_kv.packed640,
    "584": jumar_kv.split584,
    "132": jumar_kv.indexer_keys,
    "state": lambda bs: jumar_kv.compressor_state(bs, dim=32),
}


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=30, deadline=None)
@given(seed=seeds, bs=st.integers(1, 20))
def test_rows_go_where_the_parts_formula_says(name, seed, bs):
    rng, layout, blocks = np.random.default_rng(seed), LAYOUTS[name](bs), 3
    planes = cache_of(layout, blocks, rng)
    slots = rng.permutation(blocks * bs)[: bs + 1]
    slots[rng.integers(0, len(slots))] = -1
    for index, part in enumerate(layout.parts):
        rows = rng.integers(0, 256, (len(slots), part.row_bytes), dtype=np.uint8)
        want = [plane.copy() for plane in planes]
        c = np.arange(part.row_bytes)
        for row, slot in zip(rows, slots):
            if slot >= 0:
                at = part.offset + slot % bs * part.token_stride + c // part.chunk_bytes * part.chunk_stride + c % part.chunk_bytes
                want[part.plane][slot // bs, at] = row
        jumar_kv.store_rows(rows, slots, planes, layout, part.name)
        assert all(np.array_equal(a, b) for a, b in zip(planes, want))
        back = np.zeros_like(rows)
        jumar_kv.load_rows(planes, layout, slots, back, index)
        assert np.array_equal(back[slots >= 0], rows[slots >= 0]) and not back[slots < 0].any()
        table = np.array([[2, 0], [1, -1]])
        out = np.zeros((bs + 2, part.row_bytes), dtype=np.uint8)
        jumar_kv.load_stretches(planes, layout, table, [2 * bs - (bs - 1), 1], out, first=[bs - 1, 0], part=index)
        flat = [slot for slot in (*range(3 * bs - 1, 3 * bs), *range(bs), bs)]
        again = np.zeros_like(out)
        jumar_kv.load_rows(planes, layout, flat, again, index)
        assert np.array_equal(out, again)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_blocks_are_copied_swapped_and_filled(seed):
    rng = np.random.default_rng(seed)
    planes = [rng.integers(0, 256, (6, 2, 33), dtype=np.uint8), rng.random((6, 5), dtype=np.float32)]
    host = [np.zeros((3, *plane.shape[1:]), plane.dtype) for plane in planes]
    before = [plane.copy() for plane in planes]
    order = rng.permutation(6)
    jumar_kv.copy_blocks(planes, [(order[0], order[1]), (order[0], order[2]), (order[3], order[4])])
    for plane, old in zip(planes, before):
        old[order[[1, 2, 4]]] = old[order[[0, 0, 3]]]
        assert np.array_equal(plane, old)
    jumar_kv.swap_blocks(planes, host, [(order[0], 2), (order[5], 1)])
    jumar_kv.fill_blocks(planes, int(order[0]), 1)
    assert np.isnan(planes[1][order[0]]).all() and (planes[0][order[0]] == 255).all()
    jumar_kv.swap_blocks(host, planes, [(2, order[0]), (1, order[5])])
    assert all(np.array_equal(plane, old) for plane, old in zip(planes, before))


def test_block_table():
    table = jumar_kv.BlockTable(3, 4, 10)
    table.append(0, [5, 6])
    table.append(0, np.array([7]))
    table.assign(2, [1])
    assert table.row(0).tolist() == [5, 6, 7] and table.row(0).dtype == np.int32
    assert table.gather([2, -1, 0], 4).tolist() == [[1, -1, -1, -1], [-1] * 4, [5, 6, 7, -1]]
    table.move(0, 1)
    table.swap(1, 2)
    table.truncate(2, 1)
    assert [table.row(r).tolist() for r in range(3)] == [[], [1], [5]]
    with pytest.raises(ValueError, match=r"blocks\[0\] for row 1 is 10, not in \[0, num_blocks = 10\)"):
        table.append(1, [10])
    with pytest.raises(ValueError, match="row = 3"):
        table.row(3)
    with pytest.raises(ValueError, match=r"blocks\[0\] is 4294967296, which int32 can't hold"):
        table.append(1, [2**32])


def test_layouts_say_what_they_are():
    layout = jumar_kv.packed640(128)
    assert (layout.block_bytes, layout.token_bytes, layout.padding_bytes, layout.page_bytes) == (81920, 583, 57 * 128, [81920])
    assert [(p.name, p.element, p.offset) for p in layout.parts] == [("rope", "bf16", 0), ("values", "e4m3", 128), ("scales", "e8m0", 576)]
    assert layout.locate(4, 2, 3, part="scales") == (0, 2 * 81920 + 3 * 640 + 576, 7)
    assert "packed640: 128 tokens per block" in str(layout) and repr(layout).startswith("PageLayout('packed640'")
    assert jumar_kv.compressor_state(8, 128).in_pages_of(16640).padding_bytes == 256


def test_deepseek_v4_shares_pages():
    groups = [("kv", jumar_kv.shared_kv(128).block_bytes, 128, 1, 1), ("c4", jumar_kv.compressor_state(8).block_bytes, 8, 1, 1),
              ("c128", jumar_kv.compressor_state(32, coff=1).block_bytes, 32, 1, 1)]
    plan = jumar_kv.plan_hybrid(groups)
    assert (plan.page_bytes, plan.block_sizes, plan.padding_bytes, plan.common_block_size) == (131072, [128, 8, 32], [0, 65536, 0], 128)
    assert plan.wasted == pytest.approx(1 / 6)


def test_refusals():
    layout, rng = jumar_kv.packed640(16), np.random.default_rng(0)
    planes, rows = cache_of(layout, 2, rng), np.zeros((3, 448), np.uint8)
    table = np.zeros((1, 1), np.int32)
    for error, message, call in (
        (ValueError, "heads = 0", lambda: jumar_kv.separate_kv(0, 64, 16)),
        (ValueError, 'order "row" is none of fractal, head, token', lambda: jumar_kv.separate_kv(1, 64, 16, "row")),
        (ValueError, r"block = 4 is not in \[0, num_blocks = 4\)", lambda: layout.locate(4, 4, 0)),
        (KeyError, "has no part k", lambda: layout.locate(4, 0, 0, part="k")),
        (ValueError, r"slot_mapping\[1\] is 32; the cache has 32 slots",
         lambda: jumar_kv.store_rows(rows, [0, 32], planes, layout, "values")),
        (ValueError, "plane 0 has pages of 639 bytes", lambda: jumar_kv.store_rows(rows, [0], [planes[0][:, :639]], layout, "values")),
        (ValueError, "rows of 448 bytes can't become rows of 128", lambda: jumar_kv.store_rows(rows, [0], planes, layout, "rope")),
        (ValueError, "there are 0 planes", lambda: jumar_kv.store_rows(rows, [0], [], layout)),
        (ValueError, "part 3 is none", lambda: jumar_kv.store_rows(rows, [0], planes, layout, 3)),
        (TypeError, "slots is float64", lambda: jumar_kv.store_rows(rows, [0.5], planes, layout, "values")),
        (ValueError, "positions.0. = 16 of request 0 needs column 1", lambda: jumar_kv.slot_mapping([0, 1], [16], table, 16, 4)),
        (TypeError, "positions is float32", lambda: jumar_kv.slot_mapping([0, 1], np.zeros(1, np.float32), table, 16, 4)),
        (ValueError, "block_table must be", lambda: jumar_kv.slot_mapping([0, 1], [0], table[0], 16, 4)),
        (ValueError, "pairs.0. copies from block 2", lambda: jumar_kv.copy_blocks(planes, [(2, 0)])),
        (ValueError, "pairs must be", lambda: jumar_kv.copy_blocks(planes, [1, 2, 3])),
        (ValueError, "contiguous behind its first axis", lambda: jumar_kv.fill_blocks([planes[0].reshape(2, 16, 640)[:, :, ::2]], 0, 1)),
        (ValueError, "runs backwards", lambda: jumar_kv.fill_blocks([planes[0][::-1]], 0, 1)),
        (TypeError, "must be a numpy array", lambda: jumar_kv.fill_blocks([[1, 2]], 0, 1)),
        (ValueError, "hybrid: there is no group", lambda: jumar_kv.plan_hybrid([])),
    ):
        with pytest.raises(error, match=message):
            call()
    frozen = planes[0].copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="is read-only"):
        jumar_kv.fill_blocks([frozen], 0, 1)
    jumar_kv.swap_blocks([frozen], planes, [])


def test_a_view_with_gaps_is_taken_and_its_gaps_stay():
    rng = np.random.default_rng(1)
    memory = rng.integers(0, 256, (4, 50), dtype=np.uint8)
    before = memory.copy()
    jumar_kv.copy_blocks([memory[:, 10:30]], [(3, 1)])
    before[1, 10:30] = before[3, 10:30]
    assert np.array_equal(memory, before)


def test_planes_are_a_list_of_arrays_that_somebody_holds():
    class MadeOnAccess:
        def __len__(self):
            return 1

        def __getitem__(self, index):
            if index > 0:
                raise IndexError
            return np.zeros((4, 1 << 22), np.uint8)

    for planes in (MadeOnAccess(), np.zeros((4, 4, 4), np.uint8), "ab"):
        with pytest.raises(TypeError, match="must be a list or tuple of arrays, one for each plane"):
            jumar_kv.copy_blocks(planes, [(0, 1)])
    jumar_kv.copy_blocks((np.zeros((4, 4), np.uint8),), [(0, 1)])


def test_a_wrong_part_is_named():
    for part in (1.5, None):
        with pytest.raises(TypeError, match="part must be a name or a number"):
            jumar_kv.mla(16).locate(1, 0, 0, part=part)
    with pytest.raises(ValueError, match="is none of the layout's 2"):
        jumar_kv.mla(16).locate(1, 0, 0, part=2**70)
    assert jumar_kv.mla(16).locate(1, 0, 0, part=np.int32(1)) == jumar_kv.mla(16).locate(1, 0, 0, part=1)


def test_a_table_that_the_host_cannot_hold_is_named():
    with pytest.raises(MemoryError, match="block table for 1099511627776 requests of 1024 blocks"):
        jumar_kv.BlockTable(1 << 40, 1 << 10, 1)
