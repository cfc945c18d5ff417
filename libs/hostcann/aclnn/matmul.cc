// Matrix products. Those of a matrix (or a batch of rows) with a weight go to libs/quant's GEMM, which sums in fp32 and
// rounds once; shapes and types that it doesn't take go to ATen. cubeMathType, by which the caller lets the hardware
// lower the precision of fp32, is accepted and never used: fp32 stays fp32.
#include <ATen/ops/addbmm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/linalg_cross.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mv.h>

#include <algorithm>
#include <optional>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/quant/fractal_nz.h"
#include "libs/quant/gemm.h"

namespace jumar::hostcann::aclnn {
namespace {

using quant::GemmArgs;
using quant::WeightLayout;

void RequireBase(const char* name, const aclTensor& t) {
  Require(IsBaseFormat(t.format), "argument `", name, "` has format ", FormatName(t.format), "; this operator takes ND (2)");
}

// Describes out = self * mat2 for the GEMM, self being [..., m, k] and mat2 a [k, n] view of an ND weight; nullopt if the
// shapes, strides or types are not what the GEMM takes.
std::optional<GemmArgs> PlanGemm(const aclTensor& self, const aclTensor& mat2, const aclTensor& out) {
  const auto type = KernelType(self.dtype);
  if (!type || mat2.dtype != self.dtype || out.dtype != self.dtype || self.sizes.n < 2 || mat2.sizes.n != 2) return std::nullopt;
  const auto a = AsRows(self, 1), o = AsRows(out, 1);
  if (!a || !o || a->cols != mat2.sizes[0] || o->rows != a->rows || o->cols != mat2.sizes[1]) return std::nullopt;
  if (a->stride < a->cols || o->stride < o->cols) return std::nullopt;  // rows that overlap (expanded)
  GemmArgs args{.m = a->rows,
                .n = o->cols,
                .k = a->cols,
                .type = *type,
                .a = self.data(),
                .lda = a->stride,
                .w = mat2.data(),
                .out = out.data(),
                .ldo = o->stride};
  const int64_t row = mat2.strides[0], col = mat2.strides[1];
  if ((row == 1 || args.k == 1) && (args.n == 1 || col >= args.k)) {
    args.layout = WeightLayout::kNK;
    args.ldw = args.n == 1 ? args.k : col;
  } else if ((col == 1 || args.n == 1) && (args.k == 1 || row >= args.n)) {
    args.layout = WeightLayout::kKN;
    args.ldw = args.k == 1 ? args.n : row;
  } else {
    return std::nullopt;
  }
  return args;
}

Task RunGemm(const GemmArgs& args) {
  return [args] { Check(quant::Gemm(args, ComputeExecutor())); };
}

Task PlanMatmul(const aclTensor& self, const aclTensor& mat2, const aclTensor& out) {
  RequireBase("self", self);
  RequireBase("mat2", mat2);
  RequireBase("out", out);
  Require(self.sizes.n >= 1 && mat2.sizes.n >= 1, "self has shape ", ToString(self.sizes), " and mat2 ", ToString(mat2.sizes),
          "; a matrix product needs at least one dimension of each");
  const int64_t k = self.sizes[self.sizes.n - 1], k2 = mat2.sizes[std::max(0, mat2.sizes.n - 2)];
  Require(k == k2, "self has ", k, " columns but mat2 has ", k2, " rows (shapes ", ToString(self.sizes), " and ",
          ToString(mat2.sizes), ")");
  if (const auto args = PlanGemm(self, mat2, out)) return RunGemm(*args);
  return [x = ToTensor(self), y = ToTensor(mat2), o = ToTensor(out)] { Put(o, at::matmul(x, y)); };
}

// Matrix `index` of a batch.
aclTensor Item(const aclTensor& t, int64_t index) {
  aclTensor item = t;
  item.offset += index * t.strides[0];
  for (Dims* dims : {&item.sizes, &item.strides}) {
    std::copy(dims->v + 1, dims->v + dims->n, dims->v);
    --dims->n;
  }
  return item;
}

Task PlanBatchMatmul(const aclTensor& self, const aclTensor& mat2, const aclTensor& out) {
  RequireBase("self", self);
  RequireBase("mat2", mat2);
  RequireBase("out", out);
  const auto fallback = [x = ToTensor(self), y = ToTensor(mat2), o = ToTensor(out)] { Put(o, at::matmul(x, y)); };
  if (self.sizes.n != 3 || mat2.sizes.n != 3 || out.sizes.n != 3) return fallback;
  Require(self.sizes[2] == mat2.sizes[1], "self has ", self.sizes[2], " columns but mat2 has ", mat2.sizes[1], " rows");
  const int64_t batch = out.sizes[0];
  if (self.sizes[0] != batch || mat2.sizes[0] != batch || out.numel() == 0) return fallback;
  const auto first = PlanGemm(Item(self, 0), Item(mat2, 0), Item(out, 0));
  if (!first) return fallback;
  const int64_t size = ItemSize(self.dtype), a = self.strides[0] * size, w = mat2.strides[0] * size, o = out.strides[0] * size;
  return [=, first = *first] {
    tiling::Executor& pool = ComputeExecutor();
    const auto multiply = [=](int64_t i, tiling::Executor& executor) {
      GemmArgs args = first;
      args.a = static_cast<const char*>(args.a) + i * a;
      args.w = static_cast<const char*>(args.w) + i * w;
      args.out = static_cast<char*>(args.out) + i * o;
      Check(quant::Gemm(args, executor));
    };
    if (batch >= pool.num_workers()) {
      pool.ParallelFor(batch, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) multiply(i, tiling::InlineExecutor());
      });
    } else {
      for (int64_t i = 0; i < batch; ++i) multiply(i, pool);
    }
  };
}

// A [k, n] view of a weight in FRACTAL_NZ. Transposed strides (1, k) say that the [n, k] matrix was cast, which is what
// the GEMM streams; (n, 1) say that the [k, n] matrix was, which it transposes block by block as it goes.
Task PlanMatmulNz(const aclTensor& self, const aclTensor& mat2, const aclTensor& out, const void* bias) {
  RequireBase("self", self);
  RequireBase("out", out);
  Require(mat2.format == kFormatFractalNz, "argument `mat2` has format ", FormatName(mat2.format),
          "; this operator takes FRACTAL_NZ (29)");
  const auto type = KernelType(self.dtype);
  Require(type && mat2.dtype == self.dtype && out.dtype == self.dtype, "self is ", DTypeName(self.dtype), ", mat2 ",
          DTypeName(mat2.dtype), ", out ", DTypeName(out.dtype), "; all must be one of float32, float16, bfloat16");
  Require(mat2.sizes.n == 2, "mat2 has shape ", ToString(mat2.sizes), "; it must have 2 dimensions");
  const auto a = AsRows(self, 1), o = AsRows(out, 1);
  const int64_t k = mat2.sizes[0], n = mat2.sizes[1];
  Require(a && o && a->cols == k && o->cols == n && a->rows == o->rows, "shapes self ", ToString(self.sizes), ", mat2 ",
          ToString(mat2.sizes), ", out ", ToString(out.sizes),
          " are not those of a product of rows, or rows of self or out are not contiguous");
  const bool transposed = mat2.strides[0] == 1 && (mat2.strides[1] == k || n == 1);
  Require(transposed || (mat2.strides[1] == 1 && (mat2.strides[0] == n || k == 1)), "mat2 has strides ", ToString(mat2.strides),
          "; a FRACTAL_NZ weight must be whole (or whole and transposed)");
  const int64_t rows = transposed ? n : k, cols = transposed ? k : n;
  const auto expected = quant::FractalNzShape(rows, cols, ItemSize(mat2.dtype));
  Check(expected.status());
  Require(
      mat2.storage_sizes.n >= 4 && std::equal(expected->begin(), expected->end(), mat2.storage_sizes.end() - 4) && mat2.offset == 0,
      "mat2 is a [", rows, ", ", cols, "] weight but its FRACTAL_NZ storage is ", ToString(mat2.storage_sizes));
  GemmArgs args{.m = a->rows,
                .n = n,
                .k = k,
                .type = *type,
                .a = self.data(),
                .lda = a->stride,
                .w = mat2.data(),
                .layout = transposed ? WeightLayout::kFractalNz : WeightLayout::kFractalNzKN,
                .bias = bias,
                .out = out.data(),
                .ldo = o->stride};
  return RunGemm(args);
}

bool IsOne(const Scalar& s) { return s.toDouble() == 1.0; }

// A bias that the GEMM can add: contiguous, of n elements, of out's type.
const void* BiasOf(const aclTensor& bias, const aclTensor& out, const Scalar& beta, const Scalar& alpha) {
  const bool fits = IsBaseFormat(bias.format) && bias.dtype == out.dtype && bias.numel() == out.sizes[out.sizes.n - 1] &&
                    bias.sizes.n >= 1 && bias.sizes[bias.sizes.n - 1] == bias.numel() && IsContiguous(bias) && IsOne(beta) &&
                    IsOne(alpha);
  return fits ? bias.data() : nullptr;
}

Task PlanAddmm(const aclTensor& self, const aclTensor& mat1, const aclTensor& mat2, const Scalar& beta, const Scalar& alpha,
               const aclTensor& out) {
  for (const auto& [name, t] : {std::pair("self", &self), {"mat1", &mat1}, {"mat2", &mat2}, {"out", &out}}) RequireBase(name, *t);
  Require(mat1.sizes.n == 2 && mat2.sizes.n == 2 && mat1.sizes[1] == mat2.sizes[0], "mat1 ", ToString(mat1.sizes), " and mat2 ",
          ToString(mat2.sizes), " can't be multiplied");
  const void* bias = BiasOf(self, out, beta, alpha);
  if (auto args = PlanGemm(mat1, mat2, out); args && bias != nullptr) {
    args->bias = bias;
    return RunGemm(*args);
  }
  return [c = ToTensor(self), a = ToTensor(mat1), b = ToTensor(mat2), o = ToTensor(out), beta, alpha] {
    Put(o, at::addmm(c, a, b, beta, alpha));
  };
}

}  // namespace

ACLNN_PLAN(Matmul, Raw(self), Raw(mat2), Raw(out), I8(cube_math_type)) { return PlanMatmul(self, mat2, out); }
ACLNN_PLAN(Mm, Raw(self), Raw(mat2), Raw(out), I8(cube_math_type)) { return PlanMatmul(self, mat2, out); }
ACLNN_PLAN(MatmulWeightNz, Raw(self), Raw(mat2), Raw(out), I8(cube_math_type)) { return PlanMatmulNz(self, mat2, out, nullptr); }
ACLNN_PLAN(BatchMatMul, Raw(self), Raw(mat2), Raw(out), I8(cube_math_type)) { return PlanBatchMatmul(self, mat2, out); }
ACLNN_PLAN(Addmm, Raw(self), Raw(mat1), Raw(mat2), Num(beta), Num(alpha), Raw(out), I8(cube_math_type)) {
  return PlanAddmm(self, mat1, mat2, beta, alpha, out);
}
ACLNN_PLAN(AddmmWeightNz, Raw(self), Raw(mat1), Raw(mat2), Num(beta), Num(alpha), Raw(out), I8(cube_math_type)) {
  const void* bias = BiasOf(self, out, beta, alpha);
  Require(bias != nullptr, "self has shape ", ToString(self.sizes), ", beta is ", beta.toDouble(), ", alpha is ", alpha.toDouble(),
          "; with a FRACTAL_NZ weight, self must be a bias of ", out.sizes[out.sizes.n - 1],
          " contiguous elements, beta and alpha 1");
  return PlanMatmulNz(mat1, mat2, out, bias);
}
// Here the output is also an input.
ACLNN_OP(InplaceAddmm, Out(self), In(mat1), In(mat2), Num(beta), Num(alpha), I8(cube_math_type)) {
  Put(self, at::addmm(self, mat1, mat2, beta, alpha));
}
ACLNN_OP(Baddbmm, In(self), In(batch1), In(batch2), Num(beta), Num(alpha), Out(out), I8(cube_math_type)) {
  Put(out, at::baddbmm(self, batch1, batch2, beta, alpha));
}
ACLNN_OP(Addbmm, In(self), In(batch1), In(batch2), Num(beta), Num(alpha), Out(out), I8(cube_math_type)) {
  Put(out, at::addbmm(self, batch1, batch2, beta, alpha));
}
ACLNN_OP(Addmv, In(self), In(mat), In(vec), Num(alpha), Num(beta), Out(out), I8(cube_math_type)) {
  Put(out, at::addmv(self, mat, vec, beta, alpha));
}
ACLNN_OP(Addr, In(self), In(vec1), In(vec2), Num(beta), Num(alpha), Out(out)) { Put(out, at::addr(self, vec1, vec2, beta, alpha)); }
ACLNN_OP(InplaceAddr, Out(self), In(vec1), In(vec2), Num(beta), Num(alpha)) { Put(self, at::addr(self, vec1, vec2, beta, alpha)); }
ACLNN_OP(Mv, In(self), In(vec), Out(out), I8(cube_math_type)) { Put(out, at::mv(self, vec)); }
ACLNN_OP(Dot, In(self), In(tensor), Out(out)) { Put(out, at::dot(self, tensor)); }
ACLNN_OP(LinalgCross, In(self), In(other), I64(dim), Out(out)) { Put(out, at::linalg_cross(self, other, dim)); }

}  // namespace jumar::hostcann::aclnn
