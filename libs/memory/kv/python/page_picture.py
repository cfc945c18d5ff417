"""A page of a KV cache as SVG: its sections to scale, then one row of each, with byte offsets."""

from __future__ import annotations

import html
from typing import NamedTuple

WIDTH, LEFT, BAR = 1100, 40, 46
COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1")
TICK_LINES = 3
MAX_ROWS = 256  # that are drawn one by one
PAD_COLOR = "#e6e6e6"


def grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


class Section(NamedTuple):
    """Parts of a page whose bytes alternate: [begin, end) of the page."""

    begin: int
    end: int
    parts: list


def extent(part, block_size: int) -> int:
    chunks = part.row_bytes // part.chunk_bytes
    return (block_size - 1) * part.token_stride + (chunks - 1) * part.chunk_stride + part.chunk_bytes


def sections(layout, plane: int) -> list[Section]:
    """The parts of a plane, grouped where they overlap, in the order of their offsets."""
    found: list[Section] = []
    for part in sorted((p for p in layout.parts if p.plane == plane), key=lambda p: p.offset):
        end = part.offset + extent(part, layout.block_size)
        if found and part.offset < found[-1].end:
            last = found[-1]
            found[-1] = Section(last.begin, max(last.end, end), [*last.parts, part])
        else:
            found.append(Section(part.offset, end, [part]))
    # A row's padding belongs to its section, also behind the last token.
    rounded = []
    for s in found:
        if len(s.parts) > 1 or s.parts[0].row_bytes == s.parts[0].chunk_bytes:
            s = s._replace(end=s.begin + layout.block_size * s.parts[0].token_stride)
        rounded.append(s)
    return rounded


class Drawing:
    def __init__(self) -> None:
        self.items: list[str] = []
        self.y = 14.0

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, color: str = "#222",
             bold: bool = False) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self.items.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-family="sans-serif" font-size="{size}" fill="{color}"{weight}>'
            f"{html.escape(text)}</text>"
        )

    def line(self, text: str, **style) -> None:
        self.y += 18
        self.text(LEFT, self.y, text, **style)

    def rect(self, x: float, width: float, color: str, label: str = "", title: str = "", edge: bool = True) -> None:
        """A box of the bar at self.y; its label only where it fits."""
        stroke = ' stroke="#fff" stroke-width="0.75"' if edge else ""
        self.items.append(
            f'<rect x="{x:.2f}" y="{self.y:.1f}" width="{max(width, 0.5):.2f}" height="{BAR}" fill="{color}"{stroke}>'
            f"<title>{html.escape(title or label)}</title></rect>"
        )
        if len(label) * 7 < width:
            self.text(x + width / 2, self.y + BAR / 2 + 4, label, anchor="middle", color="#222" if color == PAD_COLOR else "#fff")

    def ticks(self, places: list[tuple[float, int]]) -> None:
        """Byte offsets under the bar; a label that would touch the one before goes some lines down, or is left out."""
        ends = [-1e9] * TICK_LINES
        y = self.y + BAR
        for x, value in sorted(set(places)):
            label = grouped(value)
            half = len(label) * 3.4
            self.items.append(f'<path d="M{x:.2f} {y} v5" stroke="#444"/>')
            for row in range(TICK_LINES):
                if x - half > ends[row] + 4:
                    self.text(x, y + 17 + 13 * row, label, anchor="middle", size=11, color="#444")
                    ends[row] = x + half
                    break
        lines = max((row for row in range(TICK_LINES) if ends[row] > 0), default=0)
        self.y = y + 23 + 13 * lines

    def svg(self) -> str:
        height = self.y + 14
        body = "\n".join(self.items)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 2 * LEFT}" height="{height:.0f}">\n'
            f'<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
        )


def draw_page(d: Drawing, layout, plane: int, parts: list[Section], color: dict[str, str]) -> None:
    page = layout.page_bytes[plane]
    scale = WIDTH / page
    names = [" | ".join(p.name for p in s.parts) for s in parts]
    what = ", then ".join(f"{layout.block_size} rows of {name}" for name in names)
    d.line(f"page of plane {plane}: {grouped(page)} bytes, {what}", bold=True)
    d.y += 8
    d.rect(LEFT, WIDTH, PAD_COLOR, title=f"padding: {page - parts[-1].end} bytes at the end")
    marks = [(LEFT + WIDTH, page)]
    for s, name in zip(parts, names):
        marks += [(LEFT + s.begin * scale, s.begin), (LEFT + s.end * scale, s.end)]
        if len(s.parts) > 1:
            if layout.block_size > MAX_ROWS:
                d.rect(LEFT + s.begin * scale, (s.end - s.begin) * scale, color[s.parts[0].name], f"{layout.block_size} rows of {name}")
                continue
            for t in range(layout.block_size):
                for p in s.parts:
                    at = p.offset + t * p.token_stride
                    title = f"{p.name} of token {t}: {p.row_bytes} bytes from {at}"
                    d.rect(LEFT + at * scale, p.row_bytes * scale, color[p.name], title=title, edge=False)
            continue
        p = s.parts[0]
        chunks = p.row_bytes // p.chunk_bytes
        drawn = chunks if chunks <= 64 else 1
        for i in range(drawn):
            width = (s.end - s.begin) / drawn
            label = f"{p.name}" if drawn == 1 else f"{p.name}[{i}]"
            at = s.begin + i * width
            d.rect(LEFT + at * scale, width * scale, color[p.name], label, f"{label}: {width:.0f} bytes from {at:.0f}")
    d.ticks(marks)


def draw_row(d: Drawing, layout, s: Section, color: dict[str, str]) -> None:
    """Token after token, for a chunk with many; part after part, for a section of several parts."""
    stride = s.parts[0].token_stride
    if len(s.parts) == 1:
        p = s.parts[0]
        chunks = p.row_bytes // p.chunk_bytes
        d.line(
            f"{p.name}: {p.row_bytes} bytes of {p.element} per token in {chunks} chunk{'s' if chunks > 1 else ''} of {p.chunk_bytes}"
            + (f", {grouped(p.chunk_stride)} bytes apart" if chunks > 1 else "")
            + f"; chunk 0, tokens {stride} bytes apart:"
        )
        shown = min(layout.block_size, 8)
        width = WIDTH / shown
        d.y += 8
        for t in range(shown):
            x, share = LEFT + t * width, p.chunk_bytes / stride
            d.rect(x, width, PAD_COLOR, title="padding of the row")
            d.rect(x, width * share, color[p.name], f"token {t}", f"token {t}: {p.chunk_bytes} bytes from {s.begin + t * stride}")
        d.ticks([(LEFT + t * width, s.begin + t * stride) for t in range(shown + 1)])
        return
    used = sum(p.row_bytes for p in s.parts)
    d.line(f"row of a token: {stride} bytes" + (f", {stride - used} of them padding:" if stride > used else ":"))
    scale = WIDTH / stride
    d.y += 8
    d.rect(LEFT, WIDTH, PAD_COLOR, title="padding of the row")
    places = [(LEFT, 0), (LEFT + WIDTH, stride)]
    for p in s.parts:
        first = p.offset - s.begin
        label = f"{p.name}: {p.row_bytes} ({p.element})"
        d.rect(LEFT + first * scale, p.row_bytes * scale, color[p.name], label)
        places += [(LEFT + first * scale, first), (LEFT + (first + p.row_bytes) * scale, first + p.row_bytes)]
    d.ticks(sorted(set(places)))


def picture(layout) -> str:
    """SVG of one page of each plane of a jumar_kv.PageLayout."""
    d = Drawing()
    d.line(
        f"{layout.name}: {layout.token_bytes} bytes per token, {grouped(layout.block_bytes)} per block of {layout.block_size} tokens,"
        f" {grouped(layout.padding_bytes)} of them padding",
        size=15, bold=True,
    )
    color = {p.name: COLORS[i % len(COLORS)] for i, p in enumerate(layout.parts)}
    x = LEFT
    d.y += 12
    for p in layout.parts:
        d.items.append(f'<rect x="{x}" y="{d.y:.1f}" width="12" height="12" fill="{color[p.name]}"/>')
        d.text(x + 17, d.y + 11, f"{p.name} ({p.element})")
        x += 40 + 8 * len(f"{p.name} ({p.element})")
    d.items.append(f'<rect x="{x}" y="{d.y:.1f}" width="12" height="12" fill="{PAD_COLOR}"/>')
    d.text(x + 17, d.y + 11, "padding")
    d.y += 18
    for plane in range(len(layout.page_bytes)):
        parts = sections(layout, plane)
        draw_page(d, layout, plane, parts, color)
        for s in parts:
            draw_row(d, layout, s, color)
        d.y += 8
    return d.svg()
