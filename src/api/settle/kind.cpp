#include "api/settle/kind.h"

#include "api/mod_impl.h"
#include "families/catalog.h"
#include "launch/kernel_options.h"
#include "launch/launch_operands.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc {

/// Returns the rows of q that share a KV head.
static int64_t rowsOfKvHead(const ProblemShape& problem) {
  return problem.kvHeads ? problem.qLen * (problem.qHeads / problem.kvHeads) : 0;
}

std::string againstDecode(const ProblemShape& problem, DType dtype) {
  constexpr int64_t kMostQueries = 127, kLeastColumns = 512, kTileRows = 64, kFewHeads = 64;
  if (dtype == DType::F32) return "decode kernels take bf16 and fp16";
  if (problem.qLen > kMostQueries)
    return fmt::format("{} queries, decode kernels gain up to {}", problem.qLen, kMostQueries);
  if (problem.kvLen < kLeastColumns)
    return fmt::format("KV_LEN {}, decode kernels gain from {}", problem.kvLen, kLeastColumns);
  const int64_t rows = rowsOfKvHead(problem), heads = problem.batch * problem.qHeads;
  if (rows == 0 || heads == 0) return "there are no queries";
  if (rows > kTileRows && heads > kFewHeads)
    return fmt::format(
        "{} rows of q share a KV head, a tile of a decode kernel takes {}, and {} (batch, head) keep a GPU busy", rows,
        kTileRows, heads);
  return {};
}

std::string forDecode(const ProblemShape& problem, int packedRows) {
  const int64_t rows = rowsOfKvHead(problem);
  if (rows > packedRows)
    return fmt::format("{} (batch, head) leave a GPU idle unless KV is divided", problem.batch * problem.qHeads);
  return fmt::format("K and V are read once for the {} that share{} a KV head, and divided among CTAs",
                     rows == 1 ? "row of q" : fmt::format("{} rows of q", rows), rows == 1 ? "s" : "");
}

int packedRowsFor(const ProblemShape& problem) {
  const int64_t rows = rowsOfKvHead(problem);
  return rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}

Expected<KindChoice> decideKind(KernelOptions& kernel, const Operands& operands, const PrepareOptions& options,
                                bool trains) {
  const bool isFp8 = kernel.features.has(Feature::Fp8Q), isCacheFp8 = kernel.features.has(Feature::Fp8Kv) && !isFp8;
  if ((isFp8 || isCacheFp8) && trains)
    return Error::environment(
        fmt::format("{} and v are e4m3, of which there is no backward pass", isFp8 ? "q, k" : "k"));
  if (isCacheFp8 && !options.decode.value_or(true))
    return Error::environment(
        fmt::format("k and v are e4m3, and q is {}: only decode kernels take these", dtypeName(kernel.dtype)),
        "forward kernels take k and v of e4m3 if q is e4m3");
  if (trains && plan::hasWideHeads(kernel))
    return Error::environment(
        fmt::format("there is no backward pass for head dims above 256, and q and v have {} and {}", kernel.headDim,
                    kernel.headDimV),
        "leave the gradients out; decode kernels of sm_90a then take up to 576 and 512");
  const bool mustDecode = plan::hasWideHeads(kernel) && !trains && options.family != Family::Naive;
  if (mustDecode && !options.decode && kernel.dtype == DType::F32) {
    ATTNC_TRY(plan::checkOptions(kernel)); // names head dims of which there is no kernel
    return Error::environment("head dims above 256 are not supported in f32",
                              "decode kernels of sm_90a take them in bf16 and f16, the naive family in f32");
  }
  if (options.decode.value_or(isCacheFp8 || mustDecode)) {
    if (trains) return Error::environment("a decode kernel is asked for, which has no backward pass");
    kernel.kind = KernelKind::Decode;
    kernel.packedRows = packedRowsFor(plan::problemOf(operands));
  }
  KindChoice choice;
  if (mustDecode && !options.decode) choice.why = "only decode kernels take head dims above 256";
  choice.mayDecode = !options.decode && !mustDecode && !isFp8 && !isCacheFp8 && !trains &&
                     options.family == Family::Auto && !kernel.blockSparse;
  return choice;
}

} // namespace attnc
