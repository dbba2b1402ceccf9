// In: an unknown name. Out: the most helpful diagnostic: what to write instead of a known function that attnc lacks,
// the name that was meant, or the declaration that is missing.
#include "dsl/tracing/suggestions.h"

#include "dsl/tracing/tracer.h"
#include "dsl/tracing/usage.h"

namespace attnc::dsl {

namespace {

constexpr struct {
  const char* name;
  const char* instead;
} kAbsent[] = {
    {"type", "what a value is, is known here: leave the test out"},
    {"argmax", "compute it beforehand and declare the result as a captured tensor"},
    {"argmin", "compute it beforehand and declare the result as a captured tensor"},
    {"argsort", "compute it beforehand and declare the result as a captured tensor"},
    {"sort", "compute it beforehand and declare the result as a captured tensor"},
    {"sorted", "write the items in their order"},
    {"topk", "compute it beforehand and declare the result as a captured tensor"},
    {"cumsum", "compute it beforehand and declare the result as a captured tensor"},
    {"einsum", "products of rows are `torch.dot(x, y)` or `(x * y).sum()`"},
    {"matmul", "products of rows are `torch.dot(x, y)` or `(x * y).sum()`"},
    {"gather", "index the tensor: `t[i]`"},
    {"index_select", "index the tensor: `t[i]`"},
    {"linspace", "compute the item from its index, or declare a captured tensor"},
    {"empty", "write the number, or declare a captured tensor"},
    {"rand", "draw it beforehand and declare the result as a captured tensor"},
    {"randn", "draw it beforehand and declare the result as a captured tensor"},
    {"randint", "draw it beforehand and declare the result as a captured tensor"},
    {"vmap", "a mod is written for one score; attnc applies it to all"},
    {"create_mask", "attnc builds block masks itself; define `mask_mod` alone"},
    {"flex_attention", "attnc makes the kernel itself; define `score_mod` and `mask_mod` alone"},
    {"from_kv_blocks", "attnc finds blocks itself: return the mask function, or give it to `create_block_mask`"},
    {"np", "write `torch` or `math`"},
    {"numpy", "write `torch` or `math`"},
    {"set", "use a tuple"},
    {"str", "a mod computes numbers"},
    {"open", "a mod reads no files; declare data as a captured tensor"},
};

/// Whether the object can be used as the name is used.
bool fits(Object value, const Usage& usage) {
  if (usage.isCalled) return value.isCallable();
  if (!usage.dims.empty()) return value.isArrayLike() || value.is<Sequence*>();
  return !value.is<const Builtin*>();
}

const char* exampleOf(const Usage& usage) {
  switch (usage.type.value_or(UsedAs::Int)) {
  case UsedAs::Bool: return "True";
  case UsedAs::Int: return "8";
  case UsedAs::Real: return "1.0";
  }
  return "8";
}

} // namespace

std::string closest(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> candidates) {
  if (name.size() < 3) return ""; // a short name is close to too many others
  unsigned best = name.size() < 5 ? 2 : 3;
  llvm::StringRef found;
  for (llvm::StringRef candidate : candidates) {
    unsigned distance = name.edit_distance(candidate, /*AllowReplacements=*/true, best);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found.empty() ? "" : "did you mean `" + found.str() + "`?";
}

const char* insteadOf(llvm::StringRef name) {
  for (auto& [absent, instead] : kAbsent)
    if (name == absent) return instead;
  return nullptr;
}

void Tracer::noMember(Loc loc, llvm::StringRef path, llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> known) {
  if (const char* instead = insteadOf(name))
    diagnostics.fail(loc, diag::absentFunction, path.str() + "." + name.str(), instead);
  diagnostics.fail(loc, diag::unknownMember, std::string_view(path), std::string_view(name), closest(name, known));
}

void Tracer::undefined(llvm::StringRef name, Scope* from) {
  if (const char* instead = insteadOf(name)) fail(diag::absentFunction, std::string_view(name), instead);
  // The text is read once for each unknown name; there are at most as many as diagnostics.
  Usage usage = at.text == 0 && text ? usageOf(*text, name) : Usage();
  std::vector<llvm::StringRef> candidates;
  if (usage.isCalled) candidates = builtinNames(kPython | kTorch);
  for (Scope* around = from; around; around = around->parent)
    for (auto& [key, value] : around->names)
      if (fits(value, usage)) candidates.push_back(key);
  charge(candidates.size());
  std::sort(candidates.begin(), candidates.end()); // the scopes' order is that of a hash table
  std::string meant = closest(name, candidates), declaration = declarationOf(name, usage);
  std::string_view given = name;
  if (!meant.empty() || usage.isCalled) fail(diag::undefinedName, given, meant);
  if (!usage.member.empty()) fail(diag::undefinedObject, given, usage.member);
  if (!usage.dims.empty()) fail(diag::undeclaredTensor, given, declaration);
  if (usage.steers) fail(diag::undefinedConstant, given, exampleOf(usage));
  if (!declaration.empty()) fail(diag::undeclaredScalar, given, declaration, exampleOf(usage));
  fail(diag::undefinedName, given, "");
}

} // namespace attnc::dsl
