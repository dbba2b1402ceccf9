// Describes what was settled and compiled, for people.
#include "c/handles.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

std::string loopText(KvLoop loop, const std::optional<BlockMaskShape>& built, const KernelOptions& options) {
  switch (loop) {
  case KvLoop::AllTiles: return "all tiles";
  case KvLoop::Listed: return "blocks that each launch lists";
  case KvLoop::Bounds: return "bounds that the mod computes";
  case KvLoop::Boxes: return "boxes of keys that the mod computes";
  case KvLoop::BoxMask:
    return fmt::format("lists of boxes of keys, {}", built ? "built in the workspace" : "given at launch");
  case KvLoop::BlockMask:
    return fmt::format("lists of {} x {} blocks, {}", options.maskQBlock, options.maskKvBlock,
                       built ? "built in the workspace" : "given at launch");
  }
  return {};
}

/// Describes the kernel of a pass.
std::string passText(const char* name, const Plan& pass, const std::optional<BlockMaskShape>& built) {
  const KernelOptions& options = pass.options();
  std::string text = fmt::format("{}: family {}, {}, {}, head dim {}", name, familyName(options.family), options.arch,
                                 dtypeName(options.dtype), options.headDim);
  if (options.headDimV != options.headDim) text += fmt::format(", of v {}", options.headDimV);
  text += fmt::format("; KV loop: {}\n", loopText(pass.kvLoop(), built, options));
  if (!pass.passedOver().empty()) text += fmt::format("  passed over: {}\n", pass.passedOver());
  if (!pass.tile().empty())
    text += fmt::format("  tile: {}{}\n", pass.tile(),
                        pass.tileFrom() == TileFrom::Tuned ? " (tuned: " + pass.tunedBy() + ")" : "");
  return text;
}

} // namespace

std::string describe(const Preparation& preparation) {
  const auto& backward = preparation.backward;
  const bool isDecode = preparation.kernel.options().kind == KernelKind::Decode;
  std::string text = passText(isDecode ? "decode" : "forward", preparation.kernel, preparation.blockMask);
  if (!preparation.whyKind.empty()) text += fmt::format("  decode or not: {}\n", preparation.whyKind);
  if (backward) text += passText("backward", *backward, preparation.blockMask);
  return text + fmt::format("workspace: {} bytes\n", preparation.workspaceBytes);
}

std::string describe(const CompiledStages& stages) {
  std::string text;
  for (const auto& stage : stages) {
    text += fmt::format("{}: {} registers, {} bytes of spills, {} bytes of shared memory\n", stage->templateName,
                        stage->registers, stage->spillBytes, stage->staticSharedBytes + stage->dynamicSharedBytes);
    for (const std::string& advisory : stage->advisories) text += fmt::format("  ptxas: {}\n", advisory);
  }
  return text;
}

} // namespace attnc::c
