// Plans: kernels as they were chosen.
#include "attnc/plan.h"

#include "api/compiler_impl.h"
#include "api/kernel_label.h"
#include "api/own_stack.h"
#include "api/plan_impl.h"
#include "families/decode_parts.h"
#include "families/family.h"
#include "launch/kernel_options.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc {
namespace {

Status checkWork(const Mod& mod, const plan::KernelMod& kernelMod, const plan::Stage& stage, int64_t maxWork) {
  const int64_t work = kernelMod.source.work, most = std::min(maxWork, codegen::kMostWork);
  if (work <= most) return {};
  Error error = Error::mod(fmt::format("{}: the mod is too long to compile: {} instructions in {}, and the limit is {}",
                                       mod.name(), work, stage.templateName, most),
                           {});
  error.remedy =
      fmt::format("write a sum instead of unrolled lines, and fewer places where a capture is read (a place with a "
                  "gradient counts {}); or raise the limit: --max-work, CompilerOptions::maxWork, ATTNC_MAX_WORK",
                  codegen::kPlaceWork);
  return error;
}

} // namespace

Expected<StageMods> Plan::Impl::stageMods() const {
  StageMods mods;
  for (const plan::Stage& stage : plan.stages) {
    ATTNC_TRY_AS(one, kernelModOf(mod, formOf(stage)));
    ATTNC_TRY(checkWork(mod, **one, stage, maxWork));
    mods.push_back(*std::move(one));
  }
  return mods;
}

KernelSource Plan::Impl::source(const StageMods& mods, size_t stage) const {
  KernelSource source = plan::assemble(*mods[stage], plan.stages[stage], plan.options);
  source.label = kernelLabel(given, plan.options);
  return source;
}

const Mod& Plan::mod() const { return impl->given; }
const KernelOptions& Plan::options() const { return impl->plan.options; }
const std::string& Plan::passedOver() const { return impl->passedOver; }
KvLoop Plan::kvLoop() const { return impl->kvLoop; }
const std::string& Plan::tile() const { return impl->plan.tile; }
TileFrom Plan::tileFrom() const { return impl->tileFrom; }
const std::string& Plan::tunedBy() const { return impl->tunedBy; }
const std::string& Plan::lowRank() const { return impl->plan.lowRank; }

std::vector<std::string> Plan::tiles() const {
  plan::Request request = impl->request;
  request.options.tile.clear();
  return plan::candidatesOf(request);
}

bool Plan::gainsFromBlockMask() const { return plan::wantsBlockMask(impl->request); }

Expected<std::vector<KernelSource>> Plan::sources() const {
  return onOwnStack([&]() -> Expected<std::vector<KernelSource>> {
    ATTNC_TRY_AS(mods, impl->stageMods());
    std::vector<KernelSource> all;
    for (size_t stage = 0; stage < mods->size(); ++stage) all.push_back(impl->source(*mods, stage));
    return all;
  });
}

std::string passedOverBy(const plan::Request& request) {
  return request.misfit.empty() ? request.unserved : request.misfit;
}

KvLoop kvLoopOf(const plan::Request& request, bool listsAnew) {
  const KernelOptions& options = request.options;
  const analysis::ModFacts& facts = request.mod->facts;
  if (options.blockSparse)
    return options.maskByBoxes ? KvLoop::BoxMask : listsAnew ? KvLoop::Listed : KvLoop::BlockMask;
  if (options.kind == KernelKind::Decode && plan::decodeListsSteps(facts, options)) return KvLoop::Listed;
  if (request.family->walksBoxes) return KvLoop::Boxes;
  return facts.masks && !plan::wantsBlockMask(request) ? KvLoop::Bounds : KvLoop::AllTiles;
}

Expected<Plan> planned(const Mod& given, Mod derived, const KernelOptions& options, int64_t maxWork) {
  ATTNC_TRY_AS(kernelMod, kernelModOf(derived, plan::algebraFor(options)));
  ATTNC_TRY_AS(request, plan::selectFamily(*std::move(kernelMod), options));
  ATTNC_TRY_AS(plan, plan::planOf(*request));
  PlanAccess::Impl impl{.given = given,
                        .mod = std::move(derived),
                        .request = *std::move(request),
                        .plan = *std::move(plan),
                        .maxWork = maxWork,
                        .kvLoop = {},
                        .tileFrom = options.tile.empty() ? TileFrom::Model : TileFrom::Asked,
                        .passedOver = {}};
  impl.kvLoop = kvLoopOf(impl.request);
  impl.passedOver = passedOverBy(impl.request);
  return PlanAccess::make(std::move(impl));
}

std::string whyNotServed(const Mod& mod, const KernelOptions& options) {
  const auto select = [&]() -> Status {
    ATTNC_TRY_AS(complete, withArch(options));
    ATTNC_TRY_AS(derived, derive(mod, *complete));
    ATTNC_TRY_AS(kernelMod, kernelModOf(*derived, plan::algebraFor(*complete)));
    ATTNC_TRY(plan::selectFamily(*kernelMod, *complete));
    return {};
  };
  const Status found = onOwnStack(select);
  return found ? std::string() : found.error().message;
}

} // namespace attnc
