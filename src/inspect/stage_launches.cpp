#include "inspect/stage_launches.h"

#include <fmt/format.h>

#include <iterator>

namespace attnc {
namespace {

using plan::Use;

/// How a template is launched.
struct Row {
  std::string_view templateName;
  std::string_view ctas;      ///< {m}, {n}: rows and columns of the tile; {c}: CTAs per multiprocessor
  std::string_view maps = ""; ///< the tensors that have maps
};

constexpr std::string_view kPerQTile = "B * H * ceil(Q_LEN / {m})", kPerKvTile = "B * HKV * ceil(KV_LEN / {n})",
                           kPersistent = "min(multiprocessors, B * H * ceil(Q_LEN / {m}))",
                           kParts = "min({c} * multiprocessors, 512, B * HKV * ceil(Q_LEN * H / HKV / {m}) * max(1, "
                                    "ceil(KV_LEN / 32)))";

constexpr Row kRows[] = {
    {"forward_sm80.cu", kPerQTile},
    {"forward_sm90.cu", kPersistent, "q k v out"},
    {"append.cu", "B * HKV * ceil(Q_LEN / {m})"},
    {"decode_lists.cu", "B * HKV * ceil(Q_LEN * H / HKV / {m}) * max(1, ceil(KV_LEN / (32 * {n})))"},
    {"decode_sm80.cu", kParts},
    {"decode_sm90.cu", kParts, "k v"},
    {"backward_delta.cu", kPerQTile},
    {"backward_sm80.cu", kPerKvTile},
    {"backward_finish_sm80.cu", kPerQTile},
    {"backward_kv_sm80.cu", kPerKvTile},
    {"backward_q_sm80.cu", kPerQTile},
    {"backward_sm90.cu", kPerKvTile, "q k v d_out"},
    {"backward_192_sm90.cu", kPerKvTile, "q k v d_out"},
    {"backward_wide_sm90.cu", "B * H * ceil(KV_LEN / {n})", "q k v d_out"},
    {"backward_finish_sm90.cu", kPerQTile, "q k v d_out"},
    {"backward_large.cu", kPersistent},
    {"tangents_q_sm80.cu", kPerQTile},
    {"tangents_kv_sm80.cu", kPerKvTile},
    {"reductions_sm80.cu", "B * H * ceil(Q_LEN / {m}), of columns B * H * ceil(KV_LEN / {m})"},
    {"reductions_sm90.cu", "B * H * ceil(Q_LEN / {m}), of columns B * H * ceil(KV_LEN / {m})", "q k"},
};

/// What a use of the workspace holds, by its number.
constexpr std::string_view kUses[] = {"counters by which CTAs take tiles or parts",
                                      "f32 sums and row states of parts",
                                      "lists of a block mask",
                                      "live steps along KV",
                                      "which items CTAs share",
                                      "f32 per row of q: delta",
                                      "f32 per row of q: the tangent of delta",
                                      "f32 per row of q: row_sums",
                                      "large_rows: counters, then chunks at byte 16",
                                      "f32 sums of dq",
                                      "turns of CTAs that add to dq",
                                      "f32 sums of dk and dv",
                                      "arrivals of CTAs that add to dk and dv",
                                      "visits of CTAs that add to dq",
                                      "f32 sums along diagonals",
                                      "sums of gradients of captures",
                                      "further columns of q, or q with these",
                                      "further columns of k, or k with these",
                                      "v for each head of the wider k",
                                      "gradient of the wider q",
                                      "gradient of the wider k",
                                      "gradient of v for each head of the wider k",
                                      "f32 per row of q: lse",
                                      "f32 per row of q, for each output of the mod for heads"};
static_assert(std::size(kUses) == size_t(Use::RowParts) + 1);

const Row* rowOf(const plan::Stage& stage) {
  for (const Row& row : kRows)
    if (row.templateName == stage.templateName) return &row;
  return nullptr;
}

/// Returns the CTAs on one multiprocessor, of a problem with many tiles.
int64_t ctasOfOne(const plan::Stage& stage) {
  const int64_t rows = 1 << 16, dim = stage.config.headDimQk, dimV = stage.config.headDimV;
  plan::LaunchOperands operands;
  operands.problem = {1, 1, 1, rows, rows};
  for (auto [tensor, columns] : {std::pair(&operands.q, dim), {&operands.k, dim}, {&operands.v, dimV}})
    *tensor = TensorView::contiguous(nullptr, stage.config.dtype, {1, 1, rows, columns});
  return stage.ctas(stage, operands, {.multiprocessors = 1, .l2Bytes = 1 << 20});
}

} // namespace

std::string ctasWords(const plan::Stage& stage) {
  const Row* row = rowOf(stage);
  if (!row) return "see the template's first lines";
  const codegen::Config& config = stage.config;
  if (const codegen::Config::Cluster of = config.cluster.value_or(codegen::Config::Cluster()); of.ctas > 1)
    return fmt::format("{0} * min(multiprocessors / {0}, B * H / {1} * ceil(Q_LEN / {2}))", of.ctas, of.heads,
                       config.blockM * of.ctas / of.heads);
  // Two CTAs share a tile of K and V if one has no registers for both sums.
  const bool areTwo = row->ctas == kPerKvTile && ctasOfOne(stage) == 2 * ((1 << 16) / config.blockN);
  return (areTwo ? "2 * " : "") + fmt::format(fmt::runtime(row->ctas), fmt::arg("m", config.blockM),
                                              fmt::arg("n", config.blockN),
                                              fmt::arg("c", row->ctas == kParts ? ctasOfOne(stage) : 0));
}

std::string_view mappedTensors(const plan::Stage& stage) {
  const Row* row = rowOf(stage);
  return row ? row->maps : "";
}

std::string_view useWords(Use use) { return kUses[size_t(use)]; }

} // namespace attnc
