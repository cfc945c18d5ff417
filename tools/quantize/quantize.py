"""Quantises a model into a compressed-tensors checkpoint, which Jumar, vLLM and transformers load.

    ./bazelw run //tools:quantize -- --scheme w8a8 --out /tmp/smollm2-w8a8
    ./bazelw run //tools:quantize -- --model /path/to/model --scheme w4a16 --group_size 32 --out /path/to/new

Schemes: w8a8, w8a8_static, fp8, fp8_static, fp8_block, w4a16, w8a16, mxfp8, mxfp4 (tools/quantize/README.md). The new folder has the
model's tokenizer and templates, and quantization_report.md with the error of every layer. It is there completely or not at all.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

# transformers would load torch_npu, which wants a CANN. Nothing here runs on a device.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# compressed-tensors would compile its packing of four bits, for longer than packing takes, and not without a compiler.
os.environ["TORCHDYNAMO_DISABLE"] = "1"
# Threads that wait spinning starve each other on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.modules["torch_npu"] = None  # type: ignore[assignment]

from absl import app, flags
from tqdm import tqdm

from serving import default_model
from serving.tracebacks import UserError

_MODEL = flags.DEFINE_string("model", None, "folder of a Hugging Face model with safetensors (default: the embedded one)")
_SCHEME = flags.DEFINE_string("scheme", None, "w8a8, w8a8_static, fp8, fp8_static, fp8_block, w4a16, w8a16, mxfp8 or mxfp4")
_OUT = flags.DEFINE_string("out", None, "the folder to make")
_GROUP_SIZE = flags.DEFINE_integer(
    "group_size", None, "weights that share a scale, for w4a16 and w8a16: 128, 64 or 32 (default: the greatest that divides every row)"
)
_ROUNDING = flags.DEFINE_enum("rounding", "auto", ["auto", "nearest", "gptq"], "auto is gptq for 4-bit weights and fp8, nearest for others")
_LM_HEAD = flags.DEFINE_bool("lm_head", False, "quantise the output layer too, if it isn't tied to the embeddings")
_IGNORE = flags.DEFINE_multi_string("ignore", [], "regular expression of layers to leave as they are; may be given more than once")
_FOLD = flags.DEFINE_bool(
    "fold", True, "move part of the inputs' sizes into norms and weights before rounding, for w8a8 and w8a8_static; not with --samples=0"
)
_CALIBRATION = flags.DEFINE_string("calibration", None, "UTF-8 text to calibrate on (default: the World English Bible's beginning)")
_SAMPLES = flags.DEFINE_integer(
    "samples", None, "pieces of the text (default: 32; 8 for folding alone; 4 for the report alone; 0: none, no folding, no output errors)", lower_bound=0
)
_LENGTH = flags.DEFINE_integer("length", 512, "tokens of a piece", lower_bound=16)
_SHARD_MIB = flags.DEFINE_integer("shard_mib", 5 << 10, "most MiB of a file of weights", lower_bound=1)
_ROWS = flags.DEFINE_integer("rows", 12, "layers of the printed table; the report has all", lower_bound=1)

_TEXT = Path(__file__).parents[2] / "third_party" / "texts" / "web_bible.txt"


class Bars:
    """Progress bars on standard error."""

    def start(self, what: str, total: int) -> Callable[[], None]:
        layout = "{desc:<12}{percentage:3.0f}%|{bar:30}| {elapsed}<{remaining}"
        # A line now and then where nobody watches.
        often = 0.5 if sys.stderr.isatty() else 20
        bar = tqdm(total=total, desc=what, mininterval=often, maxinterval=2 * often, file=sys.stderr, bar_format=layout)

        def tick() -> None:
            bar.update()
            if bar.n >= total:
                bar.close()

        return tick


def _path(text: str) -> Path:
    # `bazel run` starts programs elsewhere.
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")) / Path(text).expanduser()


def run() -> None:
    from tools.quantize import run as quantiser
    from tools.quantize import schemes

    model = _path(_MODEL.value) if _MODEL.value else default_model.folder()
    if model is None:
        raise UserError("there is no embedded model outside of Bazel: give one with --model")
    if _SCHEME.value is None:
        raise UserError(f"--scheme is missing: give one of {', '.join(schemes.NAMES)}")
    if _OUT.value is None:
        raise UserError("--out is missing: name the folder to make")
    options = quantiser.Options(
        model=model,
        scheme=_SCHEME.value,
        out=_path(_OUT.value),
        group_size=_GROUP_SIZE.value,
        rounding=_ROUNDING.value,
        lm_head=_LM_HEAD.value,
        ignore=tuple(_IGNORE.value),
        fold=_FOLD.value,
        calibration_text=_path(_CALIBRATION.value) if _CALIBRATION.value else _TEXT,
        samples=_SAMPLES.value,
        length=_LENGTH.value,
        shard_bytes=_SHARD_MIB.value << 20,
    )
    report = quantiser.quantise(options, Bars())
    print(f"\n{report.about()}\n\n{report.table(_ROWS.value)}\n")
    if len(report.layers) > _ROWS.value:
        print(f"... and {len(report.layers) - _ROWS.value} layers with less error, in {options.out / 'quantization_report.md'}")
    print(f"{report.source_bytes / 2**20:.1f} MiB of weights became {report.bytes / 2**20:.1f} MiB in {options.out}")
    print(f"serve it:  ./bazelw run //serving:server -- --model {options.out}")


def main(argv: list[str]) -> int:
    # An end from outside undoes what is half done, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if len(argv) > 1:
        print(f"quantize: error: unexpected argument {argv[1]!r}; a model is given by --model", file=sys.stderr)
        return 2
    try:
        run()
    except UserError as error:
        print(f"quantize: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("quantize: interrupted; nothing was written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    app.run(main)
