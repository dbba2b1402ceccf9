// Few queries over long KV, with mma.sync and cp.async.
#include "families/decode_plan.h"

namespace attnc::plan {
namespace {

int kvBytes(int rows, const KernelOptions& options) {
  const int element = options.features.has(Feature::Fp8Kv) ? 1 : 2;
  return rows * (paddedRowBytes(options.headDim, element) + paddedRowBytes(options.headDimV, element));
}

int qBytes(int rows, const KernelOptions& options) { return rows * paddedRowBytes(options.headDim); }

Expected<ParameterBlock> decodeParametersSm80(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                              const WorkspaceView& workspace) {
  return withCache(decodeParams(stage, operands, device, workspace), stage, operands);
}

constexpr DecodeCopies kCopies{.templateName = "decode_sm80.cu",
                               .kvBytes = kvBytes,
                               .qBytes = qBytes,
                               .slotAlign = 16,
                               .barrierBytes = 0,
                               .byWarpgroups = [](int, const KernelOptions&) { return false; },
                               .parameters = decodeParametersSm80};

std::string unservedBySm80(const Request& request) {
  if (std::string why = whyNotE4m3(request); !why.empty()) return why;
  if (decodeTiles(request, kCopies).empty()) return "has no room for this tile in shared memory";
  return {};
}

Plan planDecodeSm80(const Request& request) { return planDecode(request, kCopies); }

std::vector<std::string> candidatesDecodeSm80(const Request& request) { return decodeCandidates(request, kCopies); }

} // namespace

const FamilyRow kDecodeSm80{.kind = KernelKind::Decode,
                            .family = Family::Sm80,
                            .walksBounds = true,
                            .takesProbMods = FamilyRow::ProbMods::All,
                            .takesWeightMods = true,
                            .takes = {Feature::Lengths, Feature::Offsets, Feature::Pages, Feature::Appends,
                                      Feature::Ragged, Feature::Fp8Kv, Feature::RowMax, Feature::VInK},
                            .unserved = unservedBySm80,
                            .plan = planDecodeSm80,
                            .candidates = candidatesDecodeSm80,
                            .layouts = "any strides, the last one 1",
                            .checkLayout = takesAnyLayout};

} // namespace attnc::plan
