"""Prints docs/operators.md: every operator of libopapi.so, one row each.

./bazelw run //libs/hostcann/aclnn:operators_page > docs/operators.md
"""

import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from libs.hostcann.aclnn.limits import table
from libs.hostcann.aclnn.page.references import Reference, references

HERE = pathlib.Path(__file__).resolve().parents[1]

# Heading of each source file's part, in the page's order. One that isn't here comes last, under its own name.
FAMILIES = {
    "attention.cc": "Attention",
    "kv_cache.cc": "Paged cache",
    "rope.cc": "Rotary embedding",
    "norm.cc": "Norms",
    "activation.cc": "Gated activations",
    "matmul.cc": "Matrix products",
    "format_cast.cc": "Format casts",
    "moe.cc": "Experts",
    "grouped_matmul.cc": "Grouped products",
    "routing.cc": "Routing to experts",
    "quant.cc": "Quantisation",
    "quant_matmul.cc": "Products of quantised matrices",
    "quant_fused.cc": "Quantised norms and gates",
    "mx_quant.cc": "Quantisation in blocks",
    "kv_norm_rope.cc": "Cache of MLA",
    "mla_prolog.cc": "Pre-work of MLA",
    "sampling.cc": "Sampling",
    "top_k_top_p_sample.cc": "Sampling in one call",
    "random.cc": "Random numbers",
    "pointwise_unary.cc": "One tensor, element by element",
    "pointwise_binary.cc": "Several tensors, element by element",
    "compare.cc": "Comparison, logic, masks",
    "reduce.cc": "Reduction and scans",
    "index.cc": "Index, gather, scatter",
    "sort.cc": "Sorting, searching, counting",
    "shape.cc": "Filling and reshaping",
    "copy.cc": "Copies and casts",
    "convolution.cc": "Convolution",
    "pooling.cc": "Pooling",
    "linalg.cc": "Linear algebra",
    "loss.cc": "Losses",
    "foreach_operators.cc": "Lists of tensors",
}
# What the C call takes for each kind of op.h.
C_TYPES = {
    "In": "T", "Out": "T", "OptIn": "T?", "OptOut": "T?", "Raw": "T", "OptRaw": "T?", "Ret": "T", "Ins": "T[]", "RawIns": "T[]",
    "OptRawIns": "T[]?", "Num": "S", "OptNum": "S?", "Ints": "I", "OptInts": "I?", "I64": "int64", "I32": "int32", "I8": "int8",
    "F64": "double", "F32": "float", "Flag": "bool", "Text": "text", "OptText": "text?", "Type": "dtype", "Nums": "S[]",
    "Bools": "bool[]",
}  # fmt: skip
CHIP = "A2"  # whose limits the page shows

_ARGUMENT = re.compile(r"(\w+)\((\w+)\)")


def c_arguments(arguments: str) -> str:
    """"In(self), Num(alpha), Out(out)" -> "T self, S alpha, T out"."""
    return ", ".join(f"{C_TYPES.get(kind, kind)} {name}" for kind, name in _ARGUMENT.findall(arguments))


def limits_text(page: table.Page | None, limits: Sequence[table.Limit]) -> str:
    """The limits of one operator on CHIP, with arguments that are limited alike taken together."""
    if page is None:
        return "no public page found"
    groups: dict[str, list[str]] = {}
    for limit in limits:
        if CHIP in limit.chips and (text := _limit(limit)):
            groups.setdefault(text, []).append(limit.argument)
    parts = [f"{', '.join(names)}: {text}" for text, names in groups.items()]
    others = {chip for limit in limits if CHIP not in limit.chips for chip in limit.chips}
    if others:
        parts.append(f"other on {', '.join(chip for chip in table.CHIPS if chip in others)}")
    if page.chips and CHIP not in page.chips:
        parts.append(f"only {', '.join(page.chips)} by the page")
    if page.title not in (page.operator, ""):
        parts.append(f"page “{page.title}”".replace("&", "&amp;"))
    return "; ".join(parts) or "none given"


def _limit(limit: table.Limit) -> str:
    texts = [" ".join(limit.dtypes)] if limit.dtypes else []
    if limit.formats and limit.formats != ("ND",):
        texts.append("format " + " or ".join(limit.formats))
    if limit.dims and limit.dims != "0-8":
        texts.append(f"{limit.dims} dims")
    if limit.dims == "0-8":
        texts.append("≤8 dims")
    if limit.values:
        texts.append(limit.values.replace("|", " or ").replace("axis ", "axis of ").replace("axis+1 ", "axis of, or behind, "))
    return ", ".join(texts)


def page_lines(
    rows: Mapping[str, str],
    found: Mapping[str, Reference],
    tests: Mapping[str, str],
    data: Iterable[table.Limit],
    pages: Mapping[str, table.Page],
) -> Iterator[str]:
    """
    Args:
        rows: the arguments of each operator, as op.h lists them.
        found, tests: what it computes with; where it is tested.
        data, pages: the limits.
    """
    limits: dict[str, list[table.Limit]] = {}
    for limit in data:
        limits.setdefault(limit.operator, []).append(limit)
    yield "# Operators of hostcann\n"
    yield f"{len(rows)} operators of `libopapi.so`; {sum(name in pages for name in rows)} have a public page, whose limits strict mode checks.\n"
    yield from _INTRODUCTION.strip().splitlines()
    order = {file: at for at, file in enumerate(FAMILIES)}
    for file in sorted({found[name].file for name in rows}, key=lambda file: (order.get(file, len(order)), file)):
        mine = [name for name in rows if found[name].file == file]
        yield f"\n## {FAMILIES.get(file, file)} ({len(mine)})\n"
        yield f"[`{file}`](../libs/hostcann/aclnn/{file})\n"
        yield "| aclnn… | arguments | computes with | limits | test |"
        yield "| --- | --- | --- | --- | --- |"
        for name in mine:
            cells = [
                name.removeprefix("aclnn"),
                c_arguments(rows[name]),
                ", ".join(found[name].names) or "own loops",
                limits_text(pages.get(name), limits.get(name, ())),
                tests[name],
            ]
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


_INTRODUCTION = """
Made by `./bazelw run //libs/hostcann/aclnn:operators_page > docs/operators.md`; a test holds it against the library.

An operator `aclnnX` is two C functions: `aclnnXGetWorkspaceSize(arguments…, uint64_t* workspaceSize, aclOpExecutor** executor)`, then
`aclnnX(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream)`.

- **arguments** of the first. `T` is `aclTensor*`, `T[]` `aclTensorList*`, `S` `aclScalar*`, `I` `aclIntArray*`, `int64` `int64_t`, `text` `const char*`,
  `dtype` `aclDataType`. `?` may be null.
- **computes with**: the functions of ATen on the CPU, or the kernels of this repository (`quant`, `attention`), by which it is defined here.
- **limits**: what CANN's public page says that an argument may be on the A2 family (Ascend910B); names are the page's. Types by their usual short
  names: f32, bf16, i8, u8, c64 (complex), e4m3, e5m2, e8m0 (FP8), hif8, e2m1 (FP4). Formats if others than ND are taken. The data for all families:
  [`limits/`](../libs/hostcann/aclnn/limits). `JUMAR_STRICT=1` refuses a call outside of them with 161002 and names argument, value, limit and page.
- **test**: in `libs/hostcann/aclnn/tests`, and how many more.
"""


def current() -> str:
    """The page of the library as it is built."""
    import coverage_test  # brings torch and the device
    from oracle import TESTS_OF

    rows = {f"aclnn{name}": arguments for name, arguments in coverage_test.operators().items()}
    tests = {}
    for name in rows:
        found = TESTS_OF.get(name.removeprefix("aclnn"), [])
        where = found[0].replace(".", "::") if found else "pointwise_test"
        tests[name] = f"{where} +{len(found) - 1}" if len(found) > 1 else where
    return "\n".join(
        page_lines(
            rows,
            references(sorted(HERE.glob("*.cc"))),
            tests,
            table.limits(sorted(HERE.glob("limits/ops_*.csv"))),
            table.pages(HERE / "limits" / "pages.csv"),
        )
    )


if __name__ == "__main__":
    print(current())
