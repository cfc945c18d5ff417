"""Each token is scored once, figures are those of the definition, and comparisons are over the same tokens."""

import math
import xml.etree.ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.perplexity import scoring
from tools.perplexity.scoring import Score


@given(st.integers(2, 40), st.data())
def test_each_token_is_scored_once_with_the_context_that_is_promised(window, data):
    stride = data.draw(st.integers(1, window))
    tokens = list(range(data.draw(st.integers(window, 300))))
    made = scoring.windows(tokens, window, stride)
    scored = [token for one in made for token in one.tokens[one.first :]]
    assert len(scored) == len(set(scored)) == sum(one.scored for one in made)
    end = (len(tokens) - window) // stride * stride + window
    # Without overlap nothing stands before a window's first token; with it only the text's first has no context.
    unscored = set(range(0, end, window)) if stride == window else {0}
    assert set(range(end)) - set(scored) == unscored
    for one in made[1:]:
        assert one.tokens == tokens[one.tokens[0] : one.tokens[0] + window]
        assert one.first >= max(1, window - stride)


def test_limit_takes_as_few_windows_as_suffice():
    assert len(scoring.windows(range(1000), 100, 100, limit=198)) == 2
    assert len(scoring.windows(range(1000), 100, 100, limit=199)) == 3
    assert len(scoring.windows(range(1000), 100, 100, limit=10_000)) == 10


def test_sizes_that_make_no_window_are_refused():
    with pytest.raises(ValueError, match="the text has 10 tokens, fewer than a window of 11"):
        scoring.windows(range(10), 11, 11)
    with pytest.raises(ValueError, match="a stride 1 to a window"):
        scoring.windows(range(10), 4, 5)


def test_perplexity_of_a_uniform_guess_is_the_number_of_choices():
    score = Score(losses=(3 * math.log(50), 5 * math.log(50)), counts=(3, 5), seconds=1)
    assert score.perplexity == pytest.approx(50, rel=1e-14)


def test_comparison_is_of_means_with_the_error_of_paired_windows():
    baseline = Score((30.0, 20.0, 28.0), (10, 10, 10), 1)
    same = scoring.compare(baseline, baseline)
    assert same.relative == 0 and same.error == 0
    # Each token loses 0.01 nats more: one per cent, without doubt.
    shifted = scoring.compare(Score((30.1, 20.1, 28.1), (10, 10, 10), 1), baseline)
    assert shifted.relative == pytest.approx(math.exp(0.01) - 1) and shifted.error < 1e-12
    # Differences per token 0.01, 0.03, 0.02: deviation 0.01, over the root of three windows.
    spread = scoring.compare(Score((30.1, 20.3, 28.2), (10, 10, 10), 1), baseline)
    assert spread.error == pytest.approx(math.exp(0.02) * 0.01 / math.sqrt(3))
    assert math.isnan(scoring.compare(Score((1.0,), (1,), 1), Score((1.0,), (1,), 1)).error)
    with pytest.raises(ValueError, match="same windows"):
        scoring.compare(baseline, Score((1.0,), (10,), 1))


def test_table_and_pictures_show_every_model(tmp_path):
    scores = {"bf16": Score((30.0, 20.0), (10, 10), 2), "w4a16": Score((31.0, 21.0), (10, 10), 2)}
    table = scoring.table(scores)
    assert "+10.52% ± 0.00%" in table and "bf16" in table and "12.1825" in table
    for number, shown in enumerate((scores, {"bf16": scores["bf16"]})):
        scoring.plot(shown, "title", tmp_path / f"{number}.svg")
        assert xml.etree.ElementTree.parse(tmp_path / f"{number}.svg").getroot().tag.endswith("svg")
