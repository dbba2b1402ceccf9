// Mods: text through the front end and the passes.
#include "attnc/mod.h"

#include "api/mod_impl.h"
#include "api/mod_warnings.h"
#include "api/own_stack.h"
#include "dsl/diagnostics.h"
#include "dsl/frontend.h"
#include "ir/bind.h"
#include "ir/hash.h"
#include "ir/printer.h"
#include "ir/prob_factor.h"
#include "ir/reader.h"
#include "ir/walk.h"
#include "passes/autodiff.h"
#include "passes/gradient_stops.h"
#include "passes/pipeline.h"
#include "support/readable.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

namespace attnc {
namespace {

/// Larger texts are not mods; the limit keeps a wrong path from filling memory.
constexpr uint64_t kMaxTextBytes = 16 << 20;

CaptureInfo describe(const ir::Module& module, const ir::TensorCapture& tensor) {
  CaptureInfo info{
      .name = tensor.name, .kind = CaptureInfo::Kind::Tensor, .dtype = tensor.dtype, .choices = tensor.choices};
  for (const ir::Extent& extent : tensor.shape)
    info.extent.push_back(extent.isNamed ? module.dims[size_t(extent.value)] : std::to_string(extent.value));
  return info;
}

CaptureInfo describe(const ir::ScalarCapture& scalar) {
  CaptureInfo info{.name = scalar.name};
  switch (scalar.type) {
  case ir::Type::Bool: info.kind = CaptureInfo::Kind::Bool; break;
  case ir::Type::I32:
  case ir::Type::I64: info.kind = CaptureInfo::Kind::Int; break;
  case ir::Type::F32: info.kind = CaptureInfo::Kind::Float; break;
  }
  return info;
}

Expected<std::string> readText(const std::string& path) {
  auto fail = [&](const std::string& reason) {
    return Error::environment(fmt::format("cannot read '{}': {}", readable(path), reason));
  };
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure)) return fail("it is a directory");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return fail(std::strerror(errno));
  std::string text;
  char chunk[1 << 14];
  while (stream.read(chunk, sizeof(chunk)), stream.gcount() > 0) {
    text.append(chunk, size_t(stream.gcount()));
    if (text.size() > kMaxTextBytes) return fail(fmt::format("more than {} bytes", kMaxTextBytes));
  }
  if (stream.bad()) return fail(std::strerror(errno));
  return text;
}

/// Makes the names and words of a module safe for messages, since its text may hold any bytes.
void makeReadable(ir::Module& module) {
  module.sourceName = readable(module.sourceName);
  for (ir::Output output : module.outputs().vec()) {
    output.words = readable(output.words);
    module.setOutput(std::move(output));
  }
}

bool isIrPath(const std::string& path) { return std::filesystem::path(path).extension() == ".ir"; }

} // namespace

Mod::Impl::Impl(ir::Module simplified, ir::Module traced, ModSource source, ir::CaptureGradients outputs)
    : module(std::move(simplified)), traced(std::move(traced)), source(std::move(source)),
      hash(ir::canonicalHash(module)), gradients(std::move(outputs)) {
  for (const ir::TensorCapture& tensor : module.tensors) captures.push_back(describe(module, tensor));
  for (const ir::ScalarCapture& scalar : module.scalars) captures.push_back(describe(scalar));
  for (const ir::Reduction& each : ir::reductionsOf(module)) {
    CaptureInfo& info =
        reductions.emplace_back(CaptureInfo{.name = each.name, .extent = {"B", "H"}, .isSum = !each.isMax});
    if (each.kept != ir::Kept::Heads) info.extent.emplace_back(ir::axisOf(each.kept));
    const auto isOwn = [&](const CaptureInfo& capture) { return capture.name == each.gradient(); };
    if (each.isMax || llvm::any_of(captures, isOwn)) continue;
    reductionGradients.push_back(info);
    reductionGradients.back().name = each.gradient();
  }
  key = hash + " " + ir::canonicalHash(this->traced);
  for (const ir::TensorCapture& tensor : this->traced.tensors) key += " " + tensor.name;
  for (const ir::ScalarCapture& scalar : this->traced.scalars) key += " " + scalar.name;
  for (const std::string& dim : this->traced.dims) key += " " + dim;
}

Expected<std::shared_ptr<const passes::GridKernel>> Mod::Impl::gridKernel() const {
  if (onGrid) return *onGrid;
  ATTNC_TRY_AS(made, passes::gridKernel(traced, module));
  onGrid = *made ? std::make_shared<const passes::GridKernel>(*std::move(*made)) : nullptr;
  return *onGrid;
}

Expected<std::shared_ptr<const plan::KernelMod>> Mod::Impl::kernelMod(plan::ModForm form) const {
  return onOwnStack([&] {
    std::lock_guard lock(mutex); // also held while it is made: a second caller waits
    return lockedKernelMod(form);
  });
}

Expected<plan::KernelMod> Mod::Impl::kernelModOnGrid(plan::ModForm form) const {
  ATTNC_TRY_AS(grid, gridKernel());
  ATTNC_TRY_AS(onGrid, module.output(ir::kDScore) ? passes::withGradient(**grid) : (*grid)->module);
  return plan::makeKernelMod(*onGrid, form);
}

Expected<std::shared_ptr<const plan::KernelMod>> Mod::Impl::lockedKernelMod(plan::ModForm form) const {
  std::shared_ptr<const plan::KernelMod>& mod = kernelMods[form];
  if (mod) return mod;
  ATTNC_TRY_AS(grid, gridKernel());
  ATTNC_TRY_AS(made, form.onGrid ? kernelModOnGrid(form) : plan::makeKernelMod(module, form, gradients));
  made->grid = *grid;
  if (made->grid && made->grid->isBounded && !form.onGrid && module.output(ir::kDScore))
    if (const auto onGrid = lockedKernelMod({plan::algebraOnGrid(DType::BF16), false, true}))
      made->onGrid = {(*onGrid)->facts.form, (*onGrid)->source.rowBytes};
  return mod = std::make_shared<const plan::KernelMod>(*std::move(made));
}

Mod::Mod(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}

Expected<Mod> Mod::parse(std::string_view text, const ParseOptions& options) {
  return onOwnStack([&]() -> Expected<Mod> {
    dsl::FrontendOptions frontend{options.name, options.defines, options.mods, options.captures, options.available};
    dsl::Notes notes;
    ATTNC_TRY_AS(module, dsl::trace(text, frontend, &notes));
    ir::Module traced = *module;
    ATTNC_TRY(passes::runPipeline(*module));
    ModSource source{std::string(text), std::move(notes.choices), std::move(notes.constants), {}};
    source.defines = options.defines, source.declared = options.captures;
    source.warnings = warningsOf(text, options.name, traced, *module, std::move(notes.warnings));
    return Mod(std::make_shared<const Impl>(std::move(*module), std::move(traced), std::move(source)));
  });
}

Expected<Mod> Mod::load(const std::string& path, ParseOptions options) {
  ATTNC_TRY_AS(text, readText(path));
  options.name = path;
  if (!isIrPath(path)) return parse(*text, options);
  if (!options.defines.empty())
    return Error::environment(fmt::format("'{}' is IR, which has no constants to define", readable(path)));
  if (!options.mods.empty() || !options.captures.empty())
    return Error::environment(
        fmt::format("'{}' is IR, which says itself what the mod is and captures", readable(path)));
  return parseIr(*text, path);
}

Expected<Mod> Mod::parseIr(std::string_view text, std::string_view name) {
  return onOwnStack([&]() -> Expected<Mod> {
    if (llvm::StringRef(text).trim().empty())
      return Error::mod(fmt::format("{}: the text is empty", readable(name)), {});
    ATTNC_TRY_AS(module, ir::read(text, name));
    makeReadable(*module);
    if (const std::optional<ir::Value> prob = module->output(ir::kProb)) {
      if ((*module)[*prob].type != ir::Type::F32)
        return Error::mod(
            fmt::format("{}: prob_mod returns a {}: return f32", readable(name), ir::name((*module)[*prob].type)), {});
      module->dropOutput(ir::kProb);
      ir::setProb(*module, *prob);
    }
    if (module->output(ir::kProbFactor) && module->output(ir::kProbWeight))
      return Error::mod(
          fmt::format("{}: `prob_factor` and `prob_weight` are two prob_mods: leave one out", readable(name)), {});
    ir::composeWeight(*module);
    if (const std::optional<ir::Value> isWeight = module->output(ir::kIsWeight)) {
      const bool isAlone = !module->output(ir::kProbFactor) && !module->output(ir::kProbWeight) &&
                           !module->output(ir::kSink) && ir::reductionsOf(*module).empty();
      if (!isAlone || !module->output(ir::kScore) || !module->isConst(*isWeight) || !module->integer(*isWeight))
        return Error::mod(
            fmt::format("{}: a weight_mod takes the place of the softmax, of which prob_mod, sink_mod and "
                        "outputs are: leave these out; `is_weight` is true, next to `score`",
                        readable(name)),
            {});
    }
    for (const ir::OutputRole* role = ir::kDerivedRoles; role != std::end(ir::kRoles); ++role)
      if (module->output(*role))
        return Error::mod(fmt::format("{}: the output `{}` is derived by attnc, a mod has `score` and `mask`",
                                      readable(name), role->name),
                          {});
    ir::Module traced = *module;
    ATTNC_TRY(passes::runPipeline(*module));
    return Mod(std::make_shared<const Impl>(std::move(*module), std::move(traced), ModSource{}));
  });
}

Mod Mod::identity() {
  ir::Module module;
  module.sourceName = "<identity>";
  return Mod(std::make_shared<const Impl>(module, module, ModSource{}));
}

const std::string& Mod::name() const { return impl->module.sourceName; }
bool Mod::hasScoreMod() const { return impl->module.output(ir::kScore).has_value(); }
bool Mod::hasMaskMod() const { return impl->module.output(ir::kMask).has_value(); }
bool Mod::hasProbMod() const { return walksTwice() || impl->module.output(ir::kProbFactor); }
bool Mod::walksTwice() const { return impl->module.output(ir::kProbWeight).has_value(); }
bool Mod::hasWeightMod() const { return impl->module.output(ir::kIsWeight).has_value(); }
bool Mod::hasSinkMod() const { return impl->module.output(ir::kSink).has_value(); }
bool Mod::masksLifted() const { return impl->module.liftsMasks; }
bool Mod::declaresGrids() const { return !impl->traced.grids.empty(); }
const std::vector<CaptureInfo>& Mod::captures() const { return impl->captures; }
const std::vector<CaptureInfo>& Mod::reductions() const { return impl->reductions; }

const std::vector<CaptureInfo>& Mod::reductionGradients() const { return impl->reductionGradients; }
const std::string& Mod::text() const { return impl->source.text; }
std::string Mod::astText() const {
  if (impl->source.text.empty()) return {};
  auto ast = onOwnStack([&] { return dsl::astText(impl->source.text, {.name = name()}); });
  return ast ? *std::move(ast) : std::string(); // the text was parsed before, so it has a tree
}

std::string Mod::irText() const {
  if (!ir::uses(impl->traced, ir::Op::Coord) && !ir::uses(impl->traced, ir::Op::InGrid)) return ir::print(impl->module);
  ir::Module onGrids = impl->traced;
  const Status made = onOwnStack([&] { return passes::runPipeline(onGrids, {.keepsGrids = true}); });
  return ir::print(made ? onGrids : impl->module);
}
const std::string& Mod::hash() const { return impl->hash; }
const ir::Module& Mod::module() const { return impl->module; }
const std::vector<ModChoice>& Mod::choices() const { return impl->source.choices; }
const std::vector<std::string>& Mod::constants() const { return impl->source.constants; }
const std::vector<Diagnostic>& Mod::warnings() const { return impl->source.warnings; }
const std::vector<std::string>& warningIds() { return dsl::warningIds(); }

struct ModAccess {
  static const Mod::Impl& implOf(const Mod& mod) { return *mod.impl; }
  /// Makes a mod from what passes made of another one.
  static Mod make(ir::Module module, ir::Module traced, const Mod& from, ir::CaptureGradients gradients = {}) {
    return Mod(std::make_shared<const Mod::Impl>(std::move(module), std::move(traced), from.impl->source,
                                                 std::move(gradients)));
  }
};

Expected<std::shared_ptr<const plan::KernelMod>> kernelModOf(const Mod& mod, plan::ModForm form) {
  return ModAccess::implOf(mod).kernelMod(form);
}

Expected<int64_t> sliceOf(const Mod& mod, const Captures* captures, const ProblemShape& problem) {
  static const Captures kNone;
  ATTNC_TRY_AS(grid, passes::gridKernel(tracedModule(mod), mod.module()));
  if (!*grid || (*grid)->beside || (*grid)->step > 1 || problem.qLen != problem.kvLen) return 1;
  const auto bindings = ir::bind((*grid)->module, captures ? *captures : kNone, problem);
  if (!bindings) return 1; // its slices do not divide the lengths
  const auto queries = bindings->extentsOf((*grid)->ofQueries), keys = bindings->extentsOf((*grid)->ofKeys);
  const int64_t slice = std::accumulate(queries.begin() + 1, queries.end(), int64_t(1), std::multiplies<>());
  return queries == keys && slice * queries[0] == problem.qLen ? std::max<int64_t>(1, slice) : 1;
}

Expected<Mod> Mod::pinned(const std::map<std::string, int64_t>& pins) const {
  if (pins.empty()) return *this;
  return onOwnStack([&]() -> Expected<Mod> {
    ir::Module module = this->module();
    ir::Module traced = impl->traced;
    passes::PipelineOptions options;
    options.pins = pins;
    ATTNC_TRY(passes::runPipeline(module, options));
    ATTNC_TRY(passes::pin(traced, {.pins = pins}));
    return Mod(std::make_shared<const Impl>(std::move(module), std::move(traced), impl->source));
  });
}

Expected<Mod> forwardMod(const Mod& mod) {
  if (!passes::hasGradientStops(mod.module())) return mod;
  ir::Module module = mod.module();
  ATTNC_TRY(passes::removeGradientStops(module));
  return ModAccess::make(std::move(module), tracedModule(mod), mod);
}

Expected<Mod> maskedByScore(const Mod& mod) {
  if (!mod.module().liftsMasks) return mod;
  ir::Module traced = tracedModule(mod);
  traced.keepsMasks = true;
  ir::Module module = traced;
  ATTNC_TRY(passes::runPipeline(module));
  return ModAccess::make(std::move(module), std::move(traced), mod);
}

Expected<Mod> sequencesMod(const Mod& mod, passes::SequenceForm form, const std::map<std::string, int64_t>& pins) {
  ir::Module module = tracedModule(mod);
  ATTNC_TRY(passes::runPipeline(module, {.pins = pins, .sequences = form}));
  return ModAccess::make(std::move(module), tracedModule(mod), mod);
}

Expected<Mod> placedMod(const Mod& mod, passes::RowPlaces places, bool keepsSink) {
  return onOwnStack([&]() -> Expected<Mod> {
    ATTNC_TRY_AS(traced, passes::placeRows(tracedModule(mod), places));
    if (!keepsSink) traced->dropOutput(ir::kSink);
    ir::Module module = *traced;
    ATTNC_TRY(passes::runPipeline(module));
    return ModAccess::make(std::move(module), *std::move(traced), mod);
  });
}

Expected<Mod> gradientMod(const Mod& mod, const std::set<std::string>& captures, bool withTangents, bool withOutputs) {
  const std::vector<std::string> wanted(captures.begin(), captures.end()), floats = passes::floatCaptures(mod.module());
  for (const std::string& name : wanted)
    if (!llvm::is_contained(floats, name))
      return Error::environment(
          fmt::format("a gradient of {} is asked for, which is no float that {} captures", name, mod.name()),
          floats.empty() ? "it captures none" : fmt::format("it captures {}", fmt::join(floats, ", ")));
  ATTNC_TRY_AS(gradients, passes::differentiate(mod.module(), wanted, {}, withTangents, withOutputs));
  return ModAccess::make(std::move(gradients->module), tracedModule(mod), mod,
                         {wanted, std::move(gradients->captures), passes::hasGradientStops(mod.module())});
}

Expected<std::set<std::string>> reachedCaptures(const Mod& mod, bool ofOutputs) {
  return onOwnStack([&]() -> Expected<std::set<std::string>> {
    const ir::Module& module = mod.module();
    ATTNC_TRY_AS(gradients, passes::differentiate(module, passes::floatCaptures(module), {}, false, ofOutputs));
    std::set<std::string> names;
    for (const ir::CaptureGradient& place : gradients->captures) names.insert(place.capture);
    return names;
  });
}

const ir::CaptureGradients& captureGradients(const Mod& mod) { return ModAccess::implOf(mod).gradients; }

const std::string& keyOf(const Mod& mod) { return ModAccess::implOf(mod).key; }

const ModSource& sourceOf(const Mod& mod) { return ModAccess::implOf(mod).source; }

const ir::Module& tracedModule(const Mod& mod) { return ModAccess::implOf(mod).traced; }

Expected<ScoreGradient> scoreGradientOf(const Mod& mod) {
  return onOwnStack([&]() -> Expected<ScoreGradient> {
    ATTNC_TRY_AS(gradients, passes::differentiate(mod.module()));
    if (passes::hasScoreGradient(gradients->module)) return ScoreGradient::Some;
    const std::optional<ir::Value> score = mod.module().output(ir::kScore);
    const bool readsScore = !score || ir::paramsOf(mod.module(), *score).contains(ir::ParamKind::Score);
    return readsScore ? ScoreGradient::Stopped : ScoreGradient::NoScore;
  });
}

Expected<std::string> gradientIrText(const Mod& mod) {
  return onOwnStack([&]() -> Expected<std::string> {
    ATTNC_TRY_AS(gradients, passes::differentiate(mod.module(), passes::floatCaptures(mod.module())));
    return ir::print(gradients->module);
  });
}

bool keepsMasks(const KernelOptions& options) { return options.blockSparse && !options.listsOfWholeMod; }

Expected<Mod> derive(const Mod& mod, const KernelOptions& options) {
  return onOwnStack([&]() -> Expected<Mod> {
    Expected<Mod> pinned = mod.pinned(options.pins);
    if (!pinned) return pinned;
    if (keepsMasks(options)) pinned = maskedByScore(*pinned);
    if (!pinned) return pinned;
    const passes::SequenceForm sequences = sequenceForm(options);
    if (!sequences.isPlain()) pinned = sequencesMod(*pinned, sequences, options.pins);
    if (!pinned) return pinned;
    return options.kind == KernelKind::Backward
               ? gradientMod(*pinned, options.gradients, options.features.has(Feature::Tangents),
                             options.features.has(Feature::Reductions))
               : forwardMod(*pinned);
  });
}

Status checkPins(const ir::Module& module, const ir::Bindings& bindings, const std::map<std::string, int64_t>& pins) {
  auto check = [&](const std::string& name, double given) -> Status {
    auto pinned = pins.find(name);
    if (pinned == pins.end() || double(pinned->second) == given) return {};
    return Error::environment(
        fmt::format("{} is {}, but the kernel was compiled with it pinned to {}", name, given, pinned->second));
  };
  if (pins.empty()) return {};
  for (size_t i = 0; i < module.dims.size(); ++i) ATTNC_TRY(check(module.dims[i], double(bindings.dims[i])));
  for (size_t i = 0; i < module.scalars.size(); ++i) {
    const ir::ScalarValue& value = bindings.scalars[i];
    bool isFloat = module.scalars[i].type == ir::Type::F32;
    ATTNC_TRY(check(module.scalars[i].name, isFloat ? value.real : double(value.integer)));
  }
  return {};
}

} // namespace attnc
