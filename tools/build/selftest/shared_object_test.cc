#include <dlfcn.h>

#include "gtest/gtest.h"

namespace {

TEST(SharedObjectTest, ExportsWhatItsVersionScriptNamesAndNothingElse) {
  void* library = dlopen("tools/build/selftest/libjumar_selftest.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* sum = reinterpret_cast<int (*)(const int*, int, int*)>(dlsym(library, "jumar_selftest_sum"));
  ASSERT_NE(sum, nullptr) << dlerror();
  const int values[] = {1, 2, 3};
  int out = 0;
  EXPECT_EQ(sum(values, 3, &out), 0);
  EXPECT_EQ(out, 6);
  EXPECT_EQ(dlsym(library, "_ZN3hwy13GetChosenTargetEv"), nullptr);
  EXPECT_EQ(dlsym(library, "_ZN3hwy5AbortEPKciS1_z"), nullptr);
}

}  // namespace
