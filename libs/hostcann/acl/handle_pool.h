// Opaque handles that can be checked: a stale or foreign pointer is told apart without touching it.
//
// A handle is the address of a slot; slots are never given back to the system and are reused oldest first. Looking up needs no lock:
//   HandlePool<Event> pool;  void* h = pool.Add(std::make_shared<Event>());  std::shared_ptr<Event> e = pool.Get(h);  pool.Remove(h);
#ifndef LIBS_HOSTCANN_ACL_HANDLE_POOL_H_
#define LIBS_HOSTCANN_ACL_HANDLE_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace jumar::hostcann {

template <typename T>
class HandlePool {
 public:
  // Returns null when the pool is full.
  void* Add(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    if (free_.size() < kMinFree && num_chunks_.load(std::memory_order_relaxed) < kMaxChunks) Grow();
    if (free_.empty()) return nullptr;
    Slot* slot = free_.front();
    free_.pop_front();
    ++size_;
    slot->Store(std::move(object));
    return slot;
  }

  std::shared_ptr<T> Get(void* handle) const {
    Slot* slot = Find(handle);
    return slot == nullptr ? nullptr : slot->Load();
  }

  // As Get without a reference: for a caller that may rely on the handle not being removed meanwhile.
  T* Peek(void* handle) const {
    Slot* slot = Find(handle);
    return slot == nullptr ? nullptr : slot->raw.load(std::memory_order_acquire);
  }

  std::shared_ptr<T> Remove(void* handle) {
    Slot* slot = Find(handle);
    if (slot == nullptr) return nullptr;
    std::shared_ptr<T> object = slot->Store(nullptr);
    if (object != nullptr) {
      std::lock_guard lock(mutex_);
      free_.push_back(slot);
      --size_;
    }
    return object;
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return size_;
  }

 private:
  static constexpr size_t kChunk = 512;
  static constexpr size_t kMaxChunks = 1024;
  static constexpr size_t kMinFree = 64;  // slots rest before they are reused

  struct Slot {
    std::atomic<T*> raw{nullptr};
    mutable std::atomic_flag busy = ATOMIC_FLAG_INIT;
    std::shared_ptr<T> object;

    std::shared_ptr<T> Load() const {
      Lock();
      std::shared_ptr<T> copy = object;
      busy.clear(std::memory_order_release);
      return copy;
    }
    std::shared_ptr<T> Store(std::shared_ptr<T> next) {
      Lock();
      raw.store(next.get(), std::memory_order_release);
      std::swap(object, next);
      busy.clear(std::memory_order_release);
      return next;
    }
    void Lock() const {
      while (busy.test_and_set(std::memory_order_acquire)) {
      }
    }
  };

  void Grow() {
    const size_t c = num_chunks_.load(std::memory_order_relaxed);
    chunks_[c] = std::make_unique<Slot[]>(kChunk);
    for (size_t i = 0; i < kChunk; ++i) free_.push_back(&chunks_[c][i]);
    num_chunks_.store(c + 1, std::memory_order_release);
  }

  Slot* Find(void* handle) const {
    const auto address = reinterpret_cast<uintptr_t>(handle);
    const size_t chunks = num_chunks_.load(std::memory_order_acquire);
    for (size_t c = 0; c < chunks; ++c) {
      const uintptr_t offset = address - reinterpret_cast<uintptr_t>(chunks_[c].get());
      if (offset < kChunk * sizeof(Slot)) return offset % sizeof(Slot) == 0 ? static_cast<Slot*>(handle) : nullptr;
    }
    return nullptr;
  }

  mutable std::mutex mutex_;
  std::atomic<size_t> num_chunks_{0};
  std::unique_ptr<Slot[]> chunks_[kMaxChunks];
  std::deque<Slot*> free_;
  size_t size_ = 0;
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_HANDLE_POOL_H_
