// Gradients in the columns of a low-rank term: the stages in front of and behind a backward kernel of the wider head
// dim, run on the host. The kernel between them is played in fp64, for drawn gradients of scores.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "families/capture_gradients.h"
#include "helpers/plan_parts.h"
#include "ir/bind.h"
#include "kernels/findings.h"
#include "kernels/host_stage.h"
#include "kernels/host_tensor.h"
#include "launch/launch_operands.h"
#include "launch/workspace.h"
#include "support/try.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <set>

using namespace attnc;
using test::Tensor;

namespace {

constexpr int64_t kRank = 16;

/// A captured tensor [B, H, length, kRank], some of whose first axes may be missing.
struct Factor {
  std::string name;
  bool hasBatch = true;
  std::string head = "h"; ///< index along the heads; empty: no axis. "h // 2": HKV of them
  DType dtype = DType::BF16;

  std::string declaration(const std::string& length) const {
    return fmt::format("{}: {}[{}{}{}, {}]\n", name, dtypeName(dtype), hasBatch ? "B, " : "",
                       head.empty()  ? ""
                       : head == "h" ? "H, "
                                     : "HKV, ",
                       length, kRank);
  }
  std::string row(const std::string& position) const {
    return fmt::format("{}[{}{}{}]", name, hasBatch ? "b, " : "", head.empty() ? "" : head + ", ", position);
  }
};

struct Part {
  Factor u = {"u"}, w = {"w"};
  double gain = 1.75;
};

struct Case {
  int64_t batch = 2, qHeads = 4, kvHeads = 2, qLen = 70, kvLen = 65;
  int headDim = 64;
  std::vector<Part> parts = {{}};
  std::set<std::string> gradients = {"u", "w"};
  std::string after = {};  ///< another addend of the score
  bool broadcasts = false; ///< whether the batch of k and v is 1
  float scale = 0.3f;
  bool wantsOperands = true, deterministic = false;
  bool isF32 = true;   ///< whether gradients of captures are f32, else in their dtype
  int64_t padding = 0; ///< elements behind a row
  double relative = 0x1p-8;
  int pieces = 0;  ///< of q, that are expected; 0: any
  float error = 0; ///< KernelOptions::lowRankError
};

class Launch {
public:
  explicit Launch(const Case& c) : c(c), random(7) {
    makeOperands();
    parse();
    plan();
  }

  void run() {
    runStage("low_rank.cu", "LowRankParams");
    playKernel();
    runStage("low_rank_gradients.cu", "LowRankGradientParams");
    runStage("backward_captures_out.cu", "CaptureOutputParams");
    for (const plan::WorkspacePart& part : layout->parts()) // nothing is written behind a part
      for (size_t i = part.offset + part.bytes; i % kWorkspaceAlignment; ++i) REQUIRE(workspace()[i] == char(0xff));
  }

  void compare() {
    const int64_t group = c.qHeads / c.kvHeads;
    const auto batchOfK = [&](int64_t b) { return c.broadcasts ? 0 : b; };
    struct Sum {
      double value = 0, size = 0;
    };
    std::map<std::pair<std::string, int64_t>, Sum> want; // by tensor and offset
    const auto add = [&](const std::string& name, int64_t at, double x) {
      Sum& sum = want[{name, at}];
      sum.value += x, sum.size += std::fabs(x);
    };
    forEachScore([&](int64_t b, int64_t h, int64_t i, int64_t j, double g) {
      for (int64_t d = 0; d < c.headDim && c.wantsOperands; ++d) {
        add("dq", dq->offset({b, h, i, d}), c.scale * g * k->at({batchOfK(b), h / group, j, d}));
        add("dk", dk->offset({batchOfK(b), h / group, j, d}), c.scale * g * q->at({b, h, i, d}));
      }
      for (const Part& part : c.parts)
        for (int64_t r = 0; r < kRank; ++r) {
          const int64_t u = offset(part.u, b, h, i, r), w = offset(part.w, b, h, j, r);
          add(part.u.name, u, part.gain * g * value(part.w, w)), add(part.w.name, w, part.gain * g * value(part.u, u));
        }
    });
    int wrong = 0;
    const auto check = [&](const std::string& name, const Tensor& tensor, double relative) {
      for (const auto& [at, sum] : want) {
        if (at.first != name) continue;
        const double is = readElement(static_cast<const char*>(tensor.view.data), tensor.view.dtype, at.second).real;
        if (!(std::fabs(is - sum.value) <= relative * sum.size + 1e-30) && ++wrong < 5)
          WARN(fmt::format("{} at {}: {} instead of {}, of sizes {}", name, at.second, is, sum.value, sum.size));
      }
    };
    if (c.wantsOperands) check("dq", *dq, c.relative), check("dk", *dk, c.relative);
    for (const auto& [name, tensor] : outputs) check(name, *tensor, c.relative);
    if (c.wantsOperands) compareDv(wrong);
    CHECK(wrong == 0);
  }

  const std::vector<plan::CaptureOutput>& captureOutputs() {
    kept.assign(checked->captureOutputs.begin(), checked->captureOutputs.end());
    return kept;
  }
  const std::string& words() const { return made->lowRank; }
  std::map<std::string, std::vector<char>> bytesOfOutputs() const {
    std::map<std::string, std::vector<char>> all;
    for (const auto& [name, tensor] : outputs) {
      const char* const data = static_cast<const char*>(tensor->view.data);
      all[name].assign(data, data + tensor->view.elements() * dtypeBytes(tensor->view.dtype));
    }
    return all;
  }

private:
  std::unique_ptr<Tensor> tensor(DType dtype, std::vector<int64_t> shape, int64_t rowStride = 0) {
    return std::make_unique<Tensor>(dtype, std::move(shape), random, rowStride);
  }

  void makeOperands() {
    const int64_t kvBatch = c.broadcasts ? 1 : c.batch, row = c.headDim + c.padding;
    const std::vector<int64_t> ofQ{c.batch, c.qHeads, c.qLen, c.headDim}, ofK{kvBatch, c.kvHeads, c.kvLen, c.headDim};
    for (std::unique_ptr<Tensor>* each : {&q, &out, &dOut, &dq}) *each = tensor(DType::BF16, ofQ, row);
    for (std::unique_ptr<Tensor>* each : {&k, &v, &dk, &dv}) *each = tensor(DType::BF16, ofK, row);
    lse = tensor(DType::F32, {c.batch, c.qHeads, c.qLen});
    for (const Part& part : c.parts)
      for (auto [factor, length] : {std::pair(&part.u, c.qLen), {&part.w, c.kvLen}}) {
        std::vector<int64_t> shape;
        if (factor->hasBatch) shape.push_back(c.batch);
        if (!factor->head.empty()) shape.push_back(factor->head == "h" ? c.qHeads : c.kvHeads);
        shape.insert(shape.end(), {length, kRank});
        factors[factor->name] = tensor(factor->dtype, shape);
        captures.set(factor->name, factors[factor->name]->view);
        if (!c.gradients.count(factor->name)) continue;
        outputs[factor->name] = tensor(c.isF32 ? DType::F32 : factor->dtype, shape);
        gradients.set(factor->name, outputs[factor->name]->view);
      }
    std::normal_distribution<double> normal;
    scores.resize(size_t(c.batch * c.qHeads * c.qLen * c.kvLen));
    for (double& g : scores) g = normal(random);
  }

  void parse() {
    std::string declared, sum = "score";
    for (size_t i = 0; i < c.parts.size(); ++i) {
      const Part& part = c.parts[i];
      declared += part.u.declaration("Q_LEN") + part.w.declaration("KV_LEN") + fmt::format("gain{}: float\n", i);
      sum += fmt::format(" + gain{} * ({} @ {})", i, part.u.row("q_idx"), part.w.row("kv_idx"));
      captures.set(fmt::format("gain{}", i), part.gain);
    }
    text = declared + sum + c.after;
    INFO(text);
    auto parsed = take(Mod::parse(text));
    options = {.kind = KernelKind::Backward,
               .family = Family::Sm90,
               .arch = "sm_90a",
               .headDim = c.headDim,
               .headDimV = c.headDim,
               .features = {Feature::Deterministic, c.deterministic},
               .lowRankError = c.error,
               .gradients = c.gradients};
    given = parsed;
    auto derived = take(derive(parsed, options));
    mod = derived;
  }

  void plan() {
    auto chosen = take(test::choosePlan(*mod, options));
    made = std::move(chosen);
    BackwardOperands operands;
    operands.q = q->view, operands.k = k->view, operands.v = v->view, operands.scale = c.scale;
    operands.out = out->view, operands.dOut = dOut->view, operands.lse = lse->view;
    BackwardOutputs results;
    if (c.wantsOperands) results.dQ = dq->view, results.dK = dk->view, results.dV = dv->view;
    results.captures = &gradients;
    auto found = take(plan::checkBackward(operands, results, made->options));
    checked = std::move(found);
    const Status added =
        plan::addCaptureOutputs(*checked, *made, mod->module(), &captures, &gradients, /*launches=*/true);
    if (!added) FAIL(added.error().message);
    auto bound = take(ir::bind(mod->module(), captures, checked->problem, &*checked));
    bindings = std::move(bound);
    checked->bindings = &*bindings;
    layout.emplace(made->workspace, *checked);
    memory.assign(layout->bytes() + 2 * kWorkspaceAlignment, char(0xff)); // NaN
    if (const plan::WorkspacePart* sums = layout->find(plan::Use::CaptureSums))
      std::memset(workspace() + sums->offset, 0, sums->bytes);
    for (const plan::CaptureOutput& capture : checked->captureOutputs)
      if (capture.isDirect) std::memset(capture.out.data, 0, capture.bytes());
  }

  char* workspace() {
    return memory.data() + (kWorkspaceAlignment - reinterpret_cast<uintptr_t>(memory.data()) % kWorkspaceAlignment);
  }

  /// Runs the stages of a template that the launch runs.
  void runStage(const std::string& name, const std::string& type) {
    auto sources = take(test::sourcesOf(test::compiler(), *given, options));
    REQUIRE(sources.size() == made->stages.size());
    const plan::WorkspaceView view{*layout, workspace()};
    for (size_t i = 0; i < made->stages.size(); ++i) {
      const plan::Stage& stage = made->stages[i];
      const int64_t ctas = plan::ctasOf(stage, *checked, {132});
      if (stage.templateName != name || ctas == 0) continue;
      if (name == "low_rank.cu" && c.pieces) CHECK(stage.config.lowRank->qPieces == c.pieces);
      auto params = take(stage.parameters(stage, *checked, {}, view));
      if (name == "low_rank.cu") copies = params.as<LowRankParams>(), config = *stage.config.lowRank;
      auto form = take(kernelModOf(*mod, plan::formOf(stage)));
      uint64_t words[256] = {}, zero = 0;
      codegen::packArgs(form->source.slots, *bindings, &zero, words);
      test::HostStage& compiled = test::hostStage(sources.at(i), type);
      REQUIRE(compiled.run(params.data(), words, unsigned(ctas), unsigned(stage.threads), 1) == std::string());
    }
  }

  template <class Visit> void forEachScore(Visit visit) const {
    size_t at = 0;
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.qHeads; ++h)
        for (int64_t i = 0; i < c.qLen; ++i)
          for (int64_t j = 0; j < c.kvLen; ++j) visit(b, h, i, j, scores[at++]);
  }

  /// Writes the gradients of the wider q, k and v that a backward kernel would.
  void playKernel() {
    const int64_t columns = config.wideHeadDim, kHeads = copies.k_heads, kBatch = copies.k_batch,
                  group = c.qHeads / kHeads;
    const double scale = std::fabs(c.scale) < 0x1p-48f ? std::copysign(0x1p-48, c.scale) : c.scale;
    const auto wide = [&](const void* data, int64_t row, int64_t d) {
      return readElement(static_cast<const char*>(data), DType::BF16, row * columns + d).real;
    };
    std::vector<double> ofQ(size_t(c.batch * c.qHeads * c.qLen * columns)),
        ofK(size_t(kBatch * kHeads * c.kvLen * columns));
    forEachScore([&](int64_t b, int64_t h, int64_t i, int64_t j, double g) {
      const int64_t row = (b * c.qHeads + h) * c.qLen + i,
                    key = ((kBatch == 1 ? 0 : b) * kHeads + h / group) * c.kvLen + j;
      for (int64_t d = 0; d < columns; ++d) {
        ofQ[size_t(row * columns + d)] += scale * g * wide(copies.k, key, d);
        ofK[size_t(key * columns + d)] += scale * g * wide(copies.q, row, d);
      }
    });
    const auto put = [&](plan::Use use, const std::vector<double>& values) {
      const plan::WorkspacePart* part = layout->find(use);
      REQUIRE((part || values.empty()));
      for (size_t i = 0; i < values.size(); ++i)
        writeElement(workspace() + part->offset, DType::BF16, int64_t(i), values[i]);
    };
    put(plan::Use::WideDq, ofQ), put(plan::Use::WideDk, ofK);
    spreadsDv = kHeads != c.kvHeads || kBatch != (c.broadcasts ? 1 : c.batch);
    std::normal_distribution<double> normal;
    wideDv.resize(size_t(kBatch * kHeads * c.kvLen * c.headDim));
    for (double& x : wideDv) x = normal(random);
    if (spreadsDv) put(plan::Use::WideDv, wideDv);
  }

  void compareDv(int& wrong) {
    if (!spreadsDv) return;
    const int64_t kHeads = copies.k_heads, shared = kHeads / c.kvHeads, kvBatch = c.broadcasts ? 1 : c.batch;
    for (int64_t b = 0; b < kvBatch; ++b)
      for (int64_t h = 0; h < c.kvHeads; ++h)
        for (int64_t j = 0; j < c.kvLen; ++j)
          for (int64_t d = 0; d < c.headDim; ++d) {
            double want = 0, size = 0;
            for (int64_t of = b; of < copies.k_batch; of += kvBatch)
              for (int64_t head = h * shared; head < (h + 1) * shared; ++head) {
                const double x = wideDv[size_t(((of * kHeads + head) * c.kvLen + j) * c.headDim + d)];
                want += x, size += std::fabs(x);
                if (kvBatch != 1) break;
              }
            if (kvBatch != 1) { // copies of one batch entry
              want = size = 0;
              for (int64_t head = h * shared; head < (h + 1) * shared; ++head) {
                const double x = wideDv[size_t(((b * kHeads + head) * c.kvLen + j) * c.headDim + d)];
                want += x, size += std::fabs(x);
              }
            }
            if (!(std::fabs(dv->at({b, h, j, d}) - want) <= 0x1p-7 * size) && ++wrong < 5)
              WARN(fmt::format("dv {} {} {} {}: {} instead of {}", b, h, j, d, dv->at({b, h, j, d}), want));
          }
  }

  int64_t offset(const Factor& factor, int64_t b, int64_t h, int64_t row, int64_t r) const {
    int64_t at = factor.hasBatch ? b : 0;
    const int64_t heads = factor.head.empty()  ? 1
                          : factor.head == "h" ? c.qHeads
                                               : c.kvHeads,
                  length = factor.name[0] == 'u' ? c.qLen : c.kvLen;
    const int64_t head = factor.head.empty() ? 0 : factor.head == "h" ? h : h / (c.qHeads / c.kvHeads);
    return ((at * heads + head) * length + row) * kRank + r;
  }
  double value(const Factor& factor, int64_t at) const {
    return readElement(static_cast<const char*>(factors.at(factor.name)->view.data), factor.dtype, at).real;
  }

  const Case& c;
  std::mt19937 random;
  std::string text;
  std::unique_ptr<Tensor> q, k, v, out, dOut, lse, dq, dk, dv;
  std::map<std::string, std::unique_ptr<Tensor>> factors, outputs;
  Captures captures, gradients;
  std::vector<double> scores; // their gradients
  KernelOptions options;
  std::optional<Mod> given, mod;
  std::optional<plan::Plan> made;
  std::optional<plan::LaunchOperands> checked;
  std::optional<ir::Bindings> bindings;
  std::optional<plan::WorkspaceLayout> layout;
  std::vector<char> memory;
  std::vector<plan::CaptureOutput> kept;
  LowRankParams copies{};
  codegen::Config::LowRank config;
  std::vector<double> wideDv;
  bool spreadsDv = false;
};

void check(const Case& c, bool areOwned = true) {
  if (!test::isCaseDue()) return;
  Launch launch(c);
  INFO(launch.words());
  INFO(fmt::format("B {} H {} HKV {} q {} kv {} d {} scale {} padding {} broadcasts {} deterministic {}", c.batch,
                   c.qHeads, c.kvHeads, c.qLen, c.kvLen, c.headDim, c.scale, c.padding, c.broadcasts, c.deterministic));
  REQUIRE(launch.words().rfind("rank", 0) == 0);
  for (const plan::CaptureOutput& capture : launch.captureOutputs())
    if (capture.inColumns) CHECK(capture.isOwned == areOwned);
  launch.run();
  launch.compare();
}

} // namespace

TEST_CASE("gradients of the wider q and k are divided among q, k and the factors", "[low_rank][on-host]") {
  check({});
  check({.headDim = 128, .pieces = 2});
  check({.parts = {{.gain = 2 * double(0.3f)}}, .pieces = 1});
  check({.parts = {{.w = {"w", true, "h", DType::F32}}}});
  check({.parts = {{.u = {"u", true, "h", DType::F32}}}});
  check({.parts = {{.u = {"u", true, "h", DType::F32}, .w = {"w", true, "h", DType::F32}}}});
  check({.batch = 1, .qHeads = 2, .kvHeads = 2, .qLen = 1, .kvLen = 130});
  check({.isF32 = false});
  check({.padding = 8});
  check({.padding = 3}); // rows that no vector of 16 bytes divides
  check({.batch = 1, .qLen = 0});
  check({.batch = 1, .kvLen = 0});
}

TEST_CASE("gradients of factors in fewer columns are those of their pieces", "[low_rank][on-host]") {
  const Part f32{.u = {"u", true, "h", DType::F32}, .w = {"w", true, "", DType::F32}};
  for (auto [error, pieces] : {std::pair(0.01f, 1), {0.005f, 1}, {1e-4f, 2}, {2e-5f, 2}}) {
    const double relative = error > 1e-3f ? 0x1p-7 : 0x1p-8;
    check({.parts = {f32}, .relative = relative, .pieces = pieces, .error = error});
    check({.headDim = 128, .parts = {f32}, .isF32 = false, .relative = 0x1p-7, .pieces = pieces, .error = error});
  }
  check({.parts = {{}}, .relative = 0x1p-7, .pieces = 1, .error = 0.005f});
}

TEST_CASE("factors that heads or batch entries share sum their gradients", "[low_rank][on-host]") {
  check({.parts = {{.w = {"w", true, ""}}}});
  check({.parts = {{.w = {"w", true, "h // 2"}}}});
  check({.parts = {{.u = {"u", false, ""}, .w = {"w", false, ""}}}});
  check({.parts = {{.u = {"u", false, "h"}, .w = {"w", false, "h"}}}});
  check({.parts = {{.u = {"u", true, ""}, .w = {"w", false, "h // 2"}}}});
  check({.parts = {{}}, .broadcasts = true});
  check({.parts = {{.w = {"w", false, ""}}}, .broadcasts = true});
  check({.parts = {{}, {.u = {"u2", false, "h"}, .w = {"w2", true, ""}, .gain = -0.5}},
         .gradients = {"u", "w", "u2", "w2"}});
  check({.parts = {{}, {.u = {"u2", false, "h"}, .w = {"w2", true, ""}, .gain = -0.5}}, .gradients = {"u2"}});
}

TEST_CASE("gradients of factors go with scales, and without those of q, k and v", "[low_rank][on-host]") {
  for (float scale : {1.f, -0.125f, 0.f, -0x1p-70f, 1e20f}) check({.scale = scale});
  check({.wantsOperands = false});
  check({.gradients = {}});
  check({.gradients = {"w"}, .wantsOperands = false});
  check({.gradients = {"u"}});
}

TEST_CASE("deterministic sums of factors' gradients are the same bits", "[low_rank][on-host]") {
  for (const Part& part :
       {Part{}, Part{.w = {"w", true, "h // 2"}}, Part{.u = {"u", false, ""}, .w = {"w", false, ""}}}) {
    const Case c{.parts = {part}, .deterministic = true};
    check(c);
    Launch a(c), b(c);
    a.run(), b.run();
    CHECK(a.bytesOfOutputs() == b.bytesOfOutputs());
  }
}
