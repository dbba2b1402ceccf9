#include "codegen/pack_args.h"

#include <catch2/catch.hpp>

#include <bit>

namespace attnc {

using codegen::ArgWord;
using codegen::packArgs;
using ir::Type;

TEST_CASE("a launch passes each captured thing in a word of its own", "[codegen]") {
  float data[6] = {};
  ir::Bindings bindings;
  bindings.dims = {2, 3, 4, 5, 6};
  bindings.tensors.push_back(TensorView::contiguous(data, DType::F32, {2, 3}));
  bindings.tensors[0].stride[0] = -3;
  bindings.scalars = {{-7, 0}, {0, 0.5}, {1, 0}};
  std::vector<ArgWord> slots = {
      {ArgWord::Kind::Dim, 4, 0, Type::I32},          {ArgWord::Kind::TensorData, 0, 0, Type::I64},
      {ArgWord::Kind::TensorSize, 0, 1, Type::I32},   {ArgWord::Kind::TensorStride, 0, 0, Type::I64},
      {ArgWord::Kind::TensorStride, 0, 1, Type::I64}, {ArgWord::Kind::Scalar, 0, 0, Type::I32},
      {ArgWord::Kind::Scalar, 1, 0, Type::F32},       {ArgWord::Kind::Scalar, 2, 0, Type::Bool}};
  std::vector<uint64_t> words(slots.size() + 1, 99);
  packArgs(slots, bindings, nullptr, words.data());
  CHECK(words[0] == 6);
  CHECK(words[1] == reinterpret_cast<uintptr_t>(data));
  CHECK(words[2] == 3);
  CHECK(int64_t(words[3]) == -3);
  CHECK(words[4] == 1);
  CHECK(int32_t(words[5]) == -7);
  CHECK(std::bit_cast<float>(uint32_t(words[6])) == 0.5f);
  CHECK(words[7] == 1);
  CHECK(words[8] == 99);
}

TEST_CASE("a tensor without elements is passed as the address of a zero with strides of 0", "[codegen]") {
  const uint64_t zero = 0;
  float data = 0;
  ir::Bindings bindings;
  bindings.tensors.push_back(TensorView::contiguous(&data, DType::F32, {4, 0}));
  bindings.tensors[0].stride[0] = 8;
  std::vector<ArgWord> slots = {{ArgWord::Kind::TensorData, 0, 0, Type::I64},
                                {ArgWord::Kind::TensorStride, 0, 0, Type::I64},
                                {ArgWord::Kind::TensorSize, 0, 0, Type::I32}};
  uint64_t words[3];
  packArgs(slots, bindings, &zero, words);
  CHECK(words[0] == reinterpret_cast<uintptr_t>(&zero));
  CHECK(words[1] == 0);
  CHECK(words[2] == 4);
}

TEST_CASE("without columns the mod is told of one, which kernels may evaluate and drop", "[codegen]") {
  ir::Bindings bindings;
  bindings.dims = {2, 3, 4, 5, 0, 0};
  std::vector<ArgWord> slots = {{ArgWord::Kind::Dim, 3, 0, Type::I32},
                                {ArgWord::Kind::Dim, 4, 0, Type::I32},
                                {ArgWord::Kind::Dim, 5, 0, Type::I32}};
  uint64_t words[3];
  packArgs(slots, bindings, nullptr, words);
  CHECK(words[0] == 5);
  CHECK(words[1] == 1);
  CHECK(words[2] == 0); // a free extent
}

} // namespace attnc
