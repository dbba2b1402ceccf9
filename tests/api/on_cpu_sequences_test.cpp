// What the fp64 reference makes of scales, pages, new rows and ragged batches, against the same operands without.
#include "attnc/attnc.h"

#include "helpers/take.h"
#include "support/element.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

using namespace attnc;

namespace {

/// A dense tensor of host memory.
struct Tensor {
  std::vector<char> bytes;
  TensorView view;

  Tensor(DType dtype, std::initializer_list<int64_t> shape) : view(TensorView::contiguous(nullptr, dtype, shape)) {
    bytes.resize(size_t(view.elements() * dtypeBytes(dtype)));
    view.data = bytes.data();
  }
  Tensor(const Tensor& other) : bytes(other.bytes), view(other.view) { view.data = bytes.data(); }

  double get(int64_t index) const { return readElement(view.data, view.dtype, index).real; }
  void set(int64_t index, double value) { writeElement(view.data, view.dtype, index, value); }
  std::vector<double> values() const {
    std::vector<double> all;
    for (int64_t i = 0; i < view.elements(); ++i) all.push_back(get(i));
    return all;
  }
  /// The row of a tensor [B, H, rows, D].
  void copyRow(int64_t b, int64_t h, int64_t row, const Tensor& from, int64_t fromB, int64_t fromH, int64_t fromRow) {
    const auto indexOf = [](const Tensor& t, int64_t b, int64_t h, int64_t row) {
      return ((b * t.view.shape[1] + h) * t.view.shape[2] + row) * t.view.shape[3];
    };
    for (int64_t i = 0; i < view.shape[3]; ++i)
      set(indexOf(*this, b, h, row) + i, from.get(indexOf(from, fromB, fromH, fromRow) + i));
  }
};

Tensor drawn(std::initializer_list<int64_t> shape, uint32_t seed, DType dtype = DType::F32) {
  Tensor tensor(dtype, shape);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < tensor.view.elements(); ++i) tensor.set(i, normal(random));
  return tensor;
}

Tensor integers(std::initializer_list<int64_t> shape, const std::vector<int32_t>& values) {
  Tensor tensor(DType::I32, shape);
  std::copy(values.begin(), values.end(), static_cast<int32_t*>(tensor.view.data));
  return tensor;
}

Mod mod(const char* text) { return *Mod::parse(text); }

/// ALiBi and causal: what position a key has shows.
Mod positional() {
  return mod("def score_mod(s, b, h, q, k):\n    return s - 0.1 * (h + 1) * (q - k)\n"
             "def mask_mod(b, h, q, k):\n    return q >= k\n");
}

struct Result {
  std::vector<double> out, lse;
  bool operator==(const Result&) const = default;
};

Result computed(const Mod& m, const Operands& operands) {
  const auto& q = operands.q.shape;
  Tensor out(DType::F32, {q[0], q[1], q[2], operands.v.shape[3]}), lse(DType::F32, {q[0], q[1], q[2]});
  take(computeOnCpu(m, operands, {.out = out.view, .lse = lse.view}));
  return {out.values(), lse.values()};
}

std::string refusal(const Operands& operands) {
  Tensor out(DType::F32, {operands.q.shape[0], operands.q.shape[1], operands.q.shape[2], operands.v.shape[3]});
  return environmentErrorOf(computeOnCpu(Mod::identity(), operands, {.out = out.view}));
}

/// Two sequences of up to 32 keys, 16 of a page.
struct Paged {
  static constexpr int64_t kBatch = 2, kHeads = 2, kPage = 16, kColumns = 2, kPages = 5;
  Tensor q = drawn({kBatch, 4, 3, 8}, 1), k = drawn({kBatch, kHeads, kColumns*kPage, 8}, 2),
         v = drawn({kBatch, kHeads, kColumns*kPage, 8}, 3);
  Tensor table = integers({kBatch, kColumns}, {4, 1, 0, -7}); // the last one is behind the length
  Tensor lengths = integers({kBatch}, {29, 11});
  Tensor poolK = drawn({kPages, kHeads, kPage, 8}, 4), poolV = drawn({kPages, kHeads, kPage, 8}, 5);

  Paged() {
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t i = 0; i < (b ? 11 : 29); ++i)
          for (auto [pool, rows] : {std::pair(&poolK, &k), {&poolV, &v}})
            pool->copyRow(pageOf(b, i), h, i % kPage, *rows, b, h, i);
  }
  static int64_t pageOf(int64_t b, int64_t i) { return b ? 0 : i < kPage ? 4 : 1; }
  Operands whole() const { return {.q = q.view, .k = k.view, .v = v.view, .kvLengths = lengths.view}; }
  Operands paged() const {
    return {.q = q.view, .k = poolK.view, .v = poolV.view, .kvLengths = lengths.view, .pageTable = table.view};
  }
};

} // namespace

TEST_CASE("the reference multiplies k and v of e4m3 by their scales", "[api]") {
  const Tensor q = drawn({2, 4, 3, 8}, 1), k = drawn({2, 2, 9, 8}, 2, DType::E4M3),
               v = drawn({2, 2, 9, 8}, 3, DType::E4M3);
  Tensor kScales(DType::F32, {2, 2}), vScales(DType::F32, {2}), scaledK(DType::F32, {2, 2, 9, 8}), scaledV = scaledK;
  for (int64_t i = 0; i < 4; ++i) kScales.set(i, 0.5 * double(i + 1));
  for (int64_t i = 0; i < 2; ++i) vScales.set(i, 100 * double(i + 1));
  for (int64_t i = 0; i < k.view.elements(); ++i) {
    scaledK.set(i, k.get(i) * kScales.get(i / 72));
    scaledV.set(i, v.get(i) * vScales.get(i / 72 % 2));
  }
  Operands operands{.q = q.view, .k = k.view, .v = v.view};
  const Result unscaled = computed(positional(), operands);
  operands.kScales = kScales.view, operands.vScales = vScales.view;
  const Result scaled = computed(positional(), operands);
  CHECK(scaled == computed(positional(), {.q = q.view, .k = scaledK.view, .v = scaledV.view}));
  CHECK(scaled.lse != unscaled.lse);
  CHECK(scaled.out != unscaled.out);

  Tensor kOfRows(DType::F32, {2, 2, 9}), vOfRows(DType::F32, {1, 2, 9});
  for (int64_t i = 0; i < 36; ++i) kOfRows.set(i, 0.5 + double(i % 7));
  for (int64_t i = 0; i < 18; ++i) vOfRows.set(i, 1 + double(i % 5));
  for (int64_t i = 0; i < k.view.elements(); ++i) {
    scaledK.set(i, k.get(i) * kOfRows.get(i / 8));
    scaledV.set(i, v.get(i) * vOfRows.get(i / 8 % 18));
  }
  operands.kScales = kOfRows.view, operands.vScales = vOfRows.view;
  CHECK(computed(positional(), operands) ==
        computed(positional(), {.q = q.view, .k = scaledK.view, .v = scaledV.view}));

  operands.kScales = TensorView::contiguous(kScales.view.data, DType::F32, {3});
  CHECK(refusal(operands) == "k_scales is f32 [3], expected f32 [2] or [2, 2] or [2, 2, 9]");
  operands.kScales = kScales.view, operands.kScales->data = nullptr;
  CHECK(refusal(operands) == "k_scales is null, expected device memory");
  operands.kScales = kScales.view, operands.k = scaledK.view, operands.v = scaledV.view;
  CHECK(refusal(operands) == "k_scales is given, expected none, for k and v are not e4m3");
}

TEST_CASE("the reference goes by a page table", "[api]") {
  Paged p;
  const Result whole = computed(positional(), p.whole());
  CHECK(computed(positional(), p.paged()) == whole);
  // A pool that lies as [pages, page_size, HKV, D].
  Operands swapped = p.paged();
  Tensor memory(DType::F32, {Paged::kPages, Paged::kPage, Paged::kHeads, 8});
  for (int64_t i = 0; i < p.poolK.view.elements(); ++i) {
    const int64_t d = i % 8, row = i / 8 % Paged::kPage, h = i / 8 / Paged::kPage % Paged::kHeads;
    memory.set((((i / 8 / Paged::kPage / Paged::kHeads) * Paged::kPage + row) * Paged::kHeads + h) * 8 + d,
               p.poolK.get(i));
  }
  swapped.k.data = memory.view.data;
  swapped.k.stride[1] = 8, swapped.k.stride[2] = 8 * Paged::kHeads;
  CHECK(computed(positional(), swapped) == whole);

  Operands wrong = p.paged();
  const Tensor beyond = integers({2, 2}, {4, 5, 0, 0});
  wrong.pageTable = beyond.view;
  CHECK(refusal(wrong) == "page_table: entry [0, 1] is 5, of a pool of 5 pages");
  wrong.pageTable = TensorView::contiguous(beyond.view.data, DType::I32, {1, 2});
  CHECK_THAT(refusal(wrong), Catch::Contains("page_table is i32 [1, 2]"));
  wrong = p.paged();
  wrong.kvLengths.reset();
  CHECK(refusal(wrong) == "pages need KV lengths of sequences, and none are given");
}

TEST_CASE("the reference appends new rows, and attends to them", "[api]") {
  Paged p;
  const Tensor newK = drawn({2, 2, 3, 8}, 6), newV = drawn({2, 2, 3, 8}, 7);
  const Paged before = p;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 3; ++i)
        for (auto [rows, fresh] : {std::pair(&p.k, &newK), {&p.v, &newV}})
          rows->copyRow(b, h, (b ? 11 : 29) - 3 + i, *fresh, b, h, i);
  const Result expected = computed(positional(), p.whole()); // p.k and p.v have the new rows, its pool has not
  for (bool isPaged : {false, true}) {
    Paged given = before;
    Operands operands = isPaged ? given.paged() : given.whole();
    operands.newK = newK.view, operands.newV = newV.view;
    CHECK(computed(positional(), operands) == expected);
    operands.newK.reset(), operands.newV.reset();
    CHECK(computed(positional(), operands) == expected); // they were written to where they belong
    if (!isPaged) CHECK(given.k.values() == p.k.values());
    if (!isPaged) CHECK(given.v.values() == p.v.values());
    operands = isPaged ? given.paged() : given.whole();
    const std::vector<double> k = given.k.values(), poolK = given.poolK.values();
    operands.newK = newV.view;
    CHECK(refusal(operands) == "new_v is not given, expected both new_k and new_v, or neither");
    operands.newV = newK.view;
    Tensor narrow(DType::F32, {2, 4, 3, 7});
    CHECK_FALSE(computeOnCpu(positional(), operands, {.out = narrow.view}));
    CHECK(given.k.values() == k); // after an error, nothing is written
    CHECK(given.poolK.values() == poolK);
    operands.kvLengths.reset(), operands.pageTable.reset();
    operands.k = given.k.view, operands.v = given.v.view;
    CHECK(refusal(operands) == "rows that are appended need KV lengths of sequences, and none are given");
  }
}

TEST_CASE("the reference appends rows of e4m3 to a cache with scales of rows", "[api]") {
  const auto rounded = [](const Tensor& of) {
    const auto& shape = of.view.shape;
    Tensor result(DType::E4M3, {shape[0], shape[1], shape[2], shape[3]});
    for (int64_t i = 0; i < of.view.elements(); ++i) result.set(i, of.get(i));
    return result;
  };
  const Paged p; // new rows have scales as well
  Tensor kScales(DType::F32, {2, 2, 32}), vScales = kScales, poolKScales(DType::F32, {5, 2, 16, 1}),
                                          poolVScales = poolKScales;
  const auto rowsOf = [](const Tensor& scales) { // with an axis of columns
    Tensor rows(DType::F32, {2, 2, 32, 1});
    rows.bytes = scales.bytes, rows.view.data = rows.bytes.data();
    return rows;
  };
  for (int64_t i = 0; i < 128; ++i) kScales.set(i, 0.25 * double(i % 7 + 1)), vScales.set(i, 0.5 * double(i % 5 + 1));
  const Tensor newK = drawn({2, 2, 3, 8}, 6, DType::E4M3), newV = drawn({2, 2, 3, 8}, 7, DType::E4M3);
  const Tensor q = rounded(p.q);
  Tensor k = rounded(p.k), v = rounded(p.v), poolK = rounded(p.poolK), poolV = rounded(p.poolV);
  const Tensor before[] = {k, v};
  Tensor fullK = k, fullV = v;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 3; ++i)
        for (auto [rows, fresh] : {std::pair(&fullK, &newK), {&fullV, &newV}})
          rows->copyRow(b, h, (b ? 11 : 29) - 3 + i, *fresh, b, h, i);
      for (int64_t i = 0; i < (b ? 11 : 29); ++i)
        for (auto [pool, scales] : {std::pair(&poolKScales, &kScales), {&poolVScales, &vScales}})
          pool->copyRow(Paged::pageOf(b, i), h, i % Paged::kPage, rowsOf(*scales), b, h, i);
    }
  Tensor scaledK(DType::F32, {2, 2, 32, 8}), scaledV = scaledK;
  for (int64_t i = 0; i < scaledK.view.elements(); ++i) {
    scaledK.set(i, fullK.get(i) * kScales.get(i / 8));
    scaledV.set(i, fullV.get(i) * vScales.get(i / 8));
  }
  const Result expected =
      computed(positional(), {.q = q.view, .k = scaledK.view, .v = scaledV.view, .kvLengths = p.lengths.view});
  for (bool isPaged : {false, true}) {
    INFO("paged " << isPaged);
    Operands operands = isPaged ? p.paged() : p.whole();
    operands.q = q.view, operands.k = isPaged ? poolK.view : k.view, operands.v = isPaged ? poolV.view : v.view;
    operands.kScales = isPaged ? poolKScales.view : kScales.view;
    operands.vScales = isPaged ? poolVScales.view : vScales.view;
    operands.newK = newK.view, operands.newV = newV.view;
    CHECK(computed(positional(), operands) == expected);
    operands.newK.reset(), operands.newV.reset();
    CHECK(computed(positional(), operands) == expected); // they were written as they are
    operands.q = p.q.view, operands.newK = p.q.view, operands.newV = p.q.view;
    operands.newK->shape[1] = operands.newV->shape[1] = 2;
    CHECK(refusal(operands) ==
          "k_scales has a scale for each row or page, and rows are appended, expected scales of heads");
  }
  CHECK(k.bytes == fullK.bytes);
  CHECK(v.bytes == fullV.bytes);
  CHECK(k.bytes != before[0].bytes);
}

TEST_CASE("the reference computes each sequence of a ragged batch as by itself, gradients too", "[api]") {
  const std::vector<int32_t> starts = {2, 5, 5, 11}, kvStarts = {0, 4, 6, 14};
  const Tensor cuQ = integers({4}, starts), cuKv = integers({4}, kvStarts);
  Tensor q = drawn({1, 2, 12, 8}, 1), k = drawn({1, 2, 15, 8}, 2), v = drawn({1, 2, 15, 8}, 3),
         dOut = drawn({1, 2, 12, 8}, 4);
  Tensor dQ(DType::F32, {1, 2, 12, 8}), dK(DType::F32, {1, 2, 15, 8}), dV = dK, out = dQ, lse(DType::F32, {1, 2, 12});
  BackwardOperands operands;
  operands.q = q.view, operands.k = k.view, operands.v = v.view, operands.dOut = dOut.view;
  operands.cuSeqlensQ = cuQ.view, operands.cuSeqlensKv = cuKv.view;
  REQUIRE(computeOnCpu(positional(), operands, {.out = out.view, .lse = lse.view}));
  REQUIRE(computeBackwardOnCpu(positional(), operands, {.dQ = dQ.view, .dK = dK.view, .dV = dV.view}));
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t rows = starts[b + 1] - starts[b], keys = kvStarts[b + 1] - kvStarts[b];
    const auto rowsOf = [&](const Tensor& tensor, int64_t first, int64_t count) {
      TensorView part = tensor.view;
      part.data = static_cast<float*>(part.data) + first * part.stride[2];
      part.shape[2] = count;
      return part;
    };
    const auto valuesOf = [&](const Tensor& tensor, int64_t first, int64_t count) {
      std::vector<double> values;
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t i = 0; i < count * 8; ++i) values.push_back(tensor.get(h * tensor.view.stride[1] + first * 8 + i));
      return values;
    };
    BackwardOperands alone;
    alone.q = rowsOf(q, starts[b], rows), alone.dOut = rowsOf(dOut, starts[b], rows);
    alone.k = rowsOf(k, kvStarts[b], keys), alone.v = rowsOf(v, kvStarts[b], keys);
    // Its last query stands at its last key.
    const Mod shifted =
        mod(("def score_mod(s, b, h, q, k):\n    return s - 0.1 * (h + 1) * (q + " + std::to_string(keys - rows) +
             " - k)\ndef mask_mod(b, h, q, k):\n    return q + " + std::to_string(keys - rows) + " >= k\n")
                .c_str());
    Tensor dQOne(DType::F32, {1, 2, rows, 8}), dKOne(DType::F32, {1, 2, keys, 8}), dVOne = dKOne;
    INFO("sequence " << b);
    CHECK(computed(shifted, alone).out == valuesOf(out, starts[b], rows));
    REQUIRE(computeBackwardOnCpu(shifted, alone, {.dQ = dQOne.view, .dK = dKOne.view, .dV = dVOne.view}));
    CHECK(dQOne.values() == valuesOf(dQ, starts[b], rows));
    CHECK(dKOne.values() == valuesOf(dK, kvStarts[b], keys));
    CHECK(dVOne.values() == valuesOf(dV, kvStarts[b], keys));
  }

  Operands wrong = operands;
  wrong.cuSeqlensQ->data = nullptr;
  CHECK(refusal(wrong) == "cu_seqlens_q is null, expected device memory");
}

TEST_CASE("the reference walks the lists of each sequence of a ragged batch, by its own rows and columns", "[api]") {
  constexpr int64_t kLongestQ = 140, kLongestKv = 200, kBlocks = 4; // of kLongestKv, 64 columns each
  const std::vector<int32_t> starts = {2, 142, 142, 212}, kvStarts = {0, 70, 73, 273};
  const Tensor cuQ = integers({4}, starts), cuKv = integers({4}, kvStarts);
  const Tensor q = drawn({1, 2, 215, 8}, 1), k = drawn({1, 2, 280, 8}, 2), v = drawn({1, 2, 280, 8}, 3);
  Tensor out(DType::F32, {1, 2, 215, 8});
  // Each block of 64 rows of a sequence and head draws, for each of its blocks, a kind: partial, full, or none.
  const BlockMaskShape shape{3, 2, kLongestQ, kLongestKv, 64, 64};
  std::mt19937 random(5);
  std::vector<int32_t> counts[2], indices[2];
  for (auto& of : counts) of.assign(3 * 2 * 3, 0);
  for (auto& of : indices) of.assign(3 * 2 * 3 * kBlocks, -1);
  for (size_t row = 0; row < 3 * 2 * 3; ++row)
    for (int32_t block = 0; block < kBlocks; ++block)
      if (const size_t kind = random() % 3; kind < 2)
        indices[kind][row * kBlocks + size_t(counts[kind][row]++)] = block;
  const BlockMaskView lists{shape, counts[0].data(), indices[0].data(), counts[1].data(), indices[1].data(), kBlocks};
  Operands operands{.q = q.view, .k = k.view, .v = v.view};
  operands.cuSeqlensQ = cuQ.view, operands.cuSeqlensKv = cuKv.view;
  operands.maxQLen = kLongestQ, operands.maxKvLen = kLongestKv, operands.blockMask = &lists;
  REQUIRE(computeOnCpu(positional(), operands, {.out = out.view}));
  for (int64_t b = 0; b < 3; ++b) {
    INFO("sequence " << b);
    const int64_t first = starts[size_t(b)], rows = starts[size_t(b) + 1] - first, firstKv = kvStarts[size_t(b)],
                  keys = kvStarts[size_t(b) + 1] - firstKv;
    const auto rowsOf = [](const Tensor& tensor, int64_t first, int64_t count) {
      TensorView part = tensor.view;
      part.data = static_cast<float*>(part.data) + first * part.stride[2];
      part.shape[2] = count;
      return part;
    };
    BlockMaskView own = lists; // the first blocks of the same arrays
    own.shape = {1, 2, rows, keys, 64, 64};
    const int64_t blocks = own.shape.qBlocks(), ownKv = own.shape.kvBlocks();
    std::vector<int32_t> ownCounts[2], ownIndices[2];
    for (size_t kind : {0, 1})
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t row = 0; row < blocks; ++row) {
          const size_t at = size_t((b * 2 + h) * 3 + row);
          const auto begin = indices[kind].begin() + std::ptrdiff_t(at * kBlocks);
          std::vector<int32_t> live(begin, begin + counts[kind][at]);
          std::erase_if(live, [&](int32_t block) { return block >= ownKv; });
          ownCounts[kind].push_back(int32_t(live.size()));
          live.resize(kBlocks, -1);
          ownIndices[kind].insert(ownIndices[kind].end(), live.begin(), live.end());
        }
    own.partialCount = ownCounts[0].data(), own.partialIndex = ownIndices[0].data();
    own.fullCount = ownCounts[1].data(), own.fullIndex = ownIndices[1].data();
    const Mod shifted =
        mod(("def score_mod(s, b, h, q, k):\n    return s - 0.1 * (h + 1) * (q + " + std::to_string(keys - rows) +
             " - k)\ndef mask_mod(b, h, q, k):\n    return q + " + std::to_string(keys - rows) + " >= k\n")
                .c_str());
    Operands alone{.q = rowsOf(q, first, rows), .k = rowsOf(k, firstKv, keys), .v = rowsOf(v, firstKv, keys)};
    alone.blockMask = &own;
    const std::vector<double> expected = computed(shifted, alone).out;
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < rows * 8; ++i)
        CHECK(out.get((h * 215 + first) * 8 + i) == expected[size_t(h * rows * 8 + i)]);
  }
  operands.maxQLen = 0;
  CHECK(refusal(operands) == "block mask: its lengths are 140 x 200, those of the problem 215 x 200");
  BackwardOperands backward;
  static_cast<Operands&>(backward) = operands;
  backward.dOut = q.view;
  Tensor dQ = out, dK = k, dV = v;
  CHECK(
      refusalOf(computeBackwardOnCpu(positional(), backward, {.dQ = dQ.view, .dK = dK.view, .dV = dV.view})).message ==
      "block mask: its lengths are 140 x 200, those of the problem 215 x 200");
}

TEST_CASE("the reference multiplies k and v of e4m3 of a ragged batch by scales of heads, rows or pages", "[api]") {
  const Tensor starts = integers({3}, {0, 1, 4}), kvStarts = integers({3}, {0, 29, 40}), q = drawn({1, 4, 4, 8}, 1);
  const auto scaled = [](const Tensor& of, const Tensor& scales, auto indexOf) {
    Tensor all = drawn({of.view.shape[0], of.view.shape[1], of.view.shape[2], 8}, 0);
    for (int64_t i = 0; i < of.view.elements(); ++i) all.set(i, of.get(i) * scales.get(indexOf(i / 8)));
    return all;
  };
  const auto check = [](Operands operands, const Tensor& k, const Tensor& v, const Tensor& ofK, const Tensor& ofV) {
    const Result plain = computed(positional(), operands);
    operands.kScales = ofK.view, operands.vScales = ofV.view;
    const Result is = computed(positional(), operands);
    CHECK(is.lse != plain.lse);
    operands.kScales.reset(), operands.vScales.reset();
    operands.k = k.view, operands.v = v.view;
    CHECK(is == computed(positional(), operands));
  };
  const auto scalesOf = [](std::initializer_list<int64_t> shape) {
    Tensor scales(DType::F32, shape);
    for (int64_t i = 0; i < scales.view.elements(); ++i) scales.set(i, 0.5 + double(i * 5 % 7));
    return scales;
  };

  const Tensor k = drawn({1, 2, 40, 8}, 2, DType::E4M3), v = drawn({1, 2, 40, 8}, 3, DType::E4M3);
  Operands packed{.q = q.view, .k = k.view, .v = v.view, .cuSeqlensQ = starts.view, .cuSeqlensKv = kvStarts.view};
  const Tensor ofRows = scalesOf({1, 2, 40}), ofSequences = scalesOf({2, 2}), ofHeads = scalesOf({2});
  const auto row = [](int64_t i) { return i; };
  const auto sequence = [](int64_t i) { return (i % 40 < 29 ? 0 : 2) + i / 40; };
  check(packed, scaled(k, ofRows, row), scaled(v, ofSequences, sequence), ofRows, ofSequences);
  check(packed, scaled(k, ofHeads, [](int64_t i) { return i / 40; }), scaled(v, ofRows, row), ofHeads, ofRows);

  const Paged p;
  const Tensor poolK = drawn({5, 2, 16, 8}, 4, DType::E4M3), poolV = drawn({5, 2, 16, 8}, 5, DType::E4M3);
  const Operands paged{.q = q.view,
                       .k = poolK.view,
                       .v = poolV.view,
                       .kvLengths = p.lengths.view,
                       .pageTable = p.table.view,
                       .cuSeqlensQ = starts.view};
  const Tensor ofPoolRows = scalesOf({5, 2, 16}), ofPages = scalesOf({5, 2, 1});
  check(paged, scaled(poolK, ofPages, [](int64_t i) { return i / 16; }), scaled(poolV, ofPoolRows, row), ofPages,
        ofPoolRows);
}

TEST_CASE("the reference computes a ragged batch in pages as its sequences one by one", "[api]") {
  constexpr int64_t kRows = 9; // of no sequence: the first and the last
  const std::vector<int32_t> starts = {1, 6, 8};
  for (auto [appends, qLen, kvLen] :
       {std::tuple(false, 0, 0), {true, 0, 0}, {true, 4, 0}, {true, 0, 27}, {false, 3, 25}}) {
    Paged p; // of 29 and 11 rows
    const Tensor q = drawn({1, 4, kRows, 8}, 8), newK = drawn({1, 2, kRows, 8}, 9), newV = drawn({1, 2, kRows, 8}, 10);
    const Tensor cuQ = integers({3}, starts);
    Tensor out(DType::F32, {1, 4, kRows, 8});
    Operands operands = p.paged();
    operands.q = q.view;
    operands.cuSeqlensQ = cuQ.view;
    operands.maxQLen = qLen, operands.maxKvLen = kvLen; // if they are too small, sequences are cut off
    if (appends) operands.newK = newK.view, operands.newV = newV.view;
    Paged before = p;
    take(computeOnCpu(positional(), operands, {.out = out.view}));
    for (int64_t b = 0; b < Paged::kBatch; ++b) {
      INFO("sequence " << b << ", appends " << appends << ", longest " << qLen << " and " << kvLen);
      const int64_t first = starts[size_t(b)], all = starts[size_t(b) + 1] - first,
                    rows = qLen ? std::min<int64_t>(qLen, all) : all;
      const auto rowsOf = [&](const Tensor& tensor) {
        TensorView part = tensor.view;
        part.data = static_cast<float*>(part.data) + first * part.stride[2];
        part.shape[2] = rows;
        return part;
      };
      Operands alone = before.paged();
      alone.q = rowsOf(q);
      const int32_t length = static_cast<int32_t*>(p.lengths.view.data)[b];
      const Tensor lengths = integers({1}, {kvLen ? std::min(kvLen, length) : length});
      alone.kvLengths = lengths.view;
      alone.pageTable =
          TensorView::contiguous(static_cast<int32_t*>(p.table.view.data) + b * Paged::kColumns, DType::I32, {1, 2});
      if (appends) alone.newK = rowsOf(newK), alone.newV = rowsOf(newV);
      const std::vector<double> expected = computed(positional(), alone).out;
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < rows * 8; ++i)
          CHECK(out.get((h * kRows + first) * 8 + i) == expected[size_t(h * rows * 8 + i)]);
    }
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t row : {int64_t(0), kRows - 1}) CHECK(out.get((h * kRows + row) * 8) == 0);
    if (qLen) CHECK(out.get((starts[0] + qLen) * 8) == 0);
    CHECK(p.poolK.values() == before.poolK.values()); // the sequences one by one wrote the same rows
    CHECK(p.poolV.values() == before.poolV.values());
    CHECK((p.poolK.values() != Paged().poolK.values()) == appends);
  }
}

TEST_CASE("gradients of a padded batch are those of its sequences, and 0 behind their lengths", "[api]") {
  const Paged p;
  const Tensor dOut = drawn({2, 4, 3, 8}, 6);
  const auto gradients = [&](const Operands& given, const TensorView& dOut) {
    Tensor out(DType::F32, {given.q.shape[0], 4, 3, 8}), lse(DType::F32, {given.q.shape[0], 4, 3}), dQ = out;
    std::vector<Tensor> results;
    for (int64_t rows : {given.q.shape[2], given.k.shape[2], given.k.shape[2]})
      results.push_back(drawn({given.q.shape[0], rows == 3 ? 4 : 2, rows, 8}, 7));
    BackwardOperands operands{given, out.view, lse.view, dOut};
    take(computeBackwardOnCpu(positional(), operands, {results[0].view, results[1].view, results[2].view}));
    return results;
  };
  const std::vector<Tensor> all = gradients(p.whole(), dOut.view);
  for (int64_t b : {0, 1}) {
    const auto own = [&](TensorView tensor) {
      tensor.data = static_cast<float*>(tensor.data) + b * tensor.stride[0], tensor.shape[0] = 1;
      return tensor;
    };
    const Tensor offset = integers({1}, {b ? 8 : 26});
    Operands alone{.q = own(p.q.view), .k = own(p.k.view), .v = own(p.v.view), .qOffsets = offset.view};
    alone.k.shape[2] = alone.v.shape[2] = b ? 11 : 29;
    const std::vector<Tensor> want = gradients(alone, own(dOut.view));
    for (size_t i : {0, 1, 2}) {
      const int64_t rows = all[i].view.shape[2], live = want[i].view.shape[2], heads = all[i].view.shape[1];
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t at = 0; at < rows * 8; ++at)
          CHECK(all[i].get((b * heads + h) * rows * 8 + at) == (at < live * 8 ? want[i].get(h * live * 8 + at) : 0));
    }
  }
}

TEST_CASE("the reference refuses gradients that no backward kernel computes", "[api]") {
  Paged p;
  Tensor dOut = drawn({2, 4, 3, 8}, 6), dQ = dOut, dK = p.k, dV = p.v;
  const auto refused = [&](const Operands& given) {
    BackwardOperands operands;
    static_cast<Operands&>(operands) = given;
    operands.dOut = dOut.view;
    return refusalOf(computeBackwardOnCpu(Mod::identity(), operands, {.dQ = dQ.view, .dK = dK.view, .dV = dV.view}))
        .message;
  };
  CHECK(refused(p.paged()) == "backward kernels take no pages");
  Operands shared = p.whole();
  shared.k.shape[0] = shared.v.shape[0] = 1;
  CHECK(refused(shared) == "k has batch 1, and its gradient would be of sequences of different KV lengths, expected "
                           "batch 2 as q; a batch stride of 0 repeats k and v");
  const Tensor ends = integers({3}, {0, 1, 3});
  Operands ragged = p.whole();
  ragged.q.shape[0] = ragged.k.shape[0] = ragged.v.shape[0] = 1, ragged.cuSeqlensQ = ends.view;
  CHECK(refused(ragged) == "backward kernels take no KV lengths in a ragged batch");
  Operands fp8{.q = p.q.view, .k = p.k.view, .v = p.v.view};
  fp8.k.dtype = fp8.v.dtype = DType::E4M3;
  CHECK(refused(fp8) == "backward kernels take no k and v of e4m3");
}
