#include "families/catalog.h"

#include "families/append.h"
#include "families/capture_gradients.h"
#include "families/family.h"
#include "families/low_rank/low_rank.h"
#include "families/reductions.h"
#include "families/two_walks.h"
#include "launch/kernel_options.h"
#include "launch/mask_shape.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>

#include <algorithm>

namespace attnc::plan {
namespace {

const FamilyRow* const kFamilies[] = {
#define ATTNC_FAMILY_ROW(name) &name,
#include "families/families.def"
};

bool isMadeFor(const FamilyRow& row, const Arch& arch) { return row.madeFor == arch.capability && arch.specific; }

/// Returns the tile of a plan that a family just made: of the kernel that the other stages prepare or finish.
std::string tileOf(const Plan& plan) {
  for (auto stage = plan.stages.rbegin(); stage != plan.stages.rend(); ++stage)
    if (const codegen::Config& config = stage->config; config.blockN)
      return tileText({config.blockM, config.blockN, config.warps});
  return {};
}

constexpr const char* kHeadDims =
    "multiples of 8 from 8 to 256 are; decode kernels of sm_90a and the naive family take q and k to 576, v to 512";

/// Returns why a family does not serve a request, as FamilyRow::unserved. Empty if it serves it.
std::string unservedBy(const FamilyRow& row, const Request& request) {
  const Features others = featuresOf(request.options).without(takenBy(row));
  if (hasWideHeads(request.options) && !row.takesWideHeads) return "takes head dims up to 256";
  if (!others.empty()) return fmt::format("takes no {}", featureText(others.first()));
  if (request.mod->facts.hasProbMod) {
    if (row.takesProbMods == FamilyRow::ProbMods::None) return "takes no prob_mod";
    if (row.takesProbMods == FamilyRow::ProbMods::Drops && !request.mod->facts.drops)
      return "takes no prob_mod but dropout, whose factor is 0 or one positive number";
    if (request.options.features.has(Feature::Fp8Q)) return "takes no prob_mod with q of e4m3";
  }
  constexpr const char* kTwoWalks = "takes no prob_mod but multiples of prob";
  if (request.mod->facts.hasProbWeight && !row.takesWeightMods) return kTwoWalks;
  if (request.mod->secondWalk && row.kind != KernelKind::BlockMask) {
    if (!row.takesWeightMods) return kTwoWalks;
    if (std::string why = unservedBy(row, ofSecondWalk(request)); !why.empty()) return why;
  }
  if (request.mod->facts.isWeight && row.kind != KernelKind::BlockMask) {
    if (!row.takesWeightMods) return "takes no weight_mod";
    if (request.options.features.has(Feature::Fp8Q) && row.family != Family::Naive)
      return "takes no weight_mod with q of e4m3";
    if (request.options.features.has(Feature::RowMax)) return "has no row maximum with a weight_mod";
  }
  if (std::string why = unservedReductions(request); !why.empty()) return why;
  return row.unserved(request);
}

/// Selects the family that was asked for.
Expected<Request> selectAsked(const FamilyRow& row, Request request, const LaunchOperands* layout) {
  const std::string why = unservedBy(row, request);
  if (!why.empty())
    return Error::environment(
        fmt::format("the {} family does not serve this request: it {}", familyName(row.family), why),
        "without a family, the catalogue takes one that does");
  if (layout) ATTNC_TRY(row.checkLayout(*layout));
  request.family = &row;
  return request;
}

} // namespace

llvm::ArrayRef<const FamilyRow*> families() { return kFamilies; }

const FamilyRow* findFamily(KernelKind kind, Family family, const Arch& arch, const Features& features) {
  const FamilyRow* first = nullptr;
  for (const FamilyRow* row : kFamilies) {
    if (row->kind != kind || row->family != family) continue;
    if (isMadeFor(*row, arch) && features.without(takenBy(*row)).empty()) return row;
    if (!first) first = row;
  }
  return first;
}

std::string tileText(const Tile& tile) { return fmt::format("{}x{}x{}", tile.blockM, tile.blockN, tile.warps); }

std::string servesAll(const Request&) { return {}; }

Status takesAnyLayout(const LaunchOperands&) { return {}; }

int paddedRowBytes(int columns, DType dtype) { return int(llvm::alignTo(columns, 16) * dtypeBytes(dtype)) + 16; }

int paddedRowBytes(const KernelOptions& options) {
  return paddedRowBytes(options.headDim, options.dtype) + paddedRowBytes(options.headDimV, options.dtype);
}

codegen::Config configOf(const KernelOptions& options, const Tile& tile) {
  return {.dtype = options.dtype,
          .headDimQk = options.headDim,
          .headDimV = options.headDimV,
          .blockM = tile.blockM,
          .blockN = tile.blockN,
          .warps = tile.warps,
          .blockSparse = options.blockSparse,
          .pageSize = options.pageSize,
          .rowMax = options.features.has(Feature::RowMax),
          .tf32 = options.tf32};
}

Features takenBy(KernelKind kind) {
  Features taken;
  for (const FamilyRow* row : kFamilies)
    if (row->kind == kind) taken = taken | takenBy(*row);
  return taken;
}

/// Checks that some family of the kind takes the options' features.
static Status checkTaken(const KernelOptions& options) {
  const Features others = featuresOf(options).without(takenBy(options.kind));
  if (others.empty()) return {};
  std::vector<std::string_view> kinds;
  for (KernelKind kind : {KernelKind::Forward, KernelKind::Decode, KernelKind::Backward, KernelKind::BlockMask})
    if (takenBy(kind).has(others.first())) kinds.push_back(kindName(kind));
  return Error::environment(fmt::format("{} kernels take no {}", kindName(options.kind), featureText(others.first())),
                            fmt::format("{} kernels do", fmt::join(kinds, " and ")));
}

Status checkOptions(const KernelOptions& options) {
  if (const Features implied = options.features.without(kOptionFeatures); !implied.empty())
    return Error::environment(fmt::format("KernelOptions::features holds {}", featureText(implied.first())),
                              fmt::format("KernelOptions::{} asks for these", featureOption(implied.first())));
  ATTNC_TRY(checkTaken(options));
  if (options.maskByBoxes && options.kind == KernelKind::Forward && !options.blockSparse)
    return Error::environment("boxes of a block mask are meant, and none is to be given",
                              "forward kernels with KernelOptions::blockSparse take them");
  ATTNC_TRY(checkSequenceOptions(options));
  if (options.kind == KernelKind::BlockMask) return {}; // any blocks will do, and q, k or v are not read
  const bool isFp8 = options.features.has(Feature::Fp8Q),
             is16Bits = options.dtype == DType::BF16 || options.dtype == DType::F16;
  if (isFp8 && !is16Bits)
    return Error::environment(fmt::format("q, k and v are e4m3, and out is {}", dtypeName(options.dtype)),
                              "out is bf16 or f16 then");
  if (!is16Bits && options.dtype != DType::F32)
    return Error::environment(fmt::format("q, k and v of {} are not supported", dtypeName(options.dtype)),
                              "bf16, f16 and f32 are");
  const bool isBackward = options.kind == KernelKind::Backward;
  for (auto [dim, most] : {std::pair(options.headDim, isBackward ? 256 : kMostHeadDim),
                           {options.headDimV, isBackward ? 256 : kMostHeadDimV}})
    if (dim < 8 || dim > most || dim % 8)
      return Error::environment(
          fmt::format("head dim {} is not supported", dim),
          dim >= 1 && dim <= most ? fmt::format("pad it with zeros to {}, and keep the scale 1 / sqrt({})",
                                                (dim + 7) / 8 * 8, options.headDim)
          : isBackward && dim > 256 && dim <= kMostHeadDim
              ? "there are no gradients above 256: compute without them, with a decode kernel of sm_90a"
              : kHeadDims);
  for (int dim : {options.headDim, options.headDimV})
    if (dim % 16 && options.features.has(Feature::Fp8Kv))
      return Error::environment(
          fmt::format("head dim {} of e4m3 is not supported", dim),
          fmt::format("multiples of 16 are: pad it with zeros to {}, and keep the scale 1 / sqrt({})", dim + 8,
                      options.headDim));
  if (options.kind == KernelKind::Decode && options.packedRows != 16 && options.packedRows != 32 &&
      options.packedRows != 64)
    return Error::environment(fmt::format("tiles of {} rows are not supported", options.packedRows),
                              "16, 32 and 64 are");
  if (isFp8 && !options.features.has(Feature::Fp8Kv))
    return Error::environment("q is e4m3, k and v are not", "forward kernels take all three of one dtype");
  if (options.features.has(Feature::RowScales) && !isFp8)
    return Error::environment("scales are of rows, and q is not e4m3", "decode kernels take these of k and v");
  if (options.tf32 && options.dtype != DType::F32)
    return Error::environment("tf32 is an option of f32 kernels alone", "take operands of f32, or leave tf32 out");
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text)                                                    \
  if (!(double(options.member) >= 0 && double(options.member) < limit))                                                \
    return Error::environment(fmt::format(#member " is {}", options.member), "it is at least 0, and below " #limit);
#include "attnc/choices.def"
  return options.blockSparse && !options.maskByBoxes ? checkBlocks(options.maskQBlock, options.maskKvBlock) : Status();
}

Expected<Request> selectFamily(std::shared_ptr<const KernelMod> kernelMod, const KernelOptions& asked,
                               const LaunchOperands* layout) {
  Request request{std::move(kernelMod), completed(asked), {}};
  if (needsRowMax(request.mod->reductions, request.options)) request.options.features.set(Feature::RowMax);
  ATTNC_TRY_AS(arch, parseArch(request.options.arch));
  request.arch = *arch;
  const KernelMod& mod = *request.mod;
  const KernelOptions& options = request.options;
  ATTNC_TRY(checkOptions(options));
  if (options.maskByBoxes && options.kind == KernelKind::Forward && !mod.grid && mod.module.keepsMasks)
    return Error::environment("blocks of the mask are boxes for a mask in score_mod, of which its lists say nothing",
                              "write it as mask_mod, or set BlockMaskView::ofWholeMod if the lists are of both mods");
  std::string &unserved = request.unserved, &misfit = request.misfit;
  for (const FamilyRow* row : kFamilies) {
    if (row->kind != options.kind || row != findFamily(row->kind, row->family, *arch, featuresOf(options))) continue;
    if (row->family == options.family) return selectAsked(*row, std::move(request), layout);
    if (options.family != Family::Auto) continue;
    if (row->walksBoxes && mod.grid && mod.grid->isFound && !layout) continue; // serves only some lengths
    const bool isMeant = (!row->madeFor || row->madeFor == arch->capability) && (!row->walksBoxes || mod.grid);
    if (row->walksBoxes && mod.grid && !mod.grid->isBounded && !options.maskByBoxes) {
      if (isMeant && unserved.empty())
        unserved =
            fmt::format("{} goes by lists of boxes where no axis is bounded, in forward passes on declared grids",
                        familyName(row->family));
      continue;
    }
    if (options.maskByBoxes && !row->takes.has(Feature::BoxMask)) continue;
    if (std::string why = unservedBy(*row, request); !why.empty()) {
      if (isMeant && unserved.empty()) unserved = fmt::format("{} {}", familyName(row->family), why);
      continue;
    }
    if (Status fits = layout ? row->checkLayout(*layout) : Status(); !fits) {
      if (misfit.empty()) misfit = fits.error().message;
      continue;
    }
    request.family = row;
    request.options.family = row->family;
    return request;
  }
  if (options.family != Family::Auto)
    return Error::environment(
        fmt::format("the {} family has no {} kernels", familyName(options.family), kindName(options.kind)),
        "without a family, the catalogue takes one that has");
  const std::string why = unserved.empty() ? misfit : unserved;
  if (options.maskByBoxes && options.kind == KernelKind::Forward)
    return Error::environment(why.empty() ? "the mod declares no grid on which blocks of a mask could be boxes" : why,
                              "kernels by boxes of a grid alone take a mask of boxes");
  if (!why.empty())
    return Error::environment(fmt::format("no {} kernel serves this request: {}", kindName(options.kind), why),
                              hasWideHeads(options) ? kHeadDims : "");
  return Error::internal("no family serves this request");
}

Expected<Request> selectListed(std::shared_ptr<const KernelMod> mod, KernelOptions options,
                               const LaunchOperands* layout, bool mayListBoxes) {
  options.blockSparse = options.listsOfWholeMod = true;
  const bool isAsked = options.family == Family::Grid;
  const bool mayBeBoxes = isAsked || (options.family == Family::Auto && mod->grid && !mod->grid->isFound);
  const bool gains = mayBeBoxes && mod->grid && !mod->grid->isBounded;
  if (!mayListBoxes || !gains) return selectFamily(mod, options, layout);
  options.maskByBoxes = true;
  Expected<Request> byBoxes = selectFamily(mod, options, layout);
  if (byBoxes || isAsked) return byBoxes;
  options.maskByBoxes = false;
  Expected<Request> byTokens = selectFamily(mod, options, layout);
  if (byTokens) byTokens->unserved = byBoxes.error().message; // more specific than that the family needs lists
  return byTokens;
}

Expected<Plan> planOf(const Request& request) {
  const FamilyRow& row = *request.family;
  if (const std::string& asked = request.options.tile; !asked.empty()) {
    const std::vector<std::string> candidates = candidatesOf(request);
    if (std::find(candidates.begin(), candidates.end(), asked) == candidates.end())
      return Error::environment(
          fmt::format("the {} family has no tile `{}` for this request", familyName(row.family), asked),
          candidates.empty() ? "its kernels have no tiles" : fmt::format("it has {}", fmt::join(candidates, ", ")));
  }
  ++plansMade;
  const LowRankColumns columns(request, row);
  Plan plan = row.plan(columns.request());
  plan.lowRank = columns.words();
  if (plan.tile.empty()) plan.tile = tileOf(plan);
  plan.options = request.options;
  if (request.options.kind != KernelKind::BlockMask) addSecondWalk(plan, request);
  addSharedStages(plan, columns.request(), row.family);
  columns.addTo(plan, row);
  addAppending(plan, request);
  addCaptureOutputStages(plan);
  addReductions(plan, request);
  return plan;
}

std::string tileOfLaunch(const Request& request, llvm::function_ref<WalkFacts()> facts) {
  const auto ofFamily = request.family->tileOfLaunch;
  return ofFamily ? ofFamily(LowRankColumns(request, *request.family).request(), facts()) : std::string();
}

std::vector<std::string> tilesOfLaunches(const Request& request) {
  const ir::Module& module = request.mod->module;
  std::vector<std::string> tiles{""};
  const std::optional<ir::Value> begin = module.output(ir::kKvBegin);
  const bool canBeWindow = begin && module[*begin].op != ir::Op::Const && !request.mod->facts.readsTensors;
  for (const bool isWindow : {false, canBeWindow})
    for (const int group : {1, 2})
      for (const int64_t extent : {1, 1 << 20}) {
        std::string tile = tileOfLaunch(request, [&] { return WalkFacts{extent, extent, isWindow, group}; });
        if (!llvm::is_contained(tiles, tile)) tiles.push_back(std::move(tile));
      }
  return tiles;
}

std::vector<std::string> candidatesOf(const Request& request) {
  const FamilyRow& row = *request.family;
  const LowRankColumns columns(request, row);
  if (row.candidates) return row.candidates(columns.request());
  std::string own = tileOf(row.plan(columns.request()));
  return own.empty() ? std::vector<std::string>() : std::vector{std::move(own)};
}

bool wantsBlockMask(const Request& request) {
  if (request.options.kind == KernelKind::Decode) return false; // each launch lists the live steps itself
  const FamilyRow& family = *request.family;
  const KernelMod& mod = *request.mod;
  const bool bounds = family.walksBounds && mod.facts.kvEdges, walksItsBoxes = family.walksBoxes && mod.grid->isBounded;
  return mod.facts.masks && !bounds && !walksItsBoxes;
}

} // namespace attnc::plan
