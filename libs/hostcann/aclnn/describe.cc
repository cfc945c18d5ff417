#include "libs/hostcann/aclnn/describe.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

namespace jumar::hostcann::aclnn {
namespace {

constexpr size_t kMaxListed = 16;  // elements of a list that a trace shows

uint64_t BytesOf(const aclTensor& t) {
  if (t.dtype == DType::kI4 || t.dtype == static_cast<DType>(40) /* float4_e2m1 */) return static_cast<uint64_t>(t.numel() + 1) / 2;
  return static_cast<uint64_t>(t.numel() * ItemSize(t.dtype));
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

std::string TensorText(const aclTensor& t) {
  std::string text = std::string(DTypeName(t.dtype)) + ToString(t.sizes);
  if (!IsBaseFormat(t.format)) text += " " + FormatName(t.format);
  return text;
}

// Operators that touch a part of some tensors only: the bytes of `large` count as those of `part`.
struct Special {
  std::string_view op;  // with "aclnn"; a trailing * is a prefix
  std::string_view large;
  std::string_view part;
};
constexpr Special kSpecial[] = {
    {"aclnnEmbedding", "weight", "out"},
    {"aclnnIndex", "self", "out"},
    {"aclnnIndexSelect", "self", "out"},
    {"aclnnGather", "self", "out"},
    {"aclnnTake", "self", "out"},
    {"aclnnIndexPutImpl", "self", "values"},
    {"aclnnInplaceIndexCopy", "self", "source"},
    {"aclnnInplacePut", "self", "source"},
    {"aclnnInplaceScatter*", "self", "src"},
    {"aclnnInplaceScatterUpdate", "self", "updates"},
    {"aclnnScatterNdUpdate", "self", "updates"},
    {"aclnnScatterPa*", "key_cache", "key"},
    {"aclnnScatterPa*", "value_cache", "value"},
    {"aclnnGatherPaKvCache", "key_cache", "key"},
    {"aclnnGatherPaKvCache", "value_cache", "value"},
};

bool Matches(std::string_view op, std::string_view pattern) {
  if (pattern.back() == '*') return op.starts_with(pattern.substr(0, pattern.size() - 1));
  return op == pattern;
}

bool IsProduct(std::string_view op) {
  for (const std::string_view part : {"Matmul", "MatMul", "aclnnMm", "ddmm", "addbmm", "ddbmm", "aclnnMv", "aclnnDot"}) {
    if (op.find(part) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

Description::Description(std::string_view op, std::string_view arguments) : op_(op) {
  // KIND(name), KIND(name), ...
  for (size_t at = 0; (at = arguments.find('(', at)) != std::string_view::npos;) {
    const size_t end = arguments.find(')', at);
    arguments_.push_back({.name = std::string(arguments.substr(at + 1, end - at - 1))});
    at = end;
  }
}

Description::Argument& Description::Next() {
  if (next_ == arguments_.size()) arguments_.push_back({.name = "?"});
  return arguments_[next_++];
}

void Description::AddText(std::string json) { Next().json = std::move(json); }

void Description::AddNumber(double value) {
  if (!std::isfinite(value)) return AddText(std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"");
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  AddText(text);
}

void Description::AddInt(int64_t value) {
  Argument& argument = Next();
  argument.json = std::to_string(value);
  argument.ints = {value};
}

void Description::Add(const aclTensor* tensor) {
  Argument& argument = Next();
  if (tensor == nullptr) return;
  argument.tensors = {tensor};
  argument.bytes = BytesOf(*tensor);
  argument.json = Quoted(TensorText(*tensor));
}

void Description::Add(const aclTensorList* list) {
  Argument& argument = Next();
  if (list == nullptr) return;
  for (size_t i = 0; i < list->v.size(); ++i) {
    if (list->v[i] == nullptr) continue;
    argument.tensors.push_back(list->v[i]);
    argument.bytes += BytesOf(*list->v[i]);
    if (i < kMaxListed) argument.json += (argument.json.empty() ? "[" : ", ") + Quoted(TensorText(*list->v[i]));
  }
  argument.json += argument.json.empty() ? "[]" : "]";
}

void Description::Add(const aclScalar* scalar) {
  if (scalar == nullptr) return AddText("");
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, scalar->value, sizeof(value));
    return value;
  };
  switch (scalar->dtype) {
    case DType::kF32: return AddNumber(as(float()));
    case DType::kF64: return AddNumber(as(double()));
    case DType::kI32: return AddText(std::to_string(as(int32_t())));
    case DType::kI64: return AddText(std::to_string(as(int64_t())));
    case DType::kBool: return AddText(as(uint8_t()) != 0 ? "true" : "false");
    default: return AddText(Quoted(DTypeName(scalar->dtype)));
  }
}

void Description::Add(const aclIntArray* array) {
  Argument& argument = Next();
  if (array == nullptr) return;
  argument.ints = array->v;
  for (size_t i = 0; i < std::min(array->v.size(), kMaxListed); ++i) argument.json += (i == 0 ? "[" : ", ") + std::to_string(array->v[i]);
  argument.json += argument.json.empty() ? "[]" : array->v.size() > kMaxListed ? ", \"...\"]" : "]";
}

void Description::Add(const char* text) { AddText(text == nullptr ? "" : Quoted(text)); }

void Description::Add(const void*) { AddText(""); }

const Description::Argument* Description::Find(std::string_view name) const {
  const auto it = std::find_if(arguments_.begin(), arguments_.end(), [&](const Argument& a) { return a.name == name; });
  return it == arguments_.end() ? nullptr : &*it;
}

const Description::Argument* Description::FindTensor(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    const Argument* argument = Find(name);
    if (argument != nullptr && !argument->tensors.empty()) return argument;
  }
  return nullptr;
}

int64_t Description::Int(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    const Argument* argument = Find(name);
    if (argument != nullptr && !argument->ints.empty() && argument->ints[0] > 0) return argument->ints[0];
  }
  return 1;
}

std::vector<int64_t> Description::Lengths(std::initializer_list<std::string_view> names, bool cumulative) const {
  for (const std::string_view name : names) {
    const Argument* argument = Find(name);
    if (argument == nullptr || argument->ints.empty()) continue;
    std::vector<int64_t> list = argument->ints;
    if (cumulative) {
      for (size_t i = list.size(); i-- > 1;) list[i] -= list[i - 1];
    }
    return list;
  }
  return {};
}

Description::AttentionSize Description::SizeOfAttention() const {
  const aclTensor& query = *FindTensor({"query"})->tensors[0];
  const Argument* layout = Find("input_layout");
  const auto is = [&](std::string_view prefix) { return layout != nullptr && layout->json.starts_with(prefix); };
  const bool packed = is("\"TND") || is("\"NTD"), paged = FindTensor({"block_table"}) != nullptr;
  const auto heads = static_cast<double>(Int({"num_heads", "head_num"}));
  const auto last = static_cast<double>(query.sizes.n == 0 ? 1 : query.sizes[query.sizes.n - 1]);
  const double dim = is("\"BSH\"") || is("\"SBH\"") || is("\"BSH_") ? last / heads : last;
  const bool decode = op_.starts_with("aclnnIncre");  // its one list is that of the keys
  const std::vector<int64_t> q =
      decode ? std::vector<int64_t>() : Lengths({"actual_seq_lengths", "actual_seq_qlen"}, packed);
  const std::vector<int64_t> kv = decode ? Lengths({"actual_seq_lengths"}, false)
                                         : Lengths({"actual_seq_lengths_kv", "actual_seq_kvlen"}, packed && !paged);
  AttentionSize size;
  size.hidden = heads * dim;
  const double queries = static_cast<double>(query.numel()) / size.hidden;
  for (const int64_t length : kv) size.keys += static_cast<double>(length);
  if (kv.empty() && !paged) {
    const auto kv_heads = static_cast<double>(Int({"num_key_value_heads", "num_heads", "head_num"}));
    for (const aclTensor* t : FindTensor({"key"})->tensors) size.keys += static_cast<double>(t->numel()) / (kv_heads * dim);
  }
  // Where a list is missing, the sequences are alike; without any, the first dimension counts them.
  size_t sequences = std::max(kv.size(), q.size());
  if (sequences == 0) sequences = packed || query.sizes.n == 0 ? 1 : static_cast<size_t>(query.sizes[is("\"SBH\"") ? 1 : 0]);
  for (size_t i = 0; i < sequences; ++i) {
    const double mine = i < q.size() ? static_cast<double>(q[i]) : queries / static_cast<double>(sequences);
    const double theirs = i < kv.size() ? static_cast<double>(kv[i]) : size.keys / static_cast<double>(sequences);
    size.pairs += mine * theirs;
  }
  return size;
}

bool Description::IsAttention() const {
  return op_.find("Attention") != std::string::npos && FindTensor({"query"}) != nullptr && FindTensor({"key"}) != nullptr;
}

uint64_t Description::Bytes() const {
  const bool paged = IsAttention() && FindTensor({"block_table"}) != nullptr;
  uint64_t bytes = 0;
  for (const Argument& argument : arguments_) {
    uint64_t own = argument.bytes;
    for (const Special& special : kSpecial) {
      if (argument.name != special.large || !Matches(op_, special.op)) continue;
      if (const Argument* part = FindTensor({special.part}); part != nullptr) own = std::min(own, part->bytes);
    }
    if (paged && (argument.name == "key" || argument.name == "value") && !argument.tensors.empty()) {
      const aclTensor& t = *argument.tensors[0];  // [blocks, tokens, heads * dim] or [blocks, heads, tokens, dim]
      const auto per_token = static_cast<double>(t.sizes.n == 3 ? t.sizes[2] : t.sizes[1] * t.sizes[t.sizes.n - 1]);
      own = std::min(own, static_cast<uint64_t>(SizeOfAttention().keys * per_token * static_cast<double>(ItemSize(t.dtype))));
    }
    bytes += own;
  }
  return bytes;
}

double Description::ProductFlops() const {
  const Argument* a = FindTensor({"mat1", "batch1", "x1", "x", "self"});
  const Argument* out = FindTensor({"out", "y"});
  if (out == nullptr) out = FindTensor({"self"});  // in place
  if (a == nullptr || out == nullptr) return 0;
  const aclTensor& o = *out->tensors[0];
  const bool vector = op_ == "aclnnMv" || op_ == "aclnnDot";
  const auto n = static_cast<double>(vector || o.sizes.n == 0 ? 1 : o.sizes[o.sizes.n - 1]);
  double flops = 0;
  for (const aclTensor* t : a->tensors) flops += 2 * static_cast<double>(t->numel()) * n;
  return flops;
}

double Description::Flops() const {
  if (IsAttention()) {
    const AttentionSize size = SizeOfAttention();
    return 4 * size.pairs * size.hidden;
  }
  return IsProduct(op_) ? ProductFlops() : 0;
}

std::unique_ptr<const TaskDetails> Description::Finish() const {
  auto details = std::make_unique<TaskDetails>();
  details->kind = TaskDetails::kOperator;
  details->bytes = Bytes();
  details->flops = Flops();
  for (const Argument& argument : arguments_) {
    if (argument.json.empty()) continue;
    details->arguments += (details->arguments.empty() ? "" : ", ") + Quoted(argument.name) + ": " + argument.json;
  }
  return details;
}

}  // namespace jumar::hostcann::aclnn
