#include "problem/launcher_options.h"

#include "add_option.h"
#include "problem/mask_problem.h"
#include "problem/shapes.h"
#include "support/try.h"
#include "text.h"

#include <fmt/format.h>

#include <map>

namespace attnc::cli {
namespace {

/// Lays tensors out one row behind the other, or as --strides says.
void layOut(LaunchShape& shape, const std::vector<std::string>& strides) {
  std::map<std::string, TensorView*> all;
  const auto add = [&](const char* name, std::optional<TensorView>& view) {
    if (view) all[name] = &*view;
  };
#define ATTNC_TENSOR(member, name) all[#name] = &shape.operands.member;
#define ATTNC_OPTIONAL(member, name, feature) add(#name, shape.operands.member);
#define ATTNC_OUTPUT(member, name) add(#name, shape.outputs.member);
#define ATTNC_GRADIENT(member, name, like) add(#name, shape.gradients.member);
#include "attnc/operands.def"
  all["dout"] = &shape.operands.dOut;
  for (auto [name, view] : all) {
    if (name == "v" && vIsInK(shape.operands.k, *view)) continue; // has the strides of k
    for (int64_t axis = view->rank, step = 1; axis-- > 0; step *= std::max<int64_t>(1, view->shape[size_t(axis)]))
      view->stride[size_t(axis)] = step;
  }
  for (const auto& [name, text] : assignments("--strides", strides)) {
    const auto found = all.find(name);
    if (found == all.end() || found->second->rank != 4)
      throw wrongUsage("--strides", inQuotes(name) + " is no tensor of rows of this launch",
                       "e.g. --strides q=64,128,8192");
    const std::vector<int64_t> given = parseExtents("--strides", text, "B,H,ROW");
    std::copy(given.begin(), given.end(), found->second->stride.begin());
  }
  if (vIsInK(shape.operands.k, shape.operands.v)) shape.operands.v.stride = shape.operands.k.stride;
  shape.operands.out = shape.outputs.out.value_or(TensorView());
}

} // namespace

void LauncherOptions::addTo(CLI::App& command, ProblemOptions& problem) {
  command.add_flag("--launcher", isAsked,
                   "cu: also write a host function that makes one launch, of --shape, from numbers: needs only CUDA");
  addParsed(
      command, "--shape",
      [&problem](const std::string& text) {
        problem.shape = parseShape("--shape", text, {1, 16, 16, 0, 0}).shape;
      },
      kShapeName, "--launcher: the problem. Tensors are dense; a free extent is as in run --random");
  addSets(command, problem.sets);
  addOption(command, "--strides", strides, "NAME=B,H,ROW",
            "--launcher: strides of a tensor over batch, heads and rows, in elements; may be repeated");
}

void LauncherOptions::check(const ProblemOptions& problem, const std::string& stage, bool isOneLaunch) const {
  if (isAsked && stage != "cu")
    throw wrongUsage("--launcher", fmt::format("{} has no launcher", stage), "add it to --stage cu");
  if (isAsked && isOneLaunch)
    throw wrongUsage("--launcher", "it launches the whole kernel, and --launch names one launch", "leave out --launch");
  if (!isAsked && (problem.shape || !problem.sets.empty() || !strides.empty()))
    throw wrongUsage("emit", "--shape, --set and --strides are of the launch of --launcher",
                     "add --launcher, or leave them out");
}

Status LauncherOptions::fill(Launcher& launcher, const Mod& mod, const ProblemOptions& problem,
                             const KernelOptions& kernel) const {
  if (!problem.shape) throw wrongUsage("--launcher", "it makes one launch", "give its shape: --shape 2,32,8,4096,4096");
  for (const CaptureInfo& capture : mod.captures()) {
    if (capture.kind != CaptureInfo::Kind::Tensor && !isSet(problem, capture.name) && !kernel.pins.count(capture.name))
      throw wrongUsage("--launcher", fmt::format("the launch needs a value of {}", capture.name),
                       fmt::format("--set {}=VALUE", capture.name));
  }
  ATTNC_TRY_AS(captures, findCaptures(mod, problem, {.shape = problem.shape, .elements = Elements::OfMask}));
  launcher.captures = *std::move(captures);
  launcher.shape = shapesOf(*problem.shape, problem.target, problem.sequences);
  const auto& rows = launcher.shape.operands.q.shape;
  const TensorView ofRows = TensorView::contiguous(nullptr, DType::F32, {rows[0], rows[1], rows[2]});
  launcher.shape.outputs.lse = ofRows;
  if (kernel.kind == KernelKind::Backward) launcher.shape.operands.dLse = ofRows;
  layOut(launcher.shape, strides);
  launcher.shape.operands.captures = &launcher.captures.captures;
  for (const auto& [name, value] : launcher.captures.captures.all()) {
    if (!kernel.gradients.count(name)) continue;
    const auto* tensor = std::get_if<TensorView>(&value);
    TensorView gradient = tensor ? *tensor : TensorView();
    gradient.dtype = DType::F32;
    launcher.gradients.set(name, gradient);
  }
  launcher.shape.gradients.captures = &launcher.gradients;
  if (!kernel.blockSparse && kernel.kind != KernelKind::BlockMask) return {};
  launcher.mask.shape = smallestMask(mod, *problem.shape, kernel.maskQBlock, kernel.maskKvBlock);
  static int32_t given; // is not read: that it is not null says that there are these lists
  BlockMaskColumns& columns = launcher.mask.columns;
  columns = {&given, &given, &given, &given, launcher.mask.shape.qBlocks()};
  launcher.mask.partialCount = launcher.mask.partialIndex = launcher.mask.fullCount = launcher.mask.fullIndex = &given;
  launcher.mask.indexStride = launcher.mask.shape.kvBlocks();
  if (kernel.kind != KernelKind::Backward) columns = {};
  launcher.shape.operands.blockMask = &launcher.mask;
  return {};
}

} // namespace attnc::cli
