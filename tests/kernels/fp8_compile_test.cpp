// Compiles kernels of e4m3, and looks at what ptxas says. No GPU needed.
#include "attnc/attnc.h"
#include "kernels/findings.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace attnc;
using namespace attnc::test;

NVRTC_TEST_CASE("decode kernels of k and v of e4m3 compile without spills or advisories", "[kernels]") {
  std::vector<Job> jobs;
  for (const auto& [name, mod] : library())
    for (const char* arch : {"sm_89", "sm_90a"})
      for (auto [qk, v, rows] :
           {std::tuple{64, 64, 16}, {128, 128, 16}, {128, 128, 32}, {128, 128, 64}, {16, 256, 32}, {256, 256, 32}}) {
        const bool isMain = arch == std::string_view("sm_90a") && qk == 128;
        if (!isMain && name != "noop" && name != "alibi" && name != "document") continue;
        jobs.push_back({fmt::format("{} {} d{}/{} rows {}", name, arch, qk, v, rows),
                        mod,
                        {.kind = KernelKind::Decode,
                         .arch = arch,
                         .dtype = rows == 64 ? DType::F16 : DType::BF16,
                         .headDim = qk,
                         .headDimV = v,
                         .features = {Feature::Fp8Kv, Feature::Lengths},
                         .packedRows = rows,
                         .offsets = QueryOffsets::FromLengths}});
        if (isMain && (name == "noop" || name == "causal" || name == "document")) {
          KernelOptions ragged = jobs.back().options;
          ragged.features.set(Feature::Ragged);
          jobs.push_back({fmt::format("{} d{} rows {} ragged", name, qk, rows), mod, ragged});
          ragged.pageSize = 16;
          jobs.push_back({fmt::format("{} d{} rows {} ragged, pages", name, qk, rows), mod, ragged});
        }
        if (name == "noop") jobs.back().options.features.set(Feature::Appends);
      }
  CHECK(findings(jobs) == "");
}

NVRTC_TEST_CASE("forward kernels of q, k and v of e4m3 compile without advisories, and hardly spill", "[kernels]") {
  std::vector<Job> jobs;
  for (const auto& [name, mod] : library())
    for (int dim : {16, 48, 64, 128, 160, 256})
      for (bool sparse : {false, true}) {
        const bool isMain = (dim == 64 || dim == 128) && !sparse;
        if (sparse && !mod.hasMaskMod()) continue;
        if (!isMain && name != "noop" && name != "causal" && name != "alibi" && name != "document") continue;
        // Measured: three warpgroups at 128, and steps of 128 columns at 256, are faster than tiles that spill nothing.
        const int spills = dim == 256 ? 56 : dim < 128 ? 0 : name == "softcap" ? 264 : name == "alibi" ? 16 : 0;
        const int ofRows = dim < 128 ? 0 : 256;
        KernelOptions options{.family = Family::Sm90,
                              .arch = "sm_90a",
                              .headDim = dim,
                              .features = {Feature::Fp8Q, Feature::Fp8Kv},
                              .blockSparse = sparse};
        jobs.push_back({fmt::format("{} d{}{}", name, dim, sparse ? " lists" : ""), mod, options, spills});
        KernelOptions ragged = options;
        ragged.features.set(Feature::Ragged);
        if (dim == 64)
          jobs.push_back({fmt::format("{} d{}{} ragged", name, dim, sparse ? " lists" : ""), mod, ragged, spills});
        options.features.set(Feature::Lengths);
        options.offsets = QueryOffsets::FromLengths;
        options.dtype = DType::F16;
        jobs.push_back({fmt::format("{} d{}{} lengths", name, dim, sparse ? " lists" : ""), mod, options, spills});
        options.features.set(Feature::RowScales);
        jobs.push_back(
            {fmt::format("{} d{}{} lengths, scales of rows", name, dim, sparse ? " lists" : ""), mod, options, ofRows});
        options.pageSize = 16;
        if (sparse) options.offsets = QueryOffsets::None;
        jobs.push_back(
            {fmt::format("{} d{}{} pages, scales of rows", name, dim, sparse ? " lists" : ""), mod, options, ofRows});
      }
  for (const char* arch : {"sm_80", "sm_90a"})
    for (bool areOfRows : {false, true})
      jobs.push_back({fmt::format("naive {}", arch),
                      Mod::identity(),
                      {.family = Family::Naive,
                       .arch = arch,
                       .features = Features{Feature::Fp8Q, Feature::Fp8Kv} | Features(Feature::RowScales, areOfRows)}});
  CHECK(findings(jobs) == "");
}
