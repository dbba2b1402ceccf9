// Kernels as CUDA files, and the comment that they begin with.
#include "attnc/stages.h"

#include "api/own_stack.h"
#include "api/plan_impl.h"
#include "attnc/version.h"
#include "families/catalog.h"
#include "inspect/joined_stages.h"
#include "inspect/launcher.h"
#include "inspect/stage_launches.h"
#include "support/readable.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringExtras.h>

#include <filesystem>
#include <set>

namespace attnc {
namespace {

/// The kernel that a file is written from: that of one launch, or of all.
struct FileKernel {
  Mod mod;
  plan::Plan plan;
  StageMods mods;
  std::vector<KernelSource> sources; ///< by stage
};

Expected<FileKernel> kernelFor(const Plan& plan, int launch) {
  const PlanAccess::Impl& of = PlanAccess::of(plan);
  ATTNC_TRY_AS(mods, of.stageMods());
  const size_t count = mods->size();
  if (launch < 0 || launch > int(count))
    return Error::environment(fmt::format("there is no launch {}; the kernel has {}", launch, count));
  FileKernel all{of.mod, of.plan, *std::move(mods), {}};
  for (size_t stage = 0; stage < count; ++stage)
    if (!launch || stage + 1 == size_t(launch)) all.sources.push_back(of.source(all.mods, stage));
  if (launch) {
    all.plan.stages = {of.plan.stages[size_t(launch - 1)]};
    all.mods = {all.mods[size_t(launch - 1)]};
  }
  return all;
}

/// Returns what a file has.
Expected<FileKernel> kernelFor(const Plan& plan, const CudaFileOptions& file) {
  if (file.launcher && file.launch)
    return Error::environment("a launcher is of the whole kernel, and one launch is asked for");
  ATTNC_TRY_AS(all, kernelFor(plan, file.launch));
  if (!file.launcher) nameApart(all->sources);
  return all;
}

/// Returns a name for C++: "alibi_forward".
std::string functionName(const Mod& mod, const KernelOptions& options) {
  std::string name;
  for (char c : std::filesystem::path(mod.name()).stem().string())
    if (llvm::isAlnum(c))
      name += c;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (name.empty() || !llvm::isAlpha(name[0])) name = "mod" + name;
  std::string kind(kindName(options.kind));
  std::replace(kind.begin(), kind.end(), '-', '_');
  return name + "_" + kind;
}

/// Returns whether further columns of q and k come from tensors of their own.
bool hasColumnsApart(const codegen::Config& config) {
  return config.narrowHeadDim && *config.narrowHeadDim < config.headDimQk;
}

/// Returns the text that chooses the type of parameters: the template or a header of its own. Empty if none does.
llvm::StringRef choiceOfParams(const KernelSource& source) {
  constexpr llvm::StringLiteral kChoice = "ParametersOf<", kUsing = "using Params = typename ParametersOf<";
  llvm::StringRef text = source.text;
  if (!text.contains(kChoice))
    for (const auto& [name, body] : source.headers)
      if (llvm::StringRef(body).contains(kUsing)) text = body;
  return text.contains(kChoice) ? text : llvm::StringRef();
}

/// Returns the type of a kernel's first parameter.
std::string paramsType(const KernelSource& source, const plan::Stage& stage) {
  const std::string before = source.entry + "(const __grid_constant__ ";
  llvm::StringRef text = source.text;
  text = text.drop_front(std::min(text.size(), text.find(before))).drop_front(before.size());
  const std::string type = text.take_until([](char c) { return c == ','; }).rsplit(' ').first.str();
  const llvm::StringRef choice =
      choiceOfParams(source); // using Params = typename ParametersOf<ForwardParams, ...>::Type
  const llvm::StringRef chosen = choice.drop_front(std::min(choice.size(), choice.find("ParametersOf<")));
  if (type.find("Params") == std::string::npos || type.size() > 6 || chosen.empty()) {
    if (type.find("::") == std::string::npos || chosen.empty()) return type;
  }
  std::string base = chosen.drop_front(13).take_until([](char c) { return c == ','; }).str();
  llvm::StringRef scaled = choice; // ScaledIf<ForwardParams, kFp8>, here or by an alias
  scaled = scaled.substr(scaled.find("ScaledIf<Forward")).substr(9);
  if (base == "TileParams") base = "ScaledIf<" + scaled.take_until([](char c) { return c == ','; }).str();
  if (llvm::StringRef of = base; of.consume_front("ScaledIf<"))
    base = stage.config.fp8 == true ? "Scaled<" + of.str() + ">" : of.str();
  if (hasColumnsApart(stage.config)) base = "WithColumns<" + base + ">";
  return stage.config.pageSize || stage.config.appends ? "Cached<" + base + ">" : base;
}

/// Returns the rows that the map of a tensor copies at a time.
std::string mapsWords(const plan::Stage& stage, llvm::StringRef tensors) {
  const codegen::Config& config = stage.config;
  const bool isDecode = std::string_view(stage.templateName).starts_with("decode");
  llvm::SmallVector<llvm::StringRef, 4> names;
  tensors.split(names, ' ');
  std::vector<std::string> words;
  for (llvm::StringRef name : names) {
    int rows = name == "k" || name == "v" ? config.blockN : config.blockM;
    if (isDecode) rows = config.blockN / (config.warps / (config.blockM / 16));
    if ((name == "k" || name == "v") && config.cluster) rows /= config.cluster->ctas;
    if ((name == "k" || name == "v") && config.pageSize) rows = std::min(rows, config.pageSize);
    words.push_back(fmt::format("{} 64 x {}", name.str(), rows));
  }
  if (hasColumnsApart(config))
    words.push_back(fmt::format("q_columns 64 x {}, k_columns 64 x {}", config.blockM, config.blockN));
  return fmt::format("{}", fmt::join(words, ", "));
}

/// Returns what a word of ModArgs is.
std::string wordWords(const ir::Module& module, const codegen::ArgWord& slot) {
  using Kind = codegen::ArgWord::Kind;
  switch (slot.kind) {
  case Kind::Dim: return module.dims[slot.index];
  case Kind::Scalar: return module.scalars[slot.index].name;
  case Kind::TensorData: return fmt::format("address of {}", module.tensors[slot.index].name);
  case Kind::TensorSize: return fmt::format("extent {} of {}", slot.axis, module.tensors[slot.index].name);
  case Kind::TensorStride: return fmt::format("stride {} of {}", slot.axis, module.tensors[slot.index].name);
  }
  return "";
}

std::string workspaceWords(const plan::Plan& plan) {
  if (plan.workspace.empty()) return "// Workspace: none.\n";
  std::string out =
      "// Workspace: device memory of the caller. Parts lie one after another, each at a multiple of 256 bytes:\n";
  const auto when = [](const plan::WorkspaceUse& use) {
    switch (use.zeroed) {
    case plan::WorkspaceUse::Zeroed::Never: return "";
    case plan::WorkspaceUse::Zeroed::Once: return "; zero before the first launch, which leaves it so";
    case plan::WorkspaceUse::Zeroed::EveryLaunch: return "; zero before every launch";
    }
    return "";
  };
  plan::LaunchOperands example;
  example.problem = {1, 1, 1, 1024, 1024};
  const KernelOptions& options = plan.options;
  for (auto [tensor, columns] :
       {std::pair(&example.q, options.headDim), {&example.k, options.headDim}, {&example.v, options.headDimV}})
    *tensor = TensorView::contiguous(nullptr, options.dtype, {1, 1, 1024, columns});
  for (const plan::WorkspaceUse& use : plan.workspace)
    out += use.use == plan::Use::CaptureSums
               ? fmt::format("//   {}{}\n", useWords(use.use), when(use))
               : fmt::format("//   {}: {} bytes for B, H, HKV 1 and lengths 1024{}{}\n", useWords(use.use),
                             use.bytes(example), when(use), use.isOptional ? "; may be missing" : "");
  return out;
}

/// Returns what a kernel was compiled for beyond dtypes and head dims: "block masks, KV_LEN pinned to 4096".
std::string otherOptions(const KernelOptions& options) {
  std::vector<std::string> words;
  const Features features = featuresOf(options);
  for (Feature feature :
       {Feature::Lengths, Feature::Appends, Feature::Ragged, Feature::Fp8Kv, Feature::Fp8Q, Feature::RowScales,
        Feature::RowMax, Feature::Deterministic, Feature::BoxMask, Feature::Tangents})
    if (features.has(feature)) words.emplace_back(featureText(feature));
  if (options.pageSize) words.push_back(fmt::format("pages of {} rows", options.pageSize));
  if (options.offsets == QueryOffsets::Tensor) words.push_back("offsets of queries");
  if (options.offsets == QueryOffsets::FromLengths) words.push_back("queries at the ends of the lengths");
  if (features.has(Feature::BlockMask))
    words.push_back(fmt::format("block masks of {} x {}", options.maskQBlock, options.maskKvBlock));
  llvm::append_range(words, choiceWords(options));
  for (const auto& [name, value] : options.pins) words.push_back(fmt::format("{} pinned to {}", readable(name), value));
  if (!options.gradients.empty())
    words.push_back(fmt::format("gradients of {}", readable(fmt::format("{}", fmt::join(options.gradients, ", ")))));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string comment(const FileKernel& all, const CudaFileOptions& file, const std::string& name) {
  const KernelOptions& options = all.plan.options;
  std::string out = fmt::format("// {}: {} kernel of the mod {}, for {}, by attnc {}\n", name, kindName(options.kind),
                                readable(all.mod.name()), all.sources.front().arch, ATTNC_VERSION);
  out += fmt::format("// q, k, v, out: {}; head dim {}, of v and out {}; family {}{}\n", dtypeName(options.dtype),
                     options.headDim, options.headDimV, familyName(options.family),
                     all.plan.tile.empty() ? "" : ", tile " + all.plan.tile);
  if (const std::string others = otherOptions(options); !others.empty()) out += "// With " + others + "\n";
  const std::string& arch = all.sources.front().arch;
  const std::string number = arch.substr(arch.find('_') + 1);
  const bool isVirtual = std::string_view(arch).starts_with("compute");
  const bool maps = llvm::any_of(all.plan.stages, [](const auto& stage) { return !mappedTensors(stage).empty(); });
  out += fmt::format(
      "//\n// Compile: nvcc -std=c++20 --expt-relaxed-constexpr -gencode arch=compute_{0},code={1} -c FILE.cu\n",
      number, isVirtual ? "compute_" + number : "sm_" + number);
  if (file.launcher)
    out += fmt::format("// Call {}() at the end of the file, which does all of what follows. Link{} with nvcc.\n", name,
                       maps ? " with -lcuda" : "");
  out += "//\n// Launches, in this order on one stream. A kernel takes a struct of this file and the mod's ModArgs, by "
         "value.\n";
  const auto uses = [&](size_t index) {
    const KernelSource& source = all.sources[index];
    const plan::Stage& stage = all.plan.stages[index];
    std::string text =
        fmt::format("//   {}. {}(const {}, const ModArgs)\n", index + 1, source.entry, paramsType(source, stage));
    text += fmt::format("//      grid {}; block {}; dynamic shared memory {} bytes\n", ctasWords(stage), stage.threads,
                        stage.config.sharedBytes);
    if (const std::string_view tensors = mappedTensors(stage); !tensors.empty())
      text += fmt::format("//      tensor maps, head dim x rows of a box: {}\n", mapsWords(stage, tensors));
    return text;
  };
  for (size_t i = 0; i < all.sources.size() && i < 12; ++i) out += uses(i);
  if (all.sources.size() > 12) out += fmt::format("//   ... {} more\n", all.sources.size() - 12);
  if (const size_t first = all.plan.stagesOfFirstForm; first && !file.launch)
    out += fmt::format(
        "// Either launches 1 to {} run, or {} to {}, by the numbers of a launch. Low-rank term:\n//   {}\n", first,
        first + 1, all.sources.size(), all.plan.lowRank);
  out += "// More than 48 KiB of dynamic shared memory needs cudaFuncAttributeMaxDynamicSharedMemorySize. No CTAs: no "
         "launch.\n";
  if (maps)
    out += "// Tensor maps are 4-D over (head dim, rows, heads, batch): 128-byte swizzle, no interleave, zero fill, "
           "element\n"
           "// strides 1, L2 promotion 256 bytes (decode: 128). A batch that is broadcast has extent 1, and 0 as its "
           "batch step.\n";
  out += "// The structs say what each member means. Search for `struct` and the name.\n//\n";
  const ir::Module& module = all.mods.front()->module;
  std::vector<std::string> words;
  for (const codegen::ArgWord& slot : all.mods.front()->source.slots) words.push_back(wordWords(module, slot));
  if (words.size() > 24) words.resize(24), words.push_back("... as in struct ModArgs");
  out += words.empty() ? "// ModArgs: one word, not read.\n"
                       : fmt::format("// ModArgs{}, 8 bytes a word, values in the low bytes:\n//   {}\n",
                                     all.sources.size() > 1 ? " of launch 1" : "", fmt::join(words, "\n//   "));
  return out + "//\n" + workspaceWords(all.plan);
}

} // namespace

Expected<std::string> modText(const Plan& plan, int launch) {
  return onOwnStack([&]() -> Expected<std::string> {
    ATTNC_TRY_AS(all, kernelFor(plan, launch));
    std::string text;
    std::set<std::string> seen;
    for (const KernelSource& source : all->sources)
      for (const auto& [name, body] : source.headers)
        if ((name == "attnc_config.cuh" || name == "attnc_mod.cuh") && seen.insert(body).second)
          text += fmt::format("// ===== {} of {}\n", name, source.entry) + body;
    return text;
  });
}

Expected<std::string> cudaFile(const Plan& plan, const CudaFileOptions& file) {
  return onOwnStack([&]() -> Expected<std::string> {
    ATTNC_TRY_AS(all, kernelFor(plan, file));
    const std::string name = functionName(plan.mod(), plan.options());
    const std::string space = file.launcher ? name + "_impl" : "attnc";
    const JoinedStages stages = joined(all->sources, space);
    std::string out = comment(*all, file, name);
    out += "\n#ifdef __NVCC__\n#pragma nv_diag_suppress 177, 1805 // constants that other kernels use; const before a "
           "reference\n#endif\n";
    if (file.launcher)
      out += "#include <cuda.h>\n#include <cuda_runtime.h>\n\n#include <cstdint>\n#include <initializer_list>\n\n";
    out += stages.text;
    if (file.launcher) {
      ATTNC_TRY_AS(launcher,
                   launcherText({all->mod, all->plan, all->mods, stages.kernels, name, space}, *file.launcher));
      out += *launcher;
    }
    return withOwnLines(out, name + ".cu");
  });
}

Expected<std::vector<KernelSource>> cudaFileLaunches(const Plan& plan, const CudaFileOptions& file) {
  return onOwnStack([&]() -> Expected<std::vector<KernelSource>> {
    ATTNC_TRY_AS(all, kernelFor(plan, file));
    return std::move(all->sources);
  });
}

} // namespace attnc
