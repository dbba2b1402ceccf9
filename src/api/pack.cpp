// Compiles kernels ahead of time, into one file.
#include "cache/pack.h"
#include "api/compiler_impl.h"
#include "api/mod_impl.h"
#include "api/pack_maker.h"
#include "api/quantise_programs.h"
#include "attnc/compiler.h"
#include "attnc/version.h"
#include "jit/kernel_bytes.h"
#include "plan/catalog.h"
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
  hasher.field(uint64_t(jit::kJobSchema));
  for (unsigned i = 0; i < plan::kEmbeddedFileCount; ++i) {
    hasher.field(std::string_view(plan::kEmbeddedFiles[i].name));
    hasher.field(std::string_view(plan::kEmbeddedFiles[i].text));
  }
  return fmt::format("attnc {} (templates {})", ATTNC_VERSION, hasher.finish().hex().substr(0, 12));
}

/// Adds the programs that round operands of a kernel to e4m3, if it takes that. Their tensors have the dtype of out.
Status addQuantisers(const KernelOptions& options, std::vector<jit::CompileJob>& jobs) {
  if (!options.features.has(Feature::Fp8Kv)) return {};
  for (int headDim : std::set{options.headDim, options.headDimV ? options.headDimV : options.headDim})
    for (bool embeds : {false, true})
      if (headDim <= 256) {
        ATTNC_TRY_AS(job, quantiseProgram(options.dtype, headDim, embeds, options.arch));
        jobs.push_back(*std::move(job));
      }
  return {};
}

} // namespace

std::string packMaker() {
  static const std::string maker = makerOfPacks();
  return maker;
}

/// Returns the tiles of which a pack has kernels.
Expected<std::vector<std::string>> Compiler::Impl::tilesOfLaunches(const PackItem& item) {
  if (!item.options.tile.empty()) return std::vector{item.options.tile};
  ATTNC_TRY_AS(mod, derived(item.mod, item.options));
  ATTNC_TRY_AS(kernelMod, kernelModOf(*mod, plan::algebraFor(item.options)));
  ATTNC_TRY_AS(selection, plan::selectFamily(**kernelMod, item.options));
  return plan::tilesOfLaunches(**kernelMod, *selection);
}

Expected<std::string> Compiler::Impl::pack(const std::vector<PackItem>& items) {
  std::vector<jit::CompileJob> jobs;
  for (const PackItem& item : items) {
    if (item.options.arch.empty())
      return Error::environment("a kernel to be packed has no arch", "name one in its options: sm_80, sm_90a, ...");
    ATTNC_TRY(addQuantisers(item.options, jobs));
    ATTNC_TRY_AS(tiles, tilesOfLaunches(item));
    for (const std::string& tile : *tiles) {
      KernelOptions options = item.options;
      options.tile = tile;
      ATTNC_TRY_AS(kernel, planFor(item.mod, options));
      for (jit::CompileJob& job : jobsOf(item.mod, *kernel)) jobs.push_back(std::move(job));
    }
  }
  std::vector<Expected<cache::PackedValue>> compiled(jobs.size(), cache::PackedValue{});
  std::atomic<bool> failed = false;
  parallelForEach(int64_t(jobs.size()), [&](int64_t i) {
    if (!failed && !(compiled[size_t(i)] = cache.packed(jobs[size_t(i)]))) failed = true;
  });
  std::vector<cache::PackedValue> values;
  for (auto& value : compiled) {
    if (!value) return std::move(value).error();
    values.push_back(*std::move(value));
  }
  return cache::encodePack(packMaker(), std::move(values));
}

Expected<std::string> Compiler::pack(const std::vector<PackItem>& items) const { return impl->pack(items); }

Status Compiler::addPack(const std::string& path) { return impl->openPacks().add(path); }

} // namespace attnc
