// Keeps a worker thread from starting an OpenMP team of its own.
#ifndef LIBS_HOSTCANN_ACL_OPENMP_H_
#define LIBS_HOSTCANN_ACL_OPENMP_H_

namespace jumar::hostcann {

// OpenMP loops (ATen's, MKL's) that this thread runs from now on use one thread. Every worker would otherwise own a team as large
// as the machine, and the teams starve each other. Does nothing when no OpenMP runtime is loaded.
void UseOneOpenMpThread();

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_OPENMP_H_
