#include "families/decode_wide.h"

#include "families/append.h"
#include "families/decode_parts.h"
#include "families/decode_plan.h"
#include "launch/tensor_maps.h"
#include "support/ceil_div.h"
#include "support/try.h"

#include <algorithm>

namespace attnc::plan {
namespace {

constexpr int kWideRows = 64, kWideWarps = 8, kWideThreads = 128 + 32 * kWideWarps;

int slabsOf(int columns) { return int(ceilDiv(columns, 64)); }

bool loadsV(const KernelOptions& options) { return !options.features.has(Feature::VInK); }

/// Mirrors `Memory` of templates/decode_wide_sm90.cu.
int sharedBytesOfWide(int columns, int stages, const KernelOptions& options) {
  const int slot = columns * 128 * (slabsOf(options.headDim) + (loadsV(options) ? slabsOf(options.headDimV) : 0));
  const int q = kWideRows * 128 * slabsOf(options.headDim), weights = kWideRows * 128;
  const int barriers = 2 * 8 * stages, factors = 2 * 4 * kWideRows, states = 2 * 8 * kWideRows,
            words = 4 * (kWideThreads / 32 + 2);
  return stages * slot + q + weights + barriers + factors + states + words;
}

/// Returns the tiles that fit. Products of short steps wait for shared memory, but two slots suffice only if nothing
/// else fits: a slot is loaded while another is worked on, and S of the next step is computed ahead.
std::vector<DecodeTile> wideTiles(const Request& request) {
  const KernelOptions& options = request.options;
  std::vector<DecodeTile> tiles;
  for (int columns : {32, 16}) {
    if (columns < 32 && decodeListsSteps(request.mod->facts, options)) continue; // decode_lists.cu takes no fewer
    for (int stages = 8; stages >= 2; --stages)
      if (const int bytes = sharedBytesOfWide(columns, stages, options); bytes <= request.arch.sharedBytesPerCta()) {
        tiles.push_back({{kWideRows, columns, kWideWarps}, stages, bytes});
        break;
      }
  }
  std::stable_partition(tiles.begin(), tiles.end(), [](const DecodeTile& tile) { return tile.stages > 2; });
  return tiles;
}

std::string wideTileText(const DecodeTile& tile) { return tileText(tile.tile); }

Expected<ParameterBlock> wideParameters(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                        const WorkspaceView& workspace) {
  const int64_t teams = decodeTeams(stage, operands, ctasOf(stage, operands, device));
  DecodeParamsSm90 params{decodeParams(stage, operands, device, workspace, teams), {}, {}, 0, 0, int(teams)};
  params.arrived = static_cast<int*>(workspace.at(Use::SharedItems));
  const auto& config = stage.config;
  const int boxRows = config.pageSize ? std::min(config.blockN, config.pageSize) : config.blockN;
  std::vector<MapPlace> maps{{"k", &operands.k, boxRows, &params.k, &params.k_batch_step, L2Promotion::Bytes128}};
  if (!*config.vInK)
    maps.push_back({"v", &operands.v, boxRows, &params.v, &params.v_batch_step, L2Promotion::Bytes128});
  ATTNC_TRY(encodeMaps(maps, operands));
  return withCache(params, stage, operands);
}

/// Returns the stage that merges the parts of a stage.
Stage mergeOf(const Stage& walking) {
  Stage merge{.templateName = "decode_merge.cu",
              .entry = "attnc_decode_merge",
              .config = walking.config,
              .algebra = walking.algebra,
              .threads = 32 * kWideWarps,
              .tiles = walking.tiles};
  merge.config.sharedBytes = merge.config.kvStages = 0;
  merge.config.wgmmaShapes.clear();
  merge.ctas = [ofParts = walking.ctas](const Stage& stage, const LaunchOperands& operands, const Device& device) {
    const int64_t rowsOfCta = stage.config.warps / ceilDiv(stage.config.headDimV, 128); // kRows of the template
    return ofParts(stage, operands, device) * ceilDiv(partRows(operands, kWideRows), rowsOfCta);
  };
  merge.parameters = [walking](const Stage&, const LaunchOperands& operands, const Device& device,
                               const WorkspaceView& workspace) -> Expected<ParameterBlock> {
    DecodeParams params = decodeParams(walking, operands, device, workspace);
    params.arrived = static_cast<int*>(workspace.at(Use::SharedItems));
    return ParameterBlock(params);
  };
  return merge;
}

} // namespace

std::string unservedByDecodeWide(const Request& request) {
  return wideTiles(request).empty() ? "has no room for these head dims in shared memory" : "";
}

Plan planDecodeWide(const Request& request) {
  const KernelOptions& options = request.options;
  const DecodeTile tile = chosenOf(wideTiles(request), options, wideTileText);
  codegen::Config config = configOf(options, tile.tile);
  config.appends = appendsByItself(options);
  config.vInK = !loadsV(options);
  config.kvStages = tile.stages;
  config.wgmmaShapes = {tile.tile.blockN, 64 * int(ceilDiv(options.headDimV, 128))};
  config.sharedBytes = tile.sharedBytes;
  Plan plan = planWalking(request,
                          {.templateName = "decode_wide_sm90.cu",
                           .config = std::move(config),
                           .threads = kWideThreads,
                           .parameters = wideParameters},
                          1);
  plan.stages.push_back(mergeOf(plan.stages.back()));
  plan.workspace.push_back({.use = Use::SharedItems,
                            .bytes =
                                [](const LaunchOperands& operands) {
                                  return 3 * sizeof(int) * size_t(mostParts(operands, kWideRows)); // SharedItem per CTA
                                },
                            .isOptional = plan.workspace.back().isOptional});
  return plan;
}

std::vector<std::string> candidatesDecodeWide(const Request& request) {
  return spelledAll(wideTiles(request), wideTileText);
}

} // namespace attnc::plan
