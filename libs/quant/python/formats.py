"""Prints a number format's codes, and draws where the formats have their values; or quantises numbers by every scale rule.

  ./bazelw run //libs/quant:formats                          every format in a line; the picture
  ./bazelw run //libs/quant:formats -- e4m3                  a table of its codes
  ./bazelw run //libs/quant:formats -- e4m3 --quantize 300 0.01 -7
"""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import sys

import formats_picture
import jumar_quant
import numpy as np


def values(name: str) -> np.ndarray:
    """The value of each code, fp32."""
    info = jumar_quant.FORMATS[name]
    if info.bits == 8:
        return jumar_quant.decode(name, np.arange(256, dtype=np.uint8))
    return jumar_quant.decode(name, np.array([i | (i + 1) << 4 for i in range(0, 16, 2)], np.uint8))


def overview() -> str:
    lines = [f"{'format':8}{'bits':>5}{'largest':>13}{'smallest':>13}{'values':>8}  NaN  inf"]
    for name, info in jumar_quant.FORMATS.items():
        finite = np.unique(values(name)[np.isfinite(values(name))]).size
        lines.append(f"{name:8}{info.bits:5}{info.max:13.6g}{info.min_positive:13.6g}{finite:8}  {'yes' if info.has_nan else ' - '}  "
                     f"{'yes' if info.has_inf else ' - '}")
    return "\n".join(lines)


def table(name: str) -> str:
    """Rows of eight codes."""
    all_values = values(name)
    lines = []
    for row in range(0, len(all_values), 8):
        lines.append(f"{row:02X}  " + " ".join(f"{v:12.6g}" for v in all_values[row:row + 8]))
    return "\n".join(lines)


def quantized(name: str, numbers: list[float]) -> str:
    """What a group of these numbers becomes by each rule."""
    x = np.array([numbers], np.float32)
    lines = [f"{'rule':20}{'scale':>13}  values back (codes)"]
    for rule, info in jumar_quant.RULES.items():
        codes, scales = jumar_quant.quantize(x, name, rule, (1, 0))
        back = jumar_quant.dequantize(codes, scales, name, (1, 0), cols=len(numbers))[0]
        flat = codes[0] if jumar_quant.FORMATS[name].bits == 8 else np.stack([codes[0] & 15, codes[0] >> 4], -1).reshape(-1)
        power = f" = 2^{round(math.log2(scales[0, 0]))}" if info.is_power_of_two and scales[0, 0] > 0 else ""
        shown = "  ".join(f"{b:.6g} ({c:02X})" for b, c in zip(back, flat, strict=False))
        lines.append(f"{rule:20}{scales[0, 0]:13.6g}  {shown}{power and '   scale' + power}")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="formats", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("format", nargs="?", choices=jumar_quant.FORMATS, metavar="FORMAT", help=", ".join(jumar_quant.FORMATS))
    p.add_argument("--quantize", nargs="+", type=float, metavar="X", help="a group of numbers, quantised by every rule")
    p.add_argument("--svg", type=pathlib.Path, default=pathlib.Path("formats.svg"), help="where the picture goes; default formats.svg here")
    return p


def main(arguments: list[str] | None = None) -> int:
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # `bazel run` starts programs elsewhere
    a = parser().parse_args(arguments)
    if a.quantize and a.format in (None, "e8m0"):
        print("formats: --quantize needs a format other than e8m0, as in: formats e4m3 --quantize 300 0.01", file=sys.stderr)
        return 2
    if a.quantize:
        print(quantized(a.format, a.quantize))
        return 0
    if a.format:
        print(table(a.format))
        return 0
    try:
        a.svg.write_text(formats_picture.picture({name: values(name) for name in jumar_quant.FORMATS}), encoding="utf-8")
    except OSError as error:
        print(f"formats: cannot write {a.svg} ({error.strerror}); give another file with --svg", file=sys.stderr)
        return 2
    print(overview())
    print(f"picture: {a.svg}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
