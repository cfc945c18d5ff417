// What the files of the C interface share.
#ifndef LIBS_HOSTCANN_HCCL_API_H_
#define LIBS_HOSTCANN_HCCL_API_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/hccl/communicator.h"

namespace jumar::hostcann {

// Sets the recent error and returns `code`.
int Fail(int code, const std::string& text);

// The communicator of a handle, or null: then `*code` is what the call returns.
std::shared_ptr<Communicator> FindCommunicator(const char* what, void* comm, int* code);

// What a rank sends to itself must be received in the same operation. If not, false, and the recent error says so.
bool OwnMessagesPair(const Operation& operation, uint32_t rank);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_API_H_
