// Z3 proves what passes do to a module, for all bit patterns of its operands. Floats are those of IEEE 754. What takes
// it too long is computed for all 16-bit patterns of an operand instead.
#include "analysis/intervals.h"
#include "helpers/same_meaning.h"
#include "helpers/simplify_rules.h"
#include "ir/loops.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/autodiff.h"
#include "passes/pass.h"
#include "same_outputs.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <regex>

using namespace attnc;
using namespace attnc::test;
using passes::findPass;

namespace {

constexpr const char* kPasses[] = {"simplify", "levels", "lift-masks", "fold-constants", "pin", "gradient-stops"};

#define NEED_SOLVER(solver)                                                                                            \
  auto opened = proofs::Solver::open("");                                                                              \
  if (!opened) {                                                                                                       \
    WARN("SKIPPED: Z3 was not found");                                                                                 \
    return;                                                                                                            \
  }                                                                                                                    \
  proofs::Solver& solver = *opened

/// Counts verdicts, and fails for a wrong one.
struct Tally {
  std::map<Verdict, int> count;
  Verdict add(proofs::Solver& solver, const ir::Module& claim, double seconds) {
    const Verdict verdict = verdictOf(solver, claim, seconds);
    CHECK(verdict != Verdict::Wrong);
    ++count[verdict];
    return verdict;
  }
  std::string text() const {
    const auto of = [&](Verdict verdict) { return count.count(verdict) ? count.at(verdict) : 0; };
    return fmt::format("{} proved, {} with what Z3 knows by name, {} too slow", of(Verdict::Proved), of(Verdict::Open),
                       of(Verdict::Slow));
  }
};

ir::Module ofRule(const std::string& operations) { return take(ir::read(moduleText(operations, typeOf(operations)))); }

ir::Module after(const char* pass, const ir::Module& before, const passes::Pins& pins = {}) {
  ir::Module module = before;
  REQUIRE(findPass(pass)->run(module, {pins}));
  REQUIRE_FALSE(ir::verify(module));
  return module;
}

/// Computes both modules for all 16-bit patterns of an operand: of x and of a position as an integer, of `a` as the
/// upper half of an f32. Other operands are drawn.
void compareIn16Bits(const ir::Module& before, const ir::Module& after) {
  const int64_t integers[] = {0, 1, -1, 3, 8, -7, 65536, INT32_MAX, INT32_MIN};
  const float reals[] = {0.0f, -0.0f, 1.5f, -3.25f, 1e30f, -1e-40f, INFINITY, -INFINITY, NAN};
  int64_t l = 0, m = 0;
  for (uint32_t bits = 0; bits <= UINT16_MAX; ++bits) {
    l = int64_t(bits) << 48, m = bits * 2654435761u;
    Captures captures;
    captures.set("L", TensorView::contiguous(&l, DType::I64, {})).set("M", TensorView::contiguous(&m, DType::I64, {}));
    captures.set("x", int64_t(int16_t(bits))).set("y", integers[bits % std::size(integers)]).set("z", 5);
    captures.set("a", double(std::bit_cast<float>(bits << 16))).set("c", double(reals[bits % std::size(reals)]));
    captures.set("p", bits % 2 == 0).set("r", bits % 3 == 0);
    const ProblemShape problem{.qHeads = 1 + bits % 7, .qLen = int64_t(bits + 1) << 8, .kvLen = bits + 1};
    for (const ir::Output& output : before.outputs()) {
      const auto valueIn = [&](const ir::Module& module) {
        const auto bindings = take(ir::bind(module, captures, problem));
        const ir::Evaluator value(module, bindings, *module.output(output.name));
        const Number found = value.evaluate(1, 0, problem.qHeads - 1, problem.qLen - 1, bits);
        return value.type() == ir::Type::F32 ? double(found.real) : double(found.integer);
      };
      if (!sameNumber(valueIn(before), valueIn(after))) FAIL(output.name << " differs for the bits " << bits);
    }
  }
}

/// Integer constants of a rule's operations, each replaced by one that `draw` gives.
template <class Draw> std::string withConstants(const std::string& operations, Draw draw) {
  static const std::regex kConstant(R"(([ ,])(-?\d+)(L?)(?=[;,]|$))");
  std::string text;
  auto at = operations.begin();
  for (std::sregex_iterator i(at, operations.end(), kConstant), none; i != none; ++i) {
    text.append(at, operations.begin() + i->position()).append((*i)[1]);
    text += fmt::format("{}{}", draw((*i)[3].length() > 0), (*i)[3].str());
    at = operations.begin() + i->position() + i->length();
  }
  return text.append(at, operations.end());
}

} // namespace

TEST_CASE("each rule of simplify holds for all operands") {
  NEED_SOLVER(solver);
  Tally tally;
  for (const Rule& rule : kRules) {
    INFO(rule.before);
    const ir::Module before = ofRule(rule.before), simplified = after("simplify", before);
    if (tally.add(solver, sameOutputs(before, simplified), 2) != Verdict::Proved) compareIn16Bits(before, simplified);
  }
  WARN("rules of simplify: " << tally.text());
  CHECK(tally.count[Verdict::Proved] >= 150);
}

TEST_CASE("rules of simplify hold with other constants than those of their examples") {
  NEED_SOLVER(solver);
  Tally tally;
  std::mt19937_64 random(1);
  const int64_t edges[] = {0, 1, -1, 2, 7, 8, 31, 32, 64, -3, INT32_MAX, INT32_MAX - 1, INT32_MIN, INT32_MIN + 1};
  const int64_t wide[] = {int64_t(1) << 31, int64_t(1) << 40, INT64_MAX, INT64_MIN, INT64_MIN + 1};
  const auto draw = [&](bool isWide) {
    const uint64_t at = random() % (std::size(edges) + (isWide ? std::size(wide) : 0));
    return at < std::size(edges) ? edges[at] : wide[at - std::size(edges)];
  };
  std::set<std::string> seen;
  for (const Rule& rule : kRules)
    for (int turn = 0; turn < 12; ++turn) {
      const std::string operations = withConstants(rule.before, draw);
      if (operations == rule.before || !seen.insert(operations).second) continue;
      INFO(operations);
      const ir::Module before = ofRule(operations);
      tally.add(solver, sameOutputs(before, after("simplify", before)), 0.25);
    }
  WARN("rules of simplify with other constants: " << tally.text());
  CHECK(tally.count[Verdict::Proved] >= 300);
}

namespace {

/// A rule with variables in place of its constants.
struct Equation {
  const char *before, *after;
  const char* given = nullptr; ///< operations whose last value is the condition of the rule
};

constexpr const char* kAreExact = // x + y, @z - y
    "cast i64 @x; cast i64 @y; add i64 %0, %1; add i32 @x, @y; cast i64 %3; eq i64 %2, %4; cast i64 @z; sub i64 %6, "
    "%1; "
    "sub i32 @z, @y; cast i64 %8; eq i64 %7, %9; and bool %5, %10";

const Equation kEquations[] = {
    {"add i32 @x, @y; add i32 %0, @z", "add i32 @y, @z; add i32 @x, %0"},
    {"sub i32 @y, @x; add i32 %0, @z", "add i32 @y, @z; sub i32 %0, @x"},
    {"sub i32 @x, @y", "neg i32 @y; add i32 @x, %0"},
    {"add i32 @x, @z; sub i32 @y, %0", "sub i32 @y, @z; sub i32 %0, @x"},
    {"sub i32 @z, @x; sub i32 @y, %0", "sub i32 @y, @z; add i32 @x, %0"},
    {"neg i32 @x; mul i32 %0, @y", "neg i32 @y; mul i32 @x, %0"},
    {"mul i32 @x, @y; neg i32 %0", "neg i32 @y; mul i32 @x, %0"},
    {"mod i32 @x, @y", "-> @x", "le i32 0, @x; lt i32 @x, @y; and bool %0, %1"},
    {"min i32 @x, @y; min i32 %0, @z", "min i32 @y, @z; min i32 @x, %0"},
    {"and i32 @x, @y; and i32 %0, @z", "and i32 @y, @z; and i32 @x, %0"},
    {"lt i32 @x, @y", "sub i32 @y, 1; le i32 @x, %0", "ne i32 @y, -2147483648"},
    {"lt i32 @y, @x", "add i32 @y, 1; le i32 %0, @x", "ne i32 @y, 2147483647"},
    {"add i32 @x, @y; eq i32 %0, @z", "sub i32 @z, @y; eq i32 @x, %0"},
    {"neg i32 @x; eq i32 %0, @y", "neg i32 @y; eq i32 @x, %0"},
    {"add i32 @x, @y; le i32 %0, @z", "sub i32 @z, @y; le i32 @x, %0", kAreExact},
    {"le i32 @x, @y; add i32 @y, 1; select i32 %0, @x, %1", "add i32 @y, 1; min i32 @x, %0", "ne i32 @y, 2147483647"},
    {"le i32 @y, @x; sub i32 @y, 1; select i32 %0, @x, %1", "sub i32 @y, 1; max i32 @x, %0", "ne i32 @y, -2147483648"},
    {"abs i32 @x; le i32 %0, @y", "neg i32 @y; le i32 @x, @y; le i32 %0, @x; and bool %1, %2",
     "ne i32 @x, -2147483648"},
};

// What a pass must not do: each forgets the condition of a rule.
const Equation kWrong[] = {
    {"add i32 @x, @y; le i32 %0, @z", "sub i32 @z, @y; le i32 @x, %0"},
    {"lt i32 @x, @y", "sub i32 @y, 1; le i32 @x, %0"},
    {"mod i32 @x, @y", "-> @x", "lt i32 @x, @y"},
    {"sub i32 @x, @y; le i32 %0, 0", "le i32 @x, @y"},
    {"abs i32 @x; le i32 %0, @y", "neg i32 @y; le i32 @x, @y; le i32 %0, @x; and bool %1, %2"},
    {"floor_div i32 @x, 2; mul i32 %0, 2", "-> @x"},
    {"load i64 L; cast i32 %0; cast i64 %1", "load i64 L"},
    {"lt f32 @a, @c; not bool %0", "le f32 @c, @a"},
    {"add f32 @a, 0.0", "-> @a"},
    {"sub f32 0.0, @a", "neg f32 @a"},
    {"lt f32 @a, @c; select f32 %0, @a, @c", "min f32 @a, @c"},
};

ir::Module claimOf(const Equation& equation) {
  const ir::Type type = typeOf(equation.before);
  ir::Module claim = sameOutputs(take(ir::read(moduleText(equation.before, type))), //
                                 take(ir::read(moduleText(equation.after, type))));
  if (!equation.given) return claim;
  const ir::Module given = ofRule(equation.given);
  auto import = take(ir::Import::into(claim, given));
  const ir::Value isMissing = claim.make(ir::Op::Not, ir::Type::Bool, {import.copy(*given.output(ir::kMask))});
  claim.setOutput(ir::kMask, claim.make(ir::Op::Or, ir::Type::Bool, {*claim.output(ir::kMask), isMissing}));
  return claim;
}

} // namespace

TEST_CASE("rules with constants hold for all constants") {
  NEED_SOLVER(solver);
  Tally tally;
  for (const Equation& equation : kEquations) {
    INFO(equation.before << "   =>   " << equation.after);
    tally.add(solver, claimOf(equation), 2);
  }
  WARN("rules with variables as constants: " << tally.text());
}

TEST_CASE("wrong rules are found") {
  NEED_SOLVER(solver);
  for (const Equation& equation : kWrong) {
    INFO(equation.before << "   =>   " << equation.after);
    CHECK(verdictOf(solver, claimOf(equation), 10) == Verdict::Wrong);
  }
}

TEST_CASE("each rule of levels holds for all operands") {
  NEED_SOLVER(solver);
  Tally tally;
  for (const char* operations : {
           "sub i32 %q_idx, %kv_idx; add i32 %0, @x",
           "sub i32 %kv_idx, %q_idx; sub i32 @x, %0",
           "mul i32 %kv_idx, %q_idx; mul i32 %0, @x",
           "min i32 %kv_idx, %q_idx; min i32 %0, @x",
           "max i32 %q_idx, %kv_idx; max i32 @x, %0",
           "xor i32 %kv_idx, %q_idx; xor i32 %0, @x",
           "le i32 %kv_idx, %q_idx; lt i32 %kv_idx, @x; lt i32 %q_idx, @y; and bool %0, %1; and bool %3, %2",
           "sub i32 %q_idx, %kv_idx; le i32 %0, @x",
           "sub i32 %q_idx, %kv_idx; lt i32 @x, %0",
           "sub i32 %kv_idx, %q_idx; eq i32 %0, @x",
           "add i32 %q_idx, %kv_idx; add i32 %0, 7; ne i32 @x, %1",
           "sub i32 %q_idx, %kv_idx; abs i32 %0; le i32 %1, @x",
           "sub i32 %q_idx, %kv_idx; abs i32 %0; lt i32 %1, 64",
           "sub i32 %q_idx, %kv_idx; abs i32 %0; le i32 @x, %1",
           "cast i64 %q_idx; cast i64 @x; add i64 %0, %1; cast i64 %kv_idx; le i64 %3, %2",
           "load i64 L; cast i64 %q_idx; cast i64 %kv_idx; sub i64 %1, %2; lt i64 %3, %0",
           "load i64 L; cast i64 %kv_idx; eq i64 %0, %1",
           "sub i32 %kv_idx, %q_idx; cast f32 %0",
           "sub i32 %kv_idx, %q_idx; abs i32 %0; min i32 %1, 100; cast f32 %2",
           "add i32 %kv_idx, %q_idx; cast f32 %0",
       }) {
    INFO(operations);
    const ir::Module before = ofRule(operations), regrouped = after("levels", before);
    CHECK(ir::print(before) != ir::print(regrouped));
    if (tally.add(solver, sameOutputs(before, regrouped), 2) != Verdict::Proved) compareIn16Bits(before, regrouped);
  }
  WARN("rules of levels: " << tally.text());
}

TEST_CASE("fold-constants computes what Z3 does") {
  NEED_SOLVER(solver);
  using ir::Op, ir::Type;
  std::mt19937_64 random(1);
  const auto draw = [&](ir::Module& module, Type type) {
    const uint64_t bits = random() % 3 ? random() : random() % 5 - 2;
    if (type == Type::F32) return module.constF32(std::bit_cast<float>(uint32_t(bits)));
    return module.constant(type, type == Type::Bool  ? int64_t(bits % 2)
                                 : type == Type::I32 ? int32_t(bits)
                                                     : int64_t(bits));
  };
  const Op of[] = {Op::Neg,      Op::Abs,  Op::Add,   Op::Sub,   Op::Mul,   Op::Min,  Op::Max,
                   Op::FloorDiv, Op::Mod,  Op::And,   Op::Or,    Op::Xor,   Op::Not,  Op::Shl,
                   Op::Shr,      Op::Eq,   Op::Ne,    Op::Lt,    Op::Le,    Op::Div,  Op::Sqrt,
                   Op::Floor,    Op::Ceil, Op::Trunc, Op::Round, Op::IsNan, Op::Cast, Op::Select};
  Tally tally;
  for (Op op : of)
    for (Type type : {Type::Bool, Type::I32, Type::I64, Type::F32})
      for (Type to : {Type::Bool, Type::I32, Type::I64, Type::F32})
        for (int turn = 0; turn < 12; ++turn) {
          ir::Module before;
          llvm::SmallVector<ir::Value, 3> operands;
          if (op == Op::Select) operands.push_back(before.constBool(random() % 2));
          while (int(operands.size()) < ir::info(op).arity) operands.push_back(draw(before, type));
          before.setOutput("value", ir::kMask.params, before.make(op, to, operands));
          if (ir::verify(before)) break; // the operation does not take these types
          INFO(ir::print(before));
          const ir::Module folded = after("fold-constants", before);
          REQUIRE(folded.isConst(*folded.output("value")));
          tally.add(solver, sameOutputs(before, folded), 5);
        }
  WARN("operations on constants: " << tally.text());
  CHECK(tally.count[Verdict::Proved] >= 600);
}

namespace {

struct Golden {
  ir::Module module; ///< before the pass
  passes::Pins pins;
};

Golden goldenOf(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  Golden golden{take(ir::read(text.str().substr(0, text.str().find("; =>")))), {}};
  std::istringstream words(text.str().substr(0, text.str().find('\n')));
  std::string word;
  words >> word >> word;
  if (word == "pin")
    while (words >> word) golden.pins[word.substr(0, word.find('='))] = std::stoll(word.substr(word.find('=') + 1));
  return golden;
}

} // namespace

TEST_CASE("ranges and symbolic bounds of random modules hold for all operands") {
  NEED_SOLVER(solver);
  using ir::Op, ir::Type, ir::Value;
  Tally tally;
  for (uint64_t seed = 0; seed < 25; ++seed) {
    RandomModule random(seed, {.operations = 14, .floats = false});
    ir::Module module = random.module;
    analysis::Intervals intervals(random.module);
    const std::vector<ir::LoopSet> open = ir::openLoops(random.module);
    const Value yes = module.constBool(true);
    Value ofSums = yes, ofOne = yes; // Z3 knows sums only by name, so their bounds are assumed
    bool isSum = false;
    const auto atMost = [&](Value a, Value b) {
      Value& all = isSum ? ofSums : ofOne;
      all = module.make(Op::And, Type::Bool, {all, module.make(Op::Le, Type::Bool, {a, b})});
    };
    const auto wide = [&](Value a) { return module[a].type == Type::I64 ? a : module.make(Op::Cast, Type::I64, {a}); };
    const auto number = [&](int64_t value) { return module.constInt(Type::I64, value); };
    const auto formOf = [&](const analysis::LinearForm& form) {
      Value sum = number(form.constant);
      for (const auto& term : form.terms) {
        const Value product = module.make(Op::Mul, Type::I64, {wide(module.dim(term.dim)), number(term.coefficient)});
        sum = module.make(Op::Add, Type::I64, {sum, product});
      }
      return sum;
    };
    for (uint32_t id = 0; id < random.module.size(); ++id) {
      if (open[id] || random.module[{id}].type == Type::F32) continue;
      isSum = random.module[{id}].op == Op::Sum, ofOne = yes;
      const analysis::Bounds& bounds = intervals.of({id});
      const analysis::Range full = analysis::Range::full(random.module[{id}].type);
      if (bounds.range.lo != full.lo) atMost(number(bounds.range.lo), wide({id}));
      if (bounds.range.hi != full.hi) atMost(wide({id}), number(bounds.range.hi));
      for (const analysis::LinearForm& form : bounds.upper) atMost(wide({id}), formOf(form));
      for (const analysis::LinearForm& form : bounds.lower) atMost(formOf(form), wide({id}));
      if (ofOne == yes) continue;
      const Value unless = module.make(Op::Not, Type::Bool, {ofSums});
      module.setOutput(ir::kMask, module.make(Op::Or, Type::Bool, {unless, ofOne}));
      INFO("seed " << seed << ", value " << id << "\n" << ir::print(random.module));
      tally.add(solver, module, 0.25);
    }
  }
  WARN("bounds of random modules: " << tally.text());
  CHECK(tally.count[Verdict::Proved] >= 300);
}

TEST_CASE("gradient-stops keeps gradients") {
  NEED_SOLVER(solver);
  Tally tally;
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(ATTNC_SOURCE_DIR) /
                                                              "tests/passes/golden/gradient-stops")) {
    INFO(file.path().string());
    const ir::Module before = goldenOf(file.path()).module;
    const auto gradients = [](const ir::Module& module) {
      return take(passes::differentiate(module, passes::floatCaptures(module))).module;
    };
    tally.add(solver, sameOutputs(gradients(before), gradients(after("gradient-stops", before))), 5);
  }
  WARN("gradients: " << tally.text());
}

TEST_CASE("what passes do in their golden files holds for all operands") {
  NEED_SOLVER(solver);
  for (const char* pass : kPasses) {
    Tally tally;
    const std::filesystem::path folder = std::filesystem::path(ATTNC_SOURCE_DIR) / "tests/passes/golden" / pass;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      INFO(file.path().string());
      const auto& [before, pins] = goldenOf(file.path());
      if (!before.grids.empty()) continue;
      tally.add(solver, sameOutputs(before, after(pass, before, pins), pass == std::string_view("lift-masks"), pins),
                2);
    }
    WARN("golden files of " << pass << ": " << tally.text());
  }
}

TEST_CASE("what passes do to random modules holds for all operands") {
  NEED_SOLVER(solver);
  for (const char* pass : kPasses) {
    Tally tally;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const bool floats = pass == std::string_view("lift-masks") || seed % 3 == 0;
      RandomModule random(seed, {.operations = floats ? 8 : 14, .floats = floats, .transcendental = false});
      const passes::Pins pins =
          pass == std::string_view("pin") ? passes::Pins{{"KV_LEN", 17}, {"H", 4}, {"N", 5}} : passes::Pins{};
      INFO("seed " << seed << "\n" << ir::print(random.module));
      tally.add(
          solver,
          sameOutputs(random.module, after(pass, random.module, pins), pass == std::string_view("lift-masks"), pins),
          0.5);
    }
    WARN("random modules, " << pass << ": " << tally.text());
    CHECK(tally.count[Verdict::Proved] >= 15);
  }
}
