// Parameters of forward_sm90.cu.
//
// Host code, compiled twice: with the library (src/plan), and as text in the launcher of an emitted kernel. There,
// host/types.h stands for the library's types. So it names only members that both have, and includes nothing.
#pragma once

namespace attnc::plan {

/// Returns the places of the maps in the parameters.
static std::array<MapPlace, 4> mapsOf(ForwardParamsSm90& params, const Stage& stage, const LaunchOperands& operands) {
  const int blockM = stage.config.blockM, blockN = stage.config.blockN;
  // A page is an entry of the batch: no copy goes beyond one.
  const int kvRows = operands.pageTable ? std::min(blockN, stage.config.pageSize) : blockN;
  return {MapPlace{"q", &operands.q, blockM, &params.q, &params.q_batch_step},
          {"k", &operands.k, kvRows, &params.k, &params.k_batch_step},
          {"v", &operands.v, kvRows, &params.v, &params.v_batch_step},
          {"out", &operands.out, blockM, &params.out, &params.out_batch_step}};
}

/// Returns the parameters without the maps.
static ForwardParamsSm90 forwardParamsSm90(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                           const WorkspaceView& workspace) {
  ForwardParamsSm90 params{};
  params.base = forwardParams(operands);
  const ForwardParams& base = params.base;
  const auto& config = stage.config;
  const int64_t kvBytes = rowsOfKv(operands) * (config.headDimQk + config.headDimV) * dtypeBytes(operands.k.dtype);
  const int batch = operands.cuSeqlensQ ? 1 : base.batch;
  const int64_t allKvHeads = int64_t(batch) * base.kv_heads;
  params.order.q_tiles = int(qTilesOf(operands, config.blockM) / batch);
  params.order.heads = batch * base.q_heads;
  params.order.section = int(sectionOf(allKvHeads, kvBytes, device.l2Bytes) * base.group);
  params.order.counters = static_cast<unsigned*>(workspace.at(Use::Counters));
  return params;
}

} // namespace attnc::plan
