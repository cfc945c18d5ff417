"""What an operator computes with, read off its row in the C++ sources: ATen's functions, and kernels of libs/."""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Iterator

_DEFINE = re.compile(r"^#define (\w+)\(([^)]*)\)((?:.*\\\n)*.*)$", re.M)
_ROW = re.compile(r"\bACLNN_(?:OP|PLAN)\((\w+)")
_FUNCTION = re.compile(r"^(?:template <[^>]*>\n)?(?:\w[\w:<>&*, ]* )[*&]?(?:\w+::)?(\w+)\(", re.M)
_CALL = re.compile(r"\b(at|quant|attention)::(\w+)\(")
_METHOD = re.compile(r"\.([a-z]\w*_)\(")  # of a Tensor, in place
_LOCAL = re.compile(r"(?<![\w:.>])(\w+)\(")
# Making, viewing and asking is not computing.
_PLUMBING = re.compile(
    r"empty\w*|zeros\w*|ones\w*|tensor|from_blob|scalar_tensor|Tensor\w*|IntArrayRef|TensorOptions|Scalar|SmallVector|is\w+Type|SizeOf"
    r"|result_type|promote\w*|toAccumulateType|expand\w*|broadcast\w*|indexing|OptionalIntArrayRef|parallel_for|Scales|ScalesOf|Max|Bits|Per[A-Z]\w*|[A-Z]\w*(?:Args|Shape|Bytes|Type)"
)
_MOST = 3
# Of files whose rows make an object of another file's that computes.
_OF_FILE = {"attention.cc": ("attention::PagedAttention",)}


@dataclasses.dataclass(frozen=True)
class Reference:
    """file: where the operator's row is. names: "at::add", "quant::Gemm"; empty if the row computes on its own."""

    file: str
    names: tuple[str, ...]


def references(files: Iterable[pathlib.Path]) -> dict[str, Reference]:
    """By operator, such as "aclnnAdd"."""
    texts = {}
    for file in files:
        text = file.read_text(encoding="utf-8")
        macros = {name: (parameters, body) for name, parameters, body in _DEFINE.findall(text)}
        texts[file] = _without_directives(_expanded(re.sub(r"//.*", "", _without_directives(text)), macros))
    # Rows plan with functions of other files, too.
    shared = {name: body for text in texts.values() for name, body in _functions(text) if name.startswith("Plan") and body}
    found = {}
    for file, text in texts.items():
        functions = shared | dict(_functions(text))
        for row in _ROW.finditer(text):
            body = _braces(text, row.end())
            names = _OF_FILE.get(file.name, ()) + tuple(_names(body, functions, set()))
            found["aclnn" + row.group(1)] = Reference(file.name, names[:_MOST])
    return found


def _without_directives(text: str) -> str:
    return re.sub(r"^#(?:.*\\\n)*.*$", "", text, flags=re.M)


def _expanded(text: str, macros: dict[str, tuple[str, str]]) -> str:
    """Expands macros that make rows, which stand at the start of a line."""

    def expand(call: re.Match) -> str:
        if call.group(1) not in macros:
            return call.group(0)
        parameters, body = macros[call.group(1)]
        body = body.replace("\\\n", "\n")
        for name, value in zip(parameters.split(","), call.group(2).split(",")):
            body = re.sub(rf"(?:##)?\b{name.strip()}\b(?:##)?", value.strip(), body)
        return "\n".join(line.strip() for line in body.strip().splitlines())

    for _ in range(3):  # macros that use macros
        text = re.sub(r"^(\w+)\(([^()]*)\)$", expand, text, flags=re.M)
    return text


def _functions(text: str) -> Iterator[tuple[str, str]]:
    for head in _FUNCTION.finditer(text):
        yield head.group(1), _braces(text, head.end())


def _braces(text: str, start: int) -> str:
    """The text between the next "{" and its "}"; "" if a declaration ends first."""
    first = text.find("{", start)
    end = text.find(";", start)
    if first < 0 or 0 <= end < first:
        return ""
    depth = 0
    for at in range(first, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[first : at + 1]
    return text[first:]


def _names(body: str, functions: dict[str, str], seen: set[str]) -> Iterator[str]:
    """Names in order, without repetition; of local functions that are called, theirs."""
    for call in re.finditer(rf"{_CALL.pattern}|{_METHOD.pattern}|{_LOCAL.pattern}", body):
        room, name, method, local = call.groups()
        if room or method:
            name = f"{room or 'at'}::{(name or method).removesuffix('_out').rstrip('_')}"
            if not _PLUMBING.fullmatch(name.partition("::")[2]) and name not in seen:
                seen.add(name)
                yield name
        elif local in functions and local not in seen:
            seen.add(local)
            yield from _names(functions[local], functions, seen)
