// Linear algebra: factorisations, inverses, norms of rows. Half precisions are computed in fp32.
#include <ATen/ops/embedding_renorm.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_slogdet.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/renorm.h>
#include <ATen/ops/triangular_solve.h>

#include "libs/hostcann/aclnn/op.h"
#include "libs/hostcann/aclnn/wide.h"

namespace jumar::hostcann::aclnn {

ACLNN_OP(Inverse, In(self), Out(out)) { Put(out, at::linalg_inv(Wide(self))); }
ACLNN_OP(LinalgCholesky, In(self), Flag(upper), Out(out)) { Put(out, at::linalg_cholesky(Wide(self), upper)); }
// mode: 0 reduced, 1 complete, 2 only r.
ACLNN_PLAN(LinalgQr, In(self), I64(mode), Out(q), Out(r)) {
  Require(mode >= 0 && mode <= 2, "mode is ", mode, "; it must be 0 (reduced), 1 (complete) or 2 (r)");
  return [=] {
    const auto [q_value, r_value] = at::linalg_qr(Wide(self), mode == 0 ? "reduced" : mode == 1 ? "complete" : "r");
    if (mode != 2) Put(q, q_value);
    Put(r, r_value);
  };
}
ACLNN_OP(Slogdet, In(self), Out(sign), Out(log)) {
  const auto [sign_value, log_value] = at::linalg_slogdet(Wide(self));
  Put(sign, sign_value);
  Put(log, log_value);
}
// v, not its conjugate transpose.
ACLNN_OP(Svd, In(self), Flag(full_matrices), Flag(compute_uv), Out(sigma), Out(u), Out(v)) {
  if (!compute_uv) {
    Put(sigma, at::linalg_svdvals(Wide(self)));
    return;
  }
  const auto [u_value, s_value, vh_value] = at::linalg_svd(Wide(self), full_matrices);
  Put(sigma, s_value);
  Put(u, u_value);
  Put(v, vh_value.mH());
}
ACLNN_OP(TriangularSolve, In(self), In(a), Flag(upper), Flag(transpose), Flag(unitriangular), Out(x), Out(m)) {
  const auto [solution, coefficients] = at::triangular_solve(Wide(self), Wide(a), upper, transpose, unitriangular);
  Put(x, solution);
  Put(m, coefficients);
}

ACLNN_OP(Renorm, In(self), Num(p), I64(dim), Num(max_norm), Out(out)) { Put(out, at::renorm(Wide(self), p, dim, max_norm)); }
ACLNN_OP(InplaceRenorm, Out(self), Num(p), I64(dim), Num(max_norm)) { Put(self, at::renorm(Wide(self), p, dim, max_norm)); }
// Rows of a table that are looked up and longer than max_norm are shortened to it.
ACLNN_OP(EmbeddingRenorm, Out(self), In(indices), F64(max_norm), F64(norm_type)) {
  Tensor wide = Wide(self);
  at::embedding_renorm_(wide, indices.to(at::kLong), max_norm, norm_type);
  if (!wide.is_same(self)) self.copy_(wide);
}

}  // namespace jumar::hostcann::aclnn
