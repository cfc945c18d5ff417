"""Where DeepSeek V4's rows lie, and what each token sees, against a model of the caches in plain Python."""

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jumar.deepseek_v4_cache import NOWHERE, DeepseekV4Metadata, state_rows

BLOCK, BLOCKS, TABLE = 128, 64, 5


def metadata(steps: list[tuple[list[int], int, int]], padding: int = 0) -> DeepseekV4Metadata:
    """Of requests (blocks, tokens before, new tokens), and tokens and requests that pad the step."""
    counts = [new for _, _, new in steps]
    starts = torch.tensor([0, *counts] + [0] * padding).cumsum(0)
    table = torch.tensor([blocks + [0] * (TABLE - len(blocks)) for blocks, _, _ in steps] + [[0] * TABLE] * padding, dtype=torch.int32)
    return DeepseekV4Metadata(
        num_actual_tokens=sum(counts) + padding,
        max_kv_len=TABLE * BLOCK,
        query_starts=starts.int(),
        kv_lens=torch.tensor([old + new for _, old, new in steps] + [0] * padding, dtype=torch.int32),
        block_table=table,
        block_size=BLOCK,
    )


def scattered(rng: random.Random) -> tuple[list[list[int]], list[int]]:
    """Blocks of four requests in any order, of which the last has the first block of the first one; and the length of each."""
    free = list(range(1, BLOCKS))
    rng.shuffle(free)
    tables = [[free.pop() for _ in range(TABLE)] for _ in range(4)]
    tables[3][0] = tables[0][0]
    return tables, [rng.randrange(BLOCK, TABLE * BLOCK), rng.randrange(1, 300), rng.randrange(1, 20), rng.randrange(BLOCK + 1, 400)]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), ratio=st.sampled_from([4, 128]), longest=st.sampled_from([1, 3, 50, 300]), padding=st.sampled_from([0, 3]))
def test_every_entry_is_made_once_of_its_own_tokens(seed, ratio, longest, padding):
    rng = random.Random(seed)
    (tables, lengths), done = scattered(rng), [0, 0, 0, None]
    rows, state, entries = state_rows(ratio), {}, {}

    def token(request: int, position: int) -> tuple[int, int]:
        return (0 if request == 3 and position < BLOCK else request, position)

    while any(old is None or old < length for old, length in zip(done, lengths)):
        if done[3] is None and done[0] >= BLOCK and rng.random() < 0.3 or done[:3] == lengths[:3] and done[3] is None:
            done[3] = BLOCK  # found in the prefix cache
        active = [r for r in range(4) if done[r] is not None and done[r] < lengths[r] and rng.random() < 0.8]
        if not active:
            continue
        new = {r: min(rng.randint(1, longest), lengths[r] - done[r]) for r in active}
        batch = metadata([(tables[r], done[r], new[r]) for r in active], padding)
        plan = batch.compression(ratio)
        tokens = [token(r, done[r] + i) for r in active for i in range(new[r])]
        assert batch.positions.tolist() == [position for _, position in tokens] + [-1] * padding
        made = [j for j, slot in enumerate(plan.entry_slots.tolist()) if slot != NOWHERE]
        expected = [(r, e) for r in active for e in range(done[r] // ratio, (done[r] + new[r]) // ratio)]
        assert made == list(range(len(expected)))
        for j, (r, e) in enumerate(expected):
            assert plan.entry_positions[j] == e * ratio
            block_rows = BLOCK // ratio
            assert plan.entry_slots[j] == tables[r][e // block_rows] * block_rows + e % block_rows
            assert plan.entry_slots[j].item() not in entries
            entries[plan.entry_slots[j].item()] = (r, e)
            for i in range(rows):
                position = (e + 1) * ratio - rows + i
                assert plan.exists[j, i, 0].item() == (position >= 0)
                if position >= 0:
                    is_new = plan.is_new[j, i, 0].item()
                    found = tokens[plan.new_rows[j, i]] if is_new else state[plan.state_rows[j, i].item()]
                    assert found == token(r, position)
        assert plan.bias_rows.tolist()[: len(tokens)] == [position % ratio for _, position in tokens]
        kept = plan.kept_slots.tolist()
        assert kept[len(tokens) :] == [NOWHERE] * padding
        written = [slot for slot in kept if slot != NOWHERE]
        assert len(written) == len(set(written))
        state.update((slot, tokens[i]) for i, slot in enumerate(kept) if slot != NOWHERE)
        for r in active:
            done[r] += new[r]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), ratio=st.sampled_from([1, 4, 128]), padding=st.sampled_from([0, 2]))
def test_what_each_token_sees(seed, ratio, padding):
    rng = random.Random(seed)
    tables, lengths = scattered(rng)
    olds = [rng.randrange(length) for length in lengths]
    batch = metadata([(table, old, length - old) for table, old, length in zip(tables, olds, lengths)], padding)
    visible, entries, window = batch.visible(ratio).tolist(), batch.all_entries(ratio)[:, 0, 0].tolist(), batch.window(6)[:, 0, 0].tolist()
    row = 0
    for table, old, length in zip(tables, olds, lengths):
        for position in range(old, length):
            count = (position + 1) // ratio
            assert visible[row] == count
            assert entries[row] == [*range(count)] + [NOWHERE] * (TABLE * BLOCK // ratio - count)
            last = [*range(max(0, position - 5), position + 1)]
            assert window[row] == last + [NOWHERE] * (6 - len(last))
            assert batch.token_tables[row].tolist() == table
            row += 1
    for row in range(row, row + padding):
        assert visible[row] == 0 and {*entries[row], *window[row]} == {NOWHERE}
