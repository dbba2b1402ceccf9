// Walks the arena in order; intervals.h describes assumptions and results. Numeric ranges come from range.cpp; this
// file adds symbolic bounds and what the conditions of selects imply.
#include "analysis/intervals.h"

#include "analysis/ir_names.h"
#include "ir/ir.h"
#include "ir/levels.h"

#include <algorithm>
#include <limits>

namespace attnc::analysis {

using ir::Leaf;

namespace {

constexpr size_t kMaxForms = 4;
constexpr int kMaxConditions = 32; // conditions examined per select
constexpr size_t kMaxFacts = 16;   // facts kept of these
constexpr int kMaxFactsInARow = 2; // facts chained from an index to an extent

using Forms = llvm::SmallVector<LinearForm, 1>;

void addForm(Forms& forms, const LinearForm& form) {
  if (!form.isNumber() && forms.size() < kMaxForms && !llvm::is_contained(forms, form)) forms.push_back(form);
}

/// Returns all bounds on one side. Includes the number if there is no symbolic bound, or with `always`.
Forms allBounds(const Forms& symbolic, int64_t number, bool always) {
  Forms result = symbolic;
  if (always || result.empty()) result.push_back(LinearForm::number(number));
  return result;
}
Forms uppers(const Bounds& bounds, bool always = false) { return allBounds(bounds.upper, bounds.range.hi, always); }
Forms lowers(const Bounds& bounds, bool always = false) { return allBounds(bounds.lower, bounds.range.lo, always); }

/// Adds a + factor * b to `out` for all pairs. Plain numbers go to `better`, which tightens the numeric range.
template <class Better> void addPairs(const Forms& as, const Forms& bs, int64_t factor, Forms& out, Better better) {
  for (const LinearForm& a : as)
    for (const LinearForm& b : bs)
      if (std::optional<LinearForm> sum = addScaled(a, b, factor)) {
        if (sum->isNumber()) better(sum->constant);
        addForm(out, *sum);
      }
}

/// Returns the last position along an extent.
LinearForm lastOf(ir::BuiltinDim dim) { return {{{unsigned(dim), 1}}, -1}; }

void copyForms(const Forms& from, Forms& to) {
  for (const LinearForm& form : from) addForm(to, form);
}

} // namespace

Intervals::Intervals(const ir::Module& module, const ir::Pins& pins) : module(module) {
  for (size_t dim = 0; dim < module.dims.size(); ++dim) {
    bool isBuiltin = dim < ir::kBuiltinDims;
    bool isColumn = dim == size_t(ir::BuiltinDim::KvLen);
    ExtentRange range{isBuiltin && !isColumn, isBuiltin ? ir::kMaxExtent : std::numeric_limits<int32_t>::max()};
    if (auto pinned = pins.find(module.dims[dim]); pinned != pins.end()) range = {pinned->second, pinned->second};
    dims.push_back(range);
    if (isColumn) range = {std::max<int64_t>(range.lo, 1), std::max<int64_t>(range.hi, 1)};
    dimsWithColumn.push_back(range);
  }
  for (const ir::ScalarCapture& scalar : module.scalars) {
    auto pinned = pins.find(scalar.name);
    const bool isKnown = pinned != pins.end() && scalar.type != Type::F32;
    const bool isNear = module.hasNearScalars && scalar.type == Type::I32;
    scalars.push_back(isKnown  ? Range::integers(scalar.type, pinned->second, pinned->second)
                      : isNear ? Range::integers(scalar.type, -ir::kMaxExtent, ir::kMaxExtent)
                               : Range::full(scalar.type));
  }
  knowGrids();
}

/// Narrows the numbers of grids to the ranges that bind() enforces.
void Intervals::knowGrids() {
  const auto narrow = [&](const ir::Grid::Number& number, int64_t lo, int64_t hi) {
    if (number.kind == ir::Grid::Number::Kind::Scalar && !scalars[size_t(number.value)].isSingle()) {
      Range& range = scalars[size_t(number.value)];
      range.lo = std::max(range.lo, lo);
      range.hi = std::min(range.hi, hi);
    }
    if (number.kind != ir::Grid::Number::Kind::Dim) return;
    for (std::vector<ExtentRange>* ranges : {&dims, &dimsWithColumn}) {
      ExtentRange& range = (*ranges)[size_t(number.value)];
      if (range.lo == range.hi) continue;
      range.lo = std::max(range.lo, lo);
      range.hi = std::min(range.hi, hi);
    }
  };
  for (const ir::Grid& grid : module.grids) {
    for (const ir::Grid::Number& extent : grid.extents) narrow(extent, 1, ir::kMaxExtent);
    narrow(grid.before, 0, ir::kMaxExtent - 1);
  }
}

Range Intervals::numberOf(const ir::Grid::Number& number) const {
  switch (number.kind) {
  case ir::Grid::Number::Kind::Constant: break;
  case ir::Grid::Number::Kind::Rest: return Range::integers(Type::I32, 0, ir::kMaxExtent);
  case ir::Grid::Number::Kind::Scalar: return scalars[size_t(number.value)];
  case ir::Grid::Number::Kind::Dim:
    return Range::integers(Type::I32, dims[size_t(number.value)].lo, dims[size_t(number.value)].hi);
  }
  return Range::integers(Type::I32, number.value, number.value);
}

/// Returns the bounds of a coordinate, by the formulas of ir::GridAxis.
Bounds Intervals::coordinate(const Node& node, const Bounds& position) const {
  const ir::GridAxis at = ir::GridAxis::of(node);
  const ir::Grid& grid = module.grids[at.grid];
  const auto apply = [](Op op, const Range& a, const Range& b) {
    return transfer(Node{op, Type::I32, 0, {}, 0}, {a, b});
  };
  Range stride = Range::integers(Type::I32, 1, 1);
  for (size_t behind = at.axis + 1; behind < grid.extents.size(); ++behind) {
    stride = apply(Op::Mul, stride, numberOf(grid.extents[behind]));
    stride = Range::integers(Type::I32, std::max<int64_t>(stride.lo, 1), std::min(stride.hi, ir::kMaxExtent));
  }
  Bounds result;
  result.range = apply(Op::FloorDiv, apply(Op::Sub, position.range, numberOf(grid.before)), stride);
  if (position.range.lo >= 0) copyForms(position.upper, result.upper); // `before` is not negative
  if (at.axis == 0) return result;
  const ir::Grid::Number& extent = grid.extents[at.axis];
  result.range = apply(Op::Mod, result.range, numberOf(extent));
  if (extent.kind == ir::Grid::Number::Kind::Dim)
    result.upper = {*addScaled(LinearForm::extent(unsigned(extent.value)), LinearForm::number(1), -1)};
  return result;
}

llvm::ArrayRef<ExtentRange> Intervals::extents(Level level) const {
  return level >= Level::Column ? dimsWithColumn : dims;
}

/// Narrows the numeric range to what the symbolic bounds allow.
void Intervals::tighten(Bounds& bounds, Level level) const {
  for (const LinearForm& form : bounds.upper) bounds.range.hi = std::min(bounds.range.hi, maxOf(form, extents(level)));
  for (const LinearForm& form : bounds.lower) bounds.range.lo = std::max(bounds.range.lo, minOf(form, extents(level)));
  // The bounds contradict each other, so the value is never computed. Any range will do, except an empty one.
  if (bounds.range.lo > bounds.range.hi) bounds.range.lo = bounds.range.hi;
}

Bounds Intervals::leaf(const Node& node) const {
  Bounds result;
  switch (leafOf(node)) {
  case Leaf::Const: break; // of() reads the number
  case Leaf::Dim:
    result.range = Range::integers(Type::I32, dims[node.attr].lo, dims[node.attr].hi);
    result.upper = result.lower = {LinearForm::extent(unsigned(node.attr))};
    return result;
  case Leaf::Iter: result.range = Range::ofIter(node); return result;
  case Leaf::Scalar: result.range = scalars[node.attr]; return result;
  case Leaf::Param:
    std::optional<ir::BuiltinDim> extent = ir::extentOf(ir::ParamKind(node.attr));
    if (!extent) break;
    if (module.offsetsQueries && node.attr == int64_t(ir::ParamKind::QIdx)) { // q_idx is a position: see ir::kQOffset
      result.range = Range::integers(Type::I32, -ir::kMaxExtent, ir::kMaxExtent - 1);
      return result;
    }
    result.range = Range::integers(Type::I32, 0, std::max<int64_t>(dimsWithColumn[size_t(*extent)].hi, 1) - 1);
    result.upper = {lastOf(*extent)};
    return result;
  }
  result.range = Range::full(node.type);
  return result;
}

/// Whether a + gap <= b for all values.
bool Intervals::neverAbove(const Bounds& a, const Bounds& b, int64_t gap, Level level) const {
  for (const LinearForm& upper : uppers(a, true))
    for (const LinearForm& lower : lowers(b, true))
      if (auto difference = addScaled(upper, lower, -1))
        if (maxOf(*difference, extents(level)) <= -gap) return true;
  return false;
}

// ---- Conditions of the launch ----

void Intervals::readConditions() {
  ofLaunch.emplace();
  int budget = kMaxConditions;
  for (const ir::Output& output : module.outputs())
    if (output.isCondition()) readCondition(output.value, true, budget);
}

void Intervals::readCondition(Value condition, bool holds, int& budget) {
  const Node& node = module[condition];
  if (--budget < 0) return;
  if (node.op == Op::Not) return readCondition(node.operands[0], !holds, budget);
  if (node.op == (holds ? Op::And : Op::Or))
    for (Value operand : node.operands) readCondition(operand, holds, budget);
  if (ir::info(node.op).rule != ir::TypeRule::Compare || !isInt(module[node.operands[0]].type)) return;
  const auto keep = [&](Value smaller, Value larger, int64_t gap) { // smaller + gap <= larger
    const Bounds below = of(smaller), above = of(larger);
    for (const LinearForm& lower : lowers(below))
      for (const LinearForm& upper : uppers(above))
        if (auto difference = addScaled(upper, lower, -1))
          if (auto form = addScaled(*difference, LinearForm::number(-gap), 1); form && !form->isNumber())
            if (ofLaunch->size() < kMaxFacts) ofLaunch->push_back(*form);
  };
  const Value a = node.operands[0], b = node.operands[1];
  if (node.op == Op::Lt) holds ? keep(a, b, 1) : keep(b, a, 0);
  if (node.op == Op::Le) holds ? keep(a, b, 0) : keep(b, a, 1);
  if (node.op != (holds ? Op::Eq : Op::Ne)) return;
  keep(a, b, 0);
  keep(b, a, 0);
}

namespace {

/// Whether the form is at most `limit` for all extents in `dims` for which all `facts` are at least 0. Adds a fact as
/// often as needed to cancel an extent, and chains up to `depth` facts.
bool isAtMost(const LinearForm& form, int64_t limit, llvm::ArrayRef<ExtentRange> dims, llvm::ArrayRef<LinearForm> facts,
              int depth) {
  if (maxOf(form, dims) <= limit) return true;
  if (depth == 0) return false;
  for (const LinearForm& fact : facts)
    for (const LinearForm::Term& term : form.terms)
      for (const LinearForm::Term& other : fact.terms) {
        if (other.dim != term.dim || term.coefficient % other.coefficient != 0) continue;
        const int64_t times = -(term.coefficient / other.coefficient);
        if (times < 0) continue;
        if (auto sum = addScaled(form, fact, times); sum && isAtMost(*sum, limit, dims, facts, depth - 1)) return true;
      }
  return false;
}

} // namespace

/// Like neverAbove(), for launches that meet the conditions.
bool Intervals::neverAboveInLaunch(const Bounds& a, const Bounds& b, int64_t gap, Level level) const {
  for (const LinearForm& upper : uppers(a, true))
    for (const LinearForm& lower : lowers(b, true))
      if (auto difference = addScaled(upper, lower, -1))
        if (isAtMost(*difference, -gap, extents(level), *ofLaunch, kMaxFactsInARow)) return true;
  return false;
}

Range Intervals::decideComparison(const Node& node, llvm::ArrayRef<Bounds> x, Level level, Range range) const {
  if (!isInt(x[0].range.type) || range.isSingle()) return range;
  Range yes = Range::integers(Type::Bool, 1, 1), no = Range::integers(Type::Bool, 0, 0);
  const bool isBelow = neverAbove(x[0], x[1], 1, level), isAbove = neverAbove(x[1], x[0], 1, level);
  if (node.op == Op::Lt) return isBelow ? yes : neverAbove(x[1], x[0], 0, level) ? no : range;
  if (node.op == Op::Le) return neverAbove(x[0], x[1], 0, level) ? yes : isAbove ? no : range;
  if (node.op != Op::Eq && node.op != Op::Ne) return range;
  if (!isBelow && !isAbove) return range;
  return node.op == Op::Ne ? yes : no;
}

/// Returns bounds that hold for either value: those of one, shifted as far as the other requires.
void Intervals::commonUpper(const Bounds& a, const Bounds& b, Level level, Forms& out) const {
  for (auto [own, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const LinearForm& form : own->upper) {
      int64_t excess = std::numeric_limits<int64_t>::max(); // by how much the other can exceed the form
      for (const LinearForm& upper : uppers(*other, true))
        if (auto difference = addScaled(upper, form, -1)) excess = std::min(excess, maxOf(*difference, extents(level)));
      auto moved = addScaled(form, LinearForm::number(std::max<int64_t>(excess, 0)), 1);
      if (moved) addForm(out, *moved);
    }
}

void Intervals::commonLower(const Bounds& a, const Bounds& b, Level level, Forms& out) const {
  for (auto [own, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const LinearForm& form : own->lower) {
      int64_t excess = std::numeric_limits<int64_t>::max();
      for (const LinearForm& lower : lowers(*other, true))
        if (auto difference = addScaled(form, lower, -1)) excess = std::min(excess, maxOf(*difference, extents(level)));
      auto moved = addScaled(form, LinearForm::number(std::max<int64_t>(excess, 0)), -1);
      if (moved) addForm(out, *moved);
    }
}

/// Whether the value is H // HKV, the number of query heads that share a KV head. It divides H.
bool Intervals::isGroupSize(Value value) const {
  const Node& node = module[value];
  auto isDim = [&](Value operand, ir::BuiltinDim dim) {
    return module[operand].op == Op::Dim && module[operand].attr == int64_t(dim);
  };
  return node.op == Op::FloorDiv && isDim(node.operands[0], ir::BuiltinDim::H) &&
         isDim(node.operands[1], ir::BuiltinDim::HKV);
}

/// Adds symbolic bounds to the result of an integer operation that cannot wrap around.
void Intervals::symbolic(const Node& node, llvm::ArrayRef<Bounds> x, Level level, Bounds& result) const {
  int64_t& lo = result.range.lo;
  int64_t& hi = result.range.hi;
  auto lessHi = [&](int64_t number) { hi = std::min(hi, number); };
  auto moreLo = [&](int64_t number) { lo = std::max(lo, number); };
  bool firstPositive = x[0].range.lo >= 0;
  switch (node.op) {
  case Op::Add:
    addPairs(uppers(x[0]), uppers(x[1]), 1, result.upper, lessHi);
    addPairs(lowers(x[0]), lowers(x[1]), 1, result.lower, moreLo);
    break;
  case Op::Sub:
    addPairs(uppers(x[0]), lowers(x[1]), -1, result.upper, lessHi);
    addPairs(lowers(x[0]), uppers(x[1]), -1, result.lower, moreLo);
    break;
  case Op::Neg:
    addPairs({LinearForm()}, lowers(x[0]), -1, result.upper, lessHi);
    addPairs({LinearForm()}, uppers(x[0]), -1, result.lower, moreLo);
    break;
  case Op::Mul:
    for (unsigned i : {0u, 1u}) {
      if (!x[i].range.isSingle()) continue;
      int64_t factor = x[i].range.lo;
      const Bounds& other = x[1 - i];
      addPairs({LinearForm()}, factor < 0 ? lowers(other) : uppers(other), factor, result.upper, lessHi);
      addPairs({LinearForm()}, factor < 0 ? uppers(other) : lowers(other), factor, result.lower, moreLo);
    }
    break;
  case Op::Min:
    for (unsigned i : {0u, 1u}) copyForms(x[i].upper, result.upper);
    commonLower(x[0], x[1], level, result.lower);
    break;
  case Op::Max:
    commonUpper(x[0], x[1], level, result.upper);
    for (unsigned i : {0u, 1u}) copyForms(x[i].lower, result.lower);
    break;
  case Op::Mod:
    if (x[1].range.lo >= 1) addPairs(uppers(x[1]), {LinearForm::number(-1)}, 1, result.upper, lessHi);
    if (x[1].range.lo >= 1 && firstPositive) copyForms(x[0].upper, result.upper);
    break;
  case Op::FloorDiv:
    if (x[1].range.lo >= 1 && firstPositive) copyForms(x[0].upper, result.upper);
    if (firstPositive && isGroupSize(node.operands[1]) && llvm::is_contained(x[0].upper, lastOf(ir::BuiltinDim::H)))
      addForm(result.upper, lastOf(ir::BuiltinDim::HKV));
    break;
  case Op::Shr:
    if (firstPositive) copyForms(x[0].upper, result.upper);
    break;
  case Op::And:
    if (firstPositive) copyForms(x[0].upper, result.upper);
    if (x[1].range.lo >= 0) copyForms(x[1].upper, result.upper);
    break;
  case Op::Cast:
    if (!isInt(x[0].range.type) || !x[0].range.within(lo, hi)) break;
    copyForms(x[0].upper, result.upper);
    copyForms(x[0].lower, result.lower);
    break;
#define LEAF(Name, ...) case Op::Name:
#define FUNCTION(Name, ...) case Op::Name:
#include "ir/ops.def"
  case Op::Abs:
  case Op::Div:
  case Op::Hypot:
  case Op::Or:
  case Op::Xor:
  case Op::Not:
  case Op::Shl:
  case Op::Eq:
  case Op::Ne:
  case Op::Lt:
  case Op::Le:
  case Op::Select:
  case Op::Load:
  case Op::Coord:
  case Op::InGrid:
  case Op::Floor:
  case Op::Ceil:
  case Op::Trunc:
  case Op::Round:
  case Op::StopGradient:
  case Op::IsNan:
  case Op::Sum:
  case Op::Random: break; // no symbolic bounds
  }
}

/// Narrows the range of a product to that of x // w * w = x - x % w, which is 0 for w = 0.
Range Intervals::product(const Node& node, Range range) const {
  const auto ofCast = [&](Value value) { // casts of integers that keep the number
    while (module[value].op == Op::Cast && isInt(module[value].type) && isInt(module[module[value].operands[0]].type) &&
           bounds[module[value].operands[0].id].range.within(INT32_MIN, INT32_MAX))
      value = module[value].operands[0];
    return value;
  };
  for (unsigned i : {0u, 1u}) {
    const Node& quotient = module[ofCast(node.operands[i])];
    const Value w = ofCast(node.operands[1 - i]);
    if (quotient.op != Op::FloorDiv || ofCast(quotient.operands[1]) != w) continue;
    const Range &x = bounds[quotient.operands[0].id].range, divisor = bounds[quotient.operands[1].id].range;
    const Node rest{Op::Mod, quotient.type, 0, {}, 0}, difference{Op::Sub, node.type, 0, {}, 0};
    const Range remainder = transfer(rest, {x, divisor});
    if (!cannotWrap(difference, {x, remainder})) continue;
    Range multiple = transfer(difference, {x, remainder});
    if (x.lo >= 0 && divisor.lo >= 0) multiple.lo = std::max<int64_t>(multiple.lo, 0);
    if (divisor.contains(0)) multiple = join(multiple, Range::integers(node.type, 0, 0));
    range.lo = std::max(range.lo, multiple.lo);
    range.hi = std::min(range.hi, multiple.hi);
    range.lo = std::min(range.lo, range.hi); // never computed if they contradict each other
  }
  return range;
}

Bounds Intervals::operation(const Node& node, llvm::ArrayRef<Bounds> operands, Level level) const {
  llvm::SmallVector<Range, 3> ranges;
  for (const Bounds& operand : operands) ranges.push_back(operand.range);
  Bounds result{transfer(node, ranges), {}, {}};
  ir::TypeRule rule = ir::info(node.op).rule;
  if (rule == ir::TypeRule::Compare) result.range = decideComparison(node, operands, level, result.range);
  if (!isInt(node.type) || rule == ir::TypeRule::Select) return result;
  if (node.op == Op::Mul) result.range = product(node, result.range);
  bool mayWrap = node.op == Op::Add || node.op == Op::Sub || node.op == Op::Mul || node.op == Op::Neg;
  if (mayWrap && !cannotWrap(node, ranges)) return result;
  symbolic(node, operands, level, result);
  tighten(result, level);
  return result;
}

// ---- Select: each branch is analyzed under its condition ----

/// Adds "smaller + gap <= larger" as a bound of either value that is in facts.about.
void Intervals::order(Value smaller, Value larger, int64_t gap, Facts& facts) {
  const bool asksSmaller = facts.asksAbout(smaller), asksLarger = facts.asksAbout(larger);
  if (asksSmaller) {
    Bounds below{Range::full(module[smaller].type), {}, {}};
    auto lessHi = [&](int64_t number) { below.range.hi = std::min(below.range.hi, number); };
    addPairs(uppers(of(larger), true), {LinearForm::number(-gap)}, 1, below.upper, lessHi);
    facts.known.push_back({smaller, std::move(below)});
  }
  if (asksLarger) {
    Bounds above{Range::full(module[larger].type), {}, {}};
    auto moreLo = [&](int64_t number) { above.range.lo = std::max(above.range.lo, number); };
    addPairs(lowers(of(smaller), true), {LinearForm::number(gap)}, 1, above.lower, moreLo);
    facts.known.push_back({larger, std::move(above)});
  }
}

/// Returns what a condition implies for a value and its operands.
Intervals::Facts Intervals::factsOf(Value condition, bool holds, Value about) {
  Facts facts{{about}, {}};
  const Node& node = module[about];
  facts.about.append(node.operands.begin(), node.operands.end());
  int budget = kMaxConditions;
  collectFacts(condition, holds, facts, budget);
  return facts;
}

void Intervals::collectFacts(Value condition, bool holds, Facts& facts, int& budget) {
  const Node& node = module[condition];
  if (--budget < 0 || facts.known.size() >= kMaxFacts) return;
  ++asked;
  if (node.op == Op::Not) return collectFacts(node.operands[0], !holds, facts, budget);
  if (node.op == (holds ? Op::And : Op::Or))
    for (Value operand : node.operands) collectFacts(operand, holds, facts, budget);
  if (ir::info(node.op).rule != ir::TypeRule::Compare || !isInt(module[node.operands[0]].type)) return;
  Value a = node.operands[0], b = node.operands[1];
  if (node.op == Op::Lt) holds ? order(a, b, 1, facts) : order(b, a, 0, facts);
  if (node.op == Op::Le) holds ? order(a, b, 0, facts) : order(b, a, 1, facts);
  if (node.op != (holds ? Op::Eq : Op::Ne)) return;
  order(a, b, 0, facts);
  order(b, a, 0, facts);
}

/// Returns the bounds of a branch, narrowed by facts about itself or its operands.
Bounds Intervals::underFacts(Value value, const Facts& facts, Level level) {
  auto narrowed = [&](Value of, Bounds bounds) {
    for (const Fact& fact : facts.known) {
      if (fact.value != of) continue;
      bounds.range.lo = std::max(bounds.range.lo, fact.bounds.range.lo);
      bounds.range.hi = std::min(bounds.range.hi, fact.bounds.range.hi);
      copyForms(fact.bounds.upper, bounds.upper);
      copyForms(fact.bounds.lower, bounds.lower);
    }
    tighten(bounds, level);
    return bounds;
  };
  const Node& node = module[value];
  ir::TypeRule rule = ir::info(node.op).rule;
  bool isSimple = rule == ir::TypeRule::Arith || rule == ir::TypeRule::Cast;
  Bounds bounds = of(value);
  if (isSimple && isInt(node.type) && isInt(module[node.operands[0]].type)) {
    llvm::SmallVector<Bounds, 3> operands;
    for (Value operand : node.operands) operands.push_back(narrowed(operand, of(operand)));
    bounds = operation(node, operands, level);
  }
  return narrowed(value, std::move(bounds));
}

Bounds Intervals::select(const Node& node, Level level) {
  const Range& decided = range(node.operands[0]);
  if (decided.isSingle()) return of(node.operands[decided.lo ? 1 : 2]);
  if (!isInt(node.type)) {
    llvm::SmallVector<Range, 3> ranges;
    for (Value operand : node.operands) ranges.push_back(range(operand));
    return {transfer(node, ranges), {}, {}};
  }
  const Value condition = node.operands[0], yes = node.operands[1], no = node.operands[2];
  Bounds a = underFacts(yes, factsOf(condition, true, yes), level);
  Bounds b = underFacts(no, factsOf(condition, false, no), level);
  Bounds result{join(a.range, b.range), {}, {}};
  commonUpper(a, b, level, result.upper);
  commonLower(a, b, level, result.lower);
  tighten(result, level);
  return result;
}

// ---- The walk ----

const Bounds& Intervals::of(Value value) {
  while (bounds.size() <= value.id) {
    Value at{uint32_t(bounds.size())};
    const Node& node = module[at];
    levels.push_back(ir::levelOf(node, levels));
    bounds.push_back(boundsOf(at, node, levels.back()));
  }
  return bounds[value.id];
}

Bounds Intervals::boundsOf(Value value, const Node& node, Level level) {
  if (node.op == Op::Const) return {Range::ofConst(module, value), {}, {}};
  if (isLeaf(node)) return leaf(node);
  if (node.op == Op::Load) return {Range::ofElement(module.tensors[node.attr].dtype), {}, {}};
  if (node.op == Op::Select) return select(node, level);
  if (node.op == Op::Coord) return coordinate(node, of(node.operands[0]));
  llvm::SmallVector<Bounds, 3> operands;
  for (Value operand : node.operands) {
    operands.push_back(bounds[operand.id]);
    tighten(operands.back(), level); // a row value next to a column is only evaluated if a column exists
  }
  return operation(node, operands, level);
}

bool Intervals::isExact(Value value) {
  llvm::SmallVector<Range, 3> ranges;
  for (Value operand : module[value].operands) ranges.push_back(range(operand));
  return cannotWrap(module[value], ranges);
}

bool Intervals::provesInside(Value load, unsigned axis) {
  const Node& node = module[load];
  const ir::Extent& extent = module.tensors[node.attr].shape[axis];
  of(load); // this evaluates everything before it
  const Bounds& index = of(node.operands[axis]);
  LinearForm size = extent.isNamed ? LinearForm::extent(unsigned(extent.value)) : LinearForm::number(extent.value);
  Bounds end{Range::full(Type::I64), {}, {}};
  if (size.isNumber())
    end.range = Range::integers(Type::I64, size.constant, size.constant);
  else
    end.lower = {size};
  if (index.range.lo < 0) return false;
  if (neverAbove(index, end, 1, levels[load.id])) return true;
  if (!ofLaunch) readConditions();
  return neverAboveInLaunch(of(node.operands[axis]), end, 1, levels[load.id]);
}

} // namespace attnc::analysis
