// Few queries over long KV, with mma.sync and TMA, on Hopper.
#include "families/decode_plan.h"
#include "families/decode_wide.h"
#include "launch/kernel_options.h"
#include "launch/tensor_maps.h"
#include "support/ceil_div.h"
#include "support/try.h"

#include <algorithm>

namespace attnc::plan {
namespace {

/// Returns the places of the maps in the parameters.
std::array<MapPlace, 2> mapsOf(DecodeParamsSm90& params, const Stage& stage, const LaunchOperands& operands) {
  const auto& config = stage.config;
  const int teamRows = config.blockN / (config.warps / (config.blockM / 16));
  const int boxRows = operands.pageTable ? std::min(teamRows, config.pageSize) : teamRows;
  return {MapPlace{"k", &operands.k, boxRows, &params.k, &params.k_batch_step, jit::L2Promotion::Bytes128},
          {"v", &operands.v, boxRows, &params.v, &params.v_batch_step, jit::L2Promotion::Bytes128}};
}

/// Tiles consist of slabs of 128 bytes of columns.
int kvBytesInSlabs(int rows, const KernelOptions& options) {
  const int columns = options.features.has(Feature::Fp8Kv) ? 128 : 64;
  return int(rows * 128 * (ceilDiv(options.headDim, columns) + ceilDiv(options.headDimV, columns)));
}

/// Mirrors kByWarpgroups of templates/decode_sm90.cu.
bool byWarpgroups(int rows, const KernelOptions& options) {
  return rows == 64 && options.headDimV <= 192 && !options.features.has(Feature::Fp8Kv);
}

int qBytesOfEngine(int rows, const KernelOptions& options) {
  return byWarpgroups(rows, options) ? rows * 128 * ((options.headDim + 63) / 64)
                                     : rows * paddedRowBytes(options.headDim);
}

Status checkDecodeLayout(const LaunchOperands& operands) {
  for (auto [name, tensor] : {std::pair("k", &operands.k), {"v", &operands.v}})
    ATTNC_TRY(checkMappable(name, *tensor, operands.pageTable.has_value()));
  return {};
}

Expected<ParameterBlock> decodeParametersSm90(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                              const WorkspaceView& workspace) {
  ATTNC_TRY(checkDecodeLayout(operands));
  DecodeParamsSm90 params{decodeParams(stage, operands, device, workspace), {}, {}, 0, 0, 1};
  ATTNC_TRY(encodeMaps(mapsOf(params, stage, operands), operands));
  return withCache(params, stage, operands);
}

constexpr DecodeCopies kEngineCopies{.templateName = "decode_sm90.cu",
                                     .kvBytes = kvBytesInSlabs,
                                     .qBytes = qBytesOfEngine,
                                     .slotAlign = 1024,
                                     .barrierBytes = 8,
                                     .byWarpgroups = byWarpgroups,
                                     .parameters = decodeParametersSm90};

std::string unservedByDecodeSm90(const Request& request) {
  const KernelOptions& options = request.options;
  if (request.arch.capability != 90 || !request.arch.specific) return "needs arch sm_90a";
  if (options.pageSize && options.pageSize < 8) return "takes pages of 8 rows and more";
  if (std::string why = whyNotE4m3(request); !why.empty()) return why;
  if (hasWideHeads(options))
    return options.features.has(Feature::Fp8Kv) ? "takes k and v of e4m3 of head dims up to 256"
                                                : unservedByDecodeWide(request);
  if (decodeTiles(request, kEngineCopies).empty()) return "has no room for this tile in shared memory";
  return {};
}

Plan planDecodeSm90(const Request& request) {
  return hasWideHeads(request.options) ? planDecodeWide(request) : planDecode(request, kEngineCopies);
}

std::vector<std::string> candidatesDecodeSm90(const Request& request) {
  return hasWideHeads(request.options) ? candidatesDecodeWide(request) : decodeCandidates(request, kEngineCopies);
}

} // namespace

const FamilyRow kDecodeSm90{.kind = KernelKind::Decode,
                            .family = Family::Sm90,
                            .arch = "sm_90a",
                            .madeFor = 90,
                            .walksBounds = true,
                            .takesWideHeads = true,
                            .takesProbMods = FamilyRow::ProbMods::All,
                            .takesWeightMods = true,
                            .takes = {Feature::Lengths, Feature::Offsets, Feature::Pages, Feature::Appends,
                                      Feature::Ragged, Feature::Fp8Kv, Feature::RowMax, Feature::VInK},
                            .unserved = unservedByDecodeSm90,
                            .plan = planDecodeSm90,
                            .candidates = candidatesDecodeSm90,
                            .layouts = "rows of k and v aligned to 16 bytes, strides above 0 (of the batch: 0, too)",
                            .checkLayout = checkDecodeLayout};

} // namespace attnc::plan
