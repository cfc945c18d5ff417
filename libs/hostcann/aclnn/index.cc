// Reading and writing by index. int32 and int64 indices; negative ones count from the end, as ATen checks them.
#include <ATen/ops/_embedding_bag.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/scatter_reduce.h>
#include <ATen/ops/take.h>
#include <ATen/ops/tensor.h>

#include <array>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

Tensor Long(const Tensor& index) { return index.to(at::kLong); }

// aclnnScatter's reduction: 0 replaces, 1 adds, 2 multiplies.
const char* ReduceName(int64_t reduction) {
  constexpr std::array<const char*, 3> kNames = {"", "add", "multiply"};
  Require(reduction >= 0 && reduction < 3, "reduction is ", reduction, "; it must be 0 (none), 1 (add) or 2 (multiply)");
  return kNames[static_cast<size_t>(reduction)];
}

// aclnnScatterReduce's, which are others.
const char* ScatterReduceName(int64_t reduction) {
  constexpr std::array<const char*, 6> kNames = {"", "sum", "prod", "amax", "amin", "mean"};
  Require(reduction >= 0 && reduction < 6, "reduction is ", reduction,
          "; it must be 0 (none), 1 (sum), 2 (prod), 3 (amax), 4 (amin) or 5 (mean)");
  return kNames[static_cast<size_t>(reduction)];
}

// torch_npu passes an index that isn't there (`:`) as a tensor of no elements. A real index of no elements selects
// nothing: then either all of them are empty or the result is.
c10::List<std::optional<Tensor>> Present(const std::vector<Tensor>& indices) {
  c10::List<std::optional<Tensor>> list;
  for (const Tensor& t : indices) list.push_back(t.defined() && t.numel() > 0 ? std::optional<Tensor>(t) : std::nullopt);
  return list;
}
bool AllEmpty(const std::vector<Tensor>& indices) {
  for (const Tensor& t : indices) {
    if (t.defined() && t.numel() > 0) return false;
  }
  return true;
}

}  // namespace

ACLNN_OP(Index, In(self), Ins(indices), Out(out)) {
  if (out.numel() == 0 || AllEmpty(indices)) return;
  Put(out, at::index(self, Present(indices)));
}
ACLNN_OP(IndexPutImpl, Out(self), Ins(indices), In(values), Flag(accumulate), Flag(unsafe)) {
  if (AllEmpty(indices)) return;
  at::_index_put_impl_(self, Present(indices), values.to(self.scalar_type()), accumulate, unsafe);
}
ACLNN_OP(IndexSelect, In(self), I64(dim), In(index), Out(out)) { at::index_select_out(out, self, dim, index); }
ACLNN_OP(IndexAdd, In(self), I64(dim), In(index), In(source), Num(alpha), Out(out)) {
  Put(out, at::index_add(self, dim, index, source.to(self.scalar_type()), alpha));
}
ACLNN_OP(IndexAddV2, In(self), I64(dim), In(index), In(source), Num(alpha), I64(mode), Out(out)) {
  Put(out, at::index_add(self, dim, index, source.to(self.scalar_type()), alpha));
}
ACLNN_OP(IndexCopy, In(self), I64(dim), In(index), In(source), Out(out)) {
  Put(out, self.index_copy(dim, Long(index), source.to(self.scalar_type())));
}
ACLNN_OP(InplaceIndexCopy, Out(self), I64(dim), In(index), In(source)) {
  self.index_copy_(dim, Long(index), source.to(self.scalar_type()));
}
ACLNN_OP(IndexFill, In(self), I64(dim), In(index), Num(value), Out(out)) { Put(out, self.index_fill(dim, Long(index), value)); }
ACLNN_OP(InplaceIndexFill, Out(self), I64(dim), In(index), Num(value)) { self.index_fill_(dim, Long(index), value); }
ACLNN_OP(Take, In(self), In(index), Out(out)) { Put(out, at::take(self, Long(index))); }
ACLNN_OP(InplacePut, Out(self), In(index), In(source), Flag(accumulate)) {
  self.put_(Long(index), source.to(self.scalar_type()), accumulate);
}

ACLNN_OP(Gather, In(self), I64(dim), In(index), Out(out)) { at::gather_out(out, self, dim, Long(index)); }
ACLNN_PLAN(Scatter, In(self), I64(dim), In(index), In(src), I64(reduction), Out(out)) {
  const char* reduce = ReduceName(reduction);
  return [=] {
    Put(out, reduction == 0 ? at::scatter(self, dim, Long(index), src) : at::scatter(self, dim, Long(index), src, reduce));
  };
}
ACLNN_PLAN(ScatterValue, In(self), I64(dim), In(index), Num(value), I64(reduction), Out(out)) {
  const char* reduce = ReduceName(reduction);
  return [=] {
    Put(out, reduction == 0 ? at::scatter(self, dim, Long(index), value) : at::scatter(self, dim, Long(index), value, reduce));
  };
}
ACLNN_PLAN(InplaceScatter, Out(self), I64(dim), In(index), In(src), I64(reduction)) {
  const char* reduce = ReduceName(reduction);
  return [=] { reduction == 0 ? self.scatter_(dim, Long(index), src) : self.scatter_(dim, Long(index), src, reduce); };
}
ACLNN_PLAN(InplaceScatterValue, Out(self), I64(dim), In(index), Num(value), I64(reduction)) {
  const char* reduce = ReduceName(reduction);
  return [=] { reduction == 0 ? self.scatter_(dim, Long(index), value) : self.scatter_(dim, Long(index), value, reduce); };
}
ACLNN_OP(ScatterAdd, In(self), I64(dim), In(index), In(src), Out(out)) { Put(out, at::scatter_add(self, dim, Long(index), src)); }
ACLNN_PLAN(ScatterReduce, In(self), I64(dim), In(index), In(src), I64(reduction), Flag(include_self), Out(out)) {
  const char* reduce = ScatterReduceName(reduction);
  return [=] {
    Put(out, reduction == 0 ? at::scatter(self, dim, Long(index), src)
                            : at::scatter_reduce(self, dim, Long(index), src, reduce, include_self));
  };
}
ACLNN_PLAN(InplaceScatterReduce, Out(self), I64(dim), In(index), In(src), I64(reduction), Flag(include_self)) {
  const char* reduce = ScatterReduceName(reduction);
  return [=] {
    reduction == 0 ? self.scatter_(dim, Long(index), src) : self.scatter_reduce_(dim, Long(index), src, reduce, include_self);
  };
}

// self[indices[i, ..., :]] = updates[i, ...]: the last dimension of `indices` addresses the first dimensions of self.
ACLNN_OP(ScatterNdUpdate, Out(self), In(indices), In(updates)) {
  if (indices.numel() == 0) return;
  const Tensor index = Long(indices);
  c10::List<std::optional<Tensor>> list;
  for (int64_t i = 0; i < index.size(-1); ++i) list.push_back(index.select(-1, i));
  at::_index_put_impl_(self, list, updates.to(self.scalar_type()), false, false);
}
// Writes updates[b] into self[b] from position indices[b] along axis; with [n, 2] indices, into self[indices[b, 0]]
// from position indices[b, 1].
ACLNN_OP(InplaceScatterUpdate, Out(self), In(indices), In(updates), I64(axis)) {
  const Tensor index = Long(indices);
  const bool pairs = index.dim() == 2;
  const int64_t along = axis < 0 ? axis + self.dim() : axis;
  Require(along >= 1 && along < self.dim(), "axis is ", axis, "; it must be a dimension of self other than the first");
  for (int64_t b = 0; b < updates.size(0); ++b) {
    const int64_t row = pairs ? index[b][0].item<int64_t>() : b;
    const int64_t begin = (pairs ? index[b][1] : index[b]).item<int64_t>();
    self[row].narrow(along - 1, begin, updates.size(along)).copy_(updates[b]);
  }
}

ACLNN_OP(IndexFillTensor, In(self), I64(dim), Ints(index), Num(value), Out(out)) {
  Put(out, at::index_fill(self, dim, at::tensor(at::IntArrayRef(index), at::kLong), value));
}
ACLNN_OP(InplaceIndexFillTensor, Out(self), I64(dim), Ints(index), Num(value)) {
  self.index_fill_(dim, at::tensor(at::IntArrayRef(index), at::kLong), value);
}
// Bags of rows of a table, added up (mode 0), averaged (1) or the largest of each column (2). The other outputs are for the
// backward pass.
ACLNN_OP(EmbeddingBag, In(weight), In(indices), In(offsets), Flag(scale_grad_by_freq), I64(mode), Flag(sparse),
         OptIn(per_sample_weights), Flag(include_last_offset), I64(padding_idx), Out(out), Out(offset2bag), Out(bag_size),
         Out(max_indices)) {
  const auto [value, bag_of, size, largest] =
      at::_embedding_bag(weight.to(at::kFloat), indices.to(at::kLong), offsets.to(at::kLong), scale_grad_by_freq, mode, sparse,
                         per_sample_weights ? OptTensor(per_sample_weights->to(at::kFloat)) : OptTensor(), include_last_offset,
                         padding_idx);
  Put(out, value);
  for (const auto& [to, from] : {std::pair(&offset2bag, &bag_of), {&bag_size, &size}, {&max_indices, &largest}}) {
    if (to->numel() == from->numel()) {
      Put(*to, *from);
    } else {
      to->zero_();
    }
  }
}

}  // namespace jumar::hostcann::aclnn
