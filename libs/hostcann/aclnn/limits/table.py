"""The limits of operators as data: reads limits/*.csv."""

import csv
import dataclasses
import pathlib
from collections.abc import Iterable

CHIPS = {"A2": 1, "A3": 2, "950": 4, "310P": 8}
# aclDataType, by the short name in the data.
DTYPES = {
    "f32": 0, "f16": 1, "i8": 2, "i32": 3, "u8": 4, "i16": 6, "u16": 7, "u32": 8, "i64": 9, "u64": 10, "f64": 11, "bool": 12, "str": 13,
    "c64": 16, "c128": 17, "bf16": 27, "i4": 29, "u1": 30, "c32": 33, "hif8": 34, "e5m2": 35, "e4m3": 36, "e8m0": 37, "e3m2": 38,
    "e2m3": 39, "e2m1": 40, "e1m2": 41,
}  # fmt: skip
# aclFormat.
FORMATS = {
    "NCHW": 0, "NHWC": 1, "ND": 2, "NC1HWC0": 3, "FRACTAL_Z": 4, "HWCN": 16, "NDHWC": 27, "FRACTAL_NZ": 29, "NCDHW": 30, "DHWCN": 31,
    "NDC1HWC0": 32, "FRACTAL_Z_3D": 33, "NCL": 47, "FRACTAL_NZ_C0_16": 50, "FRACTAL_NZ_C0_32": 51,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Limit:
    """One row: what one argument may be on some chips (all, if none is named). An empty field limits nothing."""

    operator: str
    position: int
    argument: str
    chips: tuple[str, ...]
    dtypes: tuple[str, ...]
    formats: tuple[str, ...]
    dims: str
    values: str

    def dim_numbers(self) -> list[int]:
        """"2", "1-8" or "0/2/4" as numbers."""
        if "-" in self.dims:
            low, high = map(int, self.dims.split("-"))
            return list(range(low, high + 1))
        return [int(number) for number in self.dims.split("/")] if self.dims else []


@dataclasses.dataclass(frozen=True)
class Page:
    """arguments: their number in the C call, without workspaceSize and executor; -1 if the page doesn't show the call.
    chips: that have the operator, as far as the page says."""

    operator: str
    arguments: int
    chips: tuple[str, ...]
    title: str


def limits(files: Iterable[pathlib.Path]) -> list[Limit]:
    """In order of operator and position. Raises ValueError for a name that isn't known here."""
    found = []
    for file in files:
        for row in _rows(file):
            limit = Limit(
                operator=row["operator"],
                position=int(row["position"]),
                argument=row["argument"],
                chips=tuple(row["socs"].split()) or tuple(CHIPS),
                dtypes=tuple(row["dtypes"].split()),
                formats=tuple(row["formats"].split()),
                dims=row["dims"],
                values=row["values"],
            )
            for names, known in ((limit.chips, CHIPS), (limit.dtypes, DTYPES), (limit.formats, FORMATS)):
                if unknown := set(names) - set(known):
                    raise ValueError(f"{file.name}: {limit.operator} {limit.argument}: unknown {', '.join(sorted(unknown))}")
            found.append(limit)
    return sorted(found, key=lambda limit: (limit.operator, limit.position, limit.chips))


def pages(file: pathlib.Path) -> dict[str, Page]:
    """By operator."""
    return {
        row["operator"]: Page(row["operator"], int(row["arguments"] or -1), tuple(row["socs"].split()), row["page"])
        for row in sorted(_rows(file), key=lambda row: row["operator"])
    }


def _rows(file: pathlib.Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))
