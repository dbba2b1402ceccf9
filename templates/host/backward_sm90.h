// Parameters of backward_sm90.cu, backward_192_sm90.cu and backward_wide_sm90.cu.
//
// Host code, compiled twice: with the library (src/plan), and as text in the launcher of an emitted kernel. There,
// host/types.h stands for the library's types. So it names only members that both have, and includes nothing.
#pragma once

namespace attnc::plan {

static int slabs(int dim) { return (dim + 63) / 64; }

/// Tiles have 64 or 128 rows of q, and a multiple of 64 columns. To suit both, rows are rounded up to 128.
static size_t sumBytes(const LaunchOperands& operands) {
  const int64_t columns = 64 * slabs(int(operands.q.shape[3]));
  return sizeof(float) * size_t(operands.problem.qHeads) * size_t(qTilesOf(operands, 128)) * 128 * size_t(columns);
}

/// Two counters per tile: algo/turns.cuh.
static size_t turnBytes(const LaunchOperands& operands) {
  return 2 * sizeof(int) * size_t(operands.problem.qHeads) * size_t(qTilesOf(operands, 64));
}

/// One bit per block, in words: algo/visits.cuh. Without lists, sized for the smallest blocks.
static size_t visitBytes(const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  BlockMaskShape shape{problem.batch, problem.qHeads, problem.qLen, problem.kvLen, 64, 64};
  if (operands.lists) shape = operands.lists->shape;
  return sizeof(unsigned) * size_t(shape.batch) * size_t(shape.heads) * size_t(shape.qBlocks()) *
         size_t((shape.kvBlocks() + 31) / 32);
}

/// Wide kernels, whose tiles have 64 rows of k and v: algo/kv_sums.cuh. None if no heads share a KV head.
static size_t kvSumBytes(const LaunchOperands& operands) {
  if (sharersOf(operands) == 1) return 0;
  const int64_t columns = 64 * (slabs(int(operands.k.shape[3])) + slabs(int(operands.v.shape[3])));
  return sizeof(float) * size_t(operands.problem.kvHeads) * size_t(kvTilesOf(operands, 64)) * 64 * size_t(columns);
}
static size_t kvArrivalBytes(const LaunchOperands& operands) {
  if (sharersOf(operands) == 1) return 0;
  return 8 * sizeof(int) * size_t(operands.problem.kvHeads) * size_t(kvTilesOf(operands, 64));
}

static size_t diagonalBytes(const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  // Unsigned, because problems that fit into no memory may be asked about, and overflow.
  return sizeof(float) * size_t(problem.batch) * size_t(problem.qHeads) * size_t(problem.qLen + problem.kvLen);
}

/// Returns the places of the maps in the parameters.
static std::array<MapPlace, 4> mapsOf(BackwardParamsSm90& params, const Stage& stage, const LaunchOperands& operands) {
  const int blockM = stage.config.blockM, blockN = stage.config.blockN;
  return {MapPlace{"q", &operands.q, blockM, &params.q, &params.q_batch_step},
          {"k", &operands.k, blockN, &params.k, &params.k_batch_step},
          {"v", &operands.v, blockN, &params.v, &params.v_batch_step},
          {"d_out", &operands.dOut, blockM, &params.d_out, &params.d_out_batch_step}};
}

/// Returns the parameters without the maps.
static BackwardParamsSm90 backwardParamsSm90(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                             const WorkspaceView& workspace) {
  const auto& config = stage.config;
  BackwardParamsSm90 params{};
  params.base = backwardParams(operands, workspace);
  params.d_q_sums = static_cast<float*>(workspace.at(Use::DqSums));
  if (*config.takesTurns) params.turns = static_cast<int*>(workspace.at(Use::DqTurns));
  params.visits = static_cast<unsigned*>(workspace.at(Use::DqVisits));
  // Q, dO and the sums of dQ of all query heads that share a KV head.
  const ForwardParams& forward = params.base.forward;
  const int64_t rowBytes =
      int64_t(config.headDimQk + config.headDimV) * dtypeBytes(config.dtype) + 4 * int64_t(config.headDimQk);
  params.kv_sums = static_cast<float*>(workspace.at(Use::KvSums));
  params.kv_arrivals = static_cast<int*>(workspace.at(Use::KvArrivals));
  params.sharers = params.kv_sums ? int(sharersOf(operands)) : 1;
  // If tiles are few, the longest of all heads must come first, or those of the last heads begin too late.
  const int64_t ofHead = params.kv_sums ? 1 : forward.group; // query heads that a CTA walks
  const int64_t heads = operands.k.shape[0] * forward.kv_heads * params.sharers;
  const int64_t tiles = forward.kv_heads * kvTilesOf(operands, config.blockN) * params.sharers;
  params.section = tiles <= 4 * device.multiprocessors
                       ? int(std::max<int64_t>(1, heads))
                       : int(sectionOf(heads, rowBytes * ofHead * rowsOfQ(operands), device.l2Bytes));
  return params;
}

} // namespace attnc::plan
