import itertools
import random
import xml.etree.ElementTree

import jumar_onchip
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jumar_onchip import Buffer, plan

KIB = 1024
PLENTY = {space: 1 << 24 for space in ("UB", "L1", "L0A", "L0B", "L0C", "FB", "BT")}
ALIGNMENT = {"UB": 32, "L1": 32, "L0A": 512, "L0B": 512, "L0C": 64, "FB": 64, "BT": 64}
COPIES = {"single": 1, "double": 2, "triple": 3, "quad": 4, "2x2": 4}
PIPES = ["S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"]


def test_plans_and_shows():
    buffers = [
        Buffer("scores", "UB", 32 * KIB, "double", steps=(0, 3), handover=("MTE2", "V")),
        Buffer("sums", "UB", 512, steps=(2, 5)),
        Buffer.parse("out:UB:32KiB:double:4-6:V>MTE3"),
    ]
    core = plan(buffers, {"UB": 192 * KIB})
    assert core.ok and core.error is None and core.verify() is None and len(core) == 3
    assert core["scores"].offsets == core["out"].offsets == [0, 32 * KIB]
    assert core["scores"].forward == [0, 1] and core["scores"].backward == [0, 1]
    assert core["sums"].offset == 64 * KIB and core["sums"].forward == [None]
    assert core.used_bytes == core.live_bytes == {"UB": 64 * KIB + 512}
    assert core.events == {("MTE2", "V"): 2, ("V", "MTE2"): 2, ("V", "MTE3"): 2, ("MTE3", "V"): 2}
    assert "UB: 66048 of 196608 bytes used" in core.table()
    xml.etree.ElementTree.fromstring(core.svg())
    with pytest.raises(KeyError, match='no buffer "mask"'):
        core["mask"]


def test_what_does_not_fit_raises_with_the_table():
    with pytest.raises(MemoryError, match='(?s)buffer "tile": it is the largest in UB .* needs 20000 of 16384 bytes.*tile +UB'):
        plan([Buffer("tile", "UB", 20000)], {"UB": 16 * KIB})
    failed = plan([Buffer("tile", "UB", 20000)], {"UB": 16 * KIB}, check=False)
    assert not failed.ok and failed["tile"].offset == 0
    assert "the plan fails" in failed.svg()
    with pytest.raises(MemoryError, match="out of event ids from MTE2 to V, 4 of 3 needed"):
        plan([Buffer("a", "UB", 32, "quad", handover=("MTE2", "V"))], PLENTY, events_per_pair=3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Buffer("a", "UX", 1), 'space "UX": known are UB, L1'),
        (lambda: Buffer("a", "UB", 1, "twice"), 'policy "twice"'),
        (lambda: Buffer("a", "UB", 1, handover=("MTE2", "W")), 'pipe "W"'),
        (lambda: Buffer("a\0b", "UB", 1), "must not contain the character 0"),
        (lambda: Buffer.parse("a:UB"), "write NAME:SPACE:BYTES"),
        (lambda: plan([Buffer("a", "UB", 0)], PLENTY), "0 bytes, must be at least 1"),
        (lambda: plan([Buffer("a", "UB", 2**63 - 1)], PLENTY), "is more than sizes and offsets may be"),
        (lambda: plan([Buffer("a", "UB", 1), Buffer("a", "UB", 1)], PLENTY), "buffers 0 and 1 have this name"),
        (lambda: plan([Buffer("a", "UB", 1, steps=(4, 3))], PLENTY), "lifetime is reversed"),
        (lambda: plan([Buffer("a", "UB", 1, at=-1)], PLENTY), "is not a multiple of its alignment"),
        (lambda: plan([Buffer("a", "UB", 64, at=0), Buffer("b", "UB", 64, at=32)], PLENTY), 'takes bytes of "a" while that is alive'),
        (lambda: plan([Buffer("a", "UB", 1)], {"GM": 1}), 'space "GM"'),
        (lambda: plan([Buffer(f"b{i}", "UB", 1) for i in range(33)], PLENTY), "33 buffers, a map of this type holds 0 to 32"),
    ],
)
def test_mistakes_are_value_errors(make, words):
    with pytest.raises(ValueError) as raised:
        make()
    assert words in str(raised.value)


@st.composite
def problems(draw):
    """Buffers as keyword arguments."""
    count = draw(st.integers(1, 12))
    problem = []
    for i in range(count):
        first = draw(st.integers(0, 9))
        problem.append({
            "name": f"b{i}",
            "space": draw(st.sampled_from(sorted(ALIGNMENT))),
            "bytes": draw(st.integers(1, 5000)),
            "policy": draw(st.sampled_from(sorted(COPIES))),
            "steps": (first, first + draw(st.integers(0, 5))),
            "handover": draw(st.none() | st.permutations(PIPES).map(lambda p: (p[0], p[1]))),
            "alignment": draw(st.sampled_from([0, 0, 512, 2048])),
        })
    return problem


def alive_together(a, b):
    return a["steps"][0] <= b["steps"][1] and b["steps"][0] <= a["steps"][1]


def flags(buffer, placement):
    """(from, to, id) of every copy and way."""
    if buffer["handover"] is None:
        return []
    producer, consumer = buffer["handover"]
    return [(producer, consumer, i) for i in placement.forward] + [(consumer, producer, i) for i in placement.backward]


@settings(deadline=None, max_examples=200)
@given(problems())
def test_plans_are_sound(problem):
    core = plan([Buffer(**b) for b in problem], PLENTY, events_per_pair=60)
    assert core.verify() is None
    for b in problem:
        place = core[b["name"]]
        assert len(place.offsets) == COPIES[b["policy"]]
        assert all(offset % max(b["alignment"], ALIGNMENT[b["space"]]) == 0 for offset in place.offsets)
        assert all(offset + b["bytes"] <= core.used_bytes[b["space"]] for offset in place.offsets)
        own = sorted((offset, offset + b["bytes"]) for offset in place.offsets)
        assert all(x[1] <= y[0] for x, y in itertools.pairwise(own))
        assert len(set(flags(b, place))) == len(flags(b, place))
        assert all(0 <= i < core.events[(f, t)] for f, t, i in flags(b, place))
    for a, b in itertools.combinations(problem, 2):
        if not alive_together(a, b):
            continue
        assert not set(flags(a, core[a["name"]])) & set(flags(b, core[b["name"]]))
        if a["space"] == b["space"]:
            for x in core[a["name"]].offsets:
                for y in core[b["name"]].offsets:
                    assert x + a["bytes"] <= y or y + b["bytes"] <= x


@settings(deadline=None, max_examples=100)
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_the_buffers_does_not_matter(problem, rng: random.Random):
    core = plan([Buffer(**b) for b in problem], PLENTY, events_per_pair=60)
    shuffled = list(problem)
    rng.shuffle(shuffled)
    again = plan([Buffer(**b) for b in shuffled], PLENTY, events_per_pair=60)
    for b in problem:
        x, y = core[b["name"]], again[b["name"]]
        assert (x.offsets, x.forward, x.backward) == (y.offsets, y.forward, y.backward)


@settings(deadline=None, max_examples=100)
@given(problems(), st.integers(0, 1 << 20))
def test_what_fits_fits_into_more(problem, more):
    buffers = [Buffer(**b) for b in problem]
    used = plan(buffers, PLENTY, events_per_pair=60).used_bytes
    exact = plan(buffers, used, events_per_pair=60)
    larger = plan(buffers, {space: size + more for space, size in used.items()}, events_per_pair=60)
    assert all(exact[b["name"]].offsets == larger[b["name"]].offsets for b in problem)
    for space in used:
        with pytest.raises(MemoryError, match=f"{used[space]} of {used[space] - 1} bytes|there is no"):
            plan(buffers, {**used, space: used[space] - 1}, events_per_pair=60)


@settings(deadline=None, max_examples=100)
@given(problems())
def test_no_plan_uses_less_than_what_is_alive(problem):
    core = plan([Buffer(**b) for b in problem], PLENTY, events_per_pair=60)
    for space, used in core.used_bytes.items():
        alive = [
            sum(b["bytes"] * COPIES[b["policy"]] for b in problem if b["space"] == space and b["steps"][0] <= step <= b["steps"][1])
            for step in range(16)
        ]
        assert max(alive) <= core.live_bytes[space] <= used


def test_the_module_says_what_it_does():
    assert "event ids" in jumar_onchip.__doc__ and "MemoryError" in jumar_onchip.plan.__doc__


@pytest.mark.parametrize(
    "capacities, error, words",
    [
        ({"UB": 1.5}, TypeError, "capacity of UB must be a whole number"),
        ({3: 1}, TypeError, "3 is no name of a space"),
        ({"UB": 2**70}, ValueError, "capacity of UB is beyond 2\\^63"),
    ],
)
def test_wrong_capacities_are_named(capacities, error, words):
    with pytest.raises(error, match=words):
        jumar_onchip.plan([jumar_onchip.Buffer("a", "UB", 32)], capacities)


def test_names_are_ascii():
    name = "\u00e9" * 40
    for make in (lambda: jumar_onchip.Buffer(name, "UB", 32), lambda: jumar_onchip.Buffer.parse(name + ":UB:32")):
        with pytest.raises(ValueError, match="must be ASCII"):
            make()
