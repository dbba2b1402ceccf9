#include "inspect/stage_launches.h"

#include <fmt/format.h>

namespace attnc {
namespace {

using plan::LaunchOperands;
using plan::Use;

constexpr StageLaunch kLaunches[] = {
    {"forward_sm80.cu", "perQTile", "B * H * ceil(Q_LEN / {m})", "forwardParams(operands)"},
    {"forward_sm90.cu", "persistent<perQTile>", "min(multiprocessors, B * H * ceil(Q_LEN / {m}))",
     "forwardParamsSm90(stage, operands, device, view)", "q k v out"},
    {"append.cu", "perTileOfNewRows", "B * HKV * ceil(Q_LEN / {m})", "forwardParams(operands)"},
    {"decode_lists.cu", "perStepWord", "B * HKV * ceil(Q_LEN * H / HKV / {m}) * max(1, ceil(KV_LEN / (32 * {n})))",
     "decodeListsParams(stage, operands, view)"},
    {"decode_sm80.cu", "parts<{}>",
     "min({c} * multiprocessors, 512, B * HKV * ceil(Q_LEN * H / HKV / {m}) * max(1, ceil(KV_LEN / 32)))",
     "decodeParams(stage, operands, device, view, 1)"},
    {"decode_sm90.cu", "parts<{}>",
     "min({c} * multiprocessors, 512, B * HKV * ceil(Q_LEN * H / HKV / {m}) * max(1, ceil(KV_LEN / 32)))",
     "DecodeParamsSm90{decodeParams(stage, operands, device, view, 1), {}, {}, 0, 0, 1}", "k v"},
    {"backward_delta.cu", "perQTile", "B * H * ceil(Q_LEN / {m})", "backwardParams(operands, view)"},
    {"backward_sm80.cu", "perKvTile", "B * HKV * ceil(KV_LEN / {n})", "backwardParamsSm80(operands, view)"},
    {"backward_finish_sm80.cu", "perQTile", "B * H * ceil(Q_LEN / {m})", "backwardParamsSm80(operands, view)"},
    {"backward_kv_sm80.cu", "perKvTile", "B * HKV * ceil(KV_LEN / {n})", "backwardParams(operands, view)"},
    {"backward_q_sm80.cu", "perQTile", "B * H * ceil(Q_LEN / {m})", "backwardParams(operands, view)"},
    {"backward_sm90.cu", "perKvTile", "B * HKV * ceil(KV_LEN / {n})",
     "backwardParamsSm90(stage, operands, device, view)", "q k v d_out"},
    {"backward_192_sm90.cu", "perKvTile", "B * HKV * ceil(KV_LEN / {n})",
     "backwardParamsSm90(stage, operands, device, view)", "q k v d_out"},
    {"backward_wide_sm90.cu", "perKvTileOfEachQHead", "B * H * ceil(KV_LEN / {n})",
     "backwardParamsSm90(stage, operands, device, view)", "q k v d_out"},
    {"backward_finish_sm90.cu", "perQTile", "B * H * ceil(Q_LEN / {m})",
     "backwardParamsSm90(stage, operands, device, view)", "q k v d_out"},
    {"backward_large.cu", "persistent<perQTile>", "min(multiprocessors, B * H * ceil(Q_LEN / {m}))",
     "backwardParams(operands, view)"},
};

/// Returns operands with many tiles, on which the numbers in a plan's functions show.
LaunchOperands probe(const plan::Plan& plan) {
  LaunchOperands operands;
  operands.problem = {1, 1, 1, 1 << 16, 1 << 16};
  const int64_t rows = 1 << 16, dim = plan.options.headDim, dimV = plan.options.headDimV;
  for (auto [tensor, columns] : {std::pair(&operands.q, dim), {&operands.k, dim}, {&operands.v, dimV}})
    *tensor = TensorView::contiguous(nullptr, plan.options.dtype, {1, 1, rows, columns});
  return operands;
}

const plan::Device kOne{.multiprocessors = 1, .l2Bytes = 1 << 20};

} // namespace

const StageLaunch* launchOf(const plan::Stage& stage) {
  for (const StageLaunch& row : kLaunches)
    if (row.templateName == stage.templateName) return &row;
  return nullptr;
}

std::string ctasFunction(const plan::Stage& stage) {
  const StageLaunch& row = *launchOf(stage);
  plan::Plan plan;
  plan.options.headDim = stage.config.headDimQk, plan.options.headDimV = stage.config.headDimV;
  const LaunchOperands operands = probe(plan);
  const int64_t ctas = stage.ctas(stage, operands, kOne);
  if (row.ctas == "parts<{}>") return fmt::format("parts<{}>", ctas);
  // Two CTAs share a tile of K and V if one has no registers for both sums.
  if (row.ctas == "perKvTile" && ctas == 2 * plan::perKvTile(stage, operands, kOne)) return "twice<perKvTile>";
  return std::string(row.ctas);
}

std::string bytesExpression(const plan::Plan& plan, Use use) {
  const codegen::Config& last = plan.stages.back().config;
  const bool isDecode = plan.options.kind == KernelKind::Decode;
  switch (use) {
  case Use::Counters:
    if (!isDecode) return "2 * sizeof(unsigned)";
    return fmt::format("counterBytes(operands, {}, {})", last.blockM, plan.stages.size() > 1 ? 2 : 1);
  case Use::Parts: return fmt::format("partBytes(operands, {})", last.blockM);
  case Use::StepLists: return fmt::format("listBytes(operands, {}, {})", last.blockM, last.blockN);
  case Use::Delta:
  case Use::RowSums: return "deltaBytes(operands)";
  case Use::LargeRows: return "largeRowBytes(operands)";
  case Use::DqSums: return plan.options.family == Family::Sm90 ? "sumBytes(operands)" : "oneWalkSumBytes(operands)";
  case Use::DqTurns: return "turnBytes(operands)";
  case Use::KvSums: return "kvSumBytes(operands)";
  case Use::KvArrivals: return "kvArrivalBytes(operands)";
  case Use::Lists:
  case Use::SharedItems:
  case Use::DqVisits:
  case Use::DiagonalSums:
  case Use::CaptureSums:
  case Use::WideQ:
  case Use::WideK:
  case Use::WideV:
  case Use::WideDq:
  case Use::WideDk:
  case Use::WideDv: return "";
  }
  return "";
}

std::string_view useWords(Use use) {
  switch (use) {
  case Use::Counters: return "counters by which CTAs take tiles or parts";
  case Use::Parts: return "f32 sums and row states of parts";
  case Use::Lists: return "lists of a block mask";
  case Use::StepLists: return "live steps along KV";
  case Use::SharedItems: return "which items CTAs share";
  case Use::Delta: return "f32 per row of q: delta";
  case Use::RowSums: return "f32 per row of q: row_sums";
  case Use::LargeRows: return "large_rows: counters, then chunks at byte 16";
  case Use::DqSums: return "f32 sums of dq";
  case Use::DqTurns: return "turns of CTAs that add to dq";
  case Use::KvSums: return "f32 sums of dk and dv";
  case Use::KvArrivals: return "arrivals of CTAs that add to dk and dv";
  case Use::DqVisits: return "visits of CTAs that add to dq";
  case Use::DiagonalSums: return "f32 sums along diagonals";
  case Use::CaptureSums: return "sums of gradients of captures";
  case Use::WideQ: return "further columns of q, or q with these";
  case Use::WideK: return "further columns of k, or k with these";
  case Use::WideV: return "v for each head of the wider k";
  case Use::WideDq: return "gradient of the wider q";
  case Use::WideDk: return "gradient of the wider k";
  case Use::WideDv: return "gradient of v for each head of the wider k";
  }
  return "";
}

std::string_view nameOf(Use use) {
  switch (use) {
  case Use::Counters: return "Counters";
  case Use::Parts: return "Parts";
  case Use::Lists: return "Lists";
  case Use::StepLists: return "StepLists";
  case Use::SharedItems: return "SharedItems";
  case Use::Delta: return "Delta";
  case Use::RowSums: return "RowSums";
  case Use::LargeRows: return "LargeRows";
  case Use::DqSums: return "DqSums";
  case Use::DqTurns: return "DqTurns";
  case Use::KvSums: return "KvSums";
  case Use::KvArrivals: return "KvArrivals";
  case Use::DqVisits: return "DqVisits";
  case Use::DiagonalSums: return "DiagonalSums";
  case Use::CaptureSums: return "CaptureSums";
  case Use::WideQ: return "WideQ";
  case Use::WideK: return "WideK";
  case Use::WideV: return "WideV";
  case Use::WideDq: return "WideDq";
  case Use::WideDk: return "WideDk";
  case Use::WideDv: return "WideDv";
  }
  return "";
}

std::string_view nameOf(plan::WorkspaceUse::Zeroed zeroed) {
  switch (zeroed) {
  case plan::WorkspaceUse::Zeroed::Never: return "Never";
  case plan::WorkspaceUse::Zeroed::Once: return "Once";
  case plan::WorkspaceUse::Zeroed::EveryLaunch: return "EveryLaunch";
  }
  return "";
}

} // namespace attnc
