#include "problem/oracle.h"

#include "problem/shapes.h"

#include "api/check_values.h"
#include "api/mod_impl.h"
#include "attnc/explain.h"
#include "support/element.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace attnc::cli {

namespace {

/// Returns the largest number of a row of a tensor, in units of the largest power of two that divides all its numbers;
/// of all rows the most. Infinite if some number is not finite. 1: all are -1, 0 or 1, or these times a power of two.
template <class Element> double largestSpan(int64_t count, int64_t width, Element element) {
  double span = 1;
  for (int64_t i = 0; i < count; i += width) {
    double most = 0, least = std::numeric_limits<double>::infinity();
    for (int64_t at = i; at < i + width; ++at) {
      const double value = std::fabs(element(at));
      if (value == 0) continue;
      if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
      int exponent;
      const int64_t bits = int64_t(std::ldexp(std::frexp(value, &exponent), 53));
      most = std::max(most, value);
      least = std::min(least, std::ldexp(double(bits & -bits), exponent - 53));
    }
    if (most > 0) span = std::max(span, most / least);
  }
  return span;
}

double largestSpan(const HostTensor& tensor) {
  return largestSpan(tensor.elements(), tensor.shape.back(),
                     [&](int64_t i) { return readElement(tensor.bytes.data(), tensor.dtype, i).real; });
}

/// Whether scores are exact before score_mod: all partial sums of products are exact in f32, and factors in TF32.
bool areProductsExact(const HostOperands& operands, double scale) {
  const double q = largestSpan(operands.q), k = largestSpan(operands.k),
               factor = largestSpan(1, 1, [&](int64_t) { return scale; });
  return std::max(q, k) <= 0x1p11 && double(operands.q.shape[3]) * q * k * factor <= 0x1p24 && !operands.kScales &&
         operands.q.dtype != DType::E4M3;
}

reference::Arithmetic arithmeticOf(const Mod& mod, const HostOperands& operands, const ProblemOptions& options,
                                   const ProblemShape& problem) {
  const DType dtype = operands.q.dtype;
  reference::Arithmetic by = reference::arithmeticOf(dtype, options.target.fp8.outOf(dtype), options.kernel.tf32);
  // With k and v of e4m3 other weights are f16.
  if (operands.v.dtype == DType::E4M3) by.leastWeight = std::max(by.leastWeight, 0x1p-25);
  // Units of rows' factors leave weights two binary digits less.
  if (operands.vScales && operands.vScales->shape.size() > 2) by.leastWeight *= 4;
  // Kernels count positions of a penalty by distance from a row of their tile, so near keys cost it up to 256 slopes.
  if (const auto slope = distanceSlope(mod, operands.captures, problem)) by.penalty = 256 * 0x1p-22 * *slope;
  if (dtype == DType::BF16)
    if (const auto lowRank = lowRankFactsOf(mod, operands.captures, problem)) {
      by.term = std::max(0x1p-14, double(options.kernel.lowRankError)) * lowRank->size;
      by.storesParts = lowRank->copiesKeys;
    }
  const double scale = options.scale ? *options.scale : 1 / std::sqrt(double(operands.q.shape[3]));
  if (!areProductsExact(operands, std::fabs(scale))) return by;
  by.scores = 0;
  by.isExact = scoreFactsOf(mod).addsAtMost && by.term == 0;
  return by;
}

} // namespace

Expected<ReferenceProblem> referenceProblem(const Mod& mod, const HostOperands& operands,
                                            const ProblemOptions& options) {
  BackwardOperands args;
  static_cast<Operands&>(args) = viewsOf(operands);
  const passes::SequenceForm form = sequenceForm(args, prepareOptions(options));
  args.k = operands.k.view(), args.v = operands.v.view(); // gathered, with the new rows
  if (operands.kScales) args.kScales = operands.kScales->view();
  if (operands.vScales) args.vScales = operands.vScales->view();
  args.pageTable = args.newK = args.newV = {};
  if (options.scale) args.scale = float(*options.scale);
  ATTNC_TRY_AS(sequences, form.isPlain() ? mod : sequencesMod(mod, form, {}));
  args.captures = &operands.captures;
  if (asksForChecks(jit::Env::read())) ATTNC_TRY(checkGathers(sequences->module(), args));
  if (!options.backward) return ReferenceProblem{*std::move(sequences), args, {}};
  std::set<std::string> wanted;
  for (const auto& [name, tensor] : operands.gradients.all()) wanted.insert(name);
  ATTNC_TRY_AS(derived,
               gradientMod(*sequences, wanted, /*withTangents=*/false, haveOutputGradients(mod, operands.captures)));
  args.dOut = operands.dOut.view();
  if (operands.dLse) args.dLse = operands.dLse->view();
  ir::CaptureGradients gradients = captureGradients(*derived);
  return ReferenceProblem{*std::move(derived), args, std::move(gradients)};
}

Expected<reference::GradientResult> runReference(const Mod& mod, const HostOperands& operands,
                                                 const ProblemOptions& options) {
  ATTNC_TRY_AS(problem, referenceProblem(mod, operands, options));
  if (options.backward)
    return reference::gradients(problem->mod.module(), operands.captures, problem->args, problem->wanted);
  ATTNC_TRY_AS(forward,
               reference::attention(problem->mod.module(), operands.captures, problem->args, /*reduces=*/true));
  reference::GradientResult result;
  result.forward = *std::move(forward);
  return result;
}

Expected<reference::ErrorBounds> boundsOf(const Mod& mod, const HostOperands& operands, const ProblemOptions& options,
                                          const reference::GradientResult& want) {
  ATTNC_TRY_AS(problem, referenceProblem(mod, operands, options));
  return reference::errorBounds(problem->mod.module(), operands.captures, problem->args, want,
                                arithmeticOf(mod, operands, options, want.forward.problem), problem->wanted);
}

} // namespace attnc::cli
