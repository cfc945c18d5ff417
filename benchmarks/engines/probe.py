"""Whether an engine says what any working model says: the speed of another would mean nothing."""

from __future__ import annotations

from typing import Any, Protocol

PROMPT, TOKENS, ANSWER = "The capital of France is", 8, "Paris"


class Engine(Protocol):
    name: str

    def ask(self, **request: Any) -> dict[str, Any]: ...


class NonsenseError(RuntimeError):
    """An engine's text is not what any working model says."""


def probe(engine: Engine) -> tuple[str, list[int]]:
    """What the engine continues the probe with, and the tokens."""
    answer = engine.ask(text=PROMPT, output=TOKENS)
    return answer["text"], answer["tokens"]


def check_text(engine: Engine) -> tuple[str, list[int]]:
    """What the engine continues the probe with, and the tokens.

    Raises:
        NonsenseError: if it isn't what any working model says.
    """
    text, tokens = probe(engine)
    if ANSWER not in text:
        raise NonsenseError(f"{engine.name} continues {PROMPT!r} with {text!r}, without {ANSWER!r}")
    return text, tokens


def check_agreement(one: Engine, other: Engine) -> str:
    """The text that both engines make of the probe.

    Raises:
        NonsenseError: if they don't agree: they don't run the same model.
    """
    (text, tokens), (other_text, other_tokens) = check_text(one), check_text(other)
    if tokens != other_tokens:
        raise NonsenseError(f"{one.name} continues {PROMPT!r} with {text!r}, and {other.name} with {other_text!r}")
    return text
