// How many CTAs append.cu has.
//
// Host code, compiled twice: with the library (src/plan), and as text in the launcher of an emitted kernel. There,
// host/types.h stands for the library's types. So it names only members that both have, and includes nothing.
#pragma once

namespace attnc::plan {

static int64_t perTileOfNewRows(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return operands.problem.kvHeads * qTilesOf(operands, stage.config.blockM);
}

} // namespace attnc::plan
