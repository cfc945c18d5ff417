#include "libs/hostcann/hccl/operation.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/hccl/reduce.h"

namespace jumar::hostcann {
namespace {

constexpr const char* kNames[] = {"HcclAllReduce",      "HcclReduce",    "HcclBroadcast",  "HcclScatter",  "HcclReduceScatter",
                                  "HcclReduceScatterV", "HcclAllGather", "HcclAllGatherV", "HcclAlltoAll", "HcclAlltoAllV",
                                  "HcclBarrier",        "HcclSend/HcclRecv"};

bool Reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduceScatterV;
}

bool HasRoot(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kBroadcast || collective == Collective::kScatter;
}

}  // namespace

std::string Describe(const MessageHeader& header) {
  if (header.op >= std::size(kNames)) return absl::StrCat("collective ", header.op);
  const auto collective = static_cast<Collective>(header.op);
  std::string text = kNames[header.op];
  if (collective == Collective::kBarrier) return text;
  absl::StrAppend(&text, " (");
  // What is exchanged may differ from rank to rank in the collectives with V.
  if (header.count > 0) absl::StrAppend(&text, header.count, " x ");
  absl::StrAppend(&text, TypeName(header.type));
  if (Reduces(collective)) absl::StrAppend(&text, ", ", ReductionName(header.reduction));
  if (HasRoot(collective)) absl::StrAppend(&text, ", root ", header.root);
  return text + ")";
}

std::string Describe(const Operation& operation) {
  if (operation.collective == Collective::kPointToPoint) {
    std::string text = absl::StrCat(operation.name, " (");
    const size_t shown = std::min<size_t>(operation.messages.size(), 4);
    for (size_t i = 0; i < shown; ++i) {
      const PointToPoint& message = operation.messages[i];
      absl::StrAppend(&text, i == 0 ? "" : "; ", message.count, " x ", TypeName(message.type), message.send ? " to rank " : " from rank ",
                      message.peer);
    }
    if (shown < operation.messages.size()) absl::StrAppend(&text, "; and ", operation.messages.size() - shown, " more");
    return text + ")";
  }
  MessageHeader header;
  header.op = static_cast<uint8_t>(operation.collective);
  header.type = static_cast<uint8_t>(operation.type);
  header.reduction = static_cast<uint8_t>(operation.reduction);
  header.root = operation.root;
  header.count = operation.count;
  return Describe(header);
}

std::pair<char*, uint64_t> ResultOf(const Operation& operation, uint32_t rank) {
  const uint64_t element = ElementBytes(operation.type);
  const auto at = [&](const Stretch& stretch) {
    return std::pair(static_cast<char*>(operation.receive) + stretch.offset * element, stretch.count * element);
  };
  switch (operation.collective) {
    case Collective::kReduce:
      return rank == operation.root ? at({0, operation.count}) : std::pair<char*, uint64_t>();
    case Collective::kBroadcast:
      return rank != operation.root ? at({0, operation.count}) : std::pair<char*, uint64_t>();
    case Collective::kAllReduce:
    case Collective::kScatter:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return at({0, operation.count});
    case Collective::kReduceScatterV:
      return at({0, operation.sends[rank].count});
    case Collective::kAllGatherV:
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
      for (const Stretch& stretch : operation.receives) {
        if (stretch.count > 0) return at(stretch);
      }
      return {};
    case Collective::kPointToPoint:
      for (const PointToPoint& message : operation.messages) {
        if (!message.send) return {static_cast<char*>(message.buffer), message.count * ElementBytes(message.type)};
      }
      return {};
    case Collective::kBarrier:
      return {};
  }
  return {};
}

uint64_t BytesOf(const Operation& operation, uint32_t ranks) {
  uint64_t elements = 0, bytes = 0;
  for (const Stretch& stretch : operation.sends) elements += stretch.count;
  for (const Stretch& stretch : operation.receives) elements += stretch.count;
  for (const PointToPoint& message : operation.messages) bytes += message.count * ElementBytes(message.type);
  switch (operation.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      elements += 2 * operation.count;
      break;
    case Collective::kBroadcast:
      elements += operation.count;
      break;
    case Collective::kScatter:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      elements += (ranks + 1) * operation.count;
      break;
    default:
      break;
  }
  return bytes + elements * ElementBytes(operation.type);
}

void Skip(const Operation& operation, Counters& counters) {
  if (operation.collective != Collective::kPointToPoint) ++counters.collectives;
  for (const PointToPoint& message : operation.messages) ++(message.send ? counters.sent : counters.received)[message.peer];
}

}  // namespace jumar::hostcann
