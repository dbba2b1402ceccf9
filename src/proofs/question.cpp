#include "proofs/question.h"

#include "support/try.h"

#include <bit>
#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <map>

namespace attnc::proofs {
namespace {

/// Extents of examples are sought up to these, and then without a bound.
constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64, 128, 1024, 16384};

/// Returns the number of a value of Z3: "#x0000001f", "#b1", "true".
int64_t integerOf(const std::string& text, ir::Type type) {
  if (text == "true") return 1;
  const uint64_t bits = text.rfind("#x", 0) == 0   ? std::strtoull(text.c_str() + 2, nullptr, 16)
                        : text.rfind("#b", 0) == 0 ? std::strtoull(text.c_str() + 2, nullptr, 2)
                                                   : 0;
  return type == ir::Type::I64 ? int64_t(bits) : int32_t(bits);
}

double numberOf(const std::string& text, ir::Type type) {
  const int64_t integer = integerOf(text, type);
  return type == ir::Type::F32 ? std::bit_cast<float>(uint32_t(integer)) : double(integer);
}

std::string termOf(const std::string& name, ir::Type type) {
  return type == ir::Type::F32 ? fmt::format("(fp.to_ieee_bv {})", name) : name;
}

} // namespace

Expected<std::optional<bool>> Question::ask(Solver& solver, double seconds, Launch& launch, Element& at,
                                            const Fails& fails) {
  ATTNC_TRY(solver.add(script.text));
  ATTNC_TRY_AS(any, solver.check(seconds));
  if (*any == Solver::Answer::Unsat) return std::optional<bool>(false);
  for (int64_t size : kSizes) {
    solver.push();
    for (int64_t dim : script.dims)
      ATTNC_TRY(solver.add(fmt::format("(assert (bvsle dim_{} (_ bv{} 32)))", dim, size)));
    const auto answer = solver.check(seconds / 16);
    const bool isFound = answer && *answer == Solver::Answer::Sat && confirmed(solver, launch, at, fails);
    solver.pop();
    if (!answer) return answer.error();
    if (isFound) return std::optional<bool>(true);
  }
  if (*any == Solver::Answer::Sat) {
    ATTNC_TRY_AS(again, solver.check(seconds));
    if (*again == Solver::Answer::Sat && confirmed(solver, launch, at, fails)) return std::optional<bool>(true);
  }
  return std::optional<bool>();
}

std::string Question::obstacle() const {
  std::string text;
  for (const std::set<std::string>* all : {&script.open, &script.hard})
    for (const std::string& one : *all) text += (text.empty() ? "" : ", ") + one;
  return text;
}

/// Makes the launch of the solver's model, and returns whether the claim fails there.
bool Question::confirmed(Solver& solver, Launch& launch, Element& at, const Fails& fails) {
  const auto one = [&](const std::string& name, ir::Type type) {
    return numberOf(solver.valuesOf({termOf(name, type)})[0], type);
  };
  std::map<int64_t, int64_t> dims;
  for (int64_t dim : script.dims) dims[dim] = int64_t(one(fmt::format("dim_{}", dim), ir::Type::I32));
  const auto dimOf = [&](ir::BuiltinDim dim) { return dims.count(int64_t(dim)) ? dims[int64_t(dim)] : int64_t(1); };
  launch.problem = {.batch = dimOf(ir::BuiltinDim::B),
                    .qHeads = dimOf(ir::BuiltinDim::H),
                    .kvHeads = dimOf(ir::BuiltinDim::HKV),
                    .qLen = dimOf(ir::BuiltinDim::QLen),
                    .kvLen = dimOf(ir::BuiltinDim::KvLen)};
  launch.extents.clear();
  for (size_t dim = ir::kBuiltinDims; dim < claim.dims.size(); ++dim)
    launch.extents[claim.dims[dim]] = dims.count(int64_t(dim)) ? dims[int64_t(dim)] : 1;
  std::map<std::pair<uint32_t, std::vector<int64_t>>, double> elements;
  for (const proofs::LoadTerm& load : script.loads) {
    std::vector<int64_t> index;
    for (const std::string& name : load.indices) index.push_back(int64_t(one(name, ir::Type::I32)));
    elements[{load.tensor, index}] = one(load.result, ir::loadedType(claim.tensors[load.tensor].dtype));
  }
  std::map<int64_t, double> scalars;
  for (int64_t scalar : script.scalars)
    scalars[scalar] = one(fmt::format("scalar_{}", scalar), claim.scalars[size_t(scalar)].type);
  const auto param = [&](ir::ParamKind kind) {
    return script.params.count(kind) ? one(fmt::format("param_{}", int(kind)), ir::typeOf(kind)) : 0;
  };
  at = {int64_t(param(ir::ParamKind::B)), int64_t(param(ir::ParamKind::H)), int64_t(param(ir::ParamKind::QIdx)),
        int64_t(param(ir::ParamKind::KvIdx))};
  // Elements that the model leaves open: those of a sorted tensor repeat the one before, or the first one known.
  const auto elementOf = [&](size_t tensor, llvm::ArrayRef<int64_t> index) {
    const auto key = std::pair(uint32_t(tensor), index.vec());
    auto next = elements.lower_bound(key);
    if (next != elements.end() && next->first == key) return next->second;
    if (!nondecreasing.count(claim.tensors[tensor].name)) return 0.0;
    const auto isOfRow = [&](const auto& entry) {
      return entry.first.first == key.first && std::equal(index.begin(), index.end() - 1, entry.first.second.begin());
    };
    if (next != elements.begin() && isOfRow(*std::prev(next))) return std::prev(next)->second;
    return next != elements.end() && isOfRow(*next) ? next->second : 0.0;
  };
  if (!launch.fill(claim, elementOf,
                   [&](size_t scalar) { return scalars.count(int64_t(scalar)) ? scalars[int64_t(scalar)] : 0; }))
    return false;
  return fails(launch, at);
}

} // namespace attnc::proofs
