#include "plan/assemble.h"

#include "plan/embedded.h"

#include <llvm/ADT/StringSet.h>

namespace attnc::plan {
namespace {

llvm::StringRef embeddedText(llvm::StringRef name) {
  for (unsigned i = 0; i < kEmbeddedFileCount; ++i)
    if (name == kEmbeddedFiles[i].name) return kEmbeddedFiles[i].text;
  return {};
}

/// The name in `#include "name"`, or empty.
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

std::string modKey(ir::Module module, const codegen::ModOptions& options) {
  module.sourceName.clear();
  for (size_t i = 0; i < module.tensors.size(); ++i) module.tensors[i].name = "t" + std::to_string(i);
  for (size_t i = 0; i < module.scalars.size(); ++i) module.scalars[i].name = "s" + std::to_string(i);
  for (size_t i = ir::kBuiltinDims; i < module.dims.size(); ++i) module.dims[i] = "d" + std::to_string(i);
  const std::string text = codegen::emitMod(module, options).text;
  std::string key;
  for (llvm::StringRef rest = text; !rest.empty();) {
    auto [line, tail] = rest.split('\n');
    rest = tail;
    if (!std::string_view(line).starts_with("#line ")) key += line.str() + "\n";
  }
  return key;
}

} // namespace

Assembly assemble(const ir::Module& module, const Stage& stage, const KernelOptions& options) {
  codegen::ModSource mod = codegen::emitMod(module, stage.hooks);
  Assembly assembly{{}, std::move(mod.slots), modKey(module, stage.hooks)};
  KernelSource& source = assembly.source;
  source.entry = stage.entry;
  source.templateName = stage.templateName;
  source.text = embeddedText(stage.templateName).str();
  source.arch = options.arch;
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
  collect("attnc_mod.cuh", mod.text, seen, source.headers);
  collect(stage.templateName, source.text, seen, source.headers);
  source.headers.pop_back(); // the template itself
  return assembly;
}

} // namespace attnc::plan
