#include "helpers/take.h"
#include "passes/pass.h"
#include "reference/attention.h"
#include "support/element.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

using namespace attnc;
using namespace attnc::ir;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Extents of one test problem.
struct Case {
  int64_t batch, heads, kvHeads, qLen, kvLen, dim, dimV, kvBatch;
};

/// A dense [a, b, c, d] array of doubles that f16 and bf16 hold exactly.
struct Tensor {
  std::array<int64_t, 4> shape;
  std::vector<double> values;

  Tensor(std::array<int64_t, 4> shape, std::mt19937& random) : shape(shape) {
    std::uniform_int_distribution<int> draw(-16, 16);
    values.resize(size_t(shape[0] * shape[1] * shape[2] * shape[3]));
    for (double& value : values) value = draw(random) / 8.0;
  }
  double at(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return values[size_t(((a * shape[1] + b) * shape[2] + c) * shape[3] + d)];
  }
};

/// Memory of a strided tensor with the given elements; the order of axes in memory is [batch, length, head, dim],
/// reversed along the length, and each element is followed by an unused one.
struct Strided {
  std::vector<char> memory;
  TensorView view;

  Strided(const Tensor& tensor, DType dtype) {
    const auto& [a, b, c, d] = tensor.shape;
    memory.resize(size_t(a * b * c * d * 2 * dtypeBytes(dtype)) + 1);
    view = TensorView::contiguous(memory.data(), dtype, {a, b, c, d});
    view.stride = {c * b * d * 2, d * 2, -b * d * 2, 2};
    if (c > 0) view.data = memory.data() + (c - 1) * b * d * 2 * dtypeBytes(dtype);
    reference::store(tensor.values, view);
  }
};

struct Expectation {
  std::vector<double> out, lse, rowMax;
};

using Score = std::function<double(double score, int64_t b, int64_t h, int64_t q, int64_t kv)>;
using Mask = std::function<bool(int64_t b, int64_t h, int64_t q, int64_t kv)>;

/// Attention written down a second time: no subtraction of the maximum, long double.
Expectation bruteForce(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v, double scale,
                       const Score& score, const Mask& mask) {
  Expectation result;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.qLen; ++i) {
        int64_t kvB = c.kvBatch == 1 ? 0 : b, kvH = h * c.kvHeads / c.heads;
        std::vector<long double> weighted(size_t(c.dimV), 0);
        long double sum = 0;
        double max = -kInfinity;
        for (int64_t j = 0; j < c.kvLen; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < c.dim; ++d) dot += q.at(b, h, i, d) * k.at(kvB, kvH, j, d);
          double modified = score(dot * scale, b, h, i, j);
          if (!mask(b, h, i, j)) continue;
          max = std::max(max, modified);
          sum += std::exp((long double)(modified));
          for (int64_t d = 0; d < c.dimV; ++d)
            weighted[size_t(d)] += std::exp((long double)(modified)) * v.at(kvB, kvH, j, d);
        }
        for (long double element : weighted) result.out.push_back(sum > 0 ? double(element / sum) : 0);
        result.lse.push_back(sum > 0 ? double(std::log(sum)) : -kInfinity);
        result.rowMax.push_back(max);
      }
  return result;
}

void checkClose(const char* what, const std::vector<double>& got, const std::vector<double>& want) {
  INFO(what);
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    INFO("element " << i);
    REQUIRE(got[i] == Approx(want[i]).epsilon(1e-11).margin(1e-12));
  }
}

Module causalModule() {
  Module module;
  module.setOutput(kMask,
                   module.make(Op::Le, Type::Bool, {module.param(ParamKind::KvIdx), module.param(ParamKind::QIdx)}));
  return module;
}

/// score + slopes[h] * (kv_idx - q_idx)
Module alibiModule() {
  Module module;
  module.tensors.push_back({"slopes", DType::F32, {{true, int64_t(BuiltinDim::H)}}});
  Value distance = module.make(Op::Sub, Type::I32, {module.param(ParamKind::KvIdx), module.param(ParamKind::QIdx)});
  Value slope = module.make(Op::Load, Type::F32, {module.param(ParamKind::H)}, 0);
  Value bias = module.make(Op::Mul, Type::F32, {slope, module.make(Op::Cast, Type::F32, {distance})});
  module.setOutput(kScore, module.make(Op::Add, Type::F32, {module.param(ParamKind::Score), bias}));
  return module;
}

Score plain() {
  return [](double score, int64_t, int64_t, int64_t, int64_t) { return score; };
}
/// What a score_mod is given.
Score rounded() {
  return [](double score, int64_t, int64_t, int64_t, int64_t) { return float(score); };
}
Mask everything() {
  return [](int64_t, int64_t, int64_t, int64_t) { return true; };
}

/// Runs module and lambdas on random operands of the case and compares. `shiftOf`: what the lambda took off a row's
/// scores.
void compare(const Module& module, const Captures& captures, const Case& c, DType dtype, const Score& score,
             const Mask& mask, const BlockMaskView* blocks = nullptr, std::optional<double> scale = {},
             const std::function<double(int64_t q)>& shiftOf = {}) {
  std::mt19937 random(7);
  Tensor q({c.batch, c.heads, c.qLen, c.dim}, random);
  Tensor k({c.kvBatch, c.kvHeads, c.kvLen, c.dim}, random), v({c.kvBatch, c.kvHeads, c.kvLen, c.dimV}, random);
  Strided qMemory(q, dtype), kMemory(k, dtype), vMemory(v, dtype);
  auto got = take(reference::attention(
      module, captures,
      {.q = qMemory.view, .k = kMemory.view, .v = vMemory.view, .scale = scale, .blockMask = blocks}));
  auto want = bruteForce(c, q, k, v, scale ? *scale : 1 / std::sqrt(double(c.dim)), score, mask);
  for (size_t row = 0; shiftOf && row < want.lse.size(); ++row)
    for (double* value : {&want.lse[row], &want.rowMax[row]}) *value += shiftOf(int64_t(row) % c.qLen);
  checkClose("out", got.out, want.out);
  checkClose("lse", got.lse, want.lse);
  checkClose("row max", got.rowMax, want.rowMax);
}

const Case kCases[] = {
    {1, 1, 1, 1, 1, 8, 8, 1}, {2, 4, 2, 5, 9, 8, 16, 2}, {3, 6, 1, 17, 3, 16, 8, 1}, {2, 2, 2, 33, 40, 4, 3, 1},
    {1, 3, 3, 4, 0, 8, 8, 1}, {0, 2, 1, 4, 4, 8, 8, 0},  {2, 2, 1, 0, 4, 8, 8, 2},   {1, 12, 4, 20, 20, 2, 1, 1},
};

} // namespace

TEST_CASE("the identity gives plain softmax attention for every dtype and layout") {
  DType dtype = GENERATE(DType::F32, DType::F16, DType::BF16);
  for (const Case& c : kCases) compare(Module(), {}, c, dtype, plain(), everything());
}

TEST_CASE("an explicit scale replaces the default") {
  compare(Module(), {}, kCases[1], DType::F32, plain(), everything(), nullptr, 0.25);
}

TEST_CASE("masked columns take no part, and rows without live columns are empty") {
  auto causal = [](int64_t, int64_t, int64_t q, int64_t kv) { return kv <= q; };
  for (const Case& c : kCases) compare(causalModule(), {}, c, DType::BF16, plain(), causal);

  Module never;
  never.setOutput(kMask, never.constBool(false));
  for (const Case& c : kCases)
    compare(never, {}, c, DType::F32, plain(), [](int64_t, int64_t, int64_t, int64_t) { return false; });
}

TEST_CASE("score_mod sees the scaled score and the query head") {
  for (const Case& c : kCases) {
    std::vector<float> slopes;
    for (int64_t h = 0; h < c.heads; ++h) slopes.push_back(0.125f * float(h + 1));
    Captures captures;
    captures.set("slopes", TensorView::contiguous(slopes.data(), DType::F32, {c.heads}));
    auto alibi = [&](double score, int64_t, int64_t h, int64_t q, int64_t kv) {
      return float(score) + slopes[size_t(h)] * float(kv - q);
    };
    compare(alibiModule(), captures, c, DType::F16, alibi, everything());
  }
}

TEST_CASE("a score of minus infinity in a whole row empties it") {
  Module module;
  module.setOutput(
      kScore,
      module.make(Op::Select, Type::F32,
                  {module.make(Op::Lt, Type::Bool, {module.param(ParamKind::QIdx), module.constInt(Type::I32, 3)}),
                   module.constF32(-std::numeric_limits<float>::infinity()), module.param(ParamKind::Score)}));
  auto mask = [](int64_t, int64_t, int64_t q, int64_t) { return q >= 3; };
  compare(module, {}, kCases[1], DType::F32, rounded(), mask);
}

TEST_CASE("the softmax of scores of any size is that of their differences") {
  const double largest = std::numeric_limits<float>::max();
  for (double size : {-1e4, -1e6, -1e9, -1e30, -largest, 1e4, 1e9, largest})
    for (const Case& c : kCases) {
      // All of some rows, and of all rows some that the others make hopeless.
      const auto shiftOf = [&](int64_t q) { return q % 3 == 1 ? double(float(size)) : 0; };
      std::vector<float> bias;
      for (int64_t q = 0; q < c.qLen; ++q)
        for (int64_t kv = 0; kv < c.kvLen; ++kv)
          bias.push_back(float(q % 3 == 1 ? size : size < 0 && kv % 2 ? size : 0));
      Captures captures;
      captures.set("bias", TensorView::contiguous(bias.data(), DType::F32, {c.qLen, c.kvLen}));
      Module module;
      module.tensors.push_back(
          {"bias", DType::F32, {{true, int64_t(BuiltinDim::QLen)}, {true, int64_t(BuiltinDim::KvLen)}}});
      const Value element =
          module.make(Op::Load, Type::F32, {module.param(ParamKind::QIdx), module.param(ParamKind::KvIdx)}, 0);
      module.setOutput(kScore, module.make(Op::Add, Type::F32, {module.param(ParamKind::Score), element}));
      const auto score = [&](double score, int64_t, int64_t, int64_t q, int64_t kv) {
        return double(float(score) + bias[size_t(q * c.kvLen + kv)]) - shiftOf(q);
      };
      INFO(size);
      compare(module, captures, c, DType::F32, score, everything(), nullptr, {}, shiftOf);
    }
}

TEST_CASE("only listed blocks live, and full ones skip mask_mod") {
  Case c{2, 2, 1, 130, 200, 8, 8, 1};
  // Per head: q block 0 lists kv block 1 as partial and 3 as full, q block 1 lists 0 as full, q block 2 nothing.
  std::vector<int32_t> partialCount{1, 0, 0, 1, 0, 0}, fullCount{1, 1, 0, 1, 1, 0};
  std::vector<int32_t> partialIndex{1, 9, 9, 1, 9, 9}, fullIndex{3, 0, 9, 3, 0, 9};
  BlockMaskView blocks{.shape = {.batch = 1, .heads = 2, .qLen = 130, .kvLen = 200, .qBlock = 64, .kvBlock = 64},
                       .partialCount = partialCount.data(),
                       .partialIndex = partialIndex.data(),
                       .fullCount = fullCount.data(),
                       .fullIndex = fullIndex.data(),
                       .indexStride = 1};
  auto even = [](int64_t, int64_t, int64_t q, int64_t kv) {
    int64_t kvBlock = kv / 64;
    if (q < 64) return kvBlock == 3 || (kvBlock == 1 && (q + kv) % 2 == 0);
    return q < 128 && kvBlock == 0;
  };
  Module module;
  Value sum = module.make(Op::Add, Type::I32, {module.param(ParamKind::QIdx), module.param(ParamKind::KvIdx)});
  module.setOutput(kMask, module.make(Op::Eq, Type::Bool,
                                      {module.make(Op::And, Type::I32, {sum, module.constInt(Type::I32, 1)}),
                                       module.constInt(Type::I32, 0)}));
  compare(module, {}, c, DType::F32, plain(), even, &blocks);

  blocks.fullCount = nullptr;
  blocks.fullIndex = nullptr;
  auto partialOnly = [&](int64_t, int64_t, int64_t q, int64_t kv) {
    return q < 64 && kv / 64 == 1 && (q + kv) % 2 == 0;
  };
  compare(module, {}, c, DType::F32, plain(), partialOnly, &blocks);
}

TEST_CASE("operands that do not fit are refused by name") {
  std::vector<float> memory(4096);
  auto tensor = [&](std::initializer_list<int64_t> shape, DType dtype = DType::F32) {
    return TensorView::contiguous(memory.data(), dtype, shape);
  };
  TensorView q = tensor({2, 4, 8, 8}), kv = tensor({2, 2, 8, 8});
  TensorView noData = kv;
  noData.data = nullptr;
  struct Row {
    TensorView q, k, v;
    const char* message;
  };
  const Row rows[] = {
      {tensor({4, 8, 8}), kv, kv, "q has 3 axes"},
      {q, tensor({8}), kv, "k has 1 axes"},
      {q, kv, tensor({2, 2, 8, 8}, DType::I32), "v is i32"},
      {q, tensor({2, 2, 8, 16}), kv, "head dims differ"},
      {q, kv, tensor({2, 4, 8, 8}), "heads differ"},
      {q, kv, tensor({2, 2, 9, 8}), "lengths differ"},
      {q, kv, tensor({1, 2, 8, 8}), "batches differ: k"},
      {q, tensor({3, 2, 8, 8}), tensor({3, 2, 8, 8}), "batches differ: q"},
      {q, tensor({2, 3, 8, 8}), tensor({2, 3, 8, 8}), "heads do not fit"},
      {q, tensor({2, 0, 8, 8}), tensor({2, 0, 8, 8}), "heads do not fit"},
      {q, kv, noData, "v has no data"},
  };
  for (const Row& row : rows) {
    INFO(row.message);
    CHECK(environmentErrorOf(reference::attention(Module(), {}, {.q = row.q, .k = row.k, .v = row.v}))
              .find(row.message) != std::string::npos);
  }
  CHECK(refusalOf(reference::attention(alibiModule(), {}, {.q = q, .k = kv, .v = kv})).message.find("slopes") !=
        std::string::npos);
}

TEST_CASE("a live score of +inf or NaN makes its row NaN, a masked one does nothing") {
  // Column 3 has the given score in rows below 4 and lives in rows below 2; rows from 6 on have -inf there.
  for (float bad : {float(kInfinity), std::numeric_limits<float>::quiet_NaN()}) {
    Module module;
    Value q = module.param(ParamKind::QIdx), kv = module.param(ParamKind::KvIdx),
          score = module.param(ParamKind::Score);
    auto number = [&](int value) { return module.constInt(Type::I32, value); };
    auto below = [&](Value x, int bound) { return module.make(Op::Lt, Type::Bool, {x, number(bound)}); };
    Value isColumn = module.make(Op::Eq, Type::Bool, {kv, number(3)});
    Value low = module.make(Op::Select, Type::F32, {below(q, 6), score, module.constF32(-float(kInfinity))});
    Value special = module.make(Op::Select, Type::F32, {below(q, 4), module.constF32(bad), low});
    module.setOutput(kScore, module.make(Op::Select, Type::F32, {isColumn, special, score}));
    Value isOther = module.make(Op::Not, Type::Bool, {isColumn});
    Value mayLive = module.make(Op::Xor, Type::Bool, {below(q, 2), module.make(Op::Lt, Type::Bool, {number(3), q})});
    module.setOutput(kMask, module.make(Op::Or, Type::Bool, {isOther, mayLive}));

    std::mt19937 random(7);
    Tensor q4({1, 1, 8, 8}, random), k4({1, 1, 9, 8}, random), v4({1, 1, 9, 4}, random);
    Strided qMemory(q4, DType::F32), kMemory(k4, DType::F32), vMemory(v4, DType::F32);
    auto got = take(reference::attention(module, {}, {.q = qMemory.view, .k = kMemory.view, .v = vMemory.view}));
    for (size_t row = 0; row < 8; ++row) {
      INFO("row " << row << " of a mod with " << bad);
      const bool isBad = row < 2;
      CHECK(std::isnan(got.lse[row]) == isBad);
      CHECK(std::isnan(got.rowMax[row]) == isBad);
      for (size_t i = 0; i < 4; ++i) CHECK(std::isnan(got.out[row * 4 + i]) == isBad);
    }
  }
}

TEST_CASE("a score beyond the range of f32 is infinite, as in kernels") {
  float big[] = {1e30f, 1.0f}, v[] = {1.0f, 2.0f};
  auto view = [](float* data) { return TensorView::contiguous(data, DType::F32, {1, 1, 2, 1}); };
  auto got = take(reference::attention(Module(), {}, {.q = view(big), .k = view(big), .v = view(v), .scale = 1.0}));
  CHECK(std::isnan(got.lse[0])); // 1e60 and 1e30
  CHECK(got.lse[1] == Approx(1e30));
}

TEST_CASE("rows of K and V behind a sequence take no part, and queries stand where their offset says") {
  const Case c{3, 2, 1, 5, 9, 4, 4, 3};
  const std::vector<int32_t> lengths = {7, 0, 3}, offsets = {2, 4, 1};
  std::vector<int32_t> given = lengths, positions = offsets;
  const TensorView lengthsView = TensorView::contiguous(given.data(), DType::I32, {3}),
                   offsetsView = TensorView::contiguous(positions.data(), DType::I32, {3});
  std::vector<float> slopes = {0.5f, -0.25f};
  Captures captures;
  captures.set("slopes", TensorView::contiguous(slopes.data(), DType::F32, {2}));
  for (passes::SequenceForm form : {passes::SequenceForm{true, QueryOffsets::Tensor},
                                    {true, QueryOffsets::FromLengths},
                                    {true, QueryOffsets::None},
                                    {false, QueryOffsets::Tensor},
                                    {false, QueryOffsets::FromLengths}}) {
    Module module = alibiModule();
    module.setOutput(kMask,
                     module.make(Op::Le, Type::Bool, {module.param(ParamKind::KvIdx), module.param(ParamKind::QIdx)}));
    REQUIRE(passes::sequences(module, {.sequences = form}));
    const auto lengthOf = [&](int64_t b) { return form.lengths ? int64_t(lengths[size_t(b)]) : c.kvLen; };
    const auto position = [&](int64_t b, int64_t row) {
      if (form.offsets == QueryOffsets::Tensor) return offsets[size_t(b)] + row;
      return form.offsets == QueryOffsets::None ? row : lengthOf(b) - c.qLen + row;
    };
    std::mt19937 random(5);
    Tensor q({3, 2, 5, 4}, random), k({3, 1, 9, 4}, random), v({3, 1, 9, 4}, random);
    const Expectation want = bruteForce(
        c, q, k, v, 0.5,
        [&](double score, int64_t b, int64_t h, int64_t row, int64_t kv) {
          return double(float(score) + slopes[size_t(h)] * float(kv - position(b, row)));
        },
        [&](int64_t b, int64_t, int64_t row, int64_t kv) { return kv < lengthOf(b) && kv <= position(b, row); });
    for (Tensor* tensor : {&k, &v}) // what lies behind is NaN
      for (int64_t b = 0; b < 3; ++b)
        for (int64_t i = lengthOf(b) * 4; i < 9 * 4; ++i)
          tensor->values[size_t(b * 9 * 4 + i)] = std::numeric_limits<double>::quiet_NaN();
    Strided qMemory(q, DType::F32), kMemory(k, DType::F32), vMemory(v, DType::F32);
    Operands args{.q = qMemory.view, .k = kMemory.view, .v = vMemory.view};
    if (form.lengths) args.kvLengths = lengthsView;
    if (form.offsets == QueryOffsets::Tensor) args.qOffsets = offsetsView;
    const auto got = take(reference::attention(module, captures, args));
    checkClose("out", got.out, want.out);
    checkClose("lse", got.lse, want.lse);
    checkClose("row max", got.rowMax, want.rowMax);
  }
}

TEST_CASE("scales of KV heads are factors of the elements of k and v") {
  std::mt19937 random(3);
  const Tensor q({2, 4, 3, 16}, random), k({2, 2, 9, 16}, random), v({2, 2, 9, 8}, random);
  const Strided dense(q, DType::F32), k8(k, DType::E4M3), v8(v, DType::E4M3);
  std::vector<float> scales{0.5f, 2.f, 0.25f, 3.f};
  const auto scaled = [&](const Strided& of, const Tensor& tensor, bool bySequence) {
    Tensor result = tensor;
    for (int64_t i = 0; i < int64_t(result.values.size()); ++i) {
      const auto& [batch, heads, rows, columns] = tensor.shape;
      const int64_t b = i / columns / rows / heads, h = i / columns / rows % heads, row = i / columns % rows;
      const auto& stride = of.view.stride;
      const int64_t at = b * stride[0] + h * stride[1] + row * stride[2] + i % columns * stride[3];
      result.values[size_t(i)] = double(scales[size_t(bySequence ? b * heads + h : h)]) *
                                 double(readElement(of.view.data, DType::E4M3, at).real);
    }
    return Strided(result, DType::F32);
  };
  for (bool bySequence : {false, true}) {
    Operands args{.q = dense.view, .k = k8.view, .v = v8.view};
    args.kScales = args.vScales = bySequence ? TensorView::contiguous(scales.data(), DType::F32, {2, 2})
                                             : TensorView::contiguous(scales.data(), DType::F32, {2});
    const Strided wideK = scaled(k8, k, bySequence), wideV = scaled(v8, v, bySequence);
    const auto actual = reference::attention(Module(), {}, args);
    const auto expected = reference::attention(Module(), {}, {.q = dense.view, .k = wideK.view, .v = wideV.view});
    REQUIRE(actual);
    REQUIRE(expected);
    REQUIRE(actual->out.size() == expected->out.size());
    // Factors are taken out of sums, which rounds them in another order.
    for (size_t i = 0; i < actual->out.size(); ++i) CHECK(actual->out[i] == Approx(expected->out[i]).epsilon(1e-12));
    for (size_t i = 0; i < actual->lse.size(); ++i) CHECK(actual->lse[i] == Approx(expected->lse[i]).epsilon(1e-12));
  }
}
