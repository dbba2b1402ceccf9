#include "proofs/question.h"

#include "support/try.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <map>

namespace attnc::proofs {
namespace {

/// Extents of examples are sought up to these, and then without a bound.
constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64, 128, 1024, 16384};

/// Returns a value of Z3: "#x0000001f", "#b1", "true".
Number numberOf(const std::string& text, ir::Type type) {
  const uint64_t bits = text == "true"             ? 1
                        : text.rfind("#x", 0) == 0 ? std::strtoull(text.c_str() + 2, nullptr, 16)
                        : text.rfind("#b", 0) == 0 ? std::strtoull(text.c_str() + 2, nullptr, 2)
                                                   : 0;
  if (type == ir::Type::F32) return {.real = std::bit_cast<float>(uint32_t(bits))};
  return {.integer = type == ir::Type::I64 ? int64_t(bits) : int32_t(bits)};
}

std::string termOf(const std::string& name, ir::Type type) {
  return type == ir::Type::F32 ? fmt::format("(fp.to_ieee_bv {})", name) : name;
}

} // namespace

Expected<Question::Outcome> Question::ask(Solver& solver, double seconds, Launch& launch, Element& at,
                                          const Fails& fails) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::microseconds(int64_t(seconds * 1e6));
  const auto left = [&] { return std::chrono::duration<double>(end - Clock::now()).count(); };
  ATTNC_TRY(solver.add(script.text));
  ATTNC_TRY_AS(any, solver.check(seconds / 2));
  if (*any == Solver::Answer::Unsat) return Outcome::None;
  bool isSat = *any == Solver::Answer::Sat;
  for (int64_t size : kSizes) {
    if (left() <= 0) break;
    solver.push();
    for (int64_t dim : script.dims)
      ATTNC_TRY(solver.add(fmt::format("(assert (bvsle dim_{} (_ bv{} 32)))", dim, size)));
    const auto answer = solver.check(std::min(left(), seconds / 8));
    const bool isOne = answer && *answer == Solver::Answer::Sat;
    const bool isFound = isOne && confirmed(solver, launch, at, fails);
    solver.pop();
    if (!answer) return answer.error();
    if (isFound) return Outcome::Found;
    isSat |= isOne;
  }
  if (isSat && left() > 0) {
    ATTNC_TRY_AS(again, solver.check(left()));
    if (*again == Solver::Answer::Sat && confirmed(solver, launch, at, fails)) return Outcome::Found;
  }
  return isSat ? Outcome::Unconfirmed : Outcome::Unknown;
}

std::string Question::obstacle() const {
  std::string text;
  for (const std::set<std::string>* all : {&script.open, &script.hard})
    for (const std::string& one : *all) {
      const auto next = all->upper_bound(one); // the same with its line
      const bool isToldAgain = next != all->end() && next->rfind(one + " (", 0) == 0;
      if (!isToldAgain) text += (text.empty() ? "" : ", ") + one;
    }
  return text;
}

/// Makes the launch of the solver's model, and returns whether the claim fails there.
bool Question::confirmed(Solver& solver, Launch& launch, Element& at, const Fails& fails) {
  const auto one = [&](const std::string& name, ir::Type type) {
    return numberOf(solver.valuesOf({termOf(name, type)})[0], type);
  };
  const auto i32 = [&](const std::string& name) { return one(name, ir::Type::I32).integer; };
  std::map<int64_t, int64_t> dims;
  for (int64_t dim : script.dims) dims[dim] = i32(fmt::format("dim_{}", dim));
  const auto dimOf = [&](ir::BuiltinDim dim, int64_t other = 1) {
    const auto found = dims.find(int64_t(dim));
    return found == dims.end() ? other : found->second;
  };
  launch.problem = {.batch = dimOf(ir::BuiltinDim::B),
                    .qHeads = dimOf(ir::BuiltinDim::H, dimOf(ir::BuiltinDim::HKV)),
                    .kvHeads = dimOf(ir::BuiltinDim::HKV),
                    .qLen = dimOf(ir::BuiltinDim::QLen),
                    .kvLen = dimOf(ir::BuiltinDim::KvLen)};
  launch.extents.clear();
  for (size_t dim = ir::kBuiltinDims; dim < claim.dims.size(); ++dim)
    launch.extents[claim.dims[dim]] = dims.count(int64_t(dim)) ? dims[int64_t(dim)] : 1;
  std::map<std::pair<size_t, std::vector<int64_t>>, Number> elements;
  for (const LoadTerm& load : script.loads) {
    std::vector<int64_t> index;
    for (const std::string& name : load.indices) index.push_back(i32(name));
    elements[{load.tensor, index}] = one(load.result, ir::loadedType(claim.tensors[load.tensor].dtype));
  }
  std::map<size_t, Number> scalars;
  for (int64_t scalar : script.scalars)
    scalars[size_t(scalar)] = one(fmt::format("scalar_{}", scalar), claim.scalars[size_t(scalar)].type);
  const auto param = [&](ir::ParamKind kind) {
    return script.params.count(kind) ? i32(fmt::format("param_{}", int(kind))) : 0;
  };
  at = {param(ir::ParamKind::B), param(ir::ParamKind::H), param(ir::ParamKind::QIdx), param(ir::ParamKind::KvIdx)};
  // Elements that the model leaves open: those of a sorted tensor repeat the one before, or the first one known.
  const auto elementOf = [&](size_t tensor, llvm::ArrayRef<int64_t> index) {
    const auto key = std::pair(tensor, index.vec());
    auto next = elements.lower_bound(key);
    if (next != elements.end() && next->first == key) return next->second;
    if (!nondecreasing.count(claim.tensors[tensor].name)) return Number{.integer = 0};
    const auto isOfRow = [&](const auto& entry) {
      return entry.first.first == tensor && std::equal(index.begin(), index.end() - 1, entry.first.second.begin());
    };
    if (next != elements.begin() && isOfRow(*std::prev(next))) return std::prev(next)->second;
    return next != elements.end() && isOfRow(*next) ? next->second : Number{.integer = 0};
  };
  const auto scalarOf = [&](size_t scalar) {
    const auto found = scalars.find(scalar);
    return found == scalars.end() ? Number{.integer = 0} : found->second;
  };
  return launch.fill(claim, elementOf, scalarOf) && fails(launch, at);
}

} // namespace attnc::proofs
