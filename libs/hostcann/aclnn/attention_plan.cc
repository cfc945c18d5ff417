#include <algorithm>
#include <cstring>
#include <utility>

#include "libs/hostcann/aclnn/attention.h"
#include "libs/hostcann/aclnn/attention_scales.h"
#include "libs/hostcann/aclnn/kernel.h"

namespace jumar::hostcann::aclnn {
namespace {

using attention::PagedAttentionArgs;

constexpr int64_t kNoLimit = 2147483647;

// A tensor of a layout, as batch, tokens, heads.
struct View {
  void* data = nullptr;
  int64_t batch = 1, tokens = 0, heads = 0, dim = 0;
  int64_t batch_stride = 0, token_stride = 0, head_stride = 0;
};

// `heads` serves the layouts with a merged H axis.
View ViewOf(const char* name, const aclTensor& t, const std::string& layout, int64_t heads) {
  Require(IsBaseFormat(t.format), "argument `", name, "` has format ", FormatName(t.format), "; it must be ND (2)");
  Require(static_cast<size_t>(t.sizes.n) == layout.size(), "argument `", name, "` has shape ", ToString(t.sizes), "; layout ",
          layout, " has ", layout.size(), " dimensions");
  View v{.data = t.data()};
  for (int i = 0; i < t.sizes.n; ++i) {
    const int64_t size = t.sizes[i], stride = t.strides[i];
    switch (layout[static_cast<size_t>(i)]) {
      case 'B': v.batch = size, v.batch_stride = stride; break;
      case 'S':
      case 'T': v.tokens = size, v.token_stride = stride; break;
      case 'N': v.heads = size, v.head_stride = stride; break;
      case 'D': v.dim = size; break;
      case 'H':
        Require(heads > 0 && size % heads == 0, "argument `", name, "` has ", size, " columns, which ", heads,
                " heads don't divide");
        v.heads = heads, v.dim = size / heads, v.head_stride = v.dim;
        break;
      default: Fail("layout \"", layout, "\" is unknown");
    }
  }
  Require(t.strides[t.sizes.n - 1] == 1 || t.sizes[t.sizes.n - 1] <= 1, "argument `", name, "` has strides ", ToString(t.strides),
          "; its last dimension must be contiguous");
  return v;
}

std::pair<std::string, std::string> SplitLayout(const std::string& layout) {
  static constexpr const char* kKnown[] = {"BSH",       "BSND",      "BNSD",      "TND",     "NTD",
                                           "BNSD_BSND", "BSH_BNSD",  "BSND_BNSD", "NTD_TND", "BSH_NBSD",
                                           "BSND_NBSD", "BNSD_NBSD", "TND_NTD",   "NSD",     "SBH"};
  Require(std::find(std::begin(kKnown), std::end(kKnown), layout) != std::end(kKnown), "input_layout is \"", layout,
          "\"; hostcann has BSH, SBH, BSND, BNSD, NSD, TND, NTD and their combinations");
  const size_t split = layout.find('_');
  if (split == std::string::npos) return {layout, layout};
  return {layout.substr(0, split), layout.substr(split + 1)};
}

// A cache of blocks: [blocks, block_size, heads * dim], or [blocks, heads, block_size, dim].
struct Cache {
  void* data = nullptr;
  int64_t blocks = 0, block_size = 0, dim = 0, block_stride = 0, token_stride = 0, head_stride = 0;
};

Cache CacheOf(const char* name, const aclTensor& t, int64_t heads, int64_t block_size) {
  Require(IsBaseFormat(t.format), "argument `", name, "` has format ", FormatName(t.format), "; hostcann's paged cache is ND (2)");
  Require(t.sizes.n == 3 || t.sizes.n == 4, "argument `", name, "` has shape ", ToString(t.sizes),
          "; a paged cache is [blocks, block_size, heads * dim] or [blocks, heads, block_size, dim]");
  Cache c{.data = t.data(), .blocks = t.sizes[0], .block_stride = t.strides[0]};
  if (t.sizes.n == 3) {
    Require(t.sizes[2] % heads == 0, "argument `", name, "` has ", t.sizes[2], " columns, which ", heads, " heads don't divide");
    c.block_size = t.sizes[1], c.token_stride = t.strides[1], c.dim = t.sizes[2] / heads, c.head_stride = c.dim;
  } else {
    Require(t.sizes[1] == heads, "argument `", name, "` has shape ", ToString(t.sizes),
            "; a 4-D paged cache is [blocks, heads, block_size, dim] with ", heads,
            " heads (view [blocks, block_size, heads, dim] as [blocks, block_size, heads * dim])");
    c.block_size = t.sizes[2], c.token_stride = t.strides[2], c.dim = t.sizes[3], c.head_stride = t.strides[1];
  }
  Require(c.block_size == block_size, "argument `", name, "` has blocks of ", c.block_size, " tokens but block_size is ",
          block_size);
  Require(t.strides[t.sizes.n - 1] == 1, "argument `", name, "` has strides ", ToString(t.strides),
          "; its last dimension must be contiguous");
  return c;
}

struct Window {
  int64_t left = -1, right = -1;
};

// The kernel counts a window from the right bottom corner; `shift` = keys - queries brings one counted from the left top there.
Window WindowOf(const AttentionCall& call, int64_t shift) {
  const auto side = [&](const char* name, int64_t tokens, int64_t add) -> int64_t {
    if (tokens >= kNoLimit) return -1;
    Require(tokens + add >= 0, name, " is ", tokens, " for a sequence with ", shift,
            " more keys than queries; hostcann has no band that misses the diagonal");
    return tokens + add;
  };
  switch (static_cast<SparseMode>(call.sparse_mode)) {
    case SparseMode::kDefault:
      if (!call.mask) return {};
      return {side("pre_tokens", call.pre_tokens, shift), side("next_tokens", call.next_tokens, -shift)};
    case SparseMode::kAll: return {};
    case SparseMode::kLeftUpCausal: return {-1, side("next_tokens", 0, -shift)};
    case SparseMode::kRightDownCausal: return {-1, 0};
    case SparseMode::kBand: return {side("pre_tokens", call.pre_tokens, 0), side("next_tokens", call.next_tokens, 0)};
  }
  Fail("sparse_mode is ", call.sparse_mode, "; hostcann has 0 to 4");
}

// Points args.mask at the mask of one batch: [q, k], [batch or 1, q, k], [batch or 1, heads or 1, q, k], or for one query
// per sequence [batch, k].
void SetMask(PagedAttentionArgs& args, const aclTensor& mask, int64_t batch, int64_t batches, int64_t queries) {
  const int n = mask.sizes.n;
  const bool per_sequence = n == 2 && queries == 1 && mask.sizes[0] == batches;
  const int64_t batch_stride = per_sequence ? mask.strides[0] : n >= 3 && mask.sizes[0] != 1 ? mask.strides[0] : 0;
  args.mask = static_cast<const uint8_t*>(mask.data()) + batch * batch_stride;
  args.mask_seq_stride = batch_stride;
  args.mask_head_stride = n == 4 && mask.sizes[1] != 1 ? mask.strides[1] : 0;
  args.mask_query_stride = per_sequence || mask.sizes[n - 2] == 1 ? 0 : mask.strides[n - 2];
}

void CheckMask(const aclTensor& mask, int64_t batches, int64_t heads, int64_t queries, int64_t keys) {
  Require(ItemSize(mask.dtype) == 1 && IsBaseFormat(mask.format), "atten_mask is ", DTypeName(mask.dtype),
          "; it must be bool, int8 or uint8");
  const int n = mask.sizes.n;
  const auto fits = [](int64_t size, int64_t wanted) { return size == 1 || size == wanted; };
  bool ok = n >= 2 && n <= 4 && mask.sizes[n - 1] >= keys && (mask.strides[n - 1] == 1 || mask.sizes[n - 1] <= 1);
  if (ok && n == 2) ok = mask.sizes[0] >= queries || (queries == 1 && mask.sizes[0] == batches);
  if (ok && n == 3) ok = fits(mask.sizes[0], batches) && (mask.sizes[1] >= queries || mask.sizes[1] == 1);
  if (ok && n == 4)
    ok = fits(mask.sizes[0], batches) && fits(mask.sizes[1], heads) && (mask.sizes[2] >= queries || mask.sizes[2] == 1);
  Require(ok, "atten_mask has shape ", ToString(mask.sizes), " and strides ", ToString(mask.strides), "; for ", batches,
          " sequences, ", heads, " heads, ", queries, " queries and ", keys,
          " keys it must be [queries, keys], [batch or 1, queries, keys] or [batch or 1, heads or 1, "
          "queries, keys] with contiguous keys");
}

// Length `index` of a list that has one for all, or one each; `whole` if there is no list.
int64_t LengthAt(const std::optional<IntList>& lengths, int64_t index, int64_t whole) {
  if (!lengths || lengths->empty()) return whole;
  return lengths->size() == 1 ? lengths->front() : (*lengths)[static_cast<size_t>(index)];
}

// One call of the kernel. Owns the arrays that the arguments point into.
struct KernelCall {
  PagedAttentionArgs args;
  IntList query_ends = {}, kv_lens = {}, query_starts = {};

  // Scales that are converted when the task runs replace what the arguments have.
  void Run(tiling::Executor& executor, const float* key_scales, const float* value_scales, const float* sinks) const {
    PagedAttentionArgs a = args;
    a.sinks = sinks;
    if (key_scales != nullptr) a.k_scales.data = key_scales;
    if (value_scales != nullptr) a.v_scales.data = value_scales;
    a.num_seqs = static_cast<int64_t>(query_ends.size());
    a.query_ends = query_ends.data();
    a.kv_lens = kv_lens.data();
    a.query_starts = query_starts.empty() ? nullptr : query_starts.data();
    Check(attention::PagedAttention(a, executor));
  }
};

template <class T>
T* Offset(T* p, int64_t elements, int64_t size) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(p) + static_cast<std::uintptr_t>(elements * size));
}

class Planner {
 public:
  explicit Planner(const AttentionCall& call) : call_(call) {
    Require(call.sparse_mode >= 0 && call.sparse_mode <= 4, "sparse_mode is ", call.sparse_mode, "; hostcann has 0 to 4");
    const auto [in_layout, out_layout] = SplitLayout(call.layout);
    layout_ = in_layout;
    packed_ = layout_ == "TND" || layout_ == "NTD";
    Require(call.num_heads > 0, "num_heads is ", call.num_heads, "; it must be positive");
    kv_heads_ = call.num_kv_heads == 0 ? call.num_heads : call.num_kv_heads;
    Require(call.num_heads % kv_heads_ == 0, "num_key_value_heads is ", kv_heads_, "; it must divide num_heads ", call.num_heads);
    query_ = ViewOf("query", call.query, layout_, call.num_heads);
    Require(query_.heads == call.num_heads, "query has ", query_.heads, " heads but num_heads is ", call.num_heads);
    out_ = ViewOf("attention_out", call.out, out_layout, call.num_heads);
    Require(out_.batch == query_.batch && out_.tokens == query_.tokens && out_.heads == query_.heads, "attention_out has shape ",
            ToString(call.out.sizes), ", which doesn't fit query ", ToString(call.query.sizes), " in layout ", call.layout);
    if (call.query_rope) {
      query_rope_ = ViewOf("query_rope", *call.query_rope, layout_, call.num_heads);
      Require(call.query_rope->dtype == call.query.dtype && call.key_rope->dtype == call.query.dtype, "query_rope is ",
              DTypeName(call.query_rope->dtype), " and key_rope ", DTypeName(call.key_rope->dtype), "; both must be query's ",
              DTypeName(call.query.dtype));
      Require(query_rope_.batch == query_.batch && query_rope_.tokens == query_.tokens && query_rope_.heads == query_.heads,
              "query_rope has shape ", ToString(call.query_rope->sizes), "; it must be query's, ", ToString(call.query.sizes),
              ", but for the last dimension");
    }
    const auto type = KernelType(call.query.dtype);
    Require(type && call.out.dtype == call.query.dtype, "query is ", DTypeName(call.query.dtype), " and attention_out ",
            DTypeName(call.out.dtype), "; both must be the same of float32, float16, bfloat16");
    type_ = *type;
    Require(!call.keys.empty() && call.keys.size() == call.values.size(), "there are ", call.keys.size(), " keys and ",
            call.values.size(), " values; there must be as many of both");
    for (const std::vector<aclTensor>* list : {&call.keys, &call.values}) {
      for (const aclTensor& t : *list) {
        Require(t.dtype == call.keys[0].dtype, "a key or value is ", DTypeName(t.dtype), " and another ", DTypeName(call.keys[0].dtype));
      }
    }
    format_ = CacheFormat(call.keys[0], call.query.dtype);
    Require(call.key_scale.has_value() == format_.has_value() && call.value_scale.has_value() == format_.has_value(), "key is ",
            DTypeName(call.keys[0].dtype), " and ", call.key_scale || call.value_scale ? "there is" : "there isn't",
            " a scale; int8 and float8 need key_antiquant_scale and value_antiquant_scale, other types take none");
    Require(!call.sink || call.sink->numel() == call.num_heads, "learnable_sink has shape ", call.sink ? ToString(call.sink->sizes) : "",
            "; it must have num_heads = ", call.num_heads, " elements");
    if (call.mask && call.sparse_mode > 1) call_.mask.reset();  // modes 2 to 4 pass a fixed triangle that tells nothing new
    Require(call.mask || call.sparse_mode != 1, "atten_mask is missing; sparse_mode 1 needs it");
    batches_ = packed_ ? (call.query_lengths ? static_cast<int64_t>(call.query_lengths->size()) : 0) : query_.batch;
    Require(!packed_ || call.query_lengths, "actual_seq_lengths is missing; layout ", call.layout, " needs it");
    Require(packed_ || !call.query_lengths || call.query_lengths->size() <= 1 ||
                static_cast<int64_t>(call.query_lengths->size()) >= batches_,
            "actual_seq_lengths has ", call.query_lengths ? call.query_lengths->size() : 0, " entries; the batch is ", batches_);
    Require(!call.key_lengths || call.key_lengths->size() <= 1 || static_cast<int64_t>(call.key_lengths->size()) >= batches_,
            "actual_seq_lengths_kv has ", call.key_lengths ? call.key_lengths->size() : 0, " entries; there are ", batches_,
            " sequences");
    if (call.block_table) {
      PlanPaged();
    } else {
      PlanContiguous();
    }
  }

  Task Make() {
    return [calls = std::move(calls_), key_scales = std::move(key_scales_.convert), value_scales = std::move(value_scales_.convert), sink = call_.sink] {
      tiling::Executor& pool = ComputeExecutor();
      const auto to_float = [](const std::optional<aclTensor>& t) { return t ? ToTensor(*t).to(at::kFloat).contiguous() : Tensor(); };
      const auto data = [](const Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; };
      const Tensor key_floats = to_float(key_scales), value_floats = to_float(value_scales), sink_floats = to_float(sink);
      const float *k = data(key_floats), *v = data(value_floats), *sinks = data(sink_floats);
      const int64_t n = static_cast<int64_t>(calls.size());
      if (n < 2 * pool.num_workers()) {
        for (const KernelCall& call : calls) call.Run(pool, k, v, sinks);
      } else {
        pool.ParallelFor(n, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) calls[static_cast<size_t>(i)].Run(tiling::InlineExecutor(), k, v, sinks);
        });
      }
    };
  }

 private:
  int64_t QueryBegin(int64_t i) const { return packed_ && i > 0 ? (*call_.query_lengths)[static_cast<size_t>(i - 1)] : 0; }
  int64_t QueryCount(int64_t i) const {
    const int64_t count =
        packed_ ? (*call_.query_lengths)[static_cast<size_t>(i)] - QueryBegin(i) : LengthAt(call_.query_lengths, i, query_.tokens);
    const int64_t end = packed_ ? QueryBegin(i) + count : count;
    Require(count >= 0 && end <= query_.tokens, "actual_seq_lengths[", i, "] gives ", count, " queries up to token ", end,
            "; query has ", query_.tokens, " tokens");
    return count;
  }

  // Everything but keys and values; batch i of a layout that has batches.
  PagedAttentionArgs Base(int64_t i) const {
    const int64_t size = quant::SizeOf(type_);
    PagedAttentionArgs a{
        .type = type_, .num_heads = call_.num_heads, .num_kv_heads = kv_heads_, .head_dim = query_.dim, .value_head_dim = out_.dim};
    a.q = Offset(query_.data, i * query_.batch_stride, size);
    a.q_token_stride = query_.token_stride, a.q_head_stride = query_.head_stride;
    if (call_.query_rope) {
      a.rope_dim = query_rope_.dim;
      a.q_rope = Offset(query_rope_.data, i * query_rope_.batch_stride, size);
      a.q_rope_token_stride = query_rope_.token_stride, a.q_rope_head_stride = query_rope_.head_stride;
    }
    a.out = Offset(out_.data, i * out_.batch_stride, size);
    a.out_token_stride = out_.token_stride, a.out_head_stride = out_.head_stride;
    a.scale = static_cast<float>(call_.scale);
    a.kv_format = format_;
    a.k_scales = key_scales_.scales, a.v_scales = value_scales_.scales;
    if (call_.lse) {
      const aclTensor& lse = *call_.lse;
      const int expected = packed_ ? 3 : 4;
      Require(lse.dtype == DType::kF32 && lse.sizes.n == expected, "softmax_lse is ", DTypeName(lse.dtype), " of shape ",
              ToString(lse.sizes), "; it must be float32 with ", expected, " dimensions");
      a.lse = static_cast<float*>(lse.data()) + (packed_ ? 0 : i * lse.strides[0]);
      a.lse_token_stride = lse.strides[packed_ ? 0 : 2];
      a.lse_head_stride = lse.strides[1];
    }
    return a;
  }

  int64_t CacheItemSize() const { return format_ ? 1 : quant::SizeOf(type_); }

  void SetScales(int64_t tokens, int64_t blocks) {
    if (!format_) return;
    const int64_t block_size = blocks > 0 ? call_.block_size : 0;
    key_scales_ = PlanScales("key_antiquant_scale", *call_.key_scale, call_.key_scale_mode,
                             {kv_heads_, query_.dim, batches_, tokens, blocks, block_size});
    value_scales_ = PlanScales("value_antiquant_scale", *call_.value_scale, call_.value_scale_mode,
                               {kv_heads_, out_.dim, batches_, tokens, blocks, block_size});
  }

  // Sequences whose windows don't depend on their own lengths can share a call; a mask that is per sequence can't be packed.
  bool SharesWindow() const {
    if (call_.mask) return false;
    return call_.sparse_mode == 0 || call_.sparse_mode == 3 || call_.sparse_mode == 4;
  }

  void Add(KernelCall call, int64_t batch, int64_t queries, int64_t keys) {
    // Keys that no query of the sequence can see go first: then a window counted from the left top always holds the diagonal.
    const int64_t reach = call_.sparse_mode == 2 ? 0 : call_.sparse_mode == 0 && call_.mask ? call_.next_tokens : kNoLimit;
    if (reach < kNoLimit && queries + reach < keys) {
      keys = std::max<int64_t>(0, queries + reach);
      call.kv_lens = {keys};
    }
    const Window window = WindowOf(call_, keys - queries);
    call.args.window_left = window.left;
    call.args.window_right = window.right;
    if (call_.mask) {
      CheckMask(*call_.mask, batches_, call_.num_heads, queries, keys);
      SetMask(call.args, *call_.mask, batch, batches_, queries);
    }
    calls_.push_back(std::move(call));
  }

  void PlanPaged() {
    const aclTensor& table = *call_.block_table;
    Require(call_.keys.size() == 1, "there are ", call_.keys.size(), " keys; with a block table there must be one cache");
    Require(call_.key_lengths.has_value(), "actual_seq_lengths_kv is missing; with a block table it is needed");
    Require(table.dtype == DType::kI32 && table.sizes.n == 2 && table.sizes[0] >= batches_ &&
                (table.strides[1] == 1 || table.sizes[1] <= 1),
            "block_table is ", DTypeName(table.dtype), " of shape ", ToString(table.sizes), "; it must be int32 [", batches_,
            ", blocks]");
    Require(call_.block_size > 0, "block_size is ", call_.block_size, "; with a block table it must be positive");
    const Cache k = CacheOf("key", call_.keys[0], kv_heads_, call_.block_size),
                v = CacheOf("value", call_.values[0], kv_heads_, call_.block_size);
    Require(k.dim == query_.dim && v.dim == out_.dim && k.blocks == v.blocks, "key has ", k.blocks, " blocks of head size ", k.dim,
            " and value ", v.blocks, " of ", v.dim, "; query has head size ", query_.dim, " and attention_out ", out_.dim);
    const Cache rope = call_.key_rope ? CacheOf("key_rope", *call_.key_rope, kv_heads_, call_.block_size) : Cache();
    Require(rope.dim == query_rope_.dim && (rope.dim == 0 || rope.blocks == k.blocks), "key_rope has ", rope.blocks, " blocks of head size ",
            rope.dim, "; key has ", k.blocks, " and query_rope head size ", query_rope_.dim);
    const int64_t capacity = table.sizes[1] * call_.block_size;
    SetScales(capacity, k.blocks);
    const auto fill = [&](PagedAttentionArgs& a, int64_t first) {
      a.k = k.data, a.k_block_stride = k.block_stride, a.k_token_stride = k.token_stride, a.k_head_stride = k.head_stride;
      a.k_rope = rope.data, a.k_rope_block_stride = rope.block_stride, a.k_rope_token_stride = rope.token_stride, a.k_rope_head_stride = rope.head_stride;
      a.v = v.data, a.v_block_stride = v.block_stride, a.v_token_stride = v.token_stride, a.v_head_stride = v.head_stride;
      a.block_table = static_cast<const int32_t*>(table.data()) + first * table.strides[0];
      a.block_table_stride = table.strides[0], a.block_size = call_.block_size, a.num_blocks = k.blocks;
    };
    const auto keys_of = [&](int64_t i) {
      const int64_t keys = LengthAt(call_.key_lengths, i, 0);
      Require(keys >= 0 && keys <= capacity, "actual_seq_lengths_kv[", i, "] is ", keys, "; block_table has room for ", capacity,
              " tokens");
      return keys;
    };
    PlanSequences(fill, keys_of);
  }

  void PlanContiguous() {
    std::vector<View> ks, vs;
    for (size_t i = 0; i < call_.keys.size(); ++i) {
      ks.push_back(ViewOf("key", call_.keys[i], layout_, kv_heads_));
      vs.push_back(ViewOf("value", call_.values[i], layout_, kv_heads_));
      const View &k = ks.back(), &v = vs.back();
      Require(k.heads == kv_heads_ && v.heads == kv_heads_ && k.dim == query_.dim && v.dim == out_.dim && k.tokens == v.tokens &&
                  k.batch == v.batch,
              "key ", ToString(call_.keys[i].sizes), " and value ", ToString(call_.values[i].sizes), " don't fit query ",
              ToString(call_.query.sizes), " with ", kv_heads_, " key heads in layout ", call_.layout);
    }
    const bool listed = ks.size() > 1;
    const View rope = call_.key_rope ? ViewOf("key_rope", *call_.key_rope, layout_, kv_heads_) : View();
    Require(!call_.key_rope || (!listed && rope.dim == query_rope_.dim && rope.tokens == ks[0].tokens && rope.batch == ks[0].batch && rope.heads == kv_heads_),
            "key_rope has shape ", call_.key_rope ? ToString(call_.key_rope->sizes) : "", "; it must be key's, ", ToString(call_.keys[0].sizes),
            ", but for the last dimension, which is query_rope's, and there may be one key only");
    Require(listed ? static_cast<int64_t>(ks.size()) == batches_ : packed_ || ks[0].batch == batches_, "there are ", ks.size(),
            " keys of batch ", ks[0].batch, "; the batch is ", batches_);
    Require(!packed_ || call_.key_lengths, "actual_seq_lengths_kv is missing; layout ", call_.layout, " needs it");
    const auto begin_of = [&](int64_t i) { return packed_ && i > 0 ? (*call_.key_lengths)[static_cast<size_t>(i - 1)] : 0; };
    const auto keys_of = [&](int64_t i) {
      const View& k = ks[listed ? static_cast<size_t>(i) : 0];
      const int64_t keys =
          packed_ ? (*call_.key_lengths)[static_cast<size_t>(i)] - begin_of(i) : LengthAt(call_.key_lengths, i, k.tokens);
      Require(keys >= 0 && begin_of(i) + keys <= k.tokens, "actual_seq_lengths_kv[", i, "] gives ", keys, " keys up to token ",
              begin_of(i) + keys, "; key has ", k.tokens, " tokens");
      return keys;
    };
    int64_t most = 0;
    for (const View& k : ks) most = std::max(most, k.tokens);
    SetScales(most, 0);
    const int64_t size = CacheItemSize();
    const auto fill = [&](PagedAttentionArgs& a, int64_t i) {
      const View &k = ks[listed ? static_cast<size_t>(i) : 0], &v = vs[listed ? static_cast<size_t>(i) : 0];
      const int64_t batch = listed || packed_ ? 0 : i;
      a.k = Offset(k.data, batch * k.batch_stride + begin_of(i) * k.token_stride, size);
      a.v = Offset(v.data, batch * v.batch_stride + begin_of(i) * v.token_stride, size);
      a.k_token_stride = k.token_stride, a.k_head_stride = k.head_stride;
      a.v_token_stride = v.token_stride, a.v_head_stride = v.head_stride;
      if (!call_.key_rope) return;
      a.k_rope = Offset(rope.data, batch * rope.batch_stride + begin_of(i) * rope.token_stride, size);
      a.k_rope_token_stride = rope.token_stride, a.k_rope_head_stride = rope.head_stride;
    };
    PlanSequences(fill, keys_of);
  }

  template <class Fill, class KeysOf>
  void PlanSequences(const Fill& fill, const KeysOf& keys_of) {
    // Tokens of all sequences on one axis: TND, or one query each.
    const bool one_axis = packed_ || (query_.tokens == 1 && !call_.query_lengths);
    const bool same_lse = packed_ || !call_.lse;
    if (one_axis && same_lse && SharesWindow() && (packed_ || call_.block_table) && batches_ > 0) {
      KernelCall whole{.args = Base(0)};
      if (!packed_) {
        whole.args.q_token_stride = query_.batch_stride;
        whole.args.q_rope_token_stride = query_rope_.batch_stride;
        whole.args.out_token_stride = out_.batch_stride;
      }
      fill(whole.args, 0);
      for (int64_t i = 0; i < batches_; ++i) {
        const int64_t queries = packed_ ? QueryCount(i) : 1;
        whole.query_ends.push_back(packed_ ? QueryBegin(i) + queries : i + 1);
        whole.kv_lens.push_back(keys_of(i));
      }
      Add(std::move(whole), 0, 0, 0);
      return;
    }
    for (int64_t i = 0; i < batches_; ++i) {
      const int64_t queries = QueryCount(i), keys = keys_of(i);
      if (queries == 0) continue;
      KernelCall one{.args = Base(packed_ ? 0 : i)};
      fill(one.args, i);
      for (attention::KvScales* scales : {&one.args.k_scales, &one.args.v_scales}) {
        if (scales->data != nullptr) scales->data += i * scales->seq_stride;
      }
      one.query_starts = {QueryBegin(i)};
      one.query_ends = {QueryBegin(i) + queries};
      one.kv_lens = {keys};
      Add(std::move(one), i, queries, keys);
    }
  }

  AttentionCall call_;
  std::string layout_;
  bool packed_ = false;
  int64_t kv_heads_ = 0, batches_ = 0;
  quant::DType type_ = quant::DType::kF32;
  std::optional<quant::Format> format_;  // of a quantised cache
  CacheScales key_scales_, value_scales_;
  View query_, query_rope_, out_;
  std::vector<KernelCall> calls_;
};

}  // namespace

Task PlanAttention(const AttentionCall& call) { return Planner(call).Make(); }

}  // namespace jumar::hostcann::aclnn
