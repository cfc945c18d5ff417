"""docs/operators.md is what the generator prints, and the generator reads what it claims to read."""

import pathlib

import pytest

from libs.hostcann.aclnn.limits import table
from libs.hostcann.aclnn.page import operators_page
from libs.hostcann.aclnn.page.references import references

ALL = tuple(table.CHIPS)


def limit(argument, chips=ALL, dtypes=(), formats=("ND",), dims="", values=""):
    return table.Limit("aclnnX", 0, argument, tuple(chips), tuple(dtypes), tuple(formats), dims, values)


def test_the_committed_page_is_current():
    committed = pathlib.Path("docs/operators.md").read_text(encoding="utf-8")
    assert committed == operators_page.current() + "\n", (
        "docs/operators.md is old: ./bazelw run //libs/hostcann/aclnn:operators_page > docs/operators.md"
    )


def test_every_page_fits_the_operator():
    import coverage_test

    pages = table.pages(operators_page.HERE / "limits" / "pages.csv")
    wrong = {
        name: (pages[f"aclnn{name}"].arguments, arguments)
        for name, arguments in coverage_test.operators().items()
        if f"aclnn{name}" in pages and pages[f"aclnn{name}"].arguments not in (-1, arguments.count("("))
    }
    assert not wrong, f"the page has another number of arguments: {wrong}"


def test_arguments():
    assert operators_page.c_arguments("In(self), Num(alpha), OptIn(bias), Out(out)") == "T self, S alpha, T? bias, T out"


def test_limits_that_are_alike_stand_together():
    page = table.Page("aclnnX", 3, ALL, "aclnnX&aclnnInplaceX")
    rows = [
        limit("self", dtypes=("f32", "f16"), dims="0-8"),
        limit("other", dtypes=("f32", "f16"), dims="0-8"),
        limit("weight", ("A2", "A3"), dtypes=("i8",), formats=("ND", "FRACTAL_NZ"), dims="2"),
        limit("weight", ("950", "310P"), dtypes=("i4",)),
        limit("mode", values="0|1"),
    ]
    assert operators_page.limits_text(page, rows) == (
        "self, other: f32 f16, ≤8 dims; weight: i8, format ND or FRACTAL_NZ, 2 dims; mode: 0 or 1; other on 950, 310P; "
        "page “aclnnX&amp;aclnnInplaceX”"
    )
    assert operators_page.limits_text(None, []) == "no public page found"


def test_references_are_read_through_macros_and_functions(tmp_path):
    source = tmp_path / "some.cc"
    source.write_text(
        "#define UNARY(Name, function) \\\n  ACLNN_OP(Name, In(self), Out(out)) { at::function##_out(out, self); }\n"
        "#define BOTH(Name, function) \\\n  UNARY(Name, function) \\\n  ACLNN_OP(Inplace##Name, Out(self)) { at::function##_out(self, self); }\n"
        "BOTH(Abs, abs)\n"
        "// at::comment(x)\n"
        "void Helper(const Tensor& x) {\n  quant::Gemm(x);\n}\n"
        "ACLNN_PLAN(Product, In(self), Out(out)) {\n  return [=] { Helper(self); };\n}\n"
        "ACLNN_OP(Fill, Out(self)) { self.fill_(at::empty(1)); }\n"
    )
    found = {name: reference.names for name, reference in references([source]).items()}
    assert found == {
        "aclnnAbs": ("at::abs",),
        "aclnnInplaceAbs": ("at::abs",),
        "aclnnProduct": ("quant::Gemm",),
        "aclnnFill": ("at::fill",),
    }


def test_an_unknown_name_in_the_data_is_refused(tmp_path):
    file = tmp_path / "ops.csv"
    file.write_text("operator,position,argument,socs,dtypes,formats,dims,values\naclnnX,0,self,,f32 f99,ND,,\n")
    with pytest.raises(ValueError, match="aclnnX self: unknown f99"):
        table.limits([file])
