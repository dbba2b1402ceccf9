// A rehearsal of plans on the CPU: ranks compute stage by stage with the fp64 reference, from the keys that have come,
// and the merged results equal those of the whole problem.
#include "shard/plans.h"

#include "reference/attention.h"

#include <cmath>
#include <limits>

using namespace attnc;
using namespace attnc::test;

namespace {

/// Random floats [1, heads, rows, columns].
struct Tensor {
  std::vector<float> values;
  TensorView view;
  Tensor(int64_t heads, int64_t rows, int64_t columns, uint64_t seed) : values(size_t(heads * rows * columns)) {
    std::mt19937_64 random(seed);
    for (float& value : values) value = float(int64_t(random() % 2001) - 1000) / 500;
    view = TensorView::contiguous(values.data(), DType::F32, {1, heads, rows, columns});
  }
};

constexpr int64_t kHeads = 2, kColumns = 4;
constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// Scores depend on positions of the whole problem. A stage has some rows and keys: those marked.
const char kMod[] = "slopes: f32[H]\nhas_row: i32[Q_LEN]\nhas_key: i32[KV_LEN]\ndoc: i32[KV_LEN]\n"
                    "def score_mod(score, b, h, q_idx, kv_idx):\n    return score + slopes[h] * (kv_idx - q_idx)\n"
                    "def mask_mod(b, h, q_idx, kv_idx):\n"
                    "    mask = MASK\n"
                    "    return mask & (has_row[q_idx] == 1) & (has_key[kv_idx] == 1)\n";

struct Rehearsal {
  int64_t length;
  Tensor q, k, v;
  std::vector<float> slopes = {0.01F, -0.03F};
  std::vector<int32_t> hasRow, hasKey, documents;

  explicit Rehearsal(int64_t length)
      : length(length), q(kHeads, length, kColumns, 1), k(1, length, kColumns, 2), v(1, length, kColumns, 3),
        hasRow(size_t(length), 1), hasKey(size_t(length), 1), documents(size_t(length)) {
    std::mt19937_64 random(4);
    for (size_t i = 1; i < documents.size(); ++i) documents[i] = documents[i - 1] + (random() % 90 == 0);
  }

  Captures captures() {
    Captures all;
    all.set("slopes", TensorView::contiguous(slopes.data(), DType::F32, {kHeads}));
    all.set("has_row", TensorView::contiguous(hasRow.data(), DType::I32, {length}));
    all.set("has_key", TensorView::contiguous(hasKey.data(), DType::I32, {length}));
    all.set("doc", TensorView::contiguous(documents.data(), DType::I32, {length}));
    return all;
  }

  /// Attention of the marked rows and keys. Keys that are not marked hold NaN.
  reference::AttentionResult attend(const Mod& mod) {
    std::vector<float> keys = k.values, values = v.values;
    for (int64_t at = 0; at < length * kColumns; ++at)
      if (!hasKey[size_t(at / kColumns)]) keys[size_t(at)] = values[size_t(at)] = NAN;
    Operands operands;
    operands.q = q.view;
    operands.k = TensorView::contiguous(keys.data(), DType::F32, {1, 1, length, kColumns});
    operands.v = TensorView::contiguous(values.data(), DType::F32, {1, 1, length, kColumns});
    return take(reference::attention(mod.module(), captures(), operands));
  }
};

void mark(std::vector<int32_t>& marks, const std::vector<ShardInterval>& intervals) {
  std::fill(marks.begin(), marks.end(), 0);
  for (const ShardInterval& interval : intervals)
    for (int64_t at = interval.begin; at < interval.end; ++at) marks[size_t(at)] = 1;
}

/// Results of rows [H, Q_LEN], merged by lse.
struct Merged {
  std::vector<double> lse, out;
  explicit Merged(int64_t length) : lse(size_t(kHeads * length), kNothing), out(size_t(kHeads * length * kColumns)) {}

  void add(const reference::AttentionResult& part) {
    for (size_t row = 0; row < lse.size(); ++row) {
      if (part.lse[row] == kNothing) continue;
      const double larger = std::max(lse[row], part.lse[row]);
      const double sum = larger + std::log(std::exp(lse[row] - larger) + std::exp(part.lse[row] - larger));
      for (size_t at = row * kColumns; at < (row + 1) * kColumns; ++at)
        out[at] = out[at] * std::exp(lse[row] - sum) + part.out[at] * std::exp(part.lse[row] - sum);
      lse[row] = sum;
    }
  }
};

} // namespace

TEST_CASE("results of all ranks and stages, merged by lse, are those of the whole problem") {
  const int64_t length = 301;
  Rehearsal rehearsal(length);
  for (const std::string mask : {"(q_idx >= kv_idx)", "(q_idx >= kv_idx) & (q_idx - kv_idx < 60)",
                                 "(doc[q_idx] == doc[kv_idx])", "(kv_idx > q_idx + 40)"}) {
    std::string text = kMod;
    text.replace(text.find("MASK"), 4, mask);
    auto mod = take(Mod::parse(text));
    mark(rehearsal.hasRow, {{0, length}});
    mark(rehearsal.hasKey, {{0, length}});
    const reference::AttentionResult whole = rehearsal.attend(mod);
    const Captures captures = rehearsal.captures();
    for (const int world : {1, 3, 8}) {
      CAPTURE(mask, world);
      ShardOptions options{.stages = 3};
      options.block = 64;
      mark(rehearsal.hasRow, {{0, length}}); // the plan is of the whole problem
      mark(rehearsal.hasKey, {{0, length}});
      auto plan = take(ShardPlan::make({{&mod, &captures}}, {1, kHeads, 1, length, length}, world, options));
      Merged merged(length);
      for (int rank = 0; rank < world; ++rank)
        for (int stage = 0; stage <= plan.stages; ++stage) {
          std::vector<ShardInterval> keys;
          for (const ShardPiece& piece : plan.masks[0].ranks[size_t(rank)].pieces)
            if (piece.stage == stage) keys.push_back(piece.keys);
          if (keys.empty()) continue;
          mark(rehearsal.hasRow, plan.ranks[size_t(rank)].rows);
          mark(rehearsal.hasKey, keys);
          merged.add(rehearsal.attend(mod));
        }
      double most = 0;
      for (size_t row = 0; row < whole.lse.size(); ++row) {
        if (whole.lse[row] == kNothing || merged.lse[row] == kNothing)
          CHECK(whole.lse[row] == merged.lse[row]);
        else
          most = std::max(most, std::abs(whole.lse[row] - merged.lse[row]));
      }
      for (size_t at = 0; at < whole.out.size(); ++at) most = std::max(most, std::abs(whole.out[at] - merged.out[at]));
      CHECK(most < 1e-12);
    }
  }
}
