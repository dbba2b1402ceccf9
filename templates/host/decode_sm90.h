// Tensor maps of decode_sm90.cu.
//
// Host code, compiled twice: with the library (src/plan), and as text in the launcher of an emitted kernel. There,
// host/types.h stands for the library's types. So it names only members that both have, and includes nothing.
#pragma once

namespace attnc::plan {

/// Returns the places of the maps in the parameters.
static std::array<MapPlace, 2> mapsOf(DecodeParamsSm90& params, const Stage& stage, const LaunchOperands& operands) {
  const auto& config = stage.config;
  const int teamRows = config.blockN / (config.warps / (config.blockM / 16));
  const int boxRows = operands.pageTable ? std::min(teamRows, config.pageSize) : teamRows;
  return {MapPlace{"k", &operands.k, boxRows, &params.k, &params.k_batch_step, jit::L2Promotion::Bytes128},
          {"v", &operands.v, boxRows, &params.v, &params.v_batch_step, jit::L2Promotion::Bytes128}};
}

} // namespace attnc::plan
