"""Where greedy text may part from a reference's: only where the two best logits are nearly tied.

How near, in bfloat16. One rounding to 8 significant bits errs by at most half a unit in the last place, evenly
distributed, so its standard deviation is at most ``2**-7 / sqrt(12)`` of the value (U below).

Hidden state. A layer adds two sublayers' outputs to the residual stream. Each addition rounds once, and a sublayer
rounds after its norm, its first projection, its inner operator (attention; SwiGLU) and its last projection: 5 roundings
each, 10 a layer. A sublayer's output is not larger than the stream that it is added to, the errors are independent, and
the stream passes them on with gain 1, so after L layers their squares add up to a relative error of
``U * sqrt(10 * L)`` of the final hidden state h. Two implementations, which round at different places, differ by sqrt(2)
times that.

Logits. A linear function ``w . h`` of the hidden state (a logit's difference from another one, or from the mean of all)
changes by ``|w| * |h| / sqrt(H)`` times the relative error, if the error's direction among the H dimensions is random;
that is one standard deviation. Besides, each implementation rounds each logit to bfloat16.

All are standard deviations of independent errors, and upper ends: a rounding errs less over most of a binade, and most
sublayers' outputs are much smaller than the stream. Three of them are exceeded once in 700 if they were exact.
"""

from __future__ import annotations

import math
from typing import Any

U = 2.0**-7 / math.sqrt(12)
ROUNDINGS_PER_LAYER = 10
DEVIATIONS = 3.0

# SmolLM2-135M. The scale |w_a - w_b| * |h| / sqrt(H) and the logits are upper ends over greedy_test's prompts.
SMOLLM2_LAYERS = 30
SMOLLM2_SCALE = 9.0
SMOLLM2_LOGIT = 48.0


def hidden_error(layers: int) -> float:
    """Relative difference of two bfloat16 implementations' final hidden states; one standard deviation."""
    return math.sqrt(2) * U * math.sqrt(ROUNDINGS_PER_LAYER * layers)


def deviation(layers: int, scale: float, logit: float, logits: int) -> float:
    """Standard deviation of the difference that two bfloat16 implementations see in a function of the logits.

    Args:
        scale: ``|w| * |h| / sqrt(H)`` for the function ``w . h``.
        logit: the magnitude of the logits in it.
        logits: how many of them: 2 for a gap.
    """
    return math.hypot(hidden_error(layers) * scale, math.sqrt(2 * logits) * U * logit)


def gap_bound(layers: int, scale: float, logit: float) -> float:
    """Largest difference of two logits whose order two bfloat16 implementations may disagree on."""
    return DEVIATIONS * deviation(layers, scale, logit, logits=2)


def assert_equal_up_to_near_ties(one: Any, other: Any) -> bool:
    """Compares two greedy completions' logprobs (OpenAI's form, with logprobs=2) of SmolLM2 in bfloat16.

    Returns:
        Whether they parted, at a near-tie.
    """
    bound = gap_bound(SMOLLM2_LAYERS, SMOLLM2_SCALE, SMOLLM2_LOGIT)
    for position, (a, b) in enumerate(zip(one.tokens, other.tokens)):
        if a != b:
            # A logprob differs from its logit by the same amount for every token.
            top = one.top_logprobs[position]
            assert b in top, f"{b!r} at {position} is not among the two likeliest {top}"
            gap = abs(top[a] - top[b])
            assert gap <= bound, f"parted at {position}: {a!r} and {b!r}, {gap:.3f} apart, more than {bound:.3f}"
            return True
    assert len(one.tokens) == len(other.tokens)
    return False
