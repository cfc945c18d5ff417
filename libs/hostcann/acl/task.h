// A move-only callable with room for 48 bytes inside, so that queueing a copy or an event costs no allocation.
#ifndef LIBS_HOSTCANN_ACL_TASK_H_
#define LIBS_HOSTCANN_ACL_TASK_H_

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace jumar::hostcann {

class SmallTask {
 public:
  SmallTask() = default;
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, SmallTask>>>
  SmallTask(F&& f) {  // NOLINT: any callable is a task
    using Fn = std::decay_t<F>;
    if constexpr (sizeof(Fn) <= kInlineBytes && alignof(Fn) <= alignof(std::max_align_t) &&
                  std::is_nothrow_move_constructible_v<Fn>) {
      new (storage_) Fn(std::forward<F>(f));
      ops_ = &kInline<Fn>;
    } else {
      *reinterpret_cast<Fn**>(storage_) = new Fn(std::forward<F>(f));
      ops_ = &kHeap<Fn>;
    }
  }
  SmallTask(SmallTask&& other) noexcept { MoveFrom(other); }
  SmallTask& operator=(SmallTask&& other) noexcept {
    if (this != &other) {
      Reset();
      MoveFrom(other);
    }
    return *this;
  }
  ~SmallTask() { Reset(); }

  void operator()() { ops_->call(storage_); }
  explicit operator bool() const { return ops_ != nullptr; }
  void Reset() {
    if (ops_ != nullptr) std::exchange(ops_, nullptr)->destroy(storage_);
  }

 private:
  static constexpr size_t kInlineBytes = 48;
  struct Ops {
    void (*call)(void*);
    void (*move)(void* from, void* to);  // leaves `from` destroyed
    void (*destroy)(void*);
  };
  template <typename Fn>
  static constexpr Ops kInline = {
      [](void* p) { (*static_cast<Fn*>(p))(); },
      [](void* from, void* to) {
        new (to) Fn(std::move(*static_cast<Fn*>(from)));
        static_cast<Fn*>(from)->~Fn();
      },
      [](void* p) { static_cast<Fn*>(p)->~Fn(); }};
  template <typename Fn>
  static constexpr Ops kHeap = {[](void* p) { (**static_cast<Fn**>(p))(); },
                                [](void* from, void* to) { *static_cast<Fn**>(to) = *static_cast<Fn**>(from); },
                                [](void* p) { delete *static_cast<Fn**>(p); }};

  void MoveFrom(SmallTask& other) noexcept {
    if (other.ops_ != nullptr) {
      other.ops_->move(other.storage_, storage_);
      ops_ = std::exchange(other.ops_, nullptr);
    }
  }

  const Ops* ops_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[kInlineBytes];
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_TASK_H_
