// What a trace tells of an operator's call: its arguments, and how much it moves and computes. Only used while Tracing().
//
// Bytes: every tensor once, where an operator reads or writes all of it; what the rows of Special in describe.cc say for those that touch
// a part of a large tensor (a cache, a table). Operations: 2·m·n·k of a product, 4·queries·keys·dim per head of an attention (a mask is
// not taken off), none of others.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/aclnn/acl_types.h"

namespace jumar::hostcann::aclnn {

class Description {
 public:
  // `arguments` is that of a Row: "In(self), Num(alpha), Out(out)".
  Description(std::string_view op, std::string_view arguments);

  // The values in the order of the arguments.
  void Add(const aclTensor* tensor);
  void Add(const aclTensorList* list);
  void Add(const aclScalar* scalar);
  void Add(const aclIntArray* array);
  void Add(const char* text);
  void Add(const void* other);
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  void Add(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      AddText(value ? "true" : "false");
    } else if constexpr (std::is_floating_point_v<T>) {
      AddNumber(static_cast<double>(value));
    } else {
      AddInt(static_cast<int64_t>(value));
    }
  }

  std::unique_ptr<const TaskDetails> Finish() const;

 private:
  struct Argument {
    std::string name;
    std::vector<const aclTensor*> tensors = {};
    std::vector<int64_t> ints = {};
    std::string json = {};  // the value
    uint64_t bytes = 0;
  };

  void AddText(std::string json);
  void AddNumber(double value);
  void AddInt(int64_t value);
  Argument& Next();
  const Argument* Find(std::string_view name) const;
  const Argument* FindTensor(std::initializer_list<std::string_view> names) const;  // the first that is given
  uint64_t Bytes() const;
  double Flops() const;
  double ProductFlops() const;
  bool IsAttention() const;
  struct AttentionSize {
    double hidden = 0;  // heads * dim
    double keys = 0;    // of all sequences
    double pairs = 0;   // of a query and a key of its sequence
  };
  AttentionSize SizeOfAttention() const;
  int64_t Int(std::initializer_list<std::string_view> names) const;  // the first that is given and positive, else 1
  std::vector<int64_t> Lengths(std::initializer_list<std::string_view> names, bool cumulative) const;

  const std::string op_;
  std::vector<Argument> arguments_;
  size_t next_ = 0;
};

}  // namespace jumar::hostcann::aclnn
