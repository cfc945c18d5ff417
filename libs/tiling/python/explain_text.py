"""What explain prints of a solution."""

from collections.abc import Iterator

import jumar_tiling

from libs.tiling.python import units


def report(solution: jumar_tiling.Solution) -> str:
    return "\n".join(_lines(solution))


def _lines(solution: jumar_tiling.Solution) -> Iterator[str]:
    spec = solution.spec
    yield f"{solution.solver} on {spec.name}"
    yield "  " + ", ".join(f"{name} {_value(value)}" for name, value in solution.problem.items())
    given = [figure.name for figure in jumar_tiling.figures() if (source := spec.source(figure.name)) and source.title == "given by the caller"]
    if given:
        yield "  given: " + ", ".join(f"{name} = {getattr(spec, name):,}" for name in given)

    yield "\ntiling"
    docs = solution.tiling_docs
    width = max((len(name) for name in docs), default=0)
    for name, value in solution.tiling.items():
        yield f"  {name:<{width}}  {value:>10,}  {docs[name]}"

    yield f"\nbuffers of a core ({solution.core_kind})"
    for line in solution.buffer_map().splitlines():
        yield f"  {line}".rstrip()

    traffic = solution.traffic
    yield "\nbytes, all cores"
    for name, read, written in (
        ("HBM", traffic.hbm_read, traffic.hbm_write),
        ("L2", traffic.l2_read, traffic.l2_write),
    ):
        yield f"  {name:<12} {units.bytes_(read):>11} read, {units.bytes_(written):>11} written"
    for name, moved in (("L1 to L0", traffic.l1_to_l0), ("out of L0C", traffic.l0c_out), ("vector unit", traffic.vector_bytes)):
        if moved:
            yield f"  {name:<12} {units.bytes_(moved):>11}"
    if traffic.cube_macs:
        yield f"  {'cube':<12} {units.count(traffic.cube_macs):>11} multiply-adds"

    yield from _time(solution)


def _time(solution: jumar_tiling.Solution) -> Iterator[str]:
    prediction, bound = solution.prediction, solution.bound
    yield "\ntime"
    ratio = f", {prediction.seconds / bound.seconds:.2f} times the bound" if bound.seconds > 0 else ""
    yield f"  predicted  {units.seconds(prediction.seconds):>9}, limited by {prediction.limit}{ratio}"
    yield f"  bound      {units.seconds(bound.seconds):>9}, by {bound.limit}: no tiling is faster under this model"
    loads = solution.core_seconds
    if loads and sum(loads):
        mean = sum(loads) / len(loads)
        busy = sum(load > 0 for load in loads)
        yield f"  cores      {busy} of {len(loads)} at work, the heaviest has {max(loads) / mean:.2f} times the mean"

    yield "\nutilisation: how long each is busy, of the predicted time"
    rows = [("HBM", prediction.hbm_seconds), ("L2", prediction.l2_seconds)]
    rows += [(name, seconds) for name, seconds in prediction.busy.items() if seconds > 0]
    for name, seconds in rows:
        share = seconds / prediction.seconds if prediction.seconds > 0 else 0
        binds = "  <- binds" if name == prediction.limit else ""
        yield f"  {name:<12} {units.seconds(seconds):>9}  {share:>4.0%} {'#' * round(30 * min(share, 1)):<30}{binds}".rstrip()


def _value(value: int | str | list[int]) -> str:
    if not isinstance(value, list):
        return f"{value:,}" if isinstance(value, int) else value
    if len(set(value)) == 1:
        return f"{value[0]:,}" + (f" x {len(value)}" if len(value) > 1 else "")
    return f"{len(value):,} numbers from {min(value):,} to {max(value):,}"
