// The index is first copied into a module of its own, so the search costs only what the index needs.
#include "analysis/example_search.h"

#include "analysis/ir_names.h"
#include "ir/conditions.h"
#include "ir/interpreter.h"
#include "ir/walk.h"

#include <llvm/Support/MathExtras.h>

#include <fmt/format.h>

#include <algorithm>

namespace attnc::analysis {

namespace {

constexpr uint64_t kSetUp = 1000; // operations to set up one problem
constexpr uint32_t kNone = UINT32_MAX;
constexpr ParamKind kCoordinates[] = {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx};

/// Example problems: B, H, HKV, Q_LEN, KV_LEN, and the value of every free extent. Small ones come first, for readable
/// examples.
constexpr int64_t kProblems[][6] = {
    {2, 4, 2, 8, 8, 4},
    {2, 4, 2, 8, 16, 4},
    {2, 4, 2, 16, 8, 4},
    {1, 8, 1, 1, 32, 64},
    {2, 8, 2, 128, 128, 16},
    {4, 32, 8, 2048, 2048, 64},
    {64, 64, 8, 65536, 65536, 16},
    {2, 8, 2, 1 << 24, 1 << 24, 4096},
    {2, 8, 2, 1 << 24, 1, 4},
};

/// Returns the positions worth trying along an extent: all of a short one; the ends and some powers of two of a long
/// one.
std::vector<int64_t> positions(int64_t extent, bool matters) {
  std::vector<int64_t> result = {0};
  if (!matters) return result;
  int64_t all = std::min<int64_t>(extent, 16);
  for (int64_t at = 1; at < all; ++at) result.push_back(at);
  for (int64_t at = 16; at < extent; at *= 4) result.push_back(at);
  if (extent > 16) result.push_back(extent - 1);
  return result;
}

} // namespace

/// One index and what it needs.
struct ExampleSearch::Sample {
  const ir::Module& alone; ///< module with only the index
  Value index;             ///< in `alone`
  ir::Extent extent;
  uint64_t cost;                     ///< operations of one evaluation
  llvm::SmallVector<size_t, 4> dims; ///< extents that the index uses, in order
  ir::ParamSet params;

  bool usesDim(size_t dim) const { return llvm::is_contained(dims, dim); }
};

ExampleSearch::ExampleSearch(const ir::Module& module, const ir::Pins& pins)
    : module(module), pins(pins), open(ir::openLoops(module)), dataOf(module.size(), kNone),
      params(ir::paramsOf(module)), seen(module.size(), 0), now(module.size()) {
  for (const auto& problem : kProblems) {
    auto& dims = problems.emplace_back().dims;
    for (size_t dim = 0; dim < module.dims.size(); ++dim) {
      auto pinned = pins.find(module.dims[dim]);
      dims.push_back(pinned == pins.end() ? problem[std::min<size_t>(dim, 5)] : pinned->second);
    }
  }
  for (uint32_t id = 0; id < module.size(); ++id) {
    const ir::Node& node = module[{id}];
    if (node.op == Op::Load || node.op == Op::Scalar) dataOf[id] = id;
    for (Value operand : node.operands) dataOf[id] = std::min(dataOf[id], dataOf[operand.id]);
  }
  meetConditions();
}

void ExampleSearch::meetConditions() {
  const ir::Module conditions = ir::conditionsAlone(module);
  isFixed.assign(module.dims.size(), false);
  std::vector<bool> isFree(module.dims.size());
  for (size_t dim = 0; dim < module.dims.size(); ++dim) {
    isFixed[dim] = pins.count(module.dims[dim]) != 0;
    isFree[dim] = dim >= ir::kBuiltinDims && !isFixed[dim];
  }
  for (uint32_t id = 0; id < conditions.size(); ++id)
    if (conditions[{id}].op == Op::Dim) isFixed[conditions[{id}].attr] = true;
  llvm::erase_if(problems,
                 [&](ir::Bindings& problem) { return !ir::meetConditions(conditions, problem.dims, isFree); });
}

std::string ExampleSearch::run(Value index, const ir::Extent& extent, uint64_t allowed) {
  if (params[index.id].contains(ParamKind::Score)) return "the index depends on score, which may be anything";
  if (uint32_t data = dataOf[index.id]; data != kNone) {
    const ir::Node& node = module[{data}];
    return fmt::format("the index depends on {}, which may be anything",
                       node.op == Op::Load ? module.tensors[node.attr].name : module.scalars[node.attr].name);
  }
  const char* tooLarge = "this is not proved; no example was looked for, as that would take too long";
  const char* noExample = problems.empty()
                              ? "this is not proved; no example was found that meets the conditions of the launch"
                              : "the index was inside in all examples tried, but this is not proved";
  const uint64_t end = spent + allowed;
  if (!collect(index, allowed)) return tooLarge;
  uint64_t rounds = 1;
  for (uint32_t id : needed)
    if (module[{id}].op == Op::Sum)
      rounds = llvm::SaturatingMultiply(rounds, uint64_t(ir::Loop::of(module[{id}]).count));
  // An index inside a sum is tried in the sum's last round and in its first.
  const bool isInside = open[index.id];
  if (isInside && rounds > 1) return noExample;
  triedAny = problems.empty();
  for (bool last : {true, false}) {
    if (!isInside && !last) break;
    const ir::Module alone = needsAlone(isInside, last);
    Sample sample{alone, now[index.id], extent, llvm::SaturatingMultiply(uint64_t(alone.size()), rounds), {}};
    for (uint32_t id : needed) {
      const ir::Node& node = module[{id}];
      if (node.op == Op::Dim) sample.dims.push_back(size_t(node.attr));
      if (node.op == Op::Param) sample.params |= {ParamKind(node.attr)};
    }
    llvm::sort(sample.dims);
    for (size_t problem = 0; problem < problems.size() && spent < end; ++problem) {
      std::string found = tryProblem(sample, problem, (end - spent) / (problems.size() - problem));
      if (!found.empty()) return found;
    }
  }
  return triedAny ? noExample : tooLarge;
}

/// Collects what the index needs, in the order of the arena. Returns false if that is more than the search may visit.
bool ExampleSearch::collect(Value index, uint64_t allowed) {
  needed.clear();
  llvm::SmallVector<Value, 16> open = {index};
  seen[index.id] = ++searches;
  while (!open.empty() && needed.size() < allowed) {
    Value value = open.pop_back_val();
    needed.push_back(value.id);
    for (Value operand : module[value].operands)
      if (std::exchange(seen[operand.id], searches) != searches) open.push_back(operand);
  }
  spent += needed.size();
  llvm::sort(needed);
  return open.empty();
}

/// Returns a module with only what the index needs. `inRound`: indices of sums become constants, of the last or first
/// round.
ir::Module ExampleSearch::needsAlone(bool inRound, bool last) {
  ir::Module alone;
  for (uint32_t id : needed) {
    ir::Node node = module[{id}];
    for (Value& operand : node.operands) operand = now[operand.id];
    now[id] = inRound && node.op == Op::Iter ? alone.constInt(ir::Type::I32, last ? ir::Loop::of(node).count - 1 : 0)
                                             : alone.make(node.op, node.type, node.operands, node.attr, node.line);
  }
  return alone;
}

std::string ExampleSearch::tryProblem(const Sample& sample, size_t problem, uint64_t allowed) {
  llvm::ArrayRef<int64_t> dims = problems[problem].dims;
  if (std::count(dims.begin(), dims.begin() + ir::kBuiltinDims, 0)) return ""; // no coordinates
  std::vector<int64_t> along[4];
  auto cost = [&] {
    const uint64_t points = uint64_t(along[0].size()) * along[1].size() * along[2].size() * along[3].size();
    return llvm::SaturatingMultiplyAdd(sample.cost, points, kSetUp);
  };
  for (size_t i = 0; i < 4; ++i)
    along[i] = positions(dims[size_t(*ir::extentOf(kCoordinates[i]))], sample.params.contains(kCoordinates[i]));
  if (cost() > allowed) // for the corners only
    for (std::vector<int64_t>& at : along)
      if (at.size() > 2) at = {at.front(), at.back()};
  if (cost() > allowed) return "";
  triedAny = true;
  spent += kSetUp;
  ir::Evaluator evaluator(sample.alone, problems[problem], sample.index);
  const int64_t end = sample.extent.isNamed ? dims[sample.extent.value] : sample.extent.value;
  for (int64_t b : along[0])
    for (int64_t h : along[1])
      for (int64_t q : along[2])
        for (int64_t kv : along[3]) {
          spent += sample.cost;
          int64_t at = evaluator.evaluate(0, b, h, q, kv).integer;
          if (at < 0 || at >= end) return describe(sample, dims, {b, h, q, kv}, at);
        }
  return "";
}

/// Returns the smallest extent with this position, or the example's extent if pins or conditions fix it.
int64_t ExampleSearch::shortest(size_t dim, int64_t position, int64_t extent) const {
  return isFixed[dim] ? extent : position + 1;
}

std::string ExampleSearch::describe(const Sample& sample, llvm::ArrayRef<int64_t> dims,
                                    llvm::ArrayRef<int64_t> coordinates, int64_t at) const {
  std::string text;
  auto add = [&](llvm::StringRef name, int64_t value) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name.str(), value);
  };
  const ir::Extent& extent = sample.extent;
  for (size_t dim : sample.dims) add(module.dims[dim], dims[dim]);
  for (ParamKind param : kCoordinates) {
    if (!sample.params.contains(param)) continue;
    // Next to another named extent, the example must show that the position exists: Q_LEN = 9, q_idx = 8.
    size_t along = size_t(*ir::extentOf(param));
    int64_t position = coordinates[size_t(param) - 1];
    bool isOther = extent.isNamed && extent.value != int64_t(along);
    if (isOther && position > 0 && !sample.usesDim(along))
      add(module.dims[along], shortest(along, position, dims[along]));
    add(ir::name(param), position);
  }
  if (text.empty()) text = "it always";
  std::string size = fmt::format("{}", extent.isNamed ? dims[extent.value] : extent.value);
  if (extent.isNamed) size = fmt::format("{} = {}", module.dims[extent.value], size);
  return fmt::format("{} gives index {}, extent {}", text, at, size);
}

} // namespace attnc::analysis
