// For a task that waits for something outside of this process. Exported by libascendcl.so, like runtime.h.
#ifndef LIBS_HOSTCANN_ACL_INTERRUPT_H_
#define LIBS_HOSTCANN_ACL_INTERRUPT_H_

namespace jumar::hostcann {

// True within a task whose stream was aborted: it must look every now and then, and return soon.
bool TaskInterrupted();

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_INTERRUPT_H_
