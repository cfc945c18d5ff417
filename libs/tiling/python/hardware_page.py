"""Prints docs/hardware.md: the table of chips, with the source of each figure.

./bazelw run //libs/tiling:hardware_page > docs/hardware.md
"""

from collections.abc import Iterator, Sequence

import jumar_tiling

# Chips that stand side by side: those of a family.
FAMILIES = {
    "910B (A2)": "A2",
    "910_93 (A3)": "A3",
    "950 (A5)": "A5",
    "310P": "310P",
}
_SCALES = {
    "bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")),
    "bytes/s": ((10**12, "TB/s"), (10**9, "GB/s"), (1, "bytes/s")),
    "Hz": ((10**9, "GHz"), (10**6, "MHz"), (1, "Hz")),
}


def shown(value: int | None, unit: str) -> str:
    """196608, 'bytes' -> '192 KiB'."""
    if value is None:
        return "unknown"
    for scale, name in _SCALES.get(unit, ((1, unit.replace("1/", "per ")),)):
        if value >= scale:
            return f"{value / scale:,.4g} {name}".strip() if value % scale else f"{value // scale:,} {name}".strip()
    return str(value)


def page_lines(chips: Sequence[jumar_tiling.HardwareSpec]) -> Iterator[str]:
    numbers = {source.title: number for number, source in enumerate(jumar_tiling.sources(), 1)}
    yield "# Chips\n"
    yield (
        "What the repository knows about chips: [`libs/tiling/hardware_table.h`](../libs/tiling/hardware_table.h), from which hostcann and the tile "
        "solvers read it. Behind each figure, in brackets, its [source](#sources). A figure for which we found no public source is unknown, and "
        "what needs it says so; [`--set`](../libs/tiling/README.md) gives one.\n"
    )
    yield "Made by `./bazelw run //libs/tiling:hardware_page > docs/hardware.md`; a test holds it against the table.\n"
    for family, architecture in FAMILIES.items():
        mine = [chip for chip in chips if chip.architecture == architecture]
        yield f"## {family}\n"
        common, own = [], []
        for name, unit in [("formats", ""), ("weight_formats", "")] + [(figure.name, figure.unit) for figure in jumar_tiling.figures()]:
            cells = [_cell(chip, name, unit, numbers) for chip in mine]
            if any(getattr(chip, name) for chip in mine):
                (common if len(set(cells)) == 1 else own).append((name, cells))
        yield f"| | {' | '.join(chip.name.removeprefix('Ascend') for chip in mine)} |"
        yield "| --- |" + " --- |" * len(mine)
        for name, cells in own:
            yield f"| `{name}` | {' | '.join(cells)} |"
        yield f"\n| | {'each of them' if len(mine) > 2 else 'both'} |"
        yield "| --- | --- |"
        for name, cells in common:
            yield f"| `{name}` | {cells[0]} |"
        unknown = [f"`{figure.name}`" for figure in jumar_tiling.figures() if all(getattr(chip, figure.name) is None for chip in mine)]
        if unknown:
            yield f"\nUnknown of all of them: {', '.join(unknown)}."
        yield ""
    yield "## This machine\n"
    yield (
        "The row `host` is measured: `jumar_tiling.measure_host()`, or `MeasureHost()` in [`libs/tiling/host.h`](../libs/tiling/host.h), which says what "
        "each figure stands for on a CPU.\n"
    )
    yield "## What the figures are\n"
    yield "| figure | unit | |"
    yield "| --- | --- | --- |"
    for figure in jumar_tiling.figures():
        yield f"| `{figure.name}` | {figure.unit} | {figure.meaning} |"
    yield "\n## Sources\n"
    for source in jumar_tiling.sources():
        where = f" {source.where}." if source.where else ""
        yield f"{numbers[source.title]}. **{source.title}**.{where} {source.says[0].upper()}{source.says[1:]}."


def _cell(chip: jumar_tiling.HardwareSpec, name: str, unit: str, numbers: dict[str, int]) -> str:
    value = getattr(chip, name)
    source = chip.source(name)
    text = ", ".join(value) if name.endswith("formats") else shown(value, unit)
    return f"{text} [{numbers[source.title]}]" if source else text


def current() -> str:
    """The page of the table as it is built."""
    return "\n".join(page_lines(jumar_tiling.all_hardware()))


if __name__ == "__main__":
    print(current())
