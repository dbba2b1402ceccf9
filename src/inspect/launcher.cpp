#include "inspect/launcher.h"

#include "api/recorded_launch.h"
#include "codegen/pack_args.h"
#include "ir/bind.h"
#include "launch/tensor_maps.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>

#include <cstring>
#include <iterator>

namespace attnc {
namespace {

constexpr unsigned kAddressBits = 38;       // more than tensors have; the bits above them count tensors
constexpr uint64_t kMap = 0xA77C'5EED'0000; // the first word of a tensor map, plus its number, until it is encoded
constexpr size_t kMapWords = sizeof(TensorMap) / sizeof(uint64_t);

/// Returns "bf16 [2, 8, 512, 64]", with strides unless these are dense.
std::string layoutWords(const TensorView& view) {
  const auto list = [&](const auto& numbers) {
    return fmt::format("{}", fmt::join(numbers.begin(), numbers.begin() + view.rank, ", "));
  };
  int64_t dense = 1;
  bool isDense = true;
  for (size_t axis = size_t(view.rank); axis-- > 0; dense *= view.shape[axis])
    isDense &= view.shape[axis] <= 1 || view.stride[axis] == dense;
  return fmt::format("{} [{}]{}", dtypeName(view.dtype), list(view.shape),
                     isDense ? "" : ", strides " + list(view.stride));
}

/// A tensor that the launcher takes.
struct Tensor {
  std::string name, words;
  int64_t alignment; ///< in bytes; 0: it has no elements, and may be null
  bool isWritten = false;
};

/// The operands of a launch at made-up addresses. Address `i`, from 1, is i << kAddressBits, plus i * `step`: words
/// that differ between launches with different steps are addresses.
class PlacedLaunch : public LaunchShape {
public:
  PlacedLaunch(const LaunchShape& given, const KernelOptions& options, uint64_t step)
      : LaunchShape(given), vIsInK(options.features.has(Feature::VInK)), step(step) {
    if (options.kind != KernelKind::BlockMask) placeTensors(options.kind == KernelKind::Backward);
    if (operands.blockMask) {
      mask = *operands.blockMask;
      const bool isWritten = options.kind == KernelKind::BlockMask;
      placeLists(mask, "kv_", mask.shape.qBlocks(), isWritten);
      placeLists(mask.columns, "q_", mask.shape.kvBlocks(), isWritten);
      operands.blockMask = &mask;
    }
    if (operands.captures) placeCaptures("capture_", *operands.captures, captures, false);
    operands.captures = &captures;
    if (gradients.captures) placeCaptures("d_capture_", *gradients.captures, captureGradients, true);
    gradients.captures = &captureGradients;
  }
  PlacedLaunch(const PlacedLaunch&) = delete; // has addresses of its members
  PlacedLaunch& operator=(const PlacedLaunch&) = delete;

  uint64_t address(size_t number) const { return (uint64_t(number) << kAddressBits) + number * step; }
  /// The numbers of what is no tensor.
  size_t workspace() const { return tensors.size() + 1; }
  size_t zero() const { return tensors.size() + 2; }

  std::vector<Tensor> tensors;

private:
  void placeTensors(bool isBackward) {
    const auto appends = [&](std::string_view name) { return operands.newK && name != "q"; }; // into k and v
#define ATTNC_TENSOR(member, name) place(#name, operands.member, appends(#name));
#define ATTNC_OPTIONAL(member, name, feature)                                                                          \
  if (operands.member) place(#name, *operands.member);
#include "attnc/operands.def"
    if (isBackward) {
#define ATTNC_RESULT(member, name) place(#name, operands.member);
#define ATTNC_OPTIONAL_RESULT(member, name)                                                                            \
  if (operands.member) place(#name, *operands.member);
#define ATTNC_GRADIENT(member, name, like)                                                                             \
  if (gradients.member) place(#name, *gradients.member, true);
#include "attnc/operands.def"
    } else {
#define ATTNC_OUTPUT(member, name)                                                                                     \
  if (outputs.member) place(#name, *outputs.member, true);
#include "attnc/operands.def"
    }
  }
  void* add(const std::string& name, const std::string& words, int64_t alignment, bool isWritten = false) {
    tensors.push_back({name, words, alignment, isWritten});
    return reinterpret_cast<void*>(address(tensors.size()));
  }
  void place(const std::string& name, TensorView& view, bool isWritten = false) {
    if (vIsInK && name == "v") return void(view.data = operands.k.data);
    if (vIsInK && name == "new_v") return void(view.data = operands.newK->data);
    const bool hasRows = view.rank == 4 && view.shape[3] > 1; // which kernels load 16 bytes at a time
    view.data = add(name, layoutWords(view), !view.elements() ? 0 : hasRows ? 16 : dtypeBytes(view.dtype), isWritten);
  }
  template <class Lists> void placeLists(Lists& lists, const std::string& of, int64_t blocks, bool isWritten) {
    const std::string heads = fmt::format("i32 [{}, {}, {}", mask.shape.batch, mask.shape.heads, blocks);
    const auto one = [&](int32_t*& list, const std::string& name, const std::string& words) {
      if (list) list = static_cast<int32_t*>(add(name, words, 4, isWritten));
    };
    const std::string indices = fmt::format("{}, {}]", heads, lists.indexStride);
    one(lists.partialCount, of + "num_blocks", heads + "]");
    one(lists.partialIndex, of + "indices", indices);
    one(lists.fullCount, "full_" + of + "num_blocks", heads + "]");
    one(lists.fullIndex, "full_" + of + "indices", indices);
  }
  void placeCaptures(const std::string& prefix, const Captures& given, Captures& placed, bool isWritten) {
    for (const auto& [name, value] : given.all()) {
      Captures::Item item = value;
      if (auto* view = std::get_if<TensorView>(&item))
        view->data = add(prefix + name, layoutWords(*view), view->elements() ? dtypeBytes(view->dtype) : 0, isWritten);
      std::visit([&, &name = name](const auto& one) { placed.set(name, one); }, item);
    }
  }

  bool vIsInK;
  uint64_t step;
  Captures captures, captureGradients;
  BlockMaskView mask;
};

/// What a launch at made-up addresses enqueues.
struct Recording {
  PlacedLaunch at;
  std::vector<jit::TensorMapRequest> maps = {};
  std::optional<plan::RecordedLaunch> launch = {};

  Recording(const LauncherSource& source, const LaunchShape& shape, uint64_t step)
      : at(shape, source.plan.options, step) {}

  Status record(const LauncherSource& source) {
    const plan::MapEncoder encoder([&](const jit::TensorMapRequest& request) {
      maps.push_back(request);
      return TensorMap{{kMap + maps.size() - 1}};
    });
    ATTNC_TRY_AS(recorded, plan::recordLaunch(source.plan, source.mods, source.mod.module(), at.operands, at.outputs,
                                              at.gradients, {at.multiprocessors, at.l2Bytes},
                                              reinterpret_cast<void*>(at.address(at.workspace())),
                                              reinterpret_cast<const void*>(at.address(at.zero()))));
    launch = *std::move(recorded);
    const ir::Module& module = source.mod.module();
    ATTNC_TRY_AS(bindings, ir::bind(module, *at.operands.captures, launch->operands.problem, &launch->operands));
    return checkPins(module, *bindings, source.plan.options.pins);
  }
};

constexpr uint64_t kStep = 4096; // keeps all alignments

/// Writes a launch that was recorded at two sets of addresses.
class Writer {
public:
  Writer(const LauncherSource& source, const LaunchShape& shape)
      : source(source), one(source, shape, 0), other(source, shape, kStep) {}

  Expected<std::string> write() {
    ATTNC_TRY(one.record(source));
    ATTNC_TRY(other.record(source));
    if (one.at.zero() >> (47 - kAddressBits)) return Error::environment("the launch has too many tensors");
    std::string text = "// ===== launcher\n\n" + helpers() + declarations() + initialise() + function();
    if (hasOtherWords) return Error::internal("a parameter of the launch is neither a number nor an address");
    return text;
  }

private:
  /// Returns the value of a word, given what it is at both sets of addresses.
  std::string word(uint64_t value, uint64_t elsewhere) {
    if (value == elsewhere) return value < 10 ? fmt::to_string(value) : fmt::format("{:#x}u", value);
    const uint64_t number = (elsewhere - value) / kStep;
    if (number < 1 || number > one.at.zero()) return hasOtherWords = true, "";
    const std::string name = number == one.at.workspace() ? "workspace"
                             : number == one.at.zero()    ? "zero"
                                                          : "t." + one.at.tensors[number - 1].name;
    const int64_t offset = int64_t(value - one.at.address(number));
    return fmt::format("at({}){}", name, offset ? fmt::format(" + {}", offset) : "");
  }

  std::string wordList(llvm::ArrayRef<uint64_t> words, llvm::ArrayRef<uint64_t> elsewhere) {
    std::string out, line = "     ";
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string text = " " + word(words[i], elsewhere[i]) + (i + 1 < words.size() ? "," : "};\n");
      if (line.size() + text.size() > 120) out += line + "\n", line = "     ";
      line += text;
    }
    return "\n" + out + line;
  }

  static std::vector<uint64_t> wordsOf(plan::ParameterBlock block) {
    std::vector<uint64_t> words((block.size() + 7) / 8);
    std::memcpy(words.data(), block.data(), block.size());
    return words;
  }

  std::string helpers() const {
    return fmt::format(R"(namespace {}::launcher {{

inline uint64_t at(const void* p) {{ return reinterpret_cast<uintptr_t>(p); }}

[[maybe_unused]] inline int encode(uint64_t* map, CUtensorMapDataType type, uint64_t data,
                                   std::initializer_list<cuuint64_t> extent, std::initializer_list<cuuint64_t> stride,
                                   std::initializer_list<cuuint32_t> box, CUtensorMapL2promotion promotion) {{
  const cuuint32_t step[] = {{1, 1, 1, 1, 1}};
  return cuTensorMapEncodeTiled(reinterpret_cast<CUtensorMap*>(map), type, cuuint32_t(extent.size()),
                                reinterpret_cast<void*>(data), extent.begin(), stride.begin(), box.begin(), step,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}}

inline int launch(const void* kernel, unsigned ctas, unsigned threads, int sharedBytes, uint64_t* params,
                  uint64_t* args, cudaStream_t stream) {{
  if (int error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sharedBytes)) return error;
  void* arguments[] = {{params, args}};
  return cudaLaunchKernel(kernel, dim3(ctas), dim3(threads), arguments, size_t(sharedBytes), stream);
}}

}} // namespace {}::launcher

)",
                       source.space, source.space);
  }

  std::string declarations() const {
    const ProblemShape& problem = one.launch->operands.problem;
    std::string out = fmt::format(
        "/// The tensors of a launch: addresses of device memory. B {}, H {}, HKV {}, Q_LEN {}, KV_LEN {}; "
        "scale {}.\n",
        problem.batch, problem.qHeads, problem.kvHeads, problem.qLen, problem.kvLen, *one.launch->operands.scale);
    std::string numbers;
    for (const auto& [name, value] : one.at.operands.captures->all())
      std::visit(
          [&, &name = name](const auto& number) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(number)>, TensorView>)
              numbers += fmt::format("{}{} = {}", numbers.empty() ? "" : ", ", name, number);
          },
          value);
    if (!numbers.empty()) out += "/// " + numbers + "\n";
    out += fmt::format("struct {}_Tensors {{\n", source.name);
    for (const Tensor& tensor : one.at.tensors)
      out += fmt::format("  {:<36} // {}\n",
                         fmt::format("{}void* {} = nullptr;", tensor.isWritten ? "" : "const ", tensor.name),
                         tensor.words);
    out += fmt::format("}};\n\n/// The bytes of device memory that a launch needs, aligned to 256.\n"
                       "constexpr size_t {}_workspace_bytes = {};\n",
                       source.name, one.launch->workspace.bytes());
    if (isZeroedOnce())
      out += fmt::format(
          "/// Prepares a new workspace; once for any number of launches, one after another. Returns 0 or an error.\n"
          "int {}_initialise(void* workspace, cudaStream_t stream);\n",
          source.name);
    return out +
           fmt::format("/// Enqueues the kernel. Returns 0, or the error of CUDA: 1 (invalid value) for null, 716 "
                       "(misaligned), 101\n/// (invalid device) for a GPU of fewer than {} multiprocessors.\n"
                       "int {}(const {}_Tensors& tensors, void* workspace, cudaStream_t stream);\n\n",
                       one.at.multiprocessors, source.name, source.name);
  }

  bool isZeroedOnce() const {
    return llvm::any_of(one.launch->workspace.parts(),
                        [](const auto& part) { return part.use.zeroed == plan::WorkspaceUse::Zeroed::Once; });
  }

  /// Returns the calls that zero parts of the workspace.
  std::string zeros(plan::WorkspaceUse::Zeroed when) const {
    std::string out;
    for (const plan::WorkspacePart& part : one.launch->workspace.parts())
      if (part.use.zeroed == when)
        out += fmt::format("  if (int error = cudaMemsetAsync(static_cast<char*>(workspace) + {}, 0, {}, stream)) "
                           "return error;\n",
                           part.offset, part.bytes);
    return out;
  }

  std::string initialise() const {
    if (!isZeroedOnce()) return "";
    return fmt::format("int {}_initialise(void* workspace, cudaStream_t stream) {{\n{}  return 0;\n}}\n\n", source.name,
                       zeros(plan::WorkspaceUse::Zeroed::Once));
  }

  std::string checks() const {
    std::vector<std::string> rows;
    for (const Tensor& tensor : one.at.tensors)
      if (tensor.alignment) rows.push_back(fmt::format("{{t.{}, {}}}", tensor.name, tensor.alignment));
    if (one.launch->workspace.bytes()) rows.push_back("{workspace, 256}");
    return fmt::format(R"(  const struct {{
    const void* address;
    unsigned alignment;
  }} all[] = {{{}}};
  for (const auto& one : all) {{
    if (!one.address) return cudaErrorInvalidValue;
    if (at(one.address) % one.alignment) return cudaErrorMisalignedAddress;
  }}
  int device = 0, multiprocessors = 0;
  if (int error = cudaGetDevice(&device)) return error;
  if (int error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device)) return error;
  if (multiprocessors < {}) return cudaErrorInvalidDevice;
)",
                       fmt::join(rows, ", "), one.at.multiprocessors);
  }

  std::string map(size_t number, size_t firstWord) {
    const jit::TensorMapRequest& request = one.maps[number];
    const auto list = [&](const auto& numbers, size_t count) {
      return fmt::format("{}", fmt::join(numbers.begin(), numbers.begin() + count, ", "));
    };
    const auto address = [](const jit::TensorMapRequest& of) { return uint64_t(reinterpret_cast<uintptr_t>(of.data)); };
    const char* type = request.dtype == DType::F32    ? "FLOAT32"
                       : request.dtype == DType::F16  ? "FLOAT16"
                       : request.dtype == DType::E4M3 ? "UINT8"
                                                      : "BFLOAT16";
    return fmt::format(
        "    if (int error = encode(params + {}, CU_TENSOR_MAP_DATA_TYPE_{}, {}, {{{}}}, {{{}}}, {{{}}},\n"
        "                           CU_TENSOR_MAP_L2_PROMOTION_L2_{}))\n      return error;\n",
        firstWord, type, word(address(request), address(other.maps[number])), list(request.extent, request.rank),
        list(request.strideBytes, request.rank - 1), list(request.box, request.rank),
        request.promotion == jit::L2Promotion::Bytes128 ? "128B" : "256B");
  }

  std::string stage(size_t number) {
    const plan::RecordedStage &recorded = one.launch->stages[number], &elsewhere = other.launch->stages[number];
    const plan::Stage& stage = source.plan.stages[recorded.index];
    std::vector<uint64_t> words = wordsOf(recorded.params), otherWords = wordsOf(elsewhere.params);
    std::string maps;
    for (size_t i = 0; i + kMapWords <= words.size(); i += 8)
      if (words[i] >= kMap && words[i] - kMap < one.maps.size()) {
        maps += map(words[i] - kMap, i);
        words[i] = otherWords[i] = 0;
      }
    return fmt::format(
        "  {{\n    alignas(64) uint64_t params[] = {{{}{}    uint64_t args[] = {{{}"
        "    if (int error = launch(reinterpret_cast<const void*>(&{}), {}, {}, {}, params, args, stream))\n"
        "      return error;\n  }}\n",
        wordList(words, otherWords), maps, wordList(recorded.args, elsewhere.args), source.kernels[recorded.index],
        recorded.ctas, stage.threads, stage.config.sharedBytes);
  }

  std::string function() {
    std::string out = fmt::format("int {0}(const {0}_Tensors& t, [[maybe_unused]] void* workspace,"
                                  " cudaStream_t stream) {{\n"
                                  "  using namespace {1}::launcher;\n{2}",
                                  source.name, source.space, checks());
    if (llvm::any_of(source.mods, [](const auto& mod) { return codegen::readsTensors(mod->source.slots); }))
      out += fmt::format("  void* zero = nullptr; // stands for tensors without elements\n"
                         "  if (int error = cudaGetSymbolAddress(&zero, {}::mod::attnc_zero)) return error;\n",
                         source.space);
    for (size_t i = 0; i < one.launch->operands.captureOutputs.size(); ++i) {
      const auto &capture = one.launch->operands.captureOutputs[i],
                 &elsewhere = other.launch->operands.captureOutputs[i];
      if (capture.isDirect)
        out += fmt::format(
            "  if (int error = cudaMemsetAsync(reinterpret_cast<void*>({}), 0, {}, stream)) return error;\n",
            word(reinterpret_cast<uintptr_t>(capture.out.data), reinterpret_cast<uintptr_t>(elsewhere.out.data)),
            capture.bytes());
    }
    if (!one.launch->stages.empty()) out += zeros(plan::WorkspaceUse::Zeroed::EveryLaunch);
    for (size_t i = 0; i < one.launch->stages.size(); ++i) out += stage(i);
    return out + "  return 0;\n}\n";
  }

  const LauncherSource& source;
  Recording one, other;
  bool hasOtherWords = false;
};

} // namespace

Expected<std::string> launcherText(const LauncherSource& source, const LaunchShape& shape) {
  return Writer(source, shape).write();
}

} // namespace attnc
