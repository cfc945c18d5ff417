// HcclGroupStart and HcclGroupEnd: the calls of a thread between them are submitted together, so that sends and receives can be in any
// order.
#ifndef LIBS_HOSTCANN_HCCL_GROUP_H_
#define LIBS_HOSTCANN_HCCL_GROUP_H_

#include <memory>

#include "libs/hostcann/hccl/communicator.h"
#include "libs/hostcann/hccl/operation.h"

namespace jumar::hostcann {

// Submits the operation, or keeps it until the group of this thread ends. Returns an HCCL code.
int SubmitOrCollect(const std::shared_ptr<Communicator>& communicator, Operation operation, void* stream);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_GROUP_H_
