"""The drawing of explain: the tiles, the cores' loads, and the pipeline's first steps."""

import jumar_tiling

from libs.tiling.python import svg, timeline, units

WIDTH = 1040
LEFT, RIGHT = 110, 24
INNER = WIDTH - LEFT - RIGHT
STEPS = 8  # of the timeline
MOST_LINES = 60  # more tiles than this on a stretch aren't drawn one by one


def draw(solution: jumar_tiling.Solution) -> str:
    pipes = timeline.pipes_used(solution.slowest)
    plane = _plane(solution)
    tiles_height = 380 if plane else 210
    height = 64 + tiles_height + 250 + 90 + 30 * len(pipes)
    drawing = svg.Drawing(WIDTH, height)
    prediction, bound = solution.prediction, solution.bound
    drawing.text(LEFT, 28, f"{solution.solver} on {solution.spec.name}", 19, bold=True)
    summary = f"predicted {units.seconds(prediction.seconds)}, limited by {prediction.limit}"
    drawing.text(LEFT, 48, f"{summary}; no tiling beats {units.seconds(bound.seconds)} ({bound.limit})", 13, fill=svg.FAINT)
    top = 64
    if plane:
        _tiles_of_plane(drawing, top, solution, *plane)
    else:
        _tiles_of_line(drawing, top, solution)
    top += tiles_height
    _loads(drawing, top, solution)
    _pipeline(drawing, top + 250, solution, pipes)
    return drawing.svg()


def _plane(solution: jumar_tiling.Solution) -> tuple[int, int] | None:
    """The two axes to draw: those that most cores share, where there is more than one axis."""
    if len(solution.axes) < 2 or not solution.shares:
        return None
    parts = [len({share.range[axis][0] for share in solution.shares}) for axis in range(len(solution.axes))]
    first, second = sorted(sorted(range(len(parts)), key=lambda axis: -parts[axis])[:2])
    return first, second


def _heading(drawing: svg.Drawing, top: float, title: str, note: str) -> None:
    drawing.line(LEFT, top + 2, WIDTH - RIGHT, top + 2, svg.GRID)
    drawing.text(LEFT, top + 22, title, 15, bold=True)
    drawing.text(LEFT, top + 39, note, 12, fill=svg.FAINT)


def _tiles_of_plane(drawing: svg.Drawing, top: float, solution: jumar_tiling.Solution, down: int, across: int) -> None:
    rows, columns = solution.axes[down], solution.axes[across]
    others = [axis for at, axis in enumerate(solution.axes) if at not in (down, across)]
    note = f"{rows.name} down, {columns.name} across; a rectangle is a core's part, its number in it; in core 0's, the tiles of {rows.tile:,} x {columns.tile:,}"
    if others:
        note += "; " + ", ".join(f"along {axis.name} ({axis.extent:,}) in steps of {axis.tile:,}" for axis in others)
    _heading(drawing, top, "Tiles", note)
    y0, height = top + 62, 270
    x_scale, y_scale = INNER / columns.extent, height / rows.extent
    for share in reversed(solution.shares):  # of cores that differ along another axis, the first is seen
        (a, b), (c, d) = share.range[down], share.range[across]
        x, y, w, h = LEFT + c * x_scale, y0 + a * y_scale, (d - c) * x_scale, (b - a) * y_scale
        title = ", ".join(f"{axis.name} {begin:,} to {end:,}" for axis, (begin, end) in zip(solution.axes, share.range, strict=True))
        drawing.rect(x, y, w, h, svg.tint(share.core), "white", f"core {share.core}: {title}")
        if w > 22 and h > 14:
            drawing.text(x + w / 2, y + h / 2 + 4, str(share.core), 12, "middle")
    (a, b), (c, d) = solution.shares[0].range[down], solution.shares[0].range[across]
    for begin, end, tile, vertical in ((c, d, columns.tile, True), (a, b, rows.tile, False)):
        cuts = range(begin + tile, end, tile)
        for cut in cuts if len(cuts) <= MOST_LINES else ():
            if vertical:
                drawing.line(LEFT + cut * x_scale, y0 + a * y_scale, LEFT + cut * x_scale, y0 + b * y_scale, svg.INK, 0.6, "3 2")
            else:
                drawing.line(LEFT + c * x_scale, y0 + cut * y_scale, LEFT + d * x_scale, y0 + cut * y_scale, svg.INK, 0.6, "3 2")
    drawing.rect(LEFT, y0, INNER, height, "none", svg.INK)
    drawing.text(LEFT - 8, y0 + 10, "0", 12, "end", svg.FAINT)
    drawing.text(LEFT - 8, y0 + height, f"{rows.name} = {rows.extent:,}", 12, "end", svg.FAINT)
    drawing.text(WIDTH - RIGHT, y0 + height + 17, f"{columns.name} = {columns.extent:,}", 12, "end", svg.FAINT)


def _tiles_of_line(drawing: svg.Drawing, top: float, solution: jumar_tiling.Solution) -> None:
    if not solution.axes or not solution.shares:
        return
    axis = solution.axes[0]
    _heading(drawing, top, "Tiles", f"{axis.name}: {axis.extent:,}, dealt out to {len(solution.shares)} cores")
    y0, scale = top + 56, INNER / axis.extent
    for share in solution.shares:
        begin, end = share.range[0]
        x, width = LEFT + begin * scale, (end - begin) * scale
        drawing.rect(x, y0, width, 44, svg.tint(share.core), "white", f"core {share.core}: {begin:,} to {end:,}")
        if width > 20:
            drawing.text(x + width / 2, y0 + 27, str(share.core), 12, "middle")
    drawing.text(LEFT - 8, y0 + 27, "all cores", 12, "end")
    drawing.text(LEFT, y0 + 59, "0", 12, "start", svg.FAINT)
    drawing.text(WIDTH - RIGHT, y0 + 59, f"{axis.extent:,}", 12, "end", svg.FAINT)

    begin, end = solution.shares[0].range[0]
    steps = -(-(end - begin) // axis.tile)
    shown = min(steps, MOST_LINES)
    extent = min(end - begin, shown * axis.tile)
    y1 = y0 + 74
    drawing.text(LEFT - 8, y1 + 25, f"core {solution.shares[0].core}", 12, "end")
    drawing.rect(LEFT, y1, INNER, 38, svg.tint(solution.shares[0].core), "white")
    for step in range(1, shown):
        x = LEFT + INNER * step * axis.tile / extent
        drawing.line(x, y1, x, y1 + 38, svg.INK, 0.6, "3 2")
    label = f"{steps:,} step{'s' if steps > 1 else ''} of {axis.tile:,}" + (f", the first {shown} drawn" if shown < steps else "")
    drawing.text(WIDTH - RIGHT, y1 + 54, label, 12, "end", svg.FAINT)
    drawing.text(LEFT, y1 + 54, ", ".join(f"{name} {value:,}" for name, value in list(solution.tiling.items())[:6]), 12, fill=svg.FAINT)


def _loads(drawing: svg.Drawing, top: float, solution: jumar_tiling.Solution) -> None:
    loads = solution.core_seconds
    if not loads:
        return
    heaviest, mean = max(loads), sum(loads) / len(loads)
    idle = sum(load == 0 for load in loads)
    note = f"each {solution.core_kind} core's part of the work; the heaviest has {heaviest / mean if mean else 0:.2f} times the mean"
    _heading(drawing, top, "Core loads", note + (f"; {idle} of {len(loads)} idle" if idle else ""))
    y0, height = top + 60, 140
    limit = heaviest * 1.1 or 1.0
    for value in svg.ticks(limit, 4):
        y = y0 + height * (1 - value / limit)
        drawing.line(LEFT, y, WIDTH - RIGHT, y, svg.GRID)
        drawing.text(LEFT - 8, y + 4, units.axis_seconds(value, limit), 12, "end", svg.FAINT)
    pitch = INNER / len(loads)
    every = max(1, round(26 / pitch))
    for core, load in enumerate(loads):
        x, bar = LEFT + core * pitch, height * load / limit
        drawing.rect(x + pitch * 0.12, y0 + height - bar, pitch * 0.76, bar, svg.tint(core), title=f"core {core}: {units.seconds(load)}")
        if core % every == 0:
            drawing.text(x + pitch / 2, y0 + height + 16, str(core), 11, "middle", svg.FAINT)
    y = y0 + height * (1 - mean / limit)
    drawing.line(LEFT, y, WIDTH - RIGHT, y, svg.INK, 1, "6 4")
    drawing.text(WIDTH - RIGHT, y0 + height + 32, f"core; dashed: the mean, {units.seconds(mean)}", 12, "end", svg.FAINT)


def _pipeline(drawing: svg.Drawing, top: float, solution: jumar_tiling.Solution, pipes: list[timeline.PipeUse]) -> None:
    work = solution.slowest
    intervals = timeline.first_steps(work, STEPS)
    if not intervals:
        return
    shown = min(STEPS, work.steps)
    _heading(drawing, top, "Pipeline", f"the first {shown:,} of the slowest core's {work.steps:,} steps, with two copies of each buffer; numbers are steps")
    end = max(interval.end for interval in intervals)
    y0, row = top + 54, 30
    bottom = y0 + row * len(pipes)
    for value in svg.ticks(end, 8):
        x = LEFT + INNER * value / end
        drawing.line(x, y0, x, bottom, svg.GRID)
        if x < WIDTH - RIGHT - 30:
            drawing.text(x, bottom + 16, units.axis_seconds(value, end), 11, "middle", svg.FAINT)
    for at, pipe in enumerate(pipes):
        drawing.text(LEFT - 8, y0 + row * at + 19, pipe.name, 12, "end")
        if pipe.every > shown:
            drawing.text(LEFT + 6, y0 + row * at + 19, f"every {pipe.every:,} steps, {units.seconds(pipe.seconds)}", 11, fill=svg.FAINT)
    rows = {pipe.name: at for at, pipe in enumerate(pipes)}
    for interval in intervals:
        x, width = LEFT + INNER * interval.begin / end, INNER * (interval.end - interval.begin) / end
        y = y0 + row * rows[interval.pipe] + 4
        title = f"{interval.pipe}, step {interval.step}: {units.seconds(interval.begin)} to {units.seconds(interval.end)}"
        drawing.rect(x, y, width, row - 8, svg.tint(interval.step), "white", title)
        if width > 14:
            drawing.text(x + width / 2, y + 15, str(interval.step), 11, "middle")
