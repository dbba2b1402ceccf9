// The f32 operations of ops.def as a GPU computes them, by the code of templates/mod/ops.cuh, against fp64: all
// exponents and signs, 2^16 pseudo-random mantissas of each. Prints the largest error of each operation, so that
// ops.cuh can state it.
#include "gpu.h"

#include "ir/semantics.h"
#include "jit/loaded_kernel.h"
#include "jit/nvrtc.h"
#include "plan/embedded.h"
#include "support/parallel.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

using ir::Op;

/// What ops.cuh says of an operation, in units of the last place of the fp32 result.
struct ClaimedError {
  Op op;
  double ulps;
  bool flushes = false;      ///< results below 2^-126 may be 0
  double largest = INFINITY; ///< of |x| for which the claim holds
};

constexpr double kRounded = 0.5000001; // correctly rounded: half a unit, and the rounding of the fp64 result
const ClaimedError kClaims[] = {
    {Op::Neg, 0},
    {Op::Abs, 0},
    {Op::Add, kRounded},
    {Op::Sub, kRounded},
    {Op::Mul, kRounded},
    {Op::Min, 0},
    {Op::Max, 0},
    {Op::FloorDiv, 2},
    {Op::Mod, kRounded},
    {Op::Div, kRounded},
    {Op::Exp, 2},
    {Op::Exp2, 2.1, true},
    {Op::Expm1, 1.5},
    {Op::Log, 1},
    {Op::Log2, 1},
    {Op::Log1p, 1},
    {Op::Sqrt, kRounded},
    {Op::Rsqrt, 1.6},
    {Op::Sin, 2, false, 1e5},
    {Op::Sin, 3},
    {Op::Cos, 2, false, 1e5},
    {Op::Cos, 3},
    {Op::Tan, 4, true, 1e5},
    {Op::Tan, 6, true},
    {Op::Asin, 1.5},
    {Op::Acos, 1.5},
    {Op::Atan, 1.5},
    {Op::Sinh, 3},
    {Op::Cosh, 2.5},
    {Op::Tanh, 6},
    {Op::Asinh, 2},
    {Op::Acosh, 2},
    {Op::Atanh, 3.5},
    {Op::Sigmoid, 4, true},
    {Op::Erf, 1.02},
    {Op::Erfc, 4},
    {Op::Floor, 0},
    {Op::Ceil, 0},
    {Op::Trunc, 0},
    {Op::Round, 0},
    {Op::Pow, 4},
    {Op::Atan2, 2},
    {Op::Hypot, 1.5},
    {Op::Fmod, 0},
};
constexpr double kTanhApproxError = 8e-6; // absolute

constexpr int kMantissas = 1 << 16;
constexpr int kInputs = 2 * kMantissas; // of one exponent: both signs

bool isReal(Op op) {
  const ir::TypeRule rule = ir::info(op).rule;
  return rule == ir::TypeRule::Arith || rule == ir::TypeRule::Float;
}

/// The operations on f32 that compute something, in the order of ops.def.
std::vector<Op> operations() {
  std::vector<Op> ops;
  for (unsigned op = 0; op <= unsigned(Op::Sum); ++op)
    if (isReal(Op(op)) && *ir::info(Op(op)).cuda) ops.push_back(Op(op));
  return ops;
}

/// One kernel: out[i] = operation number `op` of x[i] and y[i].
KernelSource job(const std::string& arch) {
  KernelSource job{.entry = "evaluate", .templateName = "ops_test.cu", .arch = arch};
  job.text = "#include \"mod/ops.cuh\"\n"
             "using namespace attnc::mod;\n"
             "extern \"C\" __global__ void evaluate(int op, const float* x, const float* y, float* out, int count) {\n"
             "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
             "  if (i >= count) return;\n"
             "  switch (op) {\n";
  for (Op op : operations()) {
    llvm::StringRef pattern = llvm::StringRef(ir::info(op).cuda).split("; ").first;
    job.text += fmt::format("  case {}: out[i] = {}; return;\n", int(op),
                            fmt::format(fmt::runtime(pattern.str()), "x[i]", "y[i]"));
  }
  job.text += "  }\n}\n";
  for (unsigned i = 0; i < plan::kEmbeddedFileCount; ++i)
    job.headers.emplace_back(plan::kEmbeddedFiles[i].name, plan::kEmbeddedFiles[i].text);
  return job;
}

class Evaluator {
public:
  Evaluator() {
    const std::string arch = gpu()->context.info().arch;
    CompiledKernel result = take(jit::Nvrtc(jit::Env::read()).compile(job(arch)));
    kernel.emplace(take(jit::LoadedKernel::load({{result.cubin.data(), result.cubin.size()}, "evaluate", arch, 0})));
    for (device::Buffer* buffer : {&x, &y, &out}) *buffer = take(device::Buffer::allocate(kInputs * sizeof(float)));
  }

  void give(const std::vector<float>& xs, const std::vector<float>& ys) {
    count = int(xs.size());
    take(x.upload(xs.data(), xs.size() * sizeof(float)));
    take(y.upload(ys.data(), ys.size() * sizeof(float)));
  }

  std::vector<float> run(Op op) {
    int number = int(op);
    void *xs = x.data(), *ys = y.data(), *outs = out.data();
    void* arguments[] = {&number, &xs, &ys, &outs, &count};
    take(kernel->launch({.grid = {unsigned(count + 255) / 256, 1, 1}, .block = {256, 1, 1}}, gpu()->stream.get(),
                        arguments));
    take(gpu()->stream.synchronize());
    std::vector<float> results(static_cast<size_t>(count));
    take(out.download(results.data(), results.size() * sizeof(float)));
    return results;
  }

private:
  std::optional<jit::LoadedKernel> kernel;
  device::Buffer x, y, out;
  int count = 0;
};

double exactResult(Op op, double x, double y) {
  NumberOf<double> a{.real = x}, b{.real = y};
  return ir::semantics::apply(op, ir::Type::F32, ir::Type::F32, a, b).real;
}

/// |got - want| in units of the last place of `want` as a float; infinite where one is NaN or infinite and the other is
/// not. A result beyond the largest float is infinite.
double ulps(float got, double want, bool flushes) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : INFINITY;
  const double largest = std::numeric_limits<float>::max();
  if (std::isinf(got) || std::isinf(want)) {
    const bool overflows = std::fabs(want) >= largest * (1 - 0x1p-22) && std::signbit(got) == std::signbit(want);
    return overflows && (std::isinf(got) || std::fabs(got) >= largest * (1 - 0x1p-22)) ? 0 : INFINITY;
  }
  if (flushes && std::fabs(want) < 0x1p-126 && got == 0) return 0;
  int exponent;
  std::frexp(want, &exponent);
  return std::fabs(got - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

struct Worst {
  double error = 0;
  float x = 0, y = 0, got = 0;

  void see(double other, float atX, float atY, float result) {
    if (other > error) *this = {other, atX, atY, result};
  }
  std::string text() const { return fmt::format("{:.3f} at x = {:a}, y = {:a}: {:a}", error, x, y, got); }
};

/// The largest errors of an operation's claims over one set of inputs.
void measure(Op op, const std::vector<float>& x, const std::vector<float>& y, const std::vector<float>& got,
             std::vector<Worst>& worst) {
  std::vector<double> want(x.size());
  parallelFor(int64_t(x.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) want[i] = exactResult(op, x[i], y[i]);
  });
  for (size_t claim = 0; claim < std::size(kClaims); ++claim) {
    if (kClaims[claim].op != op) continue;
    for (size_t i = 0; i < x.size(); ++i)
      if (!(std::fabs(x[i]) > kClaims[claim].largest))
        worst[claim].see(ulps(got[i], want[i], kClaims[claim].flushes), x[i], y[i], got[i]);
  }
  if (op != Op::TanhApprox) return;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = std::isnan(want[i]) ? (std::isnan(got[i]) ? 0 : INFINITY) : std::fabs(got[i] - want[i]);
    worst.back().see(std::isnan(error) ? INFINITY : error / kTanhApproxError, x[i], y[i], got[i]);
  }
}

/// Second operands: exponents near that of x, powers that stay finite, and anything.
float secondOperand(std::mt19937& random, float x) {
  const uint32_t bits = random();
  const int exponent = int(std::bit_cast<uint32_t>(x) >> 23 & 255);
  if (bits % 4 == 0) return std::bit_cast<float>(uint32_t(random()));
  if (bits % 4 == 1) {
    const double u = double(random()) / 0x1p31 - 1;
    return float(u * 140 / std::max(std::fabs(std::log2(std::fabs(double(x)))), 1e-30));
  }
  const uint32_t near = uint32_t(std::clamp(exponent + int(random() % 49) - 24, 0, 254));
  return std::bit_cast<float>((bits & 0x80000000) | near << 23 | uint32_t(random() & 0x7fffff));
}

void drawExponent(std::mt19937& random, uint32_t exponent, std::vector<float>& x, std::vector<float>& y) {
  x.clear();
  y.clear();
  for (int i = 0; i < kInputs; ++i) {
    static constexpr uint32_t kEdges[] = {0, 1, 0x7fffff, 0x7ffffe, 0x400000, 0x3fffff};
    const uint32_t mantissa = size_t(i) / 2 < std::size(kEdges) ? kEdges[i / 2] : random() & 0x7fffff;
    x.push_back(std::bit_cast<float>(uint32_t(i % 2) << 31 | exponent << 23 | mantissa));
    y.push_back(secondOperand(random, x.back()));
  }
}

/// All pairs of special values.
void drawSpecials(std::vector<float>& x, std::vector<float>& y) {
  const float kMax = std::numeric_limits<float>::max(), kMin = std::numeric_limits<float>::min();
  const float values[] = {0, 1, 2, 0.5f, 3, 1.5f, 2.5f, 0x1p23f, 0x1p24f, kMax, kMin, 0x1p-149f, INFINITY, NAN};
  x.clear();
  y.clear();
  for (float a : values)
    for (float b : values)
      for (int signs = 0; signs < 4; ++signs) {
        x.push_back(signs & 1 ? -a : a);
        y.push_back(signs & 2 ? -b : b);
      }
}

} // namespace

GPU_TEST_CASE("every f32 operation keeps the error that ops.cuh states, over all exponents", "[gpu]") {
  Evaluator evaluator;
  std::vector<Worst> worst(std::size(kClaims) + 1);
  std::mt19937 random(1);
  std::vector<float> x, y;
  const auto measureAll = [&] {
    evaluator.give(x, y);
    for (Op op : operations()) measure(op, x, y, evaluator.run(op), worst);
  };
  drawSpecials(x, y);
  measureAll();
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    drawExponent(random, exponent, x, y);
    measureAll();
  }

  std::string table;
  for (size_t claim = 0; claim < std::size(kClaims); ++claim)
    table += fmt::format("{:12} {}, stated {}{}\n", ir::info(kClaims[claim].op).text, worst[claim].text(),
                         kClaims[claim].ulps,
                         std::isinf(kClaims[claim].largest) ? "" : fmt::format(" up to {}", kClaims[claim].largest));
  table += fmt::format("tanh_approx  {} of {}\n", worst.back().text(), kTanhApproxError);
  WARN("errors in units of the last place\n" << table);
  for (size_t claim = 0; claim < std::size(kClaims); ++claim) {
    INFO(ir::info(kClaims[claim].op).text << " " << worst[claim].text());
    CHECK(worst[claim].error <= kClaims[claim].ulps);
  }
  CHECK(worst.back().error <= 1);
}

TEST_CASE("the table of stated errors names every f32 operation", "[gpu]") {
  for (Op op : operations()) {
    INFO(ir::info(op).text);
    CHECK((op == Op::TanhApprox || std::any_of(std::begin(kClaims), std::end(kClaims),
                                               [&](const ClaimedError& claim) { return claim.op == op; })));
  }
}
