#include "inspect/pass_cost.h"

#include "api/plan_impl.h"
#include "inspect/tile_work.h"
#include "launch/kernel_options.h"
#include "plan/plan.h"

#include <fmt/format.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>
#include <string_view>

namespace attnc {
namespace {

/// Adds operations of a score by the names that times are measured for: "arithmetic" for those of one instruction.
void addOperations(const OperationCounts& counts, double factor, std::map<std::string, double>& sums) {
  static const std::set<std::string> kArithmetic = {"neg", "abs",    "add",  "sub", "mul",   "min",  "max",   "and",
                                                    "or",  "xor",    "not",  "shl", "shr",   "eq",   "ne",    "lt",
                                                    "le",  "select", "cast", "div", "floor", "ceil", "trunc", "round"};
  for (const auto& [name, count] : counts.perElement)
    sums[kArithmetic.count(name) ? "arithmetic" : name] += factor * double(count);
}

/// Constants of a kernel, fitted to measured times (bench/predict.py). Cycles of a multiprocessor, by what each is for;
/// the launches' time is in microseconds.
struct Constants {
  const char *kernel, *headDims;
  double operations; // most of a score that were measured
  double products, scores, masked, tile, columns, loneColumns, arithmetic, tanh, tanhApprox, launch;
};
constexpr Constants kConstants[] = {
#define KERNEL(...) {__VA_ARGS__},
#include "inspect/times.def"
};

/// The clock of a GPU falls where tensor cores work.
struct Clock {
  const char *kernel, *gpu, *clock;
  double mhz, mhzOfProducts, medianError, worstError;
  int rows;
  double shortest; // ms
};
constexpr Clock kClocks[] = {
#define CLOCK(...) {__VA_ARGS__},
#include "inspect/times.def"
};

double bandwidthOf([[maybe_unused]] std::string_view gpu) {
#define GPU(name, gbps)                                                                                                \
  if (gpu == name) return gbps;
#include "inspect/times.def"
  return 0;
}

/// Returns the cycles that the operations take of a score, and adds up how many they are. Unset: one of them was not
/// measured; `unknown` receives it.
std::optional<double> cyclesOf(const std::map<std::string, double>& operations, const Constants& k, double& all,
                               std::string& unknown) {
  double sum = 0;
  for (const auto& [name, count] : operations) {
    all += count;
    if (name == "arithmetic")
      sum += k.arithmetic * count;
    else if (name == "tanh")
      sum += k.tanh * count;
    else if (name == "tanh_approx")
      sum += k.tanhApprox * count;
    else if (count != 0) {
      unknown = name;
      return std::nullopt;
    }
  }
  return sum;
}

} // namespace

PassCost passCostOf(const Explanation& all, const TileWork& work) {
  const KernelOptions& options = all.kernel().options();
  const ProblemShape& problem = all.preparation.problem;
  const KernelSource& source = walkingSource(all);
  const bool isBackward = options.kind == KernelKind::Backward;
  PassCost cost{.kernel = source.templateName};
  const double copies = double(work.heads) / double(work.maskBatch * work.maskHeads);
  cost.tiles = double(work.tiles) * double(work.heads);
  for (int64_t steps : work.steps) cost.steps += copies * double(steps);
  for (int64_t steps : work.masked) cost.maskedSteps += copies * double(steps);
  cost.slots = all.limits.multiprocessors * work.ctasPerMultiprocessor;
  cost.imbalance = work.mean > 0 ? double(work.longest) / work.mean : 1;
  const double scores = double(source.tileRows) * double(source.tileColumns);
  const auto padded = [](int dim) { return double(llvm::alignTo(dim, 16)); };
  const double qk = padded(options.headDim), v = padded(options.headDimV);
  cost.widths = (qk + v) / 256;
  cost.loneTile = !isBackward && source.qStages == 1;
  constexpr double kFlops = 4096, kLanes = 128; // of a multiprocessor in a cycle: 16-bit products, and instructions
  cost.products = 2 * scores * (isBackward ? 3 * qk + 2 * v : qk + v) / kFlops;
  cost.scores = scores / kLanes;
  addOperations(all.perScore.full, 1, cost.perScore);
  if (all.perScore.gradient) addOperations(*all.perScore.gradient, 1, cost.perScore);
  addOperations(all.perScore.partial, 1, cost.perMaskedScore);
  addOperations(all.perScore.full, -1, cost.perMaskedScore);
  const double rows = double(problem.batch) * double(problem.qHeads) * double(problem.qLen);
  const double kvRows = double(problem.batch) * double(problem.kvHeads) * double(problem.kvLen);
  cost.bytes = 2 * (rows * (qk + v) + kvRows * (qk + v));
  if (isBackward) { // delta reads out and dout; sums of dq are of fp32, zeroed and read, and dq is written
    const bool zeroed = !*plan::walkingStage(PlanAccess::of(all.kernel()).plan).config.takesTurns;
    cost.otherBytes = rows * (4 * v + (zeroed ? 10 : 6) * qk);
    cost.bytes = 2 * cost.bytes;
  }
  return cost;
}

std::vector<std::string> measuredGpus() {
  return {
#define GPU(name, gbps) name,
#include "inspect/times.def"
  };
}

/// Returns what of the kernel was not measured; empty if all was.
static std::string unmeasured(const Explanation& all) {
  const KernelOptions& options = all.kernel().options();
  if (options.arch != "sm_90a") return fmt::format("GPUs of {}", options.arch);
  if (!all.cost) return "kernels like this one";
  if (options.dtype != DType::BF16) return fmt::format("{}", dtypeName(options.dtype));
  const Features others = featuresOf(options).without({Feature::BlockMask, Feature::RowMax});
  if (!others.empty()) return std::string(featureText(others.first()));
  if (!all.kernel().lowRank().empty()) return "low-rank terms";
  if (all.kernel().mod().hasProbMod()) return "mods with a prob_mod";
  for (const ModOperation& each : all.places)
    if (each.function == "score_mod" && each.name == "load" && each.level != "head" && each.level != "launch")
      return "look-ups in score_mod";
  for (size_t i = 0; i < all.sources.size(); ++i)
    if (all.compiled[i]->spillBytes > 0 || !all.compiled[i]->advisories.empty())
      return "kernels that spill registers, or whose products ptxas serialises";
  return {};
}

void predictTimes(Explanation& all) {
  all.whyNoTimes = unmeasured(all);
  if (!all.whyNoTimes.empty()) return;
  const PassCost& cost = *all.cost;
  const auto k = std::find_if(std::begin(kConstants), std::end(kConstants),
                              [&](const Constants& one) { return one.kernel == cost.kernel; });
  if (k == std::end(kConstants)) {
    all.whyNoTimes = cost.kernel;
    return;
  }
  const KernelOptions& options = all.kernel().options();
  const std::string dims = fmt::format("{}/{}", options.headDim, options.headDimV);
  if (fmt::format(" {} ", k->headDims).find(fmt::format(" {} ", dims)) == std::string::npos) {
    all.whyNoTimes = fmt::format("head dims {} (rows of {} have {})", dims, cost.kernel, k->headDims);
    return;
  }
  std::string unknown;
  double operations = 0;
  const auto ofScore = cyclesOf(cost.perScore, *k, operations, unknown);
  const auto ofMasked = cyclesOf(cost.perMaskedScore, *k, operations, unknown);
  if (!ofScore || !ofMasked) {
    all.whyNoTimes = fmt::format("`{}` for each score", unknown);
    return;
  }
  if (operations > 2 * k->operations) {
    all.whyNoTimes = fmt::format("{} operations for each score, but {}", operations, k->operations);
    return;
  }
  const double step = k->products * cost.products + cost.scores * (k->scores + *ofScore);
  const double masked = cost.scores * (k->masked + *ofMasked);
  const double tile = k->tile + cost.widths * (k->columns + (cost.loneTile ? k->loneColumns : 0));
  const double cycles =
      cost.imbalance / cost.slots * (cost.tiles * tile + cost.steps * step + cost.maskedSteps * masked);
  const double use = cycles > 0 ? cost.steps * cost.products / cost.slots / cycles : 0;
  for (const Clock& clock : kClocks) {
    if (clock.kernel != cost.kernel) continue;
    const double ofByte = 1e-6 / bandwidthOf(clock.gpu);
    const double ms = std::max(cycles / (clock.mhz - clock.mhzOfProducts * use) * 1e-3, cost.bytes * ofByte) +
                      cost.otherBytes * ofByte + k->launch * 1e-3;
    if (ms < clock.shortest / 2) {
      all.times.clear();
      all.whyNoTimes = fmt::format("passes of less than {:.2f} ms", clock.shortest);
      return;
    }
    all.times.push_back({clock.gpu, clock.clock, ms, clock.medianError, clock.worstError, clock.rows});
  }
}

} // namespace attnc
