#include "inspect/launcher.h"

#include "inspect/joined_stages.h"
#include "inspect/stage_launches.h"
#include "ir/ir.h"
#include "plan/host_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>

#include <cmath>

namespace attnc {
namespace {

constexpr Features kServed{Feature::Lengths, Feature::Offsets,   Feature::Pages,
                           Feature::Appends, Feature::BlockMask, Feature::RowMax};

/// What a launcher's problem has beyond q, k, v, out and lse.
struct Has {
  bool backward, lengths, offsets, pages, appends, lists, rowMax, maps;
};

Has hasOf(const plan::Plan& plan) {
  const Features features = featuresOf(plan.options);
  return {.backward = plan.options.kind == KernelKind::Backward,
          .lengths = features.has(Feature::Lengths),
          .offsets = plan.options.offsets == QueryOffsets::Tensor,
          .pages = plan.options.pageSize > 0,
          .appends = features.has(Feature::Appends),
          .lists = plan.options.blockSparse,
          .rowMax = features.has(Feature::RowMax),
          .maps = llvm::any_of(plan.stages, [](const auto& stage) { return !launchOf(stage)->maps.empty(); })};
}

std::string embedded(llvm::StringRef name) {
  for (unsigned i = 0; i < plan::kHostFileCount; ++i)
    if (name == plan::kHostFiles[i].name) return withoutIncludes(plan::kHostFiles[i].text);
  return {};
}

/// Returns the files of templates/host that a plan needs, in order.
std::vector<std::string> hostFiles(const plan::Plan& plan, const Has& has) {
  std::vector<std::string> files{"types", "rows", "operands", "stages"};
  if (has.maps) files.insert(files.end(), {"map_types", "maps", "encode_maps"});
  const auto uses = [&](llvm::StringRef part) {
    return llvm::any_of(plan.stages,
                        [&](const auto& stage) { return llvm::StringRef(stage.templateName).contains(part); });
  };
  if (uses("append")) files.push_back("append");
  if (uses("forward_sm90")) files.push_back("forward_sm90");
  if (uses("decode")) files.insert(files.end(), {"decode_parts", "decode"});
  if (uses("decode_sm90")) files.push_back("decode_sm90");
  if (has.backward) files.push_back("backward");
  if (uses("backward_sm80")) files.push_back("backward_sm80");
  if (uses("finish_sm90")) files.push_back("backward_sm90");
  return files;
}

std::string_view scalarType(ir::Type type) {
  return type == ir::Type::F32 ? "float" : type == ir::Type::Bool ? "bool" : "int";
}

std::string shapeWords(const ir::Module& module, const ir::TensorCapture& tensor) {
  std::vector<std::string> extents;
  for (const ir::Extent& extent : tensor.shape)
    extents.push_back(extent.isNamed ? module.dims[size_t(extent.value)] : std::to_string(extent.value));
  return fmt::format("{} [{}]", dtypeName(tensor.dtype), fmt::join(extents, ", "));
}

/// Returns the member of the problem with a capture, which may have any name.
std::string memberOf(const std::string& capture) { return "capture_" + capture; }

std::string problemText(const LauncherSource& source, const Has& has) {
  const KernelOptions& options = source.plan.options;
  const std::string_view dtype = dtypeName(options.dtype);
  std::string out;
  const auto add = [&](const std::string& member, const std::string& words) {
    out += words.empty() ? fmt::format("  {}\n", member) : fmt::format("  {:<36} // {}\n", member, words);
  };
  out += fmt::format("/// The operands of a launch. Addresses are of device memory; strides are in elements.\n"
                     "struct {}_Problem {{\n",
                     source.name);
  out += "  struct Tensor { // the last stride is 1\n"
         "    const void* data = nullptr;\n"
         "    long long batch = 0, head = 0, row = 0; // strides\n"
         "  };\n";
  if (has.lists)
    out += "  struct Lists { // a block mask, i32: counts and indices of blocks, FlexAttention's BlockMask\n"
           "    const int *partial_count = nullptr, *partial_index = nullptr; // kv_num_blocks, kv_indices\n"
           "    const int *full_count = nullptr, *full_index = nullptr;       // null: no full blocks\n"
           "    long long index_stride = 0;                                   // of indices, from block to block\n"
           "  };\n";
  add("long long batch = 0;", "B");
  add("long long q_heads = 0, kv_heads = 0;", "H, HKV: H is a multiple of HKV");
  add("long long q_len = 0, kv_len = 0;",
      has.pages ? fmt::format("Q_LEN; {} times the pages of a row of page_table", options.pageSize) : "Q_LEN, KV_LEN");
  if (!has.pages) add("long long kv_batch = 0;", "batch entries of k and v: 0: B; 1: all share one");
  add("Tensor q;", fmt::format("{} [B, H, Q_LEN, {}]", dtype, options.headDim));
  if (has.pages) {
    add("Tensor k;", fmt::format("{} [pages, HKV, {}, {}]; Tensor::batch is from page to page", dtype, options.pageSize,
                                 options.headDim));
    add("Tensor v;", fmt::format("{} [pages, HKV, {}, {}]", dtype, options.pageSize, options.headDimV));
    add("long long pages = 0;", "of the pools k and v");
    add("const int* page_table = nullptr;", "i32 [B, pages of a sequence]");
    add("long long page_table_stride = 0;", "from sequence to sequence");
  } else {
    add("Tensor k;", fmt::format("{} [B, HKV, KV_LEN, {}]", dtype, options.headDim));
    add("Tensor v;", fmt::format("{} [B, HKV, KV_LEN, {}]", dtype, options.headDimV));
  }
  add("Tensor out;", fmt::format("{} [B, H, Q_LEN, {}]{}", dtype, options.headDimV,
                                 has.backward ? ": of the forward pass" : ": written"));
  add("float* lse = nullptr;", has.backward ? "f32 [B, H, Q_LEN], dense: of the forward pass"
                                            : "f32 [B, H, Q_LEN], dense: written; null: not wanted");
  if (has.rowMax) add("float* row_max = nullptr;", "f32 [B, H, Q_LEN], dense: written; null: not wanted");
  if (has.backward) {
    add("Tensor d_out;", "gradient of out");
    add("const float* d_lse = nullptr;", "gradient of lse, dense; null: 0");
    add("Tensor d_q, d_k, d_v;", "gradients of q, k, v: written, as these are shaped");
  }
  if (has.lengths) add("const int* kv_lengths = nullptr;", "i32 [B]: rows of k and v of each sequence");
  if (has.offsets) add("const int* q_offsets = nullptr;", "i32 [B]: position of the first query of each sequence");
  if (has.appends) add("Tensor new_k, new_v;", "[B, HKV, Q_LEN, ...]: written into k and v, up to kv_lengths");
  if (has.lists) {
    add("long long mask_batch = 1, mask_heads = 1;", "of the lists: 1, or B and H");
    add("Lists lists;", fmt::format("by {} queries: blocks of {} keys", options.maskQBlock, options.maskKvBlock));
    if (has.backward) add("Lists columns;", "by keys: blocks of queries (q_num_blocks, q_indices, ...)");
  }
  add(fmt::format("float scale = {}f;", float(1 / std::sqrt(double(options.headDim)))), "factor of q k^T");
  for (const ir::TensorCapture& tensor : source.module.tensors) {
    if (ir::isOfSequences(tensor)) continue;
    const size_t rank = std::max<size_t>(1, tensor.shape.size());
    out += fmt::format("  struct {{ // {}\n    const void* data = nullptr;\n    long long shape[{}] = {{}}, "
                       "stride[{}] = {{}};\n  }} {};\n",
                       shapeWords(source.module, tensor), rank, rank, memberOf(tensor.name));
  }
  for (const ir::ScalarCapture& scalar : source.module.scalars)
    add(fmt::format("{} {} = {{}};", scalarType(scalar.type), memberOf(scalar.name)), "");
  return out + "};\n";
}

std::string configText(const plan::Stage& stage) {
  const codegen::Config& config = stage.config;
  std::string text =
      fmt::format("{{DType::{}, {}, {}, {}, {}, {}, {}, ", config.dtype == DType::F16 ? "F16" : "BF16",
                  config.headDimQk, config.headDimV, config.blockM, config.blockN, config.warps, config.pageSize);
  return text + (config.takesTurns ? (*config.takesTurns ? "true}" : "false}") : "{}}");
}

/// Returns the function that turns the problem into operands.
std::string operandsText(const LauncherSource& source, const Has& has) {
  const KernelOptions& options = source.plan.options;
  const std::string dtype = options.dtype == DType::F16 ? "DType::F16" : "DType::BF16";
  std::string out = fmt::format("/// Fills the operands. Returns false for a problem that the kernel does not take.\n"
                                "bool operandsOf(const {}_Problem& p, LaunchOperands& o) {{\n",
                                source.name);
  const auto line = [&](const std::string& text) { out += "  " + text + "\n"; };
  line("for (long long extent : {p.batch, p.q_heads, p.kv_heads, p.q_len, p.kv_len})");
  line("  if (extent < 0 || extent > kMostPositions) return false;");
  line("if (p.kv_heads ? p.q_heads % p.kv_heads != 0 : p.q_heads != 0) return false;");
  line("o.problem = {p.batch, p.q_heads, p.kv_heads, p.q_len, p.kv_len};");
  line(fmt::format("const auto view = [](const {}_Problem::Tensor& t, int64_t batch, int64_t heads, int64_t rows, "
                   "int64_t columns) {{",
                   source.name));
  line(fmt::format("  return TensorView{{const_cast<void*>(t.data), {}, {{batch, heads, rows, columns}}, "
                   "{{t.batch, t.head, t.row, 1}}}};",
                   dtype));
  line("};");
  const int dim = options.headDim, dimV = options.headDimV;
  line(fmt::format("o.q = view(p.q, p.batch, p.q_heads, p.q_len, {});", dim));
  if (has.pages) {
    line(fmt::format("if (p.kv_len % {}) return false;", options.pageSize));
    line(fmt::format("o.k = view(p.k, p.pages, p.kv_heads, {}, {});", options.pageSize, dim));
    line(fmt::format("o.v = view(p.v, p.pages, p.kv_heads, {}, {});", options.pageSize, dimV));
    line(fmt::format("o.pageTable = TensorView{{const_cast<int*>(p.page_table), DType::BF16, {{p.batch, p.kv_len / {}, "
                     "1, 1}}, {{p.page_table_stride, 1, 1, 1}}}};",
                     options.pageSize));
  } else {
    line("const int64_t kvBatch = p.kv_batch ? p.kv_batch : p.batch;");
    line("if (kvBatch != p.batch && kvBatch != 1) return false;");
    line(fmt::format("o.k = view(p.k, kvBatch, p.kv_heads, p.kv_len, {});", dim));
    line(fmt::format("o.v = view(p.v, kvBatch, p.kv_heads, p.kv_len, {});", dimV));
  }
  line(fmt::format("o.out = view(p.out, p.batch, p.q_heads, p.q_len, {});", dimV));
  line("o.lse = p.lse;");
  if (has.rowMax) line("o.rowMax = p.row_max;");
  line("o.scale = p.scale;");
  if (has.appends) {
    if (!has.pages) line("if (kvBatch != p.batch) return false;");
    line(fmt::format("o.newK = view(p.new_k, p.batch, p.kv_heads, p.q_len, {});", dim));
    line(fmt::format("o.newV = view(p.new_v, p.batch, p.kv_heads, p.q_len, {});", dimV));
  }
  if (has.backward) {
    line(fmt::format("o.dOut = view(p.d_out, p.batch, p.q_heads, p.q_len, {});", dimV));
    line("o.dLse = p.d_lse;");
    line(fmt::format("o.dQ = view(p.d_q, p.batch, p.q_heads, p.q_len, {});", dim));
    line(fmt::format("o.dK = view(p.d_k, kvBatch, p.kv_heads, p.kv_len, {});", dim));
    line(fmt::format("o.dV = view(p.d_v, kvBatch, p.kv_heads, p.kv_len, {});", dimV));
  }
  if (has.lists) {
    line("if ((p.mask_batch != 1 && p.mask_batch != p.batch) || (p.mask_heads != 1 && p.mask_heads != p.q_heads))");
    line("  return false;");
    line(fmt::format("const auto lists = [](const {}_Problem::Lists& l) {{", source.name));
    line("  return BlockMaskColumns{l.partial_count, l.partial_index, l.full_count, l.full_index, l.index_stride};");
    line("};");
    line("o.lists.emplace();");
    line("static_cast<BlockMaskColumns&>(*o.lists) = lists(p.lists);");
    line(fmt::format("o.lists->shape = {{p.mask_batch, p.mask_heads, p.q_len, p.kv_len, {}, {}}};", options.maskQBlock,
                     options.maskKvBlock));
    if (has.backward) line("o.lists->columns = lists(p.columns);");
  }
  line("return true;");
  return out + "}\n";
}

/// Returns the function that fills `dims`, the extents in the module's order. It checks captures and pins.
std::string dimsText(const LauncherSource& source) {
  const ir::Module& module = source.module;
  std::string out = fmt::format("/// Fills the extents of the mod. Returns false if captures do not fit.\n"
                                "bool dimsOf(const {}_Problem& p, long long* dims) {{\n",
                                source.name);
  static constexpr const char* kBuiltin[] = {"batch", "q_heads", "kv_heads", "q_len", "kv_len"};
  std::vector<bool> known;
  for (size_t i = 0; i < module.dims.size(); ++i) {
    known.push_back(i < ir::kBuiltinDims);
    out += known.back() ? fmt::format("  dims[{}] = p.{};\n", i, kBuiltin[i]) : "";
  }
  for (const ir::TensorCapture& tensor : module.tensors) {
    if (ir::isOfSequences(tensor)) continue;
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      const ir::Extent& extent = tensor.shape[axis];
      const std::string given = fmt::format("p.{}.shape[{}]", memberOf(tensor.name), axis);
      if (!extent.isNamed || known[size_t(extent.value)]) {
        out += fmt::format("  if ({} != {}) return false;\n", given,
                           extent.isNamed ? fmt::format("dims[{}]", extent.value) : std::to_string(extent.value));
        continue;
      }
      known[size_t(extent.value)] = true;
      out += fmt::format("  dims[{0}] = {1}; // {2}\n  if (dims[{0}] < 0 || dims[{0}] > INT32_MAX) return false;\n",
                         extent.value, given, module.dims[size_t(extent.value)]);
    }
  }
  for (const auto& [name, value] : source.plan.options.pins) {
    for (size_t i = 0; i < module.dims.size(); ++i)
      if (module.dims[i] == name) out += fmt::format("  if (dims[{}] != {}) return false; // pinned\n", i, value);
    for (const ir::ScalarCapture& scalar : module.scalars)
      if (scalar.name == name) out += fmt::format("  if (p.{} != {}) return false; // pinned\n", memberOf(name), value);
  }
  return out + "  return true;\n}\n";
}

/// Returns an expression for a word of ModArgs.
std::string wordText(const ir::Module& module, const codegen::ArgWord& slot) {
  using Kind = codegen::ArgWord::Kind;
  if (slot.kind == Kind::Dim) {
    // Kernels may evaluate column 0 even without columns.
    const bool isColumns = slot.index == uint32_t(ir::BuiltinDim::KvLen);
    return isColumns ? fmt::format("uint32_t(std::max(dims[{}], 1ll))", slot.index)
                     : fmt::format("uint32_t(dims[{}])", slot.index);
  }
  if (slot.kind == Kind::Scalar) {
    const ir::ScalarCapture& scalar = module.scalars[slot.index];
    const std::string member = "p." + memberOf(scalar.name);
    return slot.type == ir::Type::F32 ? fmt::format("std::bit_cast<uint32_t>({})", member)
                                      : fmt::format("uint32_t({})", member);
  }
  const ir::TensorCapture& tensor = module.tensors[slot.index];
  if (ir::isOfSequences(tensor)) {
    const char* member = tensor.name == ir::kKvLengthsTensor ? "p.kv_lengths" : "p.q_offsets";
    if (slot.kind == Kind::TensorSize) return "uint32_t(p.batch)";
    if (slot.kind == Kind::TensorStride) return "uint64_t(p.batch ? 1 : 0)";
    return fmt::format("p.batch ? reinterpret_cast<uintptr_t>({}) : zero", member);
  }
  const std::string member = "p." + memberOf(tensor.name);
  std::string some = "true"; // whether it has elements
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis)
    some = (axis ? some + " && " : "") + fmt::format("{}.shape[{}]", member, axis);
  if (slot.kind == Kind::TensorSize) return fmt::format("uint32_t({}.shape[{}])", member, slot.axis);
  if (slot.kind == Kind::TensorStride) return fmt::format("{} ? uint64_t({}.stride[{}]) : 0", some, member, slot.axis);
  return fmt::format("{} ? reinterpret_cast<uintptr_t>({}.data) : zero", some, member);
}

std::string stageText(const LauncherSource& source, size_t index) {
  const plan::Stage& stage = source.plan.stages[index];
  const StageLaunch& row = *launchOf(stage);
  std::string out;
  const auto line = [&](const std::string& text) { out += "    " + text + "\n"; };
  out += "  {\n";
  line(fmt::format("const Stage stage{{{}, {}}};", configText(stage), ctasFunction(stage)));
  line("const int64_t ctas = ctasOf(stage, operands, device);");
  line("if (ctas) {");
  const bool isCached = stage.config.pageSize || stage.config.appends;
  const bool mayBeCached = row.templateName != "decode_lists.cu";
  if (isCached && mayBeCached)
    line(fmt::format("  Cached params{{{}, cacheParams(operands)}};", row.params));
  else
    line(fmt::format("  auto params = {};", row.params));
  if (!row.maps.empty()) line("  if ((error = encodeMaps(mapsOf(params, stage, operands), operands))) return error;");
  line("  if (!hasBegun && (error = view.zero(Zeroed::EveryLaunch, stream))) return error;");
  line("  hasBegun = true;");
  const size_t words = std::max<size_t>(1, source.slots[index].size());
  std::vector<std::string> values;
  for (const codegen::ArgWord& slot : source.slots[index]) values.push_back(wordText(source.module, slot));
  line(fmt::format("  uint64_t args[{}] = {{{}}};", words,
                   values.empty() ? "" : "\n          " + fmt::format("{}", fmt::join(values, ",\n          "))));
  line(fmt::format("  if ((error = launch(reinterpret_cast<const void*>(&{}), ctas, {}, {}, &params, args, stream)))",
                   source.kernels[index], stage.threads, stage.config.sharedBytes));
  line("    return error;");
  line("}");
  return out + "  }\n";
}

bool readsTensors(const LauncherSource& source) {
  return llvm::any_of(source.slots, [](const auto& slots) { return codegen::readsTensors(slots); });
}

bool isZeroedOnce(const plan::Plan& plan) {
  return llvm::any_of(plan.workspace, [](const auto& use) { return use.zeroed == plan::WorkspaceUse::Zeroed::Once; });
}

} // namespace

Status checkLauncher(const plan::Plan& plan) {
  const auto refused = [](const std::string& what, const char* remedy = nullptr) {
    return Error::environment(
        fmt::format("a launcher does not serve {}", what),
        remedy ? remedy : "emit the file without, and launch it as its first lines say; or use attnc's C interface");
  };
  const KernelOptions& options = plan.options;
  if (options.kind == KernelKind::BlockMask) return refused("kernels that build block masks");
  if (options.family == Family::Naive) return refused("the naive family");
  if (options.family == Family::Grid) return refused("kernels by boxes of a grid");
  if (!options.gradients.empty())
    return refused("gradients of captures", "ask for those of q, k and v only: --gradients none");
  if (const Features others = featuresOf(options).without(kServed); !others.empty())
    return refused(std::string(featureText(others.first())));
  for (const plan::Stage& stage : plan.stages)
    if (!launchOf(stage)) return refused(fmt::format("the launch {}", stage.entry));
  for (const plan::WorkspaceUse& use : plan.workspace)
    if (bytesExpression(plan, use.use).empty())
      return refused(fmt::format("workspace for {}", std::string(useWords(use.use))));
  return {};
}

std::string launcherDeclarations(const LauncherSource& source) {
  const std::string& name = source.name;
  std::string out = problemText(source, hasOf(source.plan));
  out += fmt::format(
      "\n/// Returns the bytes of device memory that a launch needs, aligned to 256. 0 if the kernel does not take\n"
      "/// the problem, or needs none.\n"
      "size_t {0}_workspace_bytes(const {0}_Problem& problem);\n",
      name);
  if (isZeroedOnce(source.plan))
    out += fmt::format(
        "/// Prepares a new workspace; once for any number of launches, one after another. Returns 0 or an error.\n"
        "int {0}_initialise(const {0}_Problem& problem, void* workspace, cudaStream_t stream);\n",
        name);
  out += fmt::format(
      "/// Enqueues the kernel. Returns 0, or the error of CUDA: 1 (invalid value) for a problem that the kernel does\n"
      "/// not take.\n"
      "int {0}(const {0}_Problem& problem, void* workspace, cudaStream_t stream);\n",
      name);
  return out;
}

std::string launcherText(const LauncherSource& source) {
  const plan::Plan& plan = source.plan;
  const Has has = hasOf(plan);
  std::string out;
  for (const std::string& file : hostFiles(plan, has))
    out += fmt::format("// ===== host/{}.h\n", file) + embedded("host/" + file + ".h");
  // A launcher may need only some of a file's functions.
  for (size_t at = 0; (at = out.find("\nstatic ", at)) != std::string::npos; at += 8)
    out.insert(at + 1, "[[maybe_unused]] ");
  out = inNamespace(out, source.space);
  out += fmt::format("// ===== launcher\n\n{}\nnamespace {}::plan {{\n\n", launcherDeclarations(source), source.space);
  const bool isDecode = plan.options.kind == KernelKind::Decode;
  if (isDecode)
    out += "template <int atOnce> int64_t parts(const Stage& stage, const LaunchOperands& operands, const Device& "
           "device) {\n"
           "  return ctasOfParts(atOnce, stage, operands, device);\n}\n\n";
  out += operandsText(source, has) + "\n" + dimsText(source) + "\n";
  out += "WorkspaceView workspaceOf([[maybe_unused]] const LaunchOperands& operands, void* memory) {\n  WorkspaceView "
         "view;\n"
         "  view.memory = memory;\n";
  bool isNeeded = false;
  for (const plan::WorkspaceUse& use : plan.workspace) {
    out += fmt::format("  view.add(Use::{}, Zeroed::{}, {});\n", nameOf(use.use), nameOf(use.zeroed),
                       bytesExpression(plan, use.use));
    isNeeded |= !use.isOptional;
  }
  out += fmt::format("  return view;\n}}\n\n}} // namespace {}::plan\n\n", source.space);

  const std::string usings = fmt::format("  using namespace {0};\n  using namespace {0}::plan;\n", source.space);
  out += fmt::format("size_t {0}_workspace_bytes(const {0}_Problem& problem) {{\n{1}  LaunchOperands operands;\n"
                     "  return operandsOf(problem, operands) ? workspaceOf(operands, nullptr).end : 0;\n}}\n\n",
                     source.name, usings);
  if (isZeroedOnce(plan))
    out +=
        fmt::format("int {0}_initialise(const {0}_Problem& problem, void* workspace, cudaStream_t stream) {{\n{1}"
                    "  LaunchOperands operands;\n  if (!operandsOf(problem, operands)) return cudaErrorInvalidValue;\n"
                    "  return workspaceOf(operands, workspace).zero(Zeroed::Once, stream);\n}}\n\n",
                    source.name, usings);
  out +=
      fmt::format("int {0}(const {0}_Problem& problem, void* workspace, cudaStream_t stream) {{\n{1}"
                  "  const auto& p = problem;\n  LaunchOperands operands;\n  Device device;\n  long long dims[{2}];\n"
                  "  if (!operandsOf(p, operands) || !dimsOf(p, dims)) return cudaErrorInvalidValue;\n"
                  "  const WorkspaceView view = workspaceOf(operands, workspace);\n"
                  "  if ({3}reinterpret_cast<uintptr_t>(workspace) % 256) return cudaErrorInvalidValue;\n"
                  "  int error = Device::current(device);\n  if (error) return error;\n",
                  source.name, usings, source.module.dims.size(), isNeeded ? "(view.end && !workspace) || " : "");
  if (readsTensors(source))
    out += "  void* nothing = nullptr; // stands for tensors without elements\n"
           "  if ((error = cudaGetSymbolAddress(&nothing, mod::attnc_zero))) return error;\n"
           "  const uint64_t zero = reinterpret_cast<uintptr_t>(nothing);\n"
           "  (void)zero;\n";
  if (has.backward && plan.options.family == Family::Sm90)
    out +=
        "  if (!backwardParams(operands).forward.vectors) return cudaErrorMisalignedAddress; // 16 bytes at a time\n";
  const bool isDecoding = isDecode;
  for (const plan::Stage& stage : plan.stages) {
    const codegen::Config& config = stage.config;
    if (isDecoding && config.blockM)
      out += fmt::format("  if (packedTiles(operands, {}) > kMostTiles) return cudaErrorInvalidConfiguration;\n",
                         config.blockM);
    else if (!isDecoding)
      for (auto [tile, heads, tiles] :
           {std::tuple(config.blockM, "qHeads", "qTilesOf"), {config.blockN, "kvHeads", "kvTilesOf"}})
        if (tile)
          out += fmt::format("  if (double(operands.problem.{}) * double({}(operands, {})) > double(kMostTiles))\n"
                             "    return cudaErrorInvalidConfiguration;\n",
                             heads, tiles, tile);
  }
  out += "  bool hasBegun = false;\n";
  for (size_t i = 0; i < plan.stages.size(); ++i) out += stageText(source, i);
  return out + "  return 0;\n}\n";
}

} // namespace attnc
