// What a trace tells of a call: names, shapes, bytes and operations, for each kind of count.
#include "libs/hostcann/aclnn/describe.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/aclnn/acl_types.h"

// The runtime's part, so that the test needs no device.
namespace jumar::hostcann {
void SetRecentError(const std::string&) {}
void* DeviceAlias(const void* pointer) { return const_cast<void*>(pointer); }
}  // namespace jumar::hostcann

namespace jumar::hostcann::aclnn {
namespace {

aclTensor Make(DType dtype, std::initializer_list<int64_t> sizes, int32_t format = kFormatND) {
  aclTensor t{};
  t.dtype = dtype;
  t.format = format;
  for (const int64_t size : sizes) t.sizes.v[t.sizes.n++] = size;
  return t;
}

TEST(DescriptionTest, TellsEveryKindOfArgument) {
  const aclTensor a = Make(DType::kF16, {2, 3}), nz = Make(DType::kBF16, {4}, kFormatFractalNz);
  const aclTensorList list{{&a, nullptr, &nz}};
  const aclIntArray ints{{1, 2, 3}};
  aclScalar alpha{DType::kF32, {}};
  const float half = 0.5f;
  std::memcpy(alpha.value, &half, sizeof(half));
  Description d("aclnnX", "In(self), OptIn(bias), Ins(list), Num(alpha), Ints(dims), I64(dim), Flag(keep), F64(eps), Text(mode)");
  d.Add(&a);
  d.Add(static_cast<const aclTensor*>(nullptr));
  d.Add(&list);
  d.Add(&alpha);
  d.Add(&ints);
  d.Add(int64_t{-1});
  d.Add(true);
  d.Add(1e-6);
  d.Add("a \"quoted\" word");
  const auto details = d.Finish();
  EXPECT_EQ(details->arguments,
            "\"self\": \"float16[2, 3]\", \"list\": [\"float16[2, 3]\", \"bfloat16[4] FRACTAL_NZ (29)\"], \"alpha\": 0.5, "
            "\"dims\": [1, 2, 3], \"dim\": -1, \"keep\": true, \"eps\": 1e-06, \"mode\": \"a \\\"quoted\\\" word\"");
  EXPECT_EQ(details->bytes, 12u + 12 + 8);
  EXPECT_EQ(details->flops, 0);
}

TEST(DescriptionTest, CountsProducts) {
  const aclTensor x = Make(DType::kBF16, {5, 7}), w = Make(DType::kBF16, {7, 11}), out = Make(DType::kBF16, {5, 11});
  Description d("aclnnMatmul", "Raw(self), Raw(mat2), Raw(out), I8(cube_math_type)");
  d.Add(&x), d.Add(&w), d.Add(&out), d.Add(int8_t{1});
  EXPECT_EQ(d.Finish()->flops, 2 * 5 * 7 * 11);
  EXPECT_EQ(d.Finish()->bytes, 2u * (35 + 77 + 55));
  const aclTensor bias = Make(DType::kBF16, {11});
  Description addmm("aclnnAddmm", "Raw(self), Raw(mat1), Raw(mat2), Num(beta), Num(alpha), Raw(out)");
  addmm.Add(&bias), addmm.Add(&x), addmm.Add(&w);
  addmm.Add(static_cast<const aclScalar*>(nullptr)), addmm.Add(static_cast<const aclScalar*>(nullptr)), addmm.Add(&out);
  EXPECT_EQ(addmm.Finish()->flops, 2 * 5 * 7 * 11);
}

TEST(DescriptionTest, ALargeTensorThatIsTouchedInPartCountsAsThePart) {
  const aclTensor table = Make(DType::kF32, {1000, 8}), indices = Make(DType::kI64, {3}), out = Make(DType::kF32, {3, 8});
  Description d("aclnnEmbedding", "Raw(weight), Raw(indices), Raw(out)");
  d.Add(&table), d.Add(&indices), d.Add(&out);
  EXPECT_EQ(d.Finish()->bytes, 96u + 24 + 96);
}

TEST(DescriptionTest, CountsTheKeysOfPagedAttention) {
  // Two sequences with 1 and 3 queries, and 10 and 20 keys in a cache of 100 blocks; 4 heads of 16, 2 of them for keys.
  const aclTensor q = Make(DType::kF16, {4, 4, 16}), cache = Make(DType::kF16, {100, 128, 32}), table = Make(DType::kI32, {2, 8});
  const aclTensorList caches{{&cache}};
  const aclIntArray queries{{1, 4}}, keys{{10, 20}};
  Description d("aclnnFusedInferAttentionScoreV2",
                "Raw(query), RawIns(key), RawIns(value), OptInts(actual_seq_lengths), OptInts(actual_seq_lengths_kv), "
                "OptRaw(block_table), I64(num_heads), Text(input_layout), I64(num_key_value_heads), Raw(attention_out)");
  d.Add(&q), d.Add(&caches), d.Add(&caches), d.Add(&queries), d.Add(&keys), d.Add(&table), d.Add(int64_t{4}), d.Add("TND");
  d.Add(int64_t{2}), d.Add(&q);
  EXPECT_EQ(d.Finish()->flops, 4 * (1 * 10 + 3 * 20) * 4 * 16);
  EXPECT_EQ(d.Finish()->bytes, 2u * (4 * 4 * 16) * 2 + 2 * 30 * 32 * 2 + 2 * 8 * 4);
}

TEST(DescriptionTest, CountsDenseAttention) {
  // BSH: 2 sequences, 5 queries and 5 keys each, 4 heads of 8.
  const aclTensor t = Make(DType::kF32, {2, 5, 32});
  const aclTensorList list{{&t}};
  Description d("aclnnFusedInferAttentionScoreV2", "Raw(query), RawIns(key), RawIns(value), I64(num_heads), Text(input_layout), "
                                                   "I64(num_key_value_heads), Raw(attention_out)");
  d.Add(&t), d.Add(&list), d.Add(&list), d.Add(int64_t{4}), d.Add("BSH"), d.Add(int64_t{4}), d.Add(&t);
  EXPECT_EQ(d.Finish()->flops, 4.0 * 2 * 5 * 5 * 32);
}

}  // namespace
}  // namespace jumar::hostcann::aclnn
