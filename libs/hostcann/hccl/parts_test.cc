// The parts below the collectives: settings, the handshake's code, the arithmetic.
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/hccl/handshake.h"
#include "libs/hostcann/hccl/reduce.h"
#include "libs/hostcann/hccl/settings.h"

namespace jumar::hostcann {
namespace {

using testing::HasSubstr;

absl::StatusOr<HcclSettings> Parse(const std::map<std::string, std::string>& variables) {
  const Interfaces interfaces = {{"lo", "127.0.0.1"}, {"eth0", "10.0.0.1"}, {"eth1", "10.0.0.2"}, {"ib0", "10.1.0.1"}};
  const auto get = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
  return ParseHcclSettings(get, interfaces);
}

TEST(SettingsTest, Defaults) {
  const auto settings = Parse({});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->connect_timeout, std::chrono::seconds(120));
  EXPECT_EQ(settings->exec_timeout, std::chrono::seconds(1836));
  EXPECT_EQ(settings->host, "127.0.0.1");
}

TEST(SettingsTest, TheAddressIsChosenByNumberOrByInterface) {
  EXPECT_EQ(Parse({{"HCCL_IF_IP", "10.9.9.9"}, {"HCCL_SOCKET_IFNAME", "eth0"}})->host, "10.9.9.9");
  EXPECT_EQ(Parse({{"HCCL_SOCKET_IFNAME", "eth"}})->host, "10.0.0.1");
  EXPECT_EQ(Parse({{"HCCL_SOCKET_IFNAME", "=eth1"}})->host, "10.0.0.2");
  EXPECT_EQ(Parse({{"HCCL_SOCKET_IFNAME", "^lo,eth"}})->host, "10.1.0.1");
  EXPECT_EQ(Parse({{"HCCL_SOCKET_IFNAME", "^=lo,eth0"}})->host, "10.0.0.2");
}

TEST(SettingsTest, WrongValuesAreNamed) {
  EXPECT_THAT(std::string(Parse({{"HCCL_IF_IP", "host"}}).status().message()), HasSubstr("HCCL_IF_IP=host is not an IPv4"));
  EXPECT_THAT(std::string(Parse({{"HCCL_SOCKET_IFNAME", "wlan"}}).status().message()), HasSubstr("lo, eth0, eth1, ib0"));
  EXPECT_THAT(std::string(Parse({{"HCCL_CONNECT_TIMEOUT", "0"}}).status().message()), HasSubstr("from 1 to 7200"));
  EXPECT_THAT(std::string(Parse({{"HCCL_EXEC_TIMEOUT", "-1"}}).status().message()), HasSubstr("HCCL_EXEC_TIMEOUT=-1"));
}

TEST(SipHashTest, IsThePublishedFunction) {
  // Appendix A of the paper: key 00..0f, message 00..0e.
  Token key;
  uint8_t message[15];
  for (uint8_t i = 0; i < 16; ++i) key[i] = i;
  for (uint8_t i = 0; i < 15; ++i) message[i] = i;
  EXPECT_EQ(SipHash(key, message, sizeof(message)), 0xa129ca6149be45e5u);
}

template <typename T>
std::vector<T> Combine(int32_t type, int32_t reduction, const std::vector<std::vector<T>>& inputs) {
  std::vector<const void*> pointers;
  for (const std::vector<T>& input : inputs) pointers.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  Reduce(type, reduction, pointers, out.data(), out.size());
  return out;
}

TEST(ReduceTest, IntegersWrap) {
  EXPECT_EQ(Combine<int8_t>(0, 0, {{127, -128, 5}, {1, -1, 6}}), (std::vector<int8_t>{-128, 127, 11}));
  EXPECT_EQ(Combine<int8_t>(0, 1, {{100, -3}, {3, 5}}), (std::vector<int8_t>{44, -15}));
  using Long = std::numeric_limits<int64_t>;
  EXPECT_EQ(Combine<int64_t>(5, 0, {{Long::max()}, {1}}), (std::vector<int64_t>{Long::min()}));
  EXPECT_EQ(Combine<int32_t>(2, 1, {{65536}, {65536}}), (std::vector<int32_t>{0}));
  EXPECT_EQ(Combine<uint16_t>(8, 1, {{65535}, {65535}}), (std::vector<uint16_t>{1}));
}

TEST(ReduceTest, MaximumAndMinimumKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> most = Combine<float>(4, 2, {{1, nan, 3}, {2, 1, nan}});
  EXPECT_EQ(most[0], 2);
  EXPECT_TRUE(std::isnan(most[1]) && std::isnan(most[2]));
  const std::vector<double> least = Combine<double>(10, 3, {{1, nan}, {2, 1}});
  EXPECT_EQ(least[0], 1);
  EXPECT_TRUE(std::isnan(least[1]));
}

TEST(ReduceTest, HalvesAreRoundedOnce) {
  // bf16 has 8 bits: 256 + 1 + 1 is 258, which has a bf16; rounded after each step it would stay 256.
  constexpr uint16_t k256 = 0x4380, k1 = 0x3f80, k258 = 0x4381;
  EXPECT_EQ(Combine<uint16_t>(11, 0, {{k256}, {k1}, {k1}}), (std::vector<uint16_t>{k258}));
  // fp16 has 11: 2048 + 1 + 1 is 2050.
  constexpr uint16_t h2048 = 0x6800, h1 = 0x3c00, h2050 = 0x6801;
  EXPECT_EQ(Combine<uint16_t>(3, 0, {{h2048}, {h1}, {h1}}), (std::vector<uint16_t>{h2050}));
}

TEST(ReduceTest, TheOutputMayBeAnyInput) {
  std::vector<float> first(5000, 1), second(5000, 2), third(5000, 4);
  const void* pointers[] = {first.data(), second.data(), third.data()};
  Reduce(4, 0, pointers, third.data(), third.size());
  EXPECT_EQ(third, std::vector<float>(5000, 7));
}

}  // namespace
}  // namespace jumar::hostcann
