// A communicator: a rank's place among others, and the one way by which collectives run.
#ifndef LIBS_HOSTCANN_HCCL_COMMUNICATOR_H_
#define LIBS_HOSTCANN_HCCL_COMMUNICATOR_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/hccl/mesh.h"
#include "libs/hostcann/hccl/operation.h"
#include "libs/hostcann/hccl/rendezvous.h"
#include "libs/hostcann/hccl/settings.h"

namespace jumar::hostcann {

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Options {
    RootInfo root;
    std::shared_ptr<RendezvousStore> store;  // in the process of the root, so that it lives as long
    uint64_t group = 0;
    uint32_t rank = 0;
    uint32_t ranks = 1;
    std::string name;
    HcclSettings settings;
  };
  // Waits for the other ranks.
  static absl::StatusOr<std::shared_ptr<Communicator>> Create(const Options& options);
  // A communicator of some of this one's ranks, which all call it with the same list and the same `id`.
  absl::StatusOr<std::shared_ptr<Communicator>> CreateSub(std::span<const uint32_t> members, uint64_t id, uint32_t rank,
                                                          const std::string& name);

  const std::string& name() const { return options_.name; }
  uint32_t rank() const { return options_.rank; }
  uint32_t ranks() const { return options_.ranks; }

  // Appends the collective to the stream. Returns an ACL code.
  int Submit(Operation operation, void* stream);

  // The code of the failure of a collective, or 0.
  int async_error() const { return async_error_.load(); }
  // And what it says. Any thread.
  std::string async_error_text() const;

  // Fails a collective that runs and all later ones, and closes the connections.
  void Destroy();
  // After a failure: connects the ranks anew. All of them call it.
  absl::Status Resume();

 private:
  explicit Communicator(const Options& options) : options_(options) {}
  absl::Status Connect();
  // Every collective runs through here, on the worker of its stream.
  void Execute(const Operation& operation);
  // Held while a collective runs: one at a time.
  class Turn {
   public:
    // Waits until nobody else has it, or until `give_up` says so.
    Turn(Communicator& communicator, const std::function<bool()>& give_up);
    ~Turn();
    bool taken() const { return taken_; }

   private:
    Communicator& communicator_;
    bool taken_ = false;
  };
  // What JUMAR_FAULTS asks for before the collective. False: this rank takes no part.
  bool Begin(const CollectiveFault& fault, const Operation& operation);
  void Corrupt(const Operation& operation) const;
  [[noreturn]] void Fail(const Operation& operation, const CollectiveError& error);
  CollectiveError Destroyed(const Operation& operation) const;
  std::string Who() const;

  const Options options_;
  std::atomic<int> async_error_{0};
  std::atomic<bool> destroyed_{false};

  mutable std::mutex told_mutex_;
  std::string told_;  // failure_, for other threads

  std::mutex mesh_mutex_;  // the pointer; a Transfer that runs keeps the mesh alive
  std::shared_ptr<Mesh> mesh_;

  std::mutex turn_mutex_;
  std::condition_variable turn_free_;
  bool turn_taken_ = false;

  // Whose turn it is has these.
  Counters counters_;
  Scratch scratch_;
  std::string failure_;
  uint64_t resumes_ = 0;
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_COMMUNICATOR_H_
