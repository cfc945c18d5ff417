"""torch.distributed with the backend "hccl" of the unmodified torch_npu, between processes."""

import pytest
from launch import check_ranks, run_ranks


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_collective(ranks):
    check_ranks("all_cases", ranks)


def test_eight_ranks():
    check_ranks("short_cases", 8)


def test_different_collectives_are_an_error_that_names_both():
    ended = run_ranks("mismatch", 2)
    assert all(end.code != 0 for end in ended)
    text = "\n".join(end.text for end in ended)
    assert "the ranks don't call the same collective" in text
    assert "HcclAllReduce (8 x fp32, sum)" in text and "HcclBroadcast (4 x fp32, root 1)" in text


def test_a_killed_rank_is_an_error_of_the_others():
    ended = run_ranks("killed", 3)
    assert ended[2].code == -9
    for end in ended[:2]:
        assert end.code not in (0, -9), end.text[-2000:]
        assert "rank 2 is gone" in end.text or "failed: HcclAllReduce" in end.text, end.text[-2000:]


def test_the_watchdog_ends_a_program_that_waits_for_nothing():
    ended = run_ranks("unattended", 2)
    assert ended[0].code not in (0, -9), ended[0].text[-2000:]
    assert "the watchdog did nothing" not in ended[0].text


def test_faults_on_demand():
    ended = run_ranks("two_collectives", 2, env={"JUMAR_FAULTS": "exit-collective rank=1 nth=2 code=7"})
    assert ended[1].code == 7, ended[1].text[-2000:]
    assert "exit-collective rank=1 nth=2 code=7' ends this process in HcclAllReduce (4 x fp32, sum)" in ended[1].text
    assert ended[0].code not in (0, -9) and "rank 1 is gone" in ended[0].text, ended[0].text[-2000:]
    ended = check_ranks("two_collectives", 2, env={"JUMAR_FAULTS": "corrupt-collective rank=1 nth=2"})
    assert "result [4.0, 4.0, 4.0, 4.0]" in ended[0].text and "result [4.0" not in ended[1].text


def test_a_silent_rank_is_an_error_after_the_timeout():
    ended = run_ranks("silent", 2, env={"HCCL_EXEC_TIMEOUT": "3"})
    assert ended[0].code not in (0, -9), ended[0].text[-2000:]
    assert "no answer in time from rank(s) 1" in ended[0].text
    assert "HCCL_EXEC_TIMEOUT is 3 s" in ended[0].text
    assert ended[1].code != -9


def test_a_rank_that_never_comes_is_named():
    ended = run_ranks("absent", 2, env={"HCCL_CONNECT_TIMEOUT": "3"})
    assert ended[0].code not in (0, -9), ended[0].text[-2000:]
    assert "of 2 ranks, these never came: 1" in ended[0].text
    assert "HCCL_CONNECT_TIMEOUT is 3 s" in ended[0].text
