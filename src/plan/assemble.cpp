#include "plan/assemble.h"

#include "plan/arch.h"

#include "plan/embedded.h"

#include <llvm/ADT/StringSet.h>

namespace attnc::plan {
namespace {

llvm::StringRef embeddedText(llvm::StringRef name) {
  for (unsigned i = 0; i < kEmbeddedFileCount; ++i)
    if (name == kEmbeddedFiles[i].name) return kEmbeddedFiles[i].text;
  return {};
}

/// Returns the name in `#include "name"`, or an empty one.
llvm::StringRef includedName(llvm::StringRef line) {
  line = line.trim();
  return line.consume_front("#include \"") ? line.take_until([](char c) { return c == '"'; }) : llvm::StringRef();
}

/// Adds `name` and what it includes to `headers`, each once, included ones first.
void collect(llvm::StringRef name, llvm::StringRef text, llvm::StringSet<>& seen,
             std::vector<std::pair<std::string, std::string>>& headers) {
  if (!seen.insert(name).second) return;
  llvm::StringRef rest = text;
  while (!rest.empty()) {
    auto [line, tail] = rest.split('\n');
    rest = tail;
    const llvm::StringRef included = includedName(line);
    if (const llvm::StringRef body = embeddedText(included); !body.empty()) collect(included, body, seen, headers);
  }
  headers.emplace_back(name.str(), text.str());
}

} // namespace

KernelSource assemble(const KernelMod& mod, const Stage& stage, const KernelOptions& options) {
  KernelSource source;
  source.entry = stage.entry;
  source.templateName = stage.templateName;
  source.text = embeddedText(stage.templateName).str();
  source.modKey = mod.source.key;
  source.arch = machineArch(options.arch);
  source.family = options.family;
  const codegen::Config& config = stage.config;
  source.threads = stage.threads;
  source.dynamicSharedBytes = config.sharedBytes;
  source.tileRows = config.blockM;
  source.tileColumns = config.blockN;
  source.warps = config.warps;
  source.qStages = config.qStages;
  source.kvStages = config.kvStages;

  llvm::StringSet<> seen;
  collect("attnc_config.cuh", codegen::emitConfig(stage.config), seen, source.headers);
  collect("attnc_mod.cuh", mod.source.text, seen, source.headers);
  collect(stage.templateName, source.text, seen, source.headers);
  source.headers.pop_back(); // the template itself
  return source;
}

} // namespace attnc::plan
