import pytest

from tools.build.selftest import _sum


def test_extension_adds():
    assert _sum.sum([1, 2, 3]) == 6


def test_extension_raises_the_status_as_value_error():
    with pytest.raises(ValueError, match="exceeds int32"):
        _sum.sum([2**31 - 1, 1])
