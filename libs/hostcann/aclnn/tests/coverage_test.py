"""Every operator of libopapi.so has a test that launches it, and the list of operators is in order."""

import attention_test  # noqa: F401  (importing a test module registers what it covers)
import compact_test  # noqa: F401
import foreach_test  # noqa: F401
import format_test  # noqa: F401
import fused_test  # noqa: F401
import grouped_test  # noqa: F401
import hyper_connections_test  # noqa: F401
import image_test  # noqa: F401
import int4_test  # noqa: F401
import mla_prolog_test  # noqa: F401
import moe_test  # noqa: F401
import pointwise_test  # noqa: F401
import quant_test  # noqa: F401
import random_test  # noqa: F401
import reduce_index_test  # noqa: F401
import serving_test  # noqa: F401
import sparse_attention_test  # noqa: F401
from oracle import COVERED, opapi


def operators() -> dict[str, str]:
    lines = opapi().JumarAclnnOperators().decode().splitlines()
    return {line.split("(", 1)[0].removeprefix("aclnn"): line.split("(", 1)[1].removesuffix(")") for line in lines}


# Covered from inside of parametrised tests, whose decorators run only with the tests.
def inner() -> set[str]:
    names = set(pointwise_test.UNARY_EXACT) | set(pointwise_test.BINARY) | set(pointwise_test.ACTIVATIONS)
    names |= {prefix + name for name in pointwise_test.UNARY for prefix in ("", "Inplace")}
    return names | {f"{prefix}{name}{kind}" for name in pointwise_test.COMPARE for prefix in ("", "Inplace") for kind in ("Tensor", "Scalar")}


def test_every_operator_has_a_test():
    missing = set(operators()) - COVERED - inner()
    assert not missing, f"no test covers {sorted(missing)}"


def test_the_list_is_sorted_and_complete():
    names = [line.split("(")[0] for line in opapi().JumarAclnnOperators().decode().splitlines()]
    assert names == sorted(names) and len(names) == len(set(names)) and len(names) > 250
    assert operators()["Add"] == "In(self), In(other), Num(alpha), Out(out)"


def test_near_names():
    near = lambda name: opapi().JumarAclnnNearNames(name.encode()).decode().split(", ")  # noqa: E731
    assert near("RmsNrm")[0] == "aclnnRmsNorm"
    assert "aclnnSoftmax" in near("aclnnSoftmaxV2")
    assert near("QuantumChromodynamics") == [""]
