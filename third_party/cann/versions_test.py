"""The pin table and the locks that the build installs from agree."""

import pathlib
import re

import pytest

from third_party.cann import versions

LOCKED = {
    name.replace("-", "_"): version
    for lock in ("requirements.lock", "vllm.lock")
    for name, version in re.findall(
        r"^(\S+)==([^\s+]+)", pathlib.Path("third_party/python", lock).read_text(), re.MULTILINE
    )
}


@pytest.mark.parametrize("name", ["torch", "torch_npu", "vllm"])
def test_lock_has_the_release_of_the_table(name):
    assert LOCKED[name] == versions.CANN_RELEASES[versions.CANN_VERSION][name]


def test_no_soc_is_listed_twice():
    socs = [soc for row in versions.CANN_RELEASES.values() for names in row["socs"].values() for soc in names]
    assert len(socs) == len(set(socs))
