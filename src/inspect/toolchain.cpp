#include "attnc/toolchain.h"

#include "api/pack_maker.h"
#include "jit/nvrtc.h"
#include "jit/packs.h"
#include "plan/arch.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

namespace attnc {

std::vector<std::string> knownArchs() {
  std::vector<std::string> names;
  for (int capability : plan::knownCapabilities())
    names.push_back(plan::canonicalArch(fmt::format("sm_{}", capability)));
  return names;
}

bool isKnownArch(std::string_view arch) {
  const auto parsed = plan::parseArch({arch.data(), arch.size()});
  if (!parsed) return false;
  if (llvm::is_contained(plan::knownCapabilities(), parsed->capability)) return true;
  const auto supported = jit::Nvrtc(jit::Env::read()).supportedArchs();
  return supported && llvm::is_contained(*supported, parsed->capability);
}

Expected<NvrtcInfo> findNvrtc() {
  jit::Nvrtc nvrtc(jit::Env::read());
  ATTNC_TRY_AS(identity, nvrtc.identity());
  ATTNC_TRY_AS(path, nvrtc.path());
  return NvrtcInfo{*identity, *path};
}

DefaultPackInfo findDefaultPack() {
  const jit::DefaultPack found = jit::findDefaultPack(jit::Env::read());
  if (found.path.empty()) return {};
  const auto pack = jit::openDefaultPack(found, packMaker());
  if (!pack) return {found.path, 0, pack.error().message};
  return {found.path, int64_t((*pack)->rows().size()), {}};
}

} // namespace attnc
