// What each collective computes, on 1, 2, 3 and 5 ranks, with lengths around the border between the one-exchange and the two-exchange way.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/hccl/test_util.h"

namespace jumar::hostcann {
namespace {

constexpr int32_t kInt32 = 2, kFp32 = 4, kInt64 = 5;
constexpr int32_t kSum = 0, kMaximum = 2;

std::vector<int32_t> Mine(uint32_t rank, uint64_t count) {
  std::vector<int32_t> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<int32_t>((rank + 1) * 1000003 + i * 7);
  return values;
}

std::vector<int32_t> Total(uint32_t ranks, uint64_t count) {
  std::vector<int32_t> total(count);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const std::vector<int32_t> mine = Mine(rank, count);
    for (uint64_t i = 0; i < count; ++i) total[i] += mine[i];
  }
  return total;
}

// More elements than one part has, which only few ranks exchange: sanitizers make it slow.
uint64_t Long(uint32_t ranks) { return ranks == 2 ? 530001 : 50001; }

class CollectiveTest : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveTest, testing::Values(1, 2, 3, 5));

TEST_P(CollectiveTest, AllReduceOfEveryLength) {
  RunRanks(GetParam(), [](Rank& my) {
    for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, uint64_t{32768}, uint64_t{32769}, Long(my.ranks)}) {
      Values<int32_t> in(Mine(my.rank, count)), out(std::vector<int32_t>(count, -1));
      ASSERT_HCCL_OK(HcclAllReduce(in.get(), out.get(), count, kInt32, kSum, my.comm, my.stream));
      ASSERT_HCCL_OK(HcclAllReduce(in.get(), in.get(), count, kInt32, kSum, my.comm, my.stream)) << "in place";
      my.Wait();
      ASSERT_EQ(out.Read(), Total(my.ranks, count)) << count;
      ASSERT_EQ(in.Read(), Total(my.ranks, count)) << count;
    }
  });
}

TEST_P(CollectiveTest, EveryRankHasTheSameBits) {
  // The sum depends on the order: 1e8 swallows what comes after it, not what was added before.
  std::vector<std::vector<float>> results(GetParam());
  RunRanks(GetParam(), [&](Rank& my) {
    for (const uint64_t count : {uint64_t{100}, uint64_t{100000}}) {
      std::vector<float> values(count);
      for (uint64_t i = 0; i < count; ++i) values[i] = (i + my.rank) % 3 == 0 ? 1e8f : 1.0f / static_cast<float>(i + my.rank + 1);
      Values<float> buffer(values);
      ASSERT_HCCL_OK(HcclAllReduce(buffer.get(), buffer.get(), count, kFp32, kSum, my.comm, my.stream));
      my.Wait();
      const std::vector<float> got = buffer.Read();
      results[my.rank].insert(results[my.rank].end(), got.begin(), got.end());
    }
  });
  for (const std::vector<float>& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

TEST_P(CollectiveTest, ReduceBroadcastScatter) {
  RunRanks(GetParam(), [](Rank& my) {
    const uint32_t root = my.ranks - 1;
    for (const uint64_t count : {uint64_t{0}, uint64_t{5}, Long(my.ranks)}) {
      Values<int32_t> in(Mine(my.rank, count)), out(std::vector<int32_t>(count, -1));
      ASSERT_HCCL_OK(HcclReduce(in.get(), out.get(), count, kInt32, kSum, root, my.comm, my.stream));
      my.Wait();
      ASSERT_EQ(out.Read(), my.rank == root ? Total(my.ranks, count) : std::vector<int32_t>(count, -1));
      ASSERT_HCCL_OK(HcclBroadcast(out.get(), count, kInt32, root, my.comm, my.stream));
      my.Wait();
      ASSERT_EQ(out.Read(), Total(my.ranks, count));
      Values<int32_t> all(Mine(7, count * my.ranks));
      ASSERT_HCCL_OK(HcclScatter(all.get(), out.get(), count, kInt32, root, my.comm, my.stream));
      my.Wait();
      const std::vector<int32_t> expected = all.Read();
      ASSERT_EQ(out.Read(), std::vector<int32_t>(expected.begin() + my.rank * count, expected.begin() + (my.rank + 1) * count));
    }
  });
}

TEST_P(CollectiveTest, ReduceScatterAndAllGatherUndoEachOther) {
  RunRanks(GetParam(), [](Rank& my) {
    for (const uint64_t count : {uint64_t{1}, uint64_t{999}, Long(my.ranks)}) {
      Values<int32_t> in(Mine(my.rank, count * my.ranks)), part(std::vector<int32_t>(count, -1));
      Values<int32_t> all(std::vector<int32_t>(count * my.ranks, -1));
      ASSERT_HCCL_OK(HcclReduceScatter(in.get(), part.get(), count, kInt32, kSum, my.comm, my.stream));
      ASSERT_HCCL_OK(HcclAllGather(part.get(), all.get(), count, kInt32, my.comm, my.stream));
      // In place: a rank's part stands where it belongs already.
      ASSERT_HCCL_OK(HcclReduceScatter(in.get(), in.get() + my.rank * count, count, kInt32, kSum, my.comm, my.stream));
      ASSERT_HCCL_OK(HcclAllGather(in.get() + my.rank * count, in.get(), count, kInt32, my.comm, my.stream));
      my.Wait();
      ASSERT_EQ(all.Read(), Total(my.ranks, count * my.ranks));
      ASSERT_EQ(in.Read(), Total(my.ranks, count * my.ranks));
    }
  });
}

TEST_P(CollectiveTest, PartsOfDifferentLengths) {
  RunRanks(GetParam(), [](Rank& my) {
    // Rank r has r times as many elements as rank 1, rank 0 none, with a gap before each part.
    std::vector<uint64_t> counts(my.ranks), offsets(my.ranks);
    uint64_t length = 0;
    for (uint32_t rank = 0; rank < my.ranks; ++rank) {
      offsets[rank] = length + 1;
      counts[rank] = rank * Long(my.ranks);
      length = offsets[rank] + counts[rank];
    }
    const uint64_t count = counts[my.rank];
    Values<int32_t> in(Mine(my.rank, length)), part(std::vector<int32_t>(count, -1)), all(std::vector<int32_t>(length, -1));
    ASSERT_HCCL_OK(HcclReduceScatterV(in.get(), counts.data(), offsets.data(), part.get(), count, kInt32, kSum, my.comm, my.stream));
    ASSERT_HCCL_OK(HcclAllGatherV(part.get(), count, all.get(), counts.data(), offsets.data(), kInt32, my.comm, my.stream));
    std::fill(counts.begin(), counts.end(), 0);  // the task owns what it was told
    my.Wait();
    std::vector<int32_t> expected = Total(my.ranks, length);
    for (uint32_t rank = 0; rank < my.ranks; ++rank) expected[offsets[rank] - 1] = -1;
    ASSERT_EQ(all.Read(), expected);
  });
}

TEST_P(CollectiveTest, AllToAllInThreeForms) {
  RunRanks(GetParam(), [](Rank& my) {
    const uint32_t n = my.ranks;
    // Rank i sends i + 2j + 1 elements, each 100i + j, to rank j.
    std::vector<uint64_t> matrix(n * n), sends(n), send_offsets(n), receives(n), receive_offsets(n);
    std::vector<int64_t> values, expected;
    for (uint32_t i = 0; i < n; ++i) {
      for (uint32_t j = 0; j < n; ++j) matrix[i * n + j] = i + 2 * j + 1;
    }
    for (uint32_t peer = 0; peer < n; ++peer) {
      sends[peer] = matrix[my.rank * n + peer];
      send_offsets[peer] = values.size();
      values.insert(values.end(), sends[peer], 100 * my.rank + peer);
      receives[peer] = matrix[peer * n + my.rank];
      receive_offsets[peer] = expected.size();
      expected.insert(expected.end(), receives[peer], 100 * peer + my.rank);
    }
    Values<int64_t> in(values), v(std::vector<int64_t>(expected.size())), vc(std::vector<int64_t>(expected.size()));
    ASSERT_HCCL_OK(HcclAlltoAllV(in.get(), sends.data(), send_offsets.data(), kInt64, v.get(), receives.data(), receive_offsets.data(),
                                 kInt64, my.comm, my.stream));
    ASSERT_HCCL_OK(HcclAlltoAllVC(in.get(), matrix.data(), kInt64, vc.get(), kInt64, my.comm, my.stream));
    std::vector<int64_t> square(n), transposed(n);
    for (uint32_t peer = 0; peer < n; ++peer) square[peer] = 100 * my.rank + peer, transposed[peer] = 100 * peer + my.rank;
    Values<int64_t> even(square), even_out(std::vector<int64_t>(n, 0));
    ASSERT_HCCL_OK(HcclAlltoAll(even.get(), 1, kInt64, even_out.get(), 1, kInt64, my.comm, my.stream));
    my.Wait();
    EXPECT_EQ(v.Read(), expected);
    EXPECT_EQ(vc.Read(), expected);
    EXPECT_EQ(even_out.Read(), transposed);
  });
}

TEST_P(CollectiveTest, MessagesAroundARing) {
  RunRanks(GetParam(), [](Rank& my) {
    const uint32_t next = (my.rank + 1) % my.ranks, previous = (my.rank + my.ranks - 1) % my.ranks;
    const uint64_t count = 200000;  // every rank sends before it receives
    Values<int32_t> out(Mine(my.rank, count)), in(std::vector<int32_t>(count, -1)), again(std::vector<int32_t>(count, -1));
    HcclBatchItem items[] = {{0, out.get(), count, kInt32, next}, {1, in.get(), count, kInt32, previous}};
    ASSERT_HCCL_OK(HcclBatchSendRecv(items, 2, my.comm, my.stream));
    ASSERT_HCCL_OK(HcclGroupStart());
    ASSERT_HCCL_OK(HcclSend(out.get(), count, kInt32, next, my.comm, my.stream));
    ASSERT_HCCL_OK(HcclRecv(again.get(), count, kInt32, previous, my.comm, my.stream));
    ASSERT_HCCL_OK(HcclGroupEnd());
    my.Wait();
    EXPECT_EQ(in.Read(), Mine(previous, count));
    EXPECT_EQ(again.Read(), Mine(previous, count));
  });
}

TEST_P(CollectiveTest, SubCommunicatorsWorkBesideTheirParent) {
  RunRanks(GetParam(), [](Rank& my) {
    std::vector<uint32_t> members;
    for (uint32_t rank = my.rank % 2; rank < my.ranks; rank += 2) members.push_back(rank);
    void* sub = nullptr;
    HcclConfigHead config{};
    std::strcpy(config.name, "halves");
    const auto size = static_cast<uint32_t>(members.size());
    for (int round = 0; round < 2; ++round) {  // the same group may be made again
      ASSERT_HCCL_OK(HcclCreateSubCommConfig(&my.comm, size, members.data(), 77, my.rank / 2, &config, &sub));
      Values<int32_t> one({1}), of_all({1});
      ASSERT_HCCL_OK(HcclAllReduce(one.get(), one.get(), 1, kInt32, kSum, sub, my.stream));
      ASSERT_HCCL_OK(HcclAllReduce(of_all.get(), of_all.get(), 1, kInt32, kSum, my.comm, my.stream));
      my.Wait();
      EXPECT_EQ(one.Read()[0], static_cast<int32_t>(size));
      EXPECT_EQ(of_all.Read()[0], static_cast<int32_t>(my.ranks));
      uint32_t told = 99;
      char name[kHcclNameBytes];
      ASSERT_HCCL_OK(HcclGetRankSize(sub, &told));
      EXPECT_EQ(told, size);
      ASSERT_HCCL_OK(HcclGetRankId(sub, &told));
      EXPECT_EQ(told, my.rank / 2);
      ASSERT_HCCL_OK(HcclGetCommName(sub, name));
      EXPECT_STREQ(name, "halves");
      ASSERT_HCCL_OK(HcclCommDestroy(sub));
    }
  });
}

TEST_P(CollectiveTest, CapturedAndReplayed) {
  RunRanks(GetParam(), [](Rank& my) {
    Values<int32_t> in({0}), out({0});
    void* graph = nullptr;
    ASSERT_ACL_OK(aclmdlRICaptureBegin(my.stream, 1));
    ASSERT_HCCL_OK(HcclAllReduce(in.get(), out.get(), 1, kInt32, kMaximum, my.comm, my.stream));
    ASSERT_HCCL_OK(HcclAllReduce(out.get(), out.get(), 1, kInt32, kSum, my.comm, my.stream));
    ASSERT_ACL_OK(aclmdlRICaptureEnd(my.stream, &graph));
    for (int32_t step = 1; step < 20; ++step) {
      in.Write({step * 10 + static_cast<int32_t>(my.rank)});
      ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, my.stream));
      my.Wait();
      ASSERT_EQ(out.Read()[0], (step * 10 + static_cast<int32_t>(my.ranks) - 1) * static_cast<int32_t>(my.ranks));
    }
    EXPECT_ACL_OK(aclmdlRIDestroy(graph));
  });
}

TEST(InitAllTest, OneCallMakesTheCommunicatorsOfAllDevices) {
  int32_t devices[] = {0, 1};
  void* comms[2] = {};
  void* streams[2] = {};
  ASSERT_HCCL_OK(HcclCommInitAll(2, devices, comms));
  for (int32_t device : devices) {
    ASSERT_ACL_OK(aclrtSetDevice(device));
    ASSERT_ACL_OK(aclrtCreateStream(&streams[device]));
  }
  Values<int32_t> a({3}), b({4});
  // Asynchronous: one thread can start both sides.
  ASSERT_HCCL_OK(HcclAllReduce(a.get(), a.get(), 1, kInt32, kSum, comms[0], streams[0]));
  ASSERT_HCCL_OK(HcclBarrier(comms[0], streams[0]));
  ASSERT_HCCL_OK(HcclAllReduce(b.get(), b.get(), 1, kInt32, kSum, comms[1], streams[1]));
  ASSERT_HCCL_OK(HcclBarrier(comms[1], streams[1]));
  for (int i = 0; i < 2; ++i) {
    ASSERT_ACL_OK(aclrtSynchronizeStream(streams[i]));
    ASSERT_HCCL_OK(HcclCommDestroy(comms[i]));
    EXPECT_ACL_OK(aclrtDestroyStream(streams[i]));
  }
  EXPECT_EQ(a.Read()[0], 7);
  EXPECT_EQ(b.Read()[0], 7);
}

}  // namespace
}  // namespace jumar::hostcann
