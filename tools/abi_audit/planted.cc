// A library with planted gaps, which stands for libtorch_npu.so in the test.

extern "C" {
int aclrtPlantedStrong();
__attribute__((weak)) int aclrtPlantedWeak();
int aclrtMalloc(void** pointer, unsigned long bytes, int policy);
extern const char* const kPlantedNames[] = {"aclnnPlanted", "aclnnPlantedGetWorkspaceSize", "HcclAllReduce", "not a name"};

int Planted() {
  void* pointer = nullptr;
  int sum = aclrtPlantedStrong() + aclrtMalloc(&pointer, 1, 0);
  if (aclrtPlantedWeak != nullptr) sum += aclrtPlantedWeak();
  return sum;
}
}
