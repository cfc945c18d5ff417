#include "libs/hostcann/acl/openmp.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string>
#include <vector>

namespace jumar::hostcann {
namespace {

// torch loads its runtime privately and under a name of its own (libgomp-<hash>.so.1), so that no global lookup finds it.
int CollectOpenMp(dl_phdr_info* info, size_t, void* data) {
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const std::string file = slash == nullptr ? info->dlpi_name : slash + 1;
  for (const char* stem : {"libgomp", "libomp", "libiomp5"}) {
    if (file.rfind(stem, 0) == 0) static_cast<std::vector<std::string>*>(data)->push_back(info->dlpi_name);
  }
  return 0;
}

}  // namespace

void UseOneOpenMpThread() {
  std::vector<std::string> paths;
  dl_iterate_phdr(&CollectOpenMp, &paths);
  for (const std::string& path : paths) {
    void* library = dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
    if (library == nullptr) continue;
    if (void* symbol = dlsym(library, "omp_set_num_threads")) reinterpret_cast<void (*)(int)>(symbol)(1);
    dlclose(library);  // only the reference that dlopen took
  }
}

}  // namespace jumar::hostcann
