#include "passes/gradient_product.h"
#include "ir/levels.h"

#include "passes/constants.h"
#include "passes/ir_names.h"

#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <iterator>

namespace attnc::passes {
namespace {

using Values = llvm::SmallVector<Value, 4>;

/// A longer list is replaced by one value.
constexpr size_t kMaxFactors = 32, kMaxConditions = 8;
/// Sums with more terms are not searched for terms that exclude each other.
constexpr size_t kMaxPaired = 32;

bool before(Value a, Value b) { return a.id < b.id; }
bool precedes(const Condition& a, const Condition& b) {
  return std::pair(a.value.id, a.holds) < std::pair(b.value.id, b.holds);
}

void insert(Values& values, Value value) { values.insert(llvm::upper_bound(values, value, before), value); }

Values common(const Values& a, const Values& b) {
  Values result;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result), before);
  return result;
}

Values without(const Values& a, const Values& b) {
  Values result;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result), before);
  return result;
}

/// Returns the condition in which two lists differ, if they differ only in one condition and its negation.
std::optional<Condition> opposite(const Conditions& a, const Conditions& b) {
  if (a.size() != b.size()) return std::nullopt;
  std::optional<Condition> result;
  for (const Condition& condition : a) {
    if (llvm::is_contained(b, condition)) continue;
    if (result || !llvm::is_contained(b, Condition{condition.value, !condition.holds})) return std::nullopt;
    result = condition;
  }
  return result;
}

Conditions except(const Conditions& from, llvm::ArrayRef<Condition> gone) {
  Conditions result;
  for (const Condition& condition : from)
    if (!llvm::is_contained(gone, condition)) result.push_back(condition);
  return result;
}

} // namespace

void Products::learn() {
  for (uint32_t id = uint32_t(open.size()); id < module.size(); ++id) {
    open.push_back(ir::openLoopsOf(module[{id}], open));
    levels.push_back(ir::levelOf(module[{id}], levels));
  }
}

Value Products::make(Op op, Type type, llvm::ArrayRef<Value> operands, int64_t attr) {
  const ir::Node node{op, type, attr, {operands.begin(), operands.end()}, line};
  if (std::optional<Value> folded = foldNode(module, node)) return *folded;
  return module.make(op, type, operands, attr, line);
}

void Products::multiply(Product& product, Value by) {
  if (module[by].op == Op::Neg) by = module[by].operands[0], product.factor = -product.factor;
  if (module.isConst(by)) {
    product.factor *= module.f32(by);
  } else if (auto at = llvm::find(product.below, by); at != product.below.end()) {
    product.below.erase(at);
  } else {
    insert(product.above, by);
    if (product.above.size() > kMaxFactors) product.above = {unconditional({1, product.above, {}, {}})};
  }
}

void Products::divide(Product& product, Value by) {
  if (module.isConst(by)) {
    product.factor /= module.f32(by);
  } else if (auto at = llvm::find(product.above, by); at != product.above.end()) {
    product.above.erase(at);
  } else {
    insert(product.below, by);
    if (product.below.size() > kMaxFactors) product.below = {unconditional({1, product.below, {}, {}})};
  }
}

void Products::require(Product& product, Condition condition) {
  while (module[condition.value].op == Op::Not) {
    condition.value = module[condition.value].operands[0];
    condition.holds = !condition.holds;
  }
  if (module.isConst(condition.value)) {
    if (bool(module.integer(condition.value)) != condition.holds) product.factor = 0;
  } else if (llvm::is_contained(product.when, Condition{condition.value, !condition.holds})) {
    product.factor = 0;
  } else if (!llvm::is_contained(product.when, condition)) {
    product.when.push_back(condition);
    llvm::sort(product.when, precedes);
    if (product.when.size() > kMaxConditions) product.when = {{valueOf(product.when), true}};
  }
}

// ---- Values ----

Value Products::valueOf(const Conditions& conditions) {
  std::optional<Value> result;
  for (const Condition& condition : conditions) {
    const Value one = condition.holds ? condition.value : make(Op::Not, Type::Bool, {condition.value});
    result = result ? make(Op::And, Type::Bool, {*result, one}) : one;
  }
  return result ? *result : module.constBool(true);
}

/// Returns the value if the conditions hold, else 0.
Value Products::chosen(const Conditions& conditions, Value value) {
  if (conditions.empty()) return value;
  const Value zero = module.constF32(0);
  if (conditions.size() == 1 && !conditions[0].holds)
    return make(Op::Select, Type::F32, {conditions[0].value, zero, value});
  return make(Op::Select, Type::F32, {valueOf(conditions), value, zero});
}

/// Multiplies the factors of each level into one value, which joins the factors of the next inner level.
Value Products::unconditional(const Product& product) {
  const auto levelsOf = [&](const Values& values, auto isAt) {
    Values result;
    llvm::copy_if(values, std::back_inserter(result), [&](Value value) { return isAt(levelOf(value)); });
    return result;
  };
  std::optional<Value> outer[2]; // values so far: known per row, known per column
  double factor = product.factor;
  const auto build = [&](std::optional<Value> result, const Values& above, const Values& below) {
    const auto times = [&](Value by) { result = result ? make(Op::Mul, Type::F32, {*result, by}) : by; };
    for (Value value : above) times(value);
    if (!above.empty() || !below.empty()) {
      if (factor != 1 && factor != -1) times(module.constF32(float(factor)));
      if (factor == -1 && result) result = make(Op::Neg, Type::F32, {*result});
      if (factor == -1 && !result) result = module.constF32(-1);
      factor = 1;
    }
    std::optional<Value> divisor;
    for (Value value : below) divisor = divisor ? make(Op::Mul, Type::F32, {*divisor, value}) : value;
    if (divisor) result = make(Op::Div, Type::F32, {result.value_or(module.constF32(1)), *divisor});
    return result;
  };
  const auto part = [&](std::optional<Value> result, auto isAt) {
    return build(result, levelsOf(product.above, isAt), levelsOf(product.below, isAt));
  };
  const std::optional<Value> head = part({}, [](Level level) { return level <= Level::Head; });
  outer[0] = part(head, [](Level level) { return level == Level::Row; });
  const bool hasRow = outer[0] != head;
  outer[1] = part(hasRow ? std::nullopt : head, [](Level level) { return level == Level::Column; });
  const bool hasColumn = outer[1] != (hasRow ? std::nullopt : head);
  const auto isElement = [](Level level) { return level == Level::Element; };
  Values above = levelsOf(product.above, isElement);
  std::optional<Value> result;
  if (above.empty()) {
    result = hasRow ? outer[0] : outer[1];
    if (hasRow && hasColumn) result = make(Op::Mul, Type::F32, {*outer[0], *outer[1]});
  } else {
    if (hasRow) above.push_back(*outer[0]);
    if (hasColumn || (!hasRow && head)) above.push_back(*outer[1]);
  }
  result = build(result, above, levelsOf(product.below, isElement));
  return result ? *result : module.constF32(float(factor));
}

Value Products::valueOf(const Product& product) { return chosen(product.when, unconditional(product)); }

// ---- Sums ----

/// Removes the factors and conditions that all terms share, and returns these.
Product Products::takeCommon(llvm::MutableArrayRef<Product> terms) {
  Product rest{1, terms[0].above, terms[0].below, terms[0].when};
  for (const Product& term : terms) {
    rest.above = common(rest.above, term.above);
    rest.below = common(rest.below, term.below);
    rest.when.erase(llvm::remove_if(rest.when, [&](auto& one) { return !llvm::is_contained(term.when, one); }),
                    rest.when.end());
  }
  for (Product& term : terms) {
    term.above = without(term.above, rest.above);
    term.below = without(term.below, rest.below);
    term.when = except(term.when, rest.when);
  }
  return rest;
}

/// Joins two terms that exclude each other or differ only in their constant factor. Returns false for other terms.
bool Products::join(Product& into, const Product& other) {
  if (into.when == other.when && into.above == other.above && into.below == other.below) {
    into.factor += other.factor;
    return true;
  }
  const std::optional<Condition> which = opposite(into.when, other.when);
  if (!which) return false;
  Conditions when = except(into.when, *which);
  Product pair[] = {into, other};
  pair[0].when.clear();
  pair[1].when.clear();
  into = takeCommon(pair);
  into.when = std::move(when);
  const Value yes = unconditional(pair[!which->holds]), no = unconditional(pair[which->holds]);
  multiply(into, yes == no ? yes : make(Op::Select, Type::F32, {which->value, yes, no}));
  return true;
}

/// Adds a term that shares no factor with the others.
void Products::add(Product& into, const Product& other) {
  const bool isSame = into.when == other.when;
  const Value x = isSame ? unconditional(into) : valueOf(into), y = isSame ? unconditional(other) : valueOf(other);
  Product result;
  if (isSame) {
    result.when = into.when;
  } else if (!into.when.empty() && !other.when.empty()) {
    const Value either = make(Op::Or, Type::Bool, {valueOf(into.when), valueOf(other.when)});
    require(result, {either, true});
  }
  multiply(result, make(Op::Add, Type::F32, {x, y}));
  into = std::move(result);
}

Product Products::sum(llvm::SmallVector<Product, 2> terms) {
  for (size_t i = 0; i < terms.size() && terms.size() <= kMaxPaired; ++i)
    for (size_t j = i + 1; j < terms.size(); ++j)
      if (join(terms[i], terms[j])) {
        terms.erase(terms.begin() + ptrdiff_t(j));
        i = size_t(-1); // the joined term may match an earlier one
        break;
      }
  llvm::erase_if(terms, [](const Product& term) { return term.factor == 0; });
  if (terms.size() < 2) return terms.empty() ? Product{0, {}, {}, {}} : terms[0];
  Product rest = takeCommon(terms), total = terms[0];
  for (const Product& term : llvm::ArrayRef<Product>(terms).drop_front()) add(total, term);
  multiply(rest, unconditional(total));
  for (const Condition& condition : total.when) require(rest, condition);
  return rest;
}

Product Products::sumOver(const Product& product, ir::Loop loop, bool isLast) {
  const ir::LoopSet own = only(loop);
  const auto isOpen = [&](Value value) { return (openOf(value) & own) != 0; };
  Product inside, outside{product.factor, {}, {}, {}};
  for (Value value : product.above) (isOpen(value) ? inside : outside).above.push_back(value);
  for (Value value : product.below) (isOpen(value) ? inside : outside).below.push_back(value);
  for (const Condition& condition : product.when)
    (isOpen(condition.value) ? inside : outside).when.push_back(condition);
  if (inside.above.empty() && inside.below.empty() && inside.when.empty()) {
    outside.factor *= double(loop.count);
    return outside;
  }
  multiply(outside, make(Op::Sum, Type::F32, {valueOf(inside)}, loop.attr()));
  if (inside.when.empty() || isLast) return outside;
  // If the conditions hold in no round, the sum must be 0, even when later multiplied by an infinity.
  const Value held = make(Op::Cast, Type::I32, {valueOf(inside.when)});
  const Value rounds = make(Op::Sum, Type::I32, {held}, loop.attr());
  require(outside, {make(Op::Ne, Type::Bool, {rounds, module.constInt(Type::I32, 0)}), true});
  return outside;
}

} // namespace attnc::passes
