// The rows of limits/*.csv. limits_table.cc is made by limits/generate_table.py in the build.
#pragma once

#include <span>

#include "libs/hostcann/aclnn/limits.h"

namespace jumar::hostcann::aclnn {

std::span<const Limit> LimitTable();  // in order of op
std::span<const Page> PageTable();    // in order of op

}  // namespace jumar::hostcann::aclnn
