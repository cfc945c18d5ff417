"""Quantised checkpoints through the whole path, against transformers over their decoded weights.

The reference computes in float32 and rounds the input of each linear layer as the scheme says. Ours computes in
bfloat16, so it differs by that: relative to the final hidden state by ``bounds.U * sqrt(10 L)`` (tests/bounds.py; the
reference itself has no such error). Where activations are rounded to steps of a format, an input that is off by ``e``
lands on another step with probability ``e / step``, so that each of a layer's 4 linear inputs adds an error of variance
``E|e| step``, with ``E|e| = sqrt(2 / pi)`` times its deviation. STEPS are relative to the values: of E4M3 at most 1/8 of
a value; of INT8, by a scale of max / 127, 1/127 of the largest, which is about 4 deviations of a row.

The bound is wide where activations are rounded: it catches a scale or a nibble in the wrong place, not a subtle error.
"""

import math
from pathlib import Path

import pytest

from tests import bounds, checkpoints_writer
from tests.programs import execute, run

TINY_LLAMA = Path(__file__).parents[1] / "third_party" / "models" / "tiny_llama"
LAYERS = 3
MAX_TOKENS = 8
PROMPTS = [[504], [504, 3575, 282, 4649, 314], list(range(1000, 1150)), [30, 31, 32] * 7]

STEPS = {"": 0.0, "int8": 4 / 127, "fp8": 1 / 8, "mxfp8": 1 / 8, "mxfp4": 1 / 2}
# A static scale covers +-8, and inputs of attention's and the MLP's last projection are a third of a norm's output.
STATIC_STEP = 3 * 8 / 127

QUICK = ["w8a8", "w4a16_offset"]


def hidden_error(activations: str) -> float:
    """Relative error of the final hidden state, one standard deviation; see above."""
    step = STEPS[activations.partition("_")[0]]
    if activations.startswith("int8_static"):
        step = STATIC_STEP
    variance = 0.0
    for _ in range(LAYERS):
        variance += bounds.ROUNDINGS_PER_LAYER * bounds.U**2
        for _ in range(4):
            variance += math.sqrt(2 / math.pi) * math.sqrt(variance) * step / 4  # an input is one of the stream's 4 sublayer terms
    return math.sqrt(variance)


def served(names: list[str], folder: Path, **llm: object) -> dict[str, dict]:
    """What the engine answers from each checkpoint, each in a process of its own, and the reference's logprobs of it."""
    import torch

    checkpoints = {}
    for name in names:
        checkpoints[name] = folder / name
        checkpoints_writer.write(checkpoints_writer.SCHEMES[name](), TINY_LLAMA, checkpoints[name])
    options = dict(
        dtype="bfloat16",
        max_model_len=256,
        max_num_seqs=4,
        max_num_batched_tokens=256,
        gpu_memory_utilization=0.5,
        additional_config={"emulate_formats": True},
    )
    request = dict(prompts=PROMPTS, max_tokens=MAX_TOKENS, llm=options | llm)
    answers = {}
    for name, path in checkpoints.items():
        one = dict(request, checkpoints=[str(path)])
        answers[name] = run("checkpoints_engine.py", one, folder / f"{name}.json", JUMAR_HBM_BYTES="1GiB")[str(path)]
    assert not {name: answer["error"] for name, answer in answers.items() if "error" in answer}
    sequences = {
        name: [prompt + completion for prompt, completion in zip(PROMPTS, answer["completions"])]
        for name, answer in answers.items()
    }
    references = {name: str(path / "reference") for name, path in checkpoints.items()}
    reference = folder / "reference"
    execute("checkpoints_reference.py", dict(checkpoints=references, sequences=sequences), reference)
    wanted = torch.load(reference)
    return {name: dict(ours=answers[name]["logprobs"], reference=wanted[name]) for name in names}


def assert_as_near_as_rounding_explains(name: str, result: dict) -> None:
    error = hidden_error(checkpoints_writer.SCHEMES[name]().activations)
    squares = []
    for mine, reference in zip(result["ours"], result["reference"]):
        columns = (reference[key].tolist() for key in ("logprobs", "scales", "logits"))
        for got, want, scale, logit in zip(mine, *columns, strict=True):
            sigma = math.hypot(error * scale, bounds.U * abs(logit))
            squares.append(((got - want) / sigma) ** 2)
    ratio = math.sqrt(sum(squares) / len(squares))
    print(f"{name}: root mean square of {len(squares)} errors: {ratio:.2f} derived standard deviations")
    assert len(squares) > 150
    assert ratio <= 1.5


def test_quick(tmp_path):
    for name, result in served(QUICK, tmp_path).items():
        assert_as_near_as_rounding_explains(name, result)


def test_the_documented_table_has_every_scheme():
    page = (Path(__file__).parents[1] / "docs" / "quantization.md").read_text()
    rows = [line.split("|")[1].strip(" `") for line in page.splitlines() if line.startswith("| `") and line.endswith("| host |")]
    assert rows == list(checkpoints_writer.SCHEMES)


# As many in one test, whose reference is one process.
FEW = 6
OTHERS = [name for name in checkpoints_writer.SCHEMES if name not in QUICK]


@pytest.mark.full
@pytest.mark.parametrize("start", range(0, len(OTHERS), FEW))
def test_every_other_scheme(start, tmp_path):
    for name, result in served(OTHERS[start : start + FEW], tmp_path).items():
        assert_as_near_as_rounding_explains(name, result)


@pytest.mark.full
def test_fp8_on_a_chip_that_has_it(tmp_path, monkeypatch):
    """Not emulated: FP8 operators, as an Ascend950 is given them."""
    monkeypatch.setenv("JUMAR_SOC", "Ascend950PR")
    names = [name for name in checkpoints_writer.SCHEMES if name.startswith(("fp8", "deepseek"))]
    for name, result in served(names, tmp_path, additional_config={}).items():
        assert_as_near_as_rounding_explains(name, result)
