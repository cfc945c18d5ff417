"""Simulated devices follow the parallel sizes, and what the user set stays."""

from types import SimpleNamespace

import pytest

from jumar import devices


def parallel(ranks: int, data_parallel: int = 1) -> SimpleNamespace:
    return SimpleNamespace(local_world_size=ranks, data_parallel_size_local=data_parallel)


def test_one_device_changes_nothing():
    environ: dict[str, str] = {}
    devices.provide(parallel(1), environ)
    assert environ == {}


@pytest.mark.parametrize(("ranks", "data_parallel", "want"), [(2, 1, "2"), (2, 2, "4"), (1, 3, "3")])
def test_each_rank_gets_a_device(ranks: int, data_parallel: int, want: str):
    environ: dict[str, str] = {}
    devices.provide(parallel(ranks, data_parallel), environ)
    assert environ["JUMAR_DEVICES"] == want
    assert environ["RAY_OVERRIDE_RESOURCES"] == f'{{"NPU": {want}}}'


def test_ranks_share_the_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    environ: dict[str, str] = {}
    devices.provide(parallel(4), environ)
    assert environ["JUMAR_THREADS"] == "2"
    environ = {}
    devices.provide(parallel(16), environ)
    assert environ["JUMAR_THREADS"] == "1"


def test_what_the_user_set_stays():
    environ = {"JUMAR_DEVICES": "8", "JUMAR_THREADS": "5"}
    devices.provide(parallel(2), environ)
    assert environ == {"JUMAR_DEVICES": "8", "JUMAR_THREADS": "5", "RAY_OVERRIDE_RESOURCES": '{"NPU": 8}'}
