#include "kernels/assemble.h"

#include "codegen/config_source.h"
#include "kernels/embedded.h"

#include <llvm/ADT/StringSet.h>
#include <llvm/Support/MathExtras.h>

namespace attnc::kernels {
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

codegen::ModOptions modOptions(const KernelOptions& options) {
  const bool takesHooks = options.kind == KernelKind::Forward && options.family != Family::Naive;
  // The form of soft caps errs by 6e-7 of the cap, more than the products of f32 do.
  return {.scaledScore = takesHooks && options.dtype != DType::F32, .rowShift = takesHooks};
}

Assembly assemble(const ir::Module& module, const Plan& plan) {
  const codegen::ModOptions options = modOptions(plan.options);
  codegen::ModSource mod = codegen::emitMod(module, options);
  std::vector<std::pair<std::string, int>> extra;
  std::vector<int> wgmmaShapes;
  if (plan.options.family == Family::Sm90) {
    extra = {{"kStages", plan.stages}, {"kQStages", plan.qStages}};
    wgmmaShapes = {plan.blockN, int(llvm::alignTo(plan.options.headDimV, 16))};
  }
  int64_t sharedBytes = plan.sharedBytes;
  if (mod.columnBytes && plan.options.family == Family::Sm90) // `Columns` of templates/forward_sm90.cu
    sharedBytes = int64_t(llvm::alignTo(sharedBytes, 16)) + int64_t(plan.stages) * plan.blockN * mod.columnBytes;
  else if (plan.options.family == Family::Sm90)
    sharedBytes = int64_t(llvm::alignTo(sharedBytes, 16));
  extra.emplace_back("kSharedBytes", int(sharedBytes));
  const std::string config = codegen::emitConfig({.dtype = plan.options.dtype,
                                                  .headDimQk = plan.options.headDim,
                                                  .headDimV = plan.options.headDimV,
                                                  .blockM = plan.blockM,
                                                  .blockN = plan.blockN,
                                                  .warps = plan.warps,
                                                  .blockSparse = plan.options.blockSparse,
                                                  .rowMax = plan.options.rowMax,
                                                  .tf32 = plan.options.tf32,
                                                  .extra = std::move(extra),
                                                  .wgmmaShapes = std::move(wgmmaShapes)});
  Assembly assembly{{}, std::move(mod.slots), sharedBytes, modKey(module, options)};
  KernelSource& source = assembly.source;
  source.entry = plan.entry;
  source.templateName = plan.templateName;
  source.text = embeddedText(plan.templateName).str();
  source.arch = plan.options.arch;
  source.family = plan.options.family;

  llvm::StringSet<> seen;
  collect("attnc_config.cuh", config, seen, source.headers);
  collect("attnc_mod.cuh", mod.text, seen, source.headers);
  collect(plan.templateName, source.text, seen, source.headers);
  source.headers.pop_back(); // the template itself
  return assembly;
}

} // namespace attnc::kernels
