"""Perplexity of a model as it is served, over the public-domain novel "Botchan" (61,500 tokens).

    ./bazelw run //tools:perplexity
    ./bazelw run //tools:perplexity -- --model /tmp/smollm2-w8a8 --kv_cache_dtype fp8
    ./bazelw run //tools:perplexity -- --compare bf16= w8a8=/tmp/smollm2-w8a8 kv8=,kv_cache_dtype=fp8 --out /tmp/perplexity

With --compare: NAME=FOLDER[,ARGUMENT=VALUE...] for each, the first one the baseline; no FOLDER is the embedded model, ARGUMENT one of
vllm.LLM. All see the same tokens. Writes perplexity.json, perplexity.md and perplexity.svg to --out.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import app, flags
from tqdm import tqdm

from serving import default_model
from serving.tracebacks import UserError
from tools.perplexity import scoring
from tools.perplexity.measure import Subject, measure
from tools.perplexity.scoring import Score

_MODEL = flags.DEFINE_string("model", None, "folder of the model (default: the embedded one)")
_COMPARE = flags.DEFINE_bool("compare", False, "compare the NAME=FOLDER that follow")
_TEXT = flags.DEFINE_string("text", None, "UTF-8 text (default: the novel)")
_TOKENS = flags.DEFINE_integer("tokens", 50_000, "at least that many tokens are scored, if the text has them; 0: all", lower_bound=0)
_WINDOW = flags.DEFINE_integer("window", 2048, "tokens of a window; none sees more context", lower_bound=2)
_STRIDE = flags.DEFINE_integer("stride", None, "tokens from one window's start to the next (default: a window, no overlap)", lower_bound=1)
_DTYPE = flags.DEFINE_string("dtype", "auto", "what the model computes in")
_KV_CACHE_DTYPE = flags.DEFINE_string("kv_cache_dtype", "auto", "what keys and values are stored in")
_QUANTIZATION = flags.DEFINE_string("quantization", None, "vLLM's --quantization, where config.json doesn't tell")
_ENGINE = flags.DEFINE_enum("engine", "vllm", ["vllm", "transformers"], "vllm: as it is served, on Jumar; transformers: plain, on the CPU")
_BASELINE = flags.DEFINE_float("baseline", None, "a perplexity to give the result relative to", lower_bound=1.0)
_OUT = flags.DEFINE_string("out", None, "folder for results, picture and logs; a new one if not given")

_NOVEL = Path(__file__).parents[2] / "third_party" / "texts" / "botchan.txt"


def _path(text: str) -> Path:
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")) / Path(text).expanduser()


def _folder(text: str) -> Path:
    folder = _path(text) if text else default_model.folder()
    if folder is None:
        raise UserError("there is no embedded model outside of Bazel: give a folder")
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} has no config.json: give the folder of a model")
    return folder


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_subject(text: str, engine: str, common: dict[str, Any]) -> Subject:
    """NAME=FOLDER[,ARGUMENT=VALUE...]"""
    name, equals, rest = text.partition("=")
    folder, *arguments = rest.split(",")
    if not name or not equals or not all("=" in argument for argument in arguments):
        raise UserError(f"{text!r} is not NAME=FOLDER[,ARGUMENT=VALUE...], such as w8a8=/tmp/smollm2-w8a8")
    options = {key: _value(value) for key, _, value in (argument.partition("=") for argument in arguments)}
    return Subject(name, _folder(folder), engine, {**common, **options})


def _subjects(words: list[str]) -> list[Subject]:
    common: dict[str, Any] = dict(dtype=_DTYPE.value, kv_cache_dtype=_KV_CACHE_DTYPE.value)
    if _QUANTIZATION.value:
        common["quantization"] = _QUANTIZATION.value
    if _ENGINE.value == "transformers" and _KV_CACHE_DTYPE.value != "auto":
        raise UserError("--kv_cache_dtype is an option of the engine vllm; transformers keeps keys and values in the model's dtype")
    if not _COMPARE.value:
        if words:
            raise UserError(f"unexpected argument {words[0]!r}; a model is given by --model, several after --compare")
        return [Subject("model", _folder(_MODEL.value or ""), _ENGINE.value, common)]
    if _MODEL.value or _BASELINE.value:
        raise UserError("--compare takes its models from the arguments NAME=FOLDER, and the first is the baseline: leave --model and --baseline out")
    subjects = [parse_subject(word, _ENGINE.value, common) for word in words]
    names = [subject.name for subject in subjects]
    if len(set(names)) < len(names):
        raise UserError(f"two of {', '.join(names)} have the same name")
    if not subjects:
        raise UserError("--compare wants one NAME=FOLDER or more")
    return subjects


def _tokens(model: Path, text: str) -> list[int]:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(model / "tokenizer.json")).encode(text, add_special_tokens=False).ids


def _bar(name: str, total: int) -> Callable[[int, Score], None]:
    often = 0.5 if sys.stderr.isatty() else 20
    bar = tqdm(total=total, desc=name, mininterval=often, maxinterval=2 * often, file=sys.stderr, unit="window")

    def progress(done: int, score: Score) -> None:
        bar.set_postfix_str(f"perplexity {score.perplexity:.3f}", refresh=False)
        bar.update()
        if done == total:
            bar.close()

    return progress


def run(words: list[str]) -> None:
    subjects = _subjects(words)
    source = _path(_TEXT.value) if _TEXT.value else _NOVEL
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the text {source} can't be read as UTF-8: {error}") from error
    tokens = _tokens(subjects[0].model, text)
    for subject in subjects[1:]:
        if _tokens(subject.model, text) != tokens:
            raise UserError(f"{subject.name} has another tokenizer than {subjects[0].name}: their perplexities can't be compared")
    stride = _STRIDE.value or _WINDOW.value
    try:
        windows = scoring.windows(tokens, _WINDOW.value, stride, _TOKENS.value or None)
    except ValueError as error:
        raise UserError(str(error)) from error
    out = _path(_OUT.value) if _OUT.value else Path(tempfile.mkdtemp(prefix="perplexity."))
    out.mkdir(parents=True, exist_ok=True)
    about = (
        f"{source.name}: {sum(window.scored for window in windows):,} tokens scored in {len(windows)} windows of {_WINDOW.value:,}, "
        f"stride {stride:,}, {_ENGINE.value}"
    )
    print(about, flush=True)
    scores: dict[str, Score] = {}
    for subject in subjects:
        scores[subject.name] = measure(subject, windows, out / f"{subject.name}.log", _bar(subject.name, len(windows)))
        if _COMPARE.value:
            print(f"{subject.name}: perplexity {scores[subject.name].perplexity:.4f}", flush=True)

    lines = scoring.table(scores)
    if _BASELINE.value:
        lines += f"\n\n{scores['model'].perplexity / _BASELINE.value - 1:+.2%} of the baseline {_BASELINE.value}"
    print(f"\n{lines}")
    results = dict(
        text=source.name, window=_WINDOW.value, stride=stride, engine=_ENGINE.value,
        subjects={
            subject.name: dict(
                model=subject.model.name,
                options=subject.options,
                perplexity=scores[subject.name].perplexity,
                losses=scores[subject.name].losses,
                counts=scores[subject.name].counts,
                seconds=scores[subject.name].seconds,
            )
            for subject in subjects
        },
    )  # fmt: skip
    (out / "perplexity.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "perplexity.md").write_text(f"{about}\n\n{lines}\n\n![perplexity](perplexity.svg)\n")
    scoring.plot(scores, about, out / "perplexity.svg")
    print(f"\nwrote {out}/perplexity.json, .md and .svg")


def main(argv: list[str]) -> int:
    try:
        run(argv[1:])
    except UserError as error:
        print(f"perplexity: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("perplexity: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    app.run(main)
