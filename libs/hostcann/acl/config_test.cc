#include "libs/hostcann/acl/config.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace jumar::hostcann {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

absl::StatusOr<Config> Parse(std::map<std::string, std::string> env, Machine machine = {.ram_bytes = 24 * kGiB, .cpus = 2}) {
  return ParseConfig([&](const char* name) { return env[name]; }, machine);
}

TEST(ConfigTest, DefaultsToOneDeviceThatFitsTheMachine) {
  const auto config = Parse({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices, 1);
  EXPECT_EQ(config->threads, 2);
  EXPECT_EQ(config->soc->name, "Ascend910B2");
  EXPECT_EQ(config->hbm_bytes, 12 * kGiB);  // half
  EXPECT_EQ(Parse({}, {.ram_bytes = 512 * kGiB, .cpus = 2})->hbm_bytes, 64 * kGiB);
}

TEST(ConfigTest, DevicesShareTheMachine) {
  EXPECT_EQ(Parse({{"JUMAR_DEVICES", "2"}})->hbm_bytes, 6 * kGiB);
}

TEST(ConfigTest, AProcessSeesTheDevicesThatItIsTold) {
  const auto config = Parse({{"JUMAR_DEVICES", "4"}, {"ASCEND_RT_VISIBLE_DEVICES", "3,1"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices, 2);
  EXPECT_EQ(config->hbm_bytes, 3 * kGiB) << "the share is that of one of four";
  for (const char* list : {"4", "0,0", "x", "0,", "-1"}) {
    const auto bad = Parse({{"JUMAR_DEVICES", "4"}, {"ASCEND_RT_VISIBLE_DEVICES", list}});
    EXPECT_THAT(std::string(bad.status().message()), HasSubstr(std::string("ASCEND_RT_VISIBLE_DEVICES=") + list));
  }
}

TEST(ConfigTest, TakesWhatIsSet) {
  const auto config = Parse(
      {{"JUMAR_DEVICES", "4"}, {"JUMAR_SOC", "Ascend910_9391"}, {"JUMAR_HBM_BYTES", "3GiB"}, {"JUMAR_THREADS", "7"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices, 4);
  EXPECT_EQ(config->threads, 7);
  EXPECT_EQ(config->soc->aic_cores, 24);
  EXPECT_EQ(config->vector_cores(), 48);
  EXPECT_EQ(config->hbm_bytes, 3 * kGiB);
  EXPECT_FALSE(config->strict);
  EXPECT_TRUE(Parse({{"JUMAR_STRICT", "1"}})->strict);
}

TEST(ConfigTest, RefusesWhatMakesNoSenseAndNamesIt) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"JUMAR_DEVICES", "0"},
                                                                                    {"JUMAR_DEVICES", "many"},
                                                                                    {"JUMAR_THREADS", "-1"},
                                                                                    {"JUMAR_STRICT", "yes"},
                                                                                    {"JUMAR_SOC", "Ascend1"},
                                                                                    {"JUMAR_HBM_BYTES", "1MiB"},
                                                                                    {"JUMAR_FAULTS", "fail-alloc nth=0"},
                                                                                    {"JUMAR_SCHEDULE_FUZZ", "yes"},
                                                                                    {"JUMAR_TRACE", "/no/such/folder/out.json"},
                                                                                    {"JUMAR_TRACE", "/tmp/"},
                                                                                    {"JUMAR_HBM_BYTES", "lots"}}) {
    const auto config = Parse({{name, value}});
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_THAT(std::string(config.status().message()), testing::AllOf(HasSubstr(name), HasSubstr(value)));
  }
  EXPECT_THAT(std::string(Parse({{"JUMAR_SOC", "x"}}).status().message()), HasSubstr("Ascend910B2"));
}

TEST(ConfigTest, EveryChipIsUsableOrSaysWhatIsNotKnown) {
  int usable = 0;
  for (const tiling::HardwareSpec& spec : tiling::AllHardware()) {
    SCOPED_TRACE(spec.name);
    const auto config = Parse({{"JUMAR_SOC", std::string(spec.name)}});
    if (spec.aic_cores != tiling::kUnknown && spec.memory_bytes != tiling::kUnknown) {
      ASSERT_TRUE(config.ok()) << config.status();
      EXPECT_EQ(config->soc, &spec);
      EXPECT_GT(config->vector_cores(), 0);
      ++usable;
    } else {
      EXPECT_THAT(std::string(config.status().message()),
                  testing::AllOf(HasSubstr(std::string(spec.name)), HasSubstr("is not public"), HasSubstr("usable are Ascend910B2, ")));
    }
  }
  EXPECT_GE(usable, 7);
  EXPECT_EQ(Parse({{"JUMAR_SOC", "ascend310p3"}})->vector_cores(), 8) << "each core is both";
  EXPECT_THAT(std::string(Parse({{"JUMAR_SOC", "Ascend910B9"}}).status().message()), HasSubstr("did you mean Ascend910B1, Ascend910B2"));
}

TEST(ConfigTest, WarnsOfVariablesThatDoNothing) {
  const std::vector<std::string_view> names = {"PATH", "JUMAR_DEVICE", "JUMAR_DEVICES", "JUMAR_BACKEND", "JUMAR_COLOUR", "ASCEND_RT_VISIBLE_DEVICE"};
  EXPECT_THAT(UnknownVariables(names), testing::ElementsAre("the variable JUMAR_DEVICE is not known and does nothing; did you mean JUMAR_DEVICES?",
                                                            "the variable JUMAR_COLOUR is not known and does nothing"));
}

TEST(ConfigTest, DescribesItself) {
  const Machine machine = {.ram_bytes = 24 * kGiB, .cpus = 2};
  const std::vector<std::string_view> names = {"JUMAR_TREADS"};
  const auto describe = [&](std::map<std::string, std::string> env) {
    return DescribeConfig([&](const char* name) { return env[name]; }, machine, names);
  };
  EXPECT_THAT(describe({{"JUMAR_HBM_BYTES", "3G"}}),
              testing::AllOf(HasSubstr(R"({"error": "", "warnings": ["the variable JUMAR_TREADS is not known)"),
                             HasSubstr(R"({"name": "JUMAR_DEVICES", "meaning": "simulated devices, 1 to 16", "default": "1", "value": "1", "source": "default"})"),
                             HasSubstr(R"("value": "3GiB", "source": "environment"})")));
  EXPECT_THAT(describe({{"JUMAR_THREADS", "\"many\""}}),
              testing::AllOf(HasSubstr(R"({"error": "JUMAR_THREADS=\"many\" is not)"), HasSubstr(R"("value": "\"many\"", "source": "environment"})")));
  for (const Variable& variable : Variables()) EXPECT_THAT(describe({}), HasSubstr(variable.name));
}

TEST(ParseBytesTest, KnowsUnits) {
  EXPECT_EQ(*ParseBytes("8589934592"), 8 * kGiB);
  for (const char* text : {"8G", "8g", "8GiB", "8 GiB", "8GB", "8192M"}) EXPECT_EQ(*ParseBytes(text), 8 * kGiB) << text;
  EXPECT_EQ(*ParseBytes("1T"), 1024 * kGiB);
  for (const char* text : {"", "G", "8X", "8GiBs", "-1", "1.5G", "99999999999T"}) EXPECT_FALSE(ParseBytes(text).ok()) << text;
}

TEST(ThisMachineTest, HasMemoryAndCpus) {
  EXPECT_GT(ThisMachine().ram_bytes, 0u);
  EXPECT_GE(ThisMachine().cpus, 1);
}

}  // namespace
}  // namespace jumar::hostcann
