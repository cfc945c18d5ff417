// The collectives as exchanges of messages. Every rank talks to every other one directly. Reductions go in the order of the ranks, so
// that all ranks have the same bits, and every run has.
#include <algorithm>
#include <cstring>

#include "libs/hostcann/hccl/operation.h"
#include "libs/hostcann/hccl/reduce.h"

namespace jumar::hostcann {
namespace {

// Up to this many bytes per rank, each rank gets everybody's buffer and reduces all of it: one exchange instead of two.
constexpr uint64_t kDirectBytes = 128 << 10;
// Longer ones go in parts that stay in the cache.
constexpr uint64_t kPartBytes = 2 << 20;

class Runner {
 public:
  Runner(const Operation& operation, Mesh& mesh, Counters& counters, Scratch& scratch, const Mesh::Wait& wait)
      : op_(operation), mesh_(mesh), counters_(counters), scratch_(scratch), wait_(wait), me_(mesh.rank()), ranks_(mesh.ranks()) {
    element_ = ElementBytes(op_.type);
    header_.op = static_cast<uint8_t>(op_.collective);
    header_.type = static_cast<uint8_t>(op_.type);
    header_.reduction = static_cast<uint8_t>(op_.reduction);
    header_.root = op_.root;
    header_.count = op_.count;
  }

  void Run() {
    if (op_.collective == Collective::kPointToPoint) return RunMessages();
    header_.sequence = counters_.collectives++;
    switch (op_.collective) {
      case Collective::kAllReduce:
        return RunAllReduce();
      case Collective::kReduce:
        return RunReduce();
      case Collective::kBroadcast:
        return RunBroadcast();
      case Collective::kScatter:
        return RunScatter();
      case Collective::kReduceScatter:
      case Collective::kReduceScatterV:
        return RunReduceScatter();
      case Collective::kAllGather:
      case Collective::kAllGatherV:
        return RunAllGather();
      case Collective::kAllToAll:
      case Collective::kAllToAllV:
        return RunAllToAll();
      case Collective::kBarrier:
        return RunBarrier();
      case Collective::kPointToPoint:
        return;
    }
  }

 private:
  template <typename Fn>
  void ForOthers(const Fn& fn) {
    for (uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer != me_) fn(peer);
    }
  }
  void Send(uint32_t peer, const char* data, uint64_t count) { mesh_.Send(peer, header_, data, count * element_); }
  void Receive(uint32_t peer, char* data, uint64_t count) { mesh_.Receive(peer, header_, data, count * element_); }
  void Transfer() {
    mesh_.Transfer(wait_);
    ++header_.part;
  }
  const char* SendAt(uint64_t element) const { return static_cast<const char*>(op_.send) + element * element_; }
  char* ReceiveAt(uint64_t element) const { return static_cast<char*>(op_.receive) + element * element_; }
  void CopyOwn(const char* from, char* to, uint64_t count) const {
    if (from != to && count > 0) std::memmove(to, from, count * element_);
  }

  // Queues the receipt of `count` elements from every other rank; Reduced then combines them with this rank's own.
  void ReceiveInputs(const char* own, uint64_t count) {
    const uint64_t stride = (count * element_ + 63) / 64 * 64;
    char* at = scratch_.Get(stride * (ranks_ - 1));
    scratch_.inputs.resize(ranks_);
    scratch_.inputs[me_] = own;
    ForOthers([&](uint32_t peer) {
      Receive(peer, at, count);
      scratch_.inputs[peer] = at;
      at += stride;
    });
  }
  void Reduced(char* out, uint64_t count) { Reduce(op_.type, op_.reduction, scratch_.inputs, out, count); }

  uint64_t PartElements() const { return std::max<uint64_t>(kPartBytes / element_, ranks_); }

  void RunAllReduce() {
    if (op_.count * element_ <= kDirectBytes) {
      ReceiveInputs(SendAt(0), op_.count);
      ForOthers([&](uint32_t peer) { Send(peer, SendAt(0), op_.count); });
      Transfer();
      return Reduced(ReceiveAt(0), op_.count);
    }
    // Every rank reduces one slice of each part and gives it to the others.
    for (uint64_t begin = 0; begin < op_.count; begin += PartElements()) {
      const uint64_t length = std::min(PartElements(), op_.count - begin);
      const auto slice = [&](uint64_t rank) { return begin + length * rank / ranks_; };
      const uint64_t own = slice(me_), own_count = slice(me_ + 1) - own;
      ReceiveInputs(SendAt(own), own_count);
      ForOthers([&](uint32_t peer) { Send(peer, SendAt(slice(peer)), slice(peer + 1) - slice(peer)); });
      Transfer();
      Reduced(ReceiveAt(own), own_count);
      ForOthers([&](uint32_t peer) {
        Send(peer, ReceiveAt(own), own_count);
        Receive(peer, ReceiveAt(slice(peer)), slice(peer + 1) - slice(peer));
      });
      Transfer();
    }
  }

  void RunReduce() {
    uint64_t begin = 0;
    do {
      const uint64_t length = std::min(PartElements(), op_.count - begin);
      if (me_ == op_.root) {
        ReceiveInputs(SendAt(begin), length);
      } else {
        Send(op_.root, SendAt(begin), length);
      }
      Transfer();
      if (me_ == op_.root) Reduced(ReceiveAt(begin), length);
      begin += length;
    } while (begin < op_.count);
  }

  void RunBroadcast() {
    if (me_ == op_.root) {
      ForOthers([&](uint32_t peer) { Send(peer, SendAt(0), op_.count); });
    } else {
      Receive(op_.root, ReceiveAt(0), op_.count);
    }
    Transfer();
  }

  void RunScatter() {
    if (me_ == op_.root) {
      ForOthers([&](uint32_t peer) { Send(peer, SendAt(peer * op_.count), op_.count); });
    } else {
      Receive(op_.root, ReceiveAt(0), op_.count);
    }
    Transfer();
    if (me_ == op_.root) CopyOwn(SendAt(me_ * op_.count), ReceiveAt(0), op_.count);
  }

  // The stretch of the long buffer that is `rank`'s, of a collective with or without V.
  Stretch Of(const std::vector<Stretch>& stretches, uint32_t rank) const {
    return stretches.empty() ? Stretch{rank * op_.count, op_.count} : stretches[rank];
  }

  void RunReduceScatter() {
    uint64_t longest = 0;
    for (uint32_t rank = 0; rank < ranks_; ++rank) longest = std::max(longest, Of(op_.sends, rank).count);
    uint64_t begin = 0;
    do {
      const auto length = [&](uint32_t rank) {
        const uint64_t count = Of(op_.sends, rank).count;
        return count <= begin ? 0 : std::min(PartElements(), count - begin);
      };
      const char* own = SendAt(Of(op_.sends, me_).offset + begin);
      ReceiveInputs(own, length(me_));
      ForOthers([&](uint32_t peer) { Send(peer, SendAt(Of(op_.sends, peer).offset + begin), length(peer)); });
      Transfer();
      Reduced(ReceiveAt(begin), length(me_));
      begin += PartElements();
    } while (begin < longest);
  }

  void RunAllGather() {
    const Stretch own = Of(op_.receives, me_);
    ForOthers([&](uint32_t peer) {
      const Stretch theirs = Of(op_.receives, peer);
      Send(peer, SendAt(0), own.count);
      Receive(peer, ReceiveAt(theirs.offset), theirs.count);
    });
    Transfer();
    CopyOwn(SendAt(0), ReceiveAt(own.offset), own.count);
  }

  void RunAllToAll() {
    ForOthers([&](uint32_t peer) {
      Send(peer, SendAt(op_.sends[peer].offset), op_.sends[peer].count);
      Receive(peer, ReceiveAt(op_.receives[peer].offset), op_.receives[peer].count);
    });
    Transfer();
    CopyOwn(SendAt(op_.sends[me_].offset), ReceiveAt(op_.receives[me_].offset), op_.sends[me_].count);
  }

  void RunBarrier() {
    ForOthers([&](uint32_t peer) {
      Send(peer, nullptr, 0);
      Receive(peer, nullptr, 0);
    });
    Transfer();
  }

  void RunMessages() {
    std::vector<const PointToPoint*> own_sends, own_receives;
    for (const PointToPoint& message : op_.messages) {
      if (message.peer == me_) {
        (message.send ? own_sends : own_receives).push_back(&message);
        continue;
      }
      header_.type = static_cast<uint8_t>(message.type);
      header_.count = message.count;
      const uint64_t bytes = message.count * ElementBytes(message.type);
      if (message.send) {
        header_.sequence = counters_.sent[message.peer]++;
        mesh_.Send(message.peer, header_, message.buffer, bytes);
      } else {
        header_.sequence = counters_.received[message.peer]++;
        mesh_.Receive(message.peer, header_, message.buffer, bytes);
      }
    }
    Transfer();
    for (size_t i = 0; i < own_sends.size(); ++i) {
      const PointToPoint &from = *own_sends[i], &to = *own_receives[i];
      if (from.count > 0) std::memmove(to.buffer, from.buffer, from.count * ElementBytes(from.type));
    }
  }

  const Operation& op_;
  Mesh& mesh_;
  Counters& counters_;
  Scratch& scratch_;
  const Mesh::Wait& wait_;
  const uint32_t me_;
  const uint32_t ranks_;
  uint64_t element_ = 0;
  MessageHeader header_;
};

}  // namespace

char* Scratch::Get(uint64_t bytes) {
  if (memory_.size() < bytes) memory_.resize(bytes);
  return memory_.data();
}

void Run(const Operation& operation, Mesh& mesh, Counters& counters, Scratch& scratch, const Mesh::Wait& wait) {
  Runner(operation, mesh, counters, scratch, wait).Run();
}

}  // namespace jumar::hostcann
