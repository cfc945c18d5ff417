"""Where formats have their values: a row for each, a mark for each positive value on an axis of powers of two; and how finely."""

from __future__ import annotations

import math

import numpy as np

LEFT, WIDTH, ROW, TOP = 70, 820, 46, 40
LOW, HIGH = -24, 17  # powers of two that the axis shows


def at(value: float) -> float:
    return LEFT + (math.log2(value) - LOW) / (HIGH - LOW) * WIDTH


def picture(formats: dict[str, np.ndarray]) -> str:
    """An SVG: `formats` maps a name to the values of its codes."""
    height = TOP + ROW * len(formats) + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{LEFT + WIDTH + 20}" height="{height}" fill="white"/>',
             f'<text x="{LEFT}" y="20">positive values of each format; a taller mark starts a power of two</text>']
    for power in range(LOW, HIGH + 1, 4):
        x = at(2.0**power)
        parts.append(f'<path d="M{x:.1f} {TOP - 6}V{height - 26}" stroke="#ddd"/>'
                     f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle">2^{power}</text>')
    for i, (name, values) in enumerate(formats.items()):
        base = TOP + ROW * (i + 1) - 12
        parts.append(f'<text x="8" y="{base}">{name}</text>')
        shown = sorted({float(v) for v in values if np.isfinite(v) and 2.0**LOW <= v <= 2.0**HIGH})
        tall = "".join(f"M{at(v):.2f} {base}v-24" for v in shown if math.frexp(v)[0] == 0.5)
        short = "".join(f"M{at(v):.2f} {base}v-14" for v in shown if math.frexp(v)[0] != 0.5)
        parts.append(f'<path d="{tall}" stroke="#1565c0"/><path d="{short}" stroke="#c62828" stroke-width="0.7"/>')
    return "\n".join([*parts, "</svg>", ""])
