#include "attnc/infer.h"

#include "api/mask_regions.h"
#include "api/own_stack.h"
#include "infer/find.h"
#include "infer/noise.h"
#include "infer/write.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "support/element.h"
#include "support/parallel.h"
#include "support/try.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>

namespace attnc {
namespace {

using inferred::Relation;
using inferred::Word;

constexpr int64_t kMostElements = int64_t(1) << 33;
constexpr float kMostMasked = -1e4f; // as in BERT; usual are -inf and the lowest number

/// The bits of a mask, [B, H, Q, KV].
struct Bits {
  ProblemShape problem;
  Relation live;
  int64_t batch = 1, heads = 1; ///< Slices of `live`: 1 if nothing depends on them.
};

std::string shapeOf(const TensorView& mask) {
  return fmt::format("[{}]", fmt::join(mask.shape.begin(), mask.shape.begin() + mask.rank, ", "));
}

/// Returns whether an element lives; nothing if it is no element of a mask.
std::optional<bool> liveOf(const TensorView& mask, int64_t at) {
  const Number number = readElement(static_cast<const char*>(mask.data), mask.dtype, at);
  if (!isFloat(mask.dtype)) {
    if (mask.dtype == DType::Bool) return number.integer != 0;
    if (number.integer == 0 || number.integer == 1) return number.integer == 1;
    return {};
  }
  if (number.real == 0) return true;
  if (number.real <= kMostMasked) return false;
  return {};
}

Expected<Bits> readBits(const TensorView& given) {
  const bool isKnown = given.dtype != DType::E4M3 && given.rank >= 2 && given.rank <= 4;
  if (!isKnown)
    return Error::environment(
        fmt::format("the mask is {} {}", dtypeName(given.dtype), shapeOf(given)),
        given.rank == 1 ? "give [Q, KV], [B, Q, KV] or [B, H, Q, KV]; lengths and padding are mask[:, None, :]"
                        : "give [Q, KV], [B, Q, KV] or [B, H, Q, KV] of bool, int or float");
  std::array<int64_t, 4> shape = {1, 1, 1, 1}, stride = {};
  const std::array<int, 4> from = {given.rank > 2 ? 0 : -1, given.rank > 3 ? 1 : -1, given.rank - 2, given.rank - 1};
  for (size_t axis = 0; axis < 4; ++axis)
    if (from[axis] >= 0) shape[axis] = given.shape[size_t(from[axis])], stride[axis] = given.stride[size_t(from[axis])];
  double elements = 1;
  for (const int64_t extent : shape) elements *= double(extent);
  if (elements == 0 || !given.data)
    return Error::environment(fmt::format("the mask is {}, without elements", shapeOf(given)),
                              "give one with elements");
  if (elements > double(kMostElements))
    return Error::environment(fmt::format("the mask is {}, more than 2^33 elements", shapeOf(given)),
                              "give one batch entry and head, or a shorter mask");
  Bits bits{{shape[0], shape[1], shape[1], shape[2], shape[3]},
            Relation(shape[0] * shape[1], shape[2], shape[3]),
            shape[0],
            shape[1]};
  std::atomic<int64_t> wrong = INT64_MAX;
  const auto offsetOf = [&](int64_t row) {
    return row / shape[2] / shape[1] * stride[0] + row / shape[2] % shape[1] * stride[1] + row % shape[2] * stride[2];
  };
  parallelFor(bits.live.allRows(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = offsetOf(row);
      Word* words = bits.live.row(row);
      if (given.dtype == DType::Bool) {
        const char* data = static_cast<const char*>(given.data) + first;
        for (int64_t i = 0; i < shape[3]; ++i) words[i >> 6] |= Word(data[i * stride[3]] != 0) << (i & 63);
        continue;
      }
      for (int64_t i = 0; i < shape[3]; ++i) {
        const auto live = liveOf(given, first + i * stride[3]);
        if (live)
          words[i >> 6] |= Word(*live) << (i & 63);
        else
          for (int64_t seen = wrong;
               row * shape[3] + i < seen && !wrong.compare_exchange_weak(seen, row * shape[3] + i);) {
          }
      }
    }
  });
  if (const int64_t at = wrong; at != INT64_MAX) {
    const int64_t row = at / shape[3], i = at % shape[3];
    const Number number = readElement(static_cast<const char*>(given.data), given.dtype, offsetOf(row) + i * stride[3]);
    const std::string value = isFloat(given.dtype) ? fmt::format("{}", number.real) : fmt::format("{}", number.integer);
    return Error::environment(
        fmt::format("the tensor is no mask: element [{}, {}, {}, {}] is {}", row / shape[2] / shape[1],
                    row / shape[2] % shape[1], row % shape[2], i, value),
        isFloat(given.dtype) ? "floats are 0 where a score lives, and -1e4 or less where it is masked"
                             : "ints are 1 where a score lives, and 0 where it is masked");
  }
  // Axes on which nothing depends.
  const size_t slice = size_t(bits.live.rows * bits.live.words);
  const auto isSame = [&](int64_t a, int64_t b) {
    return std::memcmp(bits.live.bits.data() + size_t(a) * slice, bits.live.bits.data() + size_t(b) * slice,
                       slice * 8) == 0;
  };
  bool sameHeads = true, sameBatch = true;
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
    sameHeads &= isSame(i, i / shape[1] * shape[1]), sameBatch &= isSame(i, i % shape[1]);
  bits.batch = sameBatch ? 1 : shape[0], bits.heads = sameHeads ? 1 : shape[1];
  for (int64_t b = 0; b < bits.batch; ++b)
    for (int64_t h = 0; h < bits.heads; ++h)
      std::memmove(bits.live.bits.data() + size_t(b * bits.heads + h) * slice,
                   bits.live.bits.data() + size_t(b * shape[1] + h) * slice, slice * 8);
  bits.live.slices = bits.batch * bits.heads;
  bits.live.bits.resize(size_t(bits.live.slices) * slice);
  return bits;
}

/// Whether a mod is equal to the mask on every element. Regions that intervals decide are compared as a whole.
Expected<bool> isEqual(const Inference& inference, const Bits& bits) {
  const ir::Module& module = inference.mod.module();
  ATTNC_TRY_AS(bindings, ir::bind(module, inference.views(), bits.problem));
  const BlockMaskShape shape{bits.batch, bits.heads, bits.problem.qLen, bits.problem.kvLen, 64, 64, {}};
  const MaskRegions regions(module, *bindings, shape, int64_t(1) << 28);
  std::atomic<bool> equal = true;
  const auto countOf = [&](const analysis::ScoreRect& rect, int64_t row) {
    int64_t count = 0;
    const Word* words = bits.live.row(row);
    for (int64_t i = rect.kvBegin / 64; i <= (rect.kvEnd - 1) / 64; ++i)
      count += inferred::countOf(words[i] & inferred::ones(rect.kvBegin, rect.kvEnd, i));
    return count;
  };
  parallelForEach(shape.batch * shape.heads, [&](int64_t head) {
    const ir::Interpreter interpreter(module, *bindings);
    HeadRegions own(regions, head);
    own.walk(regions.whole(), [&](const Region& region, analysis::Verdict verdict) {
      if (!equal) return;
      const analysis::ScoreRect rect = regions.tileOf(region, head);
      for (int64_t q = rect.qBegin; q < rect.qEnd && equal; ++q) {
        const int64_t row = head * bits.live.rows + q;
        if (verdict == analysis::Verdict::AlwaysTrue || verdict == analysis::Verdict::AlwaysFalse) {
          const int64_t all = verdict == analysis::Verdict::AlwaysTrue ? rect.kvEnd - rect.kvBegin : 0;
          if (countOf(rect, row) != all) equal = false;
          continue;
        }
        for (int64_t kv = rect.kvBegin; kv < rect.kvEnd; ++kv)
          if (interpreter.mask(rect.b, rect.h, q, kv) != bits.live.get(row, kv)) equal = false;
      }
    });
  });
  return bool(equal);
}

void countBlocks(const Bits& bits, Inference& inference) {
  const Relation& live = bits.live;
  int64_t count = 0;
  for (int64_t slice = 0; slice < live.slices; ++slice)
    for (int64_t q = 0; q < live.rows; q += 128)
      for (int64_t kv = 0; kv < live.columns; kv += 128) {
        const int64_t rows = std::min<int64_t>(128, live.rows - q), columns = std::min<int64_t>(128, live.columns - kv);
        int64_t alive = 0;
        for (int64_t i = q; i < q + rows; ++i)
          for (int64_t word = kv / 64; word < (kv + columns + 63) / 64; ++word)
            alive += inferred::countOf(live.row(slice * live.rows + i)[word]);
        ++(alive == 0                ? inference.emptyBlocks
           : alive == rows * columns ? inference.fullBlocks
                                     : inference.partialBlocks);
        count += alive;
      }
  inference.live = double(count) / double(live.slices) / double(live.rows) / double(live.columns);
  const int64_t copies = bits.problem.batch * bits.problem.qHeads / live.slices;
  for (int64_t* blocks : {&inference.fullBlocks, &inference.partialBlocks, &inference.emptyBlocks}) *blocks *= copies;
}

std::string lengthsSentence(const inferred::Written& written, const Bits& bits, Inference::Form form) {
  std::vector<std::string> byPosition, bySlice;
  for (const auto& [name, table] : written.tables) {
    (table->isOfSlices() ? bySlice : byPosition).push_back(name);
  }
  if (form == Inference::Form::Table) return "the tables are for these lengths only";
  if (!byPosition.empty()) return fmt::format("they need {} of that length", fmt::join(byPosition, " and "));
  std::string text = "the text stays as it is";
  if (!bySlice.empty()) text += fmt::format(", with {} of the batch or the heads", fmt::join(bySlice, " and "));
  const std::string& e = written.expression;
  if (e.find("KV_LEN - Q_LEN") != std::string::npos) return text + "; the last query stands at the last key";
  if (e.find("q_idx") != std::string::npos && e.find("kv_idx") != std::string::npos &&
      bits.problem.qLen == bits.problem.kvLen)
    return text + "; with fewer queries than keys, query 0 stands at key 0";
  return text;
}

Status describe(const inferred::Expr& expr, const Bits& bits, const std::string& source, Inference& inference) {
  const inferred::Written written = inferred::write(expr, source);
  inference.form = Inference::Form::Formula;
  inference.captures.clear();
  for (const auto& [name, table] : written.tables) {
    InferredCapture capture{name, table->isBool ? DType::Bool : DType::I32, table->shape, {}};
    capture.bytes.resize(table->values.size() * (table->isBool ? 1 : 4));
    for (size_t i = 0; i < table->values.size(); ++i)
      if (table->isBool)
        capture.bytes[i] = char(table->values[i] != 0);
      else
        std::memcpy(capture.bytes.data() + 4 * i, &table->values[i], 4);
    inference.captures.push_back(std::move(capture));
    const bool isInterval = table->name.starts_with("first_") || table->name.starts_with("end_");
    const auto form = table->isPlane || table->name == "distances" ? Inference::Form::Table
                      : isInterval                                 ? Inference::Form::Intervals
                                                                   : Inference::Form::Formula;
    inference.form = std::max(inference.form, form);
  }
  inference.text = written.text;
  inference.expression = written.expression;
  inference.recognised = written.recognised;
  inference.otherLengths = lengthsSentence(written, bits, inference.form);
  auto mod = Mod::parse(written.text, {.name = "<inferred>"});
  if (!mod) return Error::internal("the inferred text is no mod: " + mod.error().message + "\n" + written.text);
  inference.mod = *std::move(mod);
  return {};
}

Expected<Inference> inferOnThisStack(const TensorView& mask, const std::string& name) {
  const auto begin = std::chrono::steady_clock::now();
  ATTNC_TRY_AS(bits, readBits(mask));
  Inference inference;
  inference.problem = bits->problem;
  const std::string source = fmt::format("{}, {} {}", name, dtypeName(mask.dtype), shapeOf(mask));
  const inferred::Expr found = inferred::find(bits->live, bits->batch, bits->heads);

  ATTNC_TRY(describe(found, *bits, source, inference));
  ATTNC_TRY_AS(equal, isEqual(inference, *bits));
  if (!*equal) {
    ATTNC_TRY(describe(inferred::tableOfBits(bits->live, bits->batch, bits->heads), *bits, source, inference));
    ATTNC_TRY_AS(again, isEqual(inference, *bits));
    if (!*again) return Error::internal("the inferred mod is not the mask:\n" + inference.text);
  }
  if (auto noise = inferred::noiseOf(bits->live, bits->batch, bits->heads, found.cost())) {
    MaskNoise& told = inference.noise.emplace();
    told.expression = inferred::write(noise->expr, source).expression;
    const int64_t copies = bits->problem.batch * bits->problem.qHeads / bits->live.slices;
    told.elements = noise->elements * copies;
    for (const auto& [row, kv] : noise->places)
      told.places.push_back(
          {row / bits->live.rows / bits->heads, row / bits->live.rows % bits->heads, row % bits->live.rows, kv});
  }
  countBlocks(*bits, inference);

  inference.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return inference;
}

} // namespace

TensorView InferredCapture::view() const {
  TensorView view;
  view.data = const_cast<char*>(bytes.data());
  view.dtype = dtype;
  view.rank = int(shape.size());
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0; step *= shape[axis])
    view.shape[axis] = shape[axis], view.stride[axis] = step;
  return view;
}

Captures Inference::views() const {
  Captures captures;
  for (const InferredCapture& capture : this->captures) captures.set(capture.name, capture.view());
  return captures;
}

Expected<Inference> infer(const TensorView& mask, const std::string& name) {
  return onOwnStack([&] { return inferOnThisStack(mask, name); });
}

} // namespace attnc
