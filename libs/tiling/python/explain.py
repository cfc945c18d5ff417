"""Explains how a problem is tiled for a chip: tiling, buffers, bytes, time and what limits it, and a drawing.

./bazelw run //libs/tiling:explain -- selected_attention --soc ascend910b2 --batch 8 --context 65536
"""

import argparse
import difflib
import os
import pathlib
import sys
import textwrap

import jumar_tiling

from libs.tiling.python import explain_svg, explain_text

EXAMPLE = "./bazelw run //libs/tiling:explain -- selected_attention --soc ascend910b2 --batch 8 --context 65536"
_OPTIONS = ("soc", "set", "svg", "no-svg", "help")


class Wrong(Exception):
    """What the user has to mend."""


def overview() -> str:
    solvers = jumar_tiling.solvers()
    width = max(len(solver.name) for solver in solvers)
    lines = [
        "usage: explain SOLVER [--soc CHIP] [--FIELD VALUE ...] [--set FIGURE=VALUE ...] [--svg FILE | --no-svg]",
        "",
        "How a problem is tiled for a chip: tiling, buffers, bytes, time and what limits it, and a drawing.",
        "",
        "solvers (explain SOLVER --help lists the fields of one):",
        *(f"  {solver.name:<{width}}  {solver.summary}" for solver in solvers),
        "",
        f"example:\n  {EXAMPLE}",
    ]
    return "\n".join(lines)


def fields_help(solver: jumar_tiling.Solver) -> str:
    def shown(field: jumar_tiling.Field) -> str:
        if field.choices:
            allowed = ", ".join(field.choices)
        else:
            allowed = f"{field.min:,} to {field.max:,}" + (", or a list such as 4096,8192x3" if field.is_list else "")
        return f"{field.doc} ({allowed}; default {field.format()})"

    lines = [f"usage: explain {solver.name} [options]", "", f"{solver.summary[0].upper()}{solver.summary[1:]}.", "", "fields:"]
    width = max(len(field.name) for field in solver.fields) + 4
    for field in solver.fields:
        lines += textwrap.wrap(f"  --{field.name:<{width - 2}} {shown(field)}", 110, subsequent_indent=" " * (width + 3))
    lines += [
        "",
        "options:",
        "  --soc CHIP          the chip (default Ascend910B2)",
        "  --set FIGURE=VALUE  another value of a figure of the chip, such as memory_bytes_per_second=1600000000000; may be repeated",
        "  --svg FILE          where to draw (default SOLVER.svg in the folder that you are in)",
        "  --no-svg            don't draw",
        "",
        f"example:\n  {EXAMPLE if solver.name == 'selected_attention' else f'./bazelw run //libs/tiling:explain -- {solver.name}'}",
    ]
    return "\n".join(lines)


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 3, 0.6)
    return f"did you mean --{', --'.join(near)}?" if near else f"allowed are --{', --'.join(known)}"


def parse(solver: jumar_tiling.Solver, arguments: list[str]) -> tuple[argparse.Namespace, dict[str, str]]:
    """The options, and the text given for each field. Raises Wrong."""
    parser = argparse.ArgumentParser(prog=f"explain {solver.name}", add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--soc", default="Ascend910B2")
    parser.add_argument("--set", action="append", default=[], dest="figures")
    parser.add_argument("--svg")
    parser.add_argument("--no-svg", action="store_true")
    try:
        options, rest = parser.parse_known_args(arguments)
    except argparse.ArgumentError as e:
        raise Wrong(str(e)) from None
    names = [field.name for field in solver.fields]
    values: dict[str, str] = {}
    words = iter(rest)
    for word in words:
        if not word.startswith("--"):
            raise Wrong(f'"{word}" stands alone; write --FIELD VALUE. {_near(word, [*names, *_OPTIONS])}')
        name, given, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if name not in names:
            raise Wrong(f'"--{name}" is no field of {solver.name} and no option; {_near(name, [*names, *_OPTIONS])}')
        if not given:
            try:
                value = next(words)
            except StopIteration:
                raise Wrong(f"--{name} lacks its value") from None
        values[name] = value
    return options, values


def chip(options: argparse.Namespace) -> jumar_tiling.HardwareSpec:
    spec = jumar_tiling.measure_host() if options.soc == "host" else jumar_tiling.find_hardware(options.soc)
    for text in options.figures:
        name, _, value = text.partition("=")
        try:
            spec = spec.replace(**{name: int(float(value)) if "e" in value.lower() else int(value)})
        except (ValueError, OverflowError) as e:
            reason = str(e) if "is not positive" in str(e) else f'"{value}" is no whole number'
            raise Wrong(f"--set {text}: {reason}; write FIGURE=VALUE, such as clock_hz=1800000000") from None
    return spec


def svg_path(options: argparse.Namespace, solver: str) -> pathlib.Path | None:
    if options.no_svg:
        return None
    here = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # where the user stands, not Bazel
    return here / (options.svg or f"{solver}.svg")


def explain(arguments: list[str]) -> str:
    """The report. Raises Wrong, and what the bindings raise, for what the user has to mend."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        return overview()
    solver = jumar_tiling.find_solver(arguments[0])
    if any(argument in ("-h", "--help") for argument in arguments[1:]):
        return fields_help(solver)
    options, values = parse(solver, arguments[1:])
    path = svg_path(options, solver.name)
    solution = solver.solve(chip(options), **values)
    report = explain_text.report(solution)
    if path:
        try:
            path.write_text(explain_svg.draw(solution), encoding="utf-8")
        except OSError as e:
            raise Wrong(f"--svg: {path} can't be written: {e.strerror}") from None
        report += f"\n\ndrawing: {path}"
    return report


def main(arguments: list[str]) -> int:
    try:
        print(explain(arguments), flush=True)
    except BrokenPipeError:  # into head, or a pager that was left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (Wrong, ValueError, MemoryError, RuntimeError) as e:
        print(f"explain: {e}", file=sys.stderr)
        return 2
    except KeyError as e:
        print(f"explain: {e.args[0]}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
