// Mods from masks: the shortest text, equal on every element.
#include "attnc/explain.h"
#include "attnc/infer.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

using namespace attnc;

namespace {

using Lives = std::function<bool(int64_t b, int64_t h, int64_t q, int64_t kv)>;

/// A mask of bools, [B, H, Q, KV].
struct Mask {
  std::array<int64_t, 4> shape;
  std::vector<char> bytes;
  Mask(std::array<int64_t, 4> shape, const Lives& lives) : shape(shape) {
    for (int64_t b = 0; b < shape[0]; ++b)
      for (int64_t h = 0; h < shape[1]; ++h)
        for (int64_t q = 0; q < shape[2]; ++q)
          for (int64_t kv = 0; kv < shape[3]; ++kv) bytes.push_back(lives(b, h, q, kv));
  }
  TensorView view() {
    return TensorView::contiguous(bytes.data(), DType::Bool, {shape[0], shape[1], shape[2], shape[3]});
  }
};

/// Infers a mask, and compares the mod with it by the reader of explain.h.
Inference inferenceOf(std::array<int64_t, 4> shape, const Lives& lives) {
  Mask mask(shape, lives);
  Inference found = take(infer(mask.view()));
  INFO(found.text);
  const MaskReader reader = take(MaskReader::create(found.mod, found.views(), found.problem));
  int64_t wrong = 0;
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t q = 0; q < shape[2]; ++q)
        for (int64_t kv = 0; kv < shape[3]; ++kv) wrong += reader.isLive(b, h, q, kv) != lives(b, h, q, kv);
  CHECK(wrong == 0);
  return found;
}

std::string expressionOf(std::array<int64_t, 4> shape, const Lives& lives) {
  return inferenceOf(shape, lives).expression;
}

} // namespace

TEST_CASE("masks of numbers become the formula that one would write", "[infer]") {
  CHECK(expressionOf({1, 1, 200, 200}, [](auto, auto, auto q, auto kv) { return q >= kv; }) == "q_idx >= kv_idx");
  CHECK(expressionOf({2, 3, 60, 200}, [](auto, auto, auto q, auto kv) { return q + 140 >= kv; }) ==
        "q_idx + KV_LEN - Q_LEN >= kv_idx");
  CHECK(expressionOf({1, 1, 60, 200}, [](auto, auto, auto q, auto kv) { return q + 9 >= kv; }) ==
        "q_idx + 9 >= kv_idx");
  CHECK(expressionOf({1, 1, 200, 200}, [](auto, auto, auto q, auto kv) { return q >= kv && q - kv < 64; }) ==
        "(q_idx >= kv_idx) & (q_idx - kv_idx < 64)");
  CHECK(expressionOf({1, 1, 200, 200}, [](auto, auto, auto q, auto kv) { return std::abs(q - kv) <= 20; }) ==
        "abs(q_idx - kv_idx) <= 20");
  CHECK(expressionOf({1, 1, 200, 200}, [](auto, auto, auto q, auto kv) {
          return q >= kv && (q - kv < 64 || kv < 4);
        }) == "(q_idx >= kv_idx) & ((kv_idx < 4) | (q_idx - kv_idx < 64))");
  CHECK(expressionOf({1, 1, 256, 256}, [](auto, auto, auto q, auto kv) { return q >= kv && q / 32 == kv / 32; }) ==
        "(q_idx >= kv_idx) & (q_idx // 32 == kv_idx // 32)");
  CHECK(expressionOf({1, 1, 200, 200}, [](auto, auto, auto q, auto kv) { return q >= kv || kv < 50; }) ==
        "(kv_idx < 50) | (q_idx >= kv_idx)");
  CHECK(expressionOf({1, 1, 128, 128}, [](auto, auto, auto, auto) { return true; }) == "kv_idx >= 0");
}

TEST_CASE("lengths, windows and documents become captures", "[infer]") {
  const int64_t lengths[] = {100, 17, 128};
  const Inference padded = inferenceOf({3, 2, 128, 128}, [&](auto b, auto, auto, auto kv) { return kv < lengths[b]; });
  CHECK(padded.expression == "kv_idx < lengths[b]");
  REQUIRE(padded.captures.size() == 1);
  CHECK(padded.captures[0].shape == std::vector<int64_t>{3});
  CHECK(reinterpret_cast<const int32_t*>(padded.captures[0].bytes.data())[1] == 17);
  CHECK(padded.form == Inference::Form::Formula);
  const int64_t windows[] = {16, 128};
  CHECK(expressionOf({1, 2, 128, 128}, [&](auto, auto h, auto q, auto kv) { return q >= kv && q - kv < windows[h]; }) ==
        "(q_idx >= kv_idx) & (q_idx - kv_idx < window[h])");
  const auto document = [](int64_t i) { return (i > 9) + (i > 16) + (i > 40) + (i > 71) + (i > 74) + (i > 102); };
  CHECK(expressionOf({1, 1, 128, 128}, [&](auto, auto, auto q, auto kv) {
          return q >= kv && document(q) == document(kv);
        }) == "(q_idx >= kv_idx) & (document[q_idx] == document[kv_idx])");
}

TEST_CASE("what is no formula becomes intervals or a table", "[infer]") {
  std::mt19937 random(1);
  std::vector<int64_t> end(256);
  for (int64_t i = 0; i < 256; ++i) end[size_t(i)] = i + 1 + int64_t(random() % uint64_t(256 - i));
  CHECK(inferenceOf({1, 1, 256, 256}, [&](auto, auto, auto q, auto kv) {
          return q >= kv && q < end[size_t(kv)];
        }).form == Inference::Form::Intervals);
  std::vector<char> bits(100 * 131);
  for (char& bit : bits) bit = char(random() & 1);
  const Inference noise =
      inferenceOf({1, 1, 100, 131}, [&](auto, auto, auto q, auto kv) { return bits[size_t(q * 131 + kv)]; });
  CHECK(noise.form == Inference::Form::Table);
  CHECK_FALSE(noise.noise);
}

TEST_CASE("few elements that lie apart are told as noise", "[infer]") {
  const Inference found = inferenceOf({1, 1, 256, 256}, [](auto, auto, auto q, auto kv) {
    return (q >= kv && q - kv < 64) != (q == 200 && (kv == 7 || kv == 90));
  });
  REQUIRE(found.noise);
  CHECK(found.noise->elements == 2);
  CHECK(found.noise->expression == "(q_idx >= kv_idx) & (q_idx - kv_idx < 64)");
  CHECK(found.noise->places == std::vector<std::array<int64_t, 4>>{{0, 0, 200, 7}, {0, 0, 200, 90}});
}

TEST_CASE("masks of floats and ints are read, with any strides", "[infer]") {
  std::vector<float> floats(64 * 64);
  for (const float masked : {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::lowest()}) {
    for (int64_t i = 0; i < 64 * 64; ++i) floats[size_t(i)] = i / 64 >= i % 64 ? 0 : masked;
    TensorView view = TensorView::contiguous(floats.data(), DType::F32, {64, 64});
    CHECK(take(infer(view)).expression == "q_idx >= kv_idx");
    std::swap(view.stride[0], view.stride[1]);
    CHECK(take(infer(view)).expression == "q_idx <= kv_idx");
  }
  floats[70] = 0.5f;
  const TensorView wrong = TensorView::contiguous(floats.data(), DType::F32, {64, 64});
  CHECK(refusalOf(infer(wrong)).message == "the tensor is no mask: element [0, 0, 1, 6] is 0.5");
  int64_t ints[] = {1, 0, 1, 1};
  CHECK(take(infer(TensorView::contiguous(ints, DType::I64, {2, 2}))).expression == "q_idx >= kv_idx");
  ints[3] = 2;
  CHECK(refusalOf(infer(TensorView::contiguous(ints, DType::I64, {2, 2}))).message ==
        "the tensor is no mask: element [0, 0, 1, 1] is 2");
}

TEST_CASE("tensors without elements and of other ranks are refused", "[infer]") {
  char byte = 1;
  CHECK(refusalOf(infer(TensorView::contiguous(&byte, DType::Bool, {1}))).message == "the mask is bool [1]");
  CHECK(refusalOf(infer(TensorView::contiguous(&byte, DType::Bool, {1, 1, 1, 1, 1}))).message ==
        "the mask is bool [1, 1, 1, 1, 1]");
  CHECK(refusalOf(infer(TensorView::contiguous(&byte, DType::Bool, {0, 4}))).message ==
        "the mask is [0, 4], without elements");
}
