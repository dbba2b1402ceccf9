// Compiles kernels ahead of time, into one file.
#include "cache/pack.h"
#include "api/compiler_impl.h"
#include "api/own_stack.h"
#include "api/pack_maker.h"
#include "api/quantise_programs.h"
#include "attnc/compiler.h"
#include "attnc/version.h"
#include "jit/kernel_bytes.h"
#include "plan/embedded.h"
#include "support/parallel.h"
#include "support/try.h"

#include <fmt/format.h>

#include <atomic>
#include <set>

namespace attnc {
namespace {

std::string makerOfPacks() {
  cache::FieldHasher hasher;
  hasher.field(uint64_t(jit::kSourceSchema));
  for (unsigned i = 0; i < plan::kEmbeddedFileCount; ++i) {
    hasher.field(std::string_view(plan::kEmbeddedFiles[i].name));
    hasher.field(std::string_view(plan::kEmbeddedFiles[i].text));
  }
  return fmt::format("attnc {} (templates {})", ATTNC_VERSION, hasher.finish().hex().substr(0, 12));
}

/// Adds the programs that round operands of a kernel to e4m3, if it takes that. Their tensors have the dtype of out.
Status addQuantisers(const KernelOptions& options, std::vector<KernelSource>& sources) {
  if (!options.features.has(Feature::Fp8Kv)) return {};
  for (int headDim : std::set{options.headDim, options.headDimV ? options.headDimV : options.headDim})
    for (bool embeds : {false, true})
      if (headDim <= 256) {
        ATTNC_TRY_AS(source, quantiseProgram(options.dtype, headDim, embeds, options.arch));
        sources.push_back(*std::move(source));
      }
  return {};
}

} // namespace

std::string packMaker() {
  static const std::string maker = makerOfPacks();
  return maker;
}

/// Returns the plans that launches choose from by their operands, if the tile is not given.
static Expected<std::vector<Plan>> plansOfLaunches(const Plan& plan) {
  const PlanAccess::Impl& of = PlanAccess::of(plan);
  if (!of.request.options.tile.empty()) return std::vector{plan};
  std::vector<Plan> all;
  for (const std::string& tile : plan::tilesOfLaunches(of.request)) {
    PlanAccess::Impl one = of;
    one.request.options.tile = tile;
    ATTNC_TRY_AS(made, plan::planOf(one.request));
    one.plan = *std::move(made);
    all.push_back(PlanAccess::make(std::move(one)));
  }
  return all;
}

Expected<std::string> Compiler::Impl::pack(const std::vector<Plan>& plans) {
  std::vector<KernelSource> sources;
  for (const Plan& plan : plans) {
    ATTNC_TRY(addQuantisers(plan.options(), sources));
    ATTNC_TRY_AS(all, onOwnStack([&] { return plansOfLaunches(plan); }));
    for (const Plan& one : *all) {
      ATTNC_TRY_AS(ofPlan, one.sources());
      for (KernelSource& source : *ofPlan) sources.push_back(std::move(source));
    }
  }
  std::vector<Expected<cache::PackedValue>> compiled(sources.size(), cache::PackedValue{});
  std::atomic<bool> failed = false;
  parallelForEach(int64_t(sources.size()), [&](int64_t i) {
    if (!failed && !(compiled[size_t(i)] = cache.packed(sources[size_t(i)]))) failed = true;
  });
  std::vector<cache::PackedValue> values;
  for (auto& value : compiled) {
    if (!value) return std::move(value).error();
    values.push_back(*std::move(value));
  }
  return cache::encodePack(packMaker(), std::move(values));
}

Expected<std::string> Compiler::pack(const std::vector<Plan>& plans) const { return impl->pack(plans); }

Status Compiler::addPack(const std::string& path) { return impl->openPacks().add(path); }

} // namespace attnc
