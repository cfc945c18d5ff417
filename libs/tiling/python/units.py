"""Numbers as people read them."""


_SECONDS = ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def axis_seconds(value: float, limit: float) -> str:
    """As seconds, in the unit that fits an axis up to `limit`."""
    scale, name = next((pair for pair in _SECONDS if limit >= 2 * pair[0]), _SECONDS[-1])
    return f"{value / scale:,.4g} {name}" if value else "0"


def seconds(value: float) -> str:
    """2.1e-05 -> '21 us'."""
    for scale, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:,.3g} {name}" if value < 1000 * scale else f"{value / scale:,.0f} {name}"
    return f"{value / 1e-9:.3g} ns"


def bytes_(value: float) -> str:
    """1572864 -> '1.5 MiB'."""
    for scale, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= scale:
            return f"{value / scale:.4g} {name}"
    return f"{value:.0f} bytes"


def count(value: float) -> str:
    """4.2e12 -> '4.2 T'."""
    for scale, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= scale:
            return f"{value / scale:.4g} {name}"
    return f"{value:,.0f}"
