"""Just enough SVG for the drawings of explain."""

import math
from html import escape

INK = "#1f2933"
FAINT = "#8a94a0"
GRID = "#dde3ea"


def tint(index: int) -> str:
    """Neighbours differ: the hue goes round by the golden angle."""
    return f"hsl({index * 137.5 % 360:.0f}, 55%, 74%)"


class Drawing:
    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, fill: str, stroke: str = "none", title: str = "") -> None:
        hint = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.3):.2f}" height="{height:.2f}" fill="{fill}" stroke="{stroke}" '
            f'stroke-width="0.6">{hint}</rect>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str = INK, width: float = 1, dash: str = "") -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" stroke="{stroke}" stroke-width="{width}"{dashes}/>')

    def text(self, x: float, y: float, text: str, size: int = 12, anchor: str = "start", fill: str = INK, bold: bool = False) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(f'<text x="{x:.2f}" y="{y:.2f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"{weight}>{escape(text)}</text>')

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:.0f} {self.height:.0f}" width="{self.width:.0f}" '
            f'height="{self.height:.0f}" font-family="Helvetica, Arial, sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )


def ticks(limit: float, about: int = 6) -> list[float]:
    """0 and round numbers up to the limit."""
    if limit <= 0:
        return [0.0]
    raw = limit / about
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= raw)
    return [step * index for index in range(int(limit / step + 1e-9) + 1)]
