// In: an unknown name. Out: the most helpful diagnostic: what to write instead of a known function that attnc lacks,
// the name that was meant, or the declaration that is missing.
#include "dsl/tracing/suggestions.h"

#include "dsl/objects/repairs.h"
#include "dsl/tracing/tracer.h"
#include "dsl/tracing/usage.h"

#include <fmt/format.h>

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
    {"load", "load it beforehand and declare it as a captured tensor"},
    {"loadtxt", "load it beforehand and declare it as a captured tensor"},
    {"from_numpy", "declare it as a captured tensor"},
    {"softmax", "attnc takes the softmax of what score_mod returns: return the score itself"},
    {"log_softmax", "attnc takes the softmax of what score_mod returns: return the score itself"},
    {"dropout",
     "define `prob_mod(prob, b, h, q_idx, kv_idx)`, which returns `where(random(seed, b, h, q_idx, kv_idx) < P, "
     "0.0, prob / (1 - P))`"},
    {"tril", "write the condition of one score: `q_idx >= kv_idx`"},
    {"triu", "write the condition of one score: `q_idx <= kv_idx`"},
    {"backward", "attnc derives gradients itself, for `--backward`: leave the call out"},
    {"np", "write `torch` or `math`"},
    {"numpy", "write `torch` or `math`"},
    {"set", "use a tuple"},
    {"str", "a mod computes numbers"},
    {"open", "a mod reads no files; declare data as a captured tensor"},
};

/// Usual names of what the language has under another name.
constexpr struct {
  const char* name; // without case and underscores
  const char* meant;
} kUsual[] = {
    {"qlen", "Q_LEN"},      {"qlength", "Q_LEN"},
    {"seqlenq", "Q_LEN"},   {"kvlen", "KV_LEN"},
    {"kvlength", "KV_LEN"}, {"seqlenkv", "KV_LEN"},
    {"seqlenk", "KV_LEN"},  {"seqlen", "KV_LEN"},
    {"klen", "KV_LEN"},     {"sequencelength", "KV_LEN"},
    {"numheads", "H"},      {"nheads", "H"},
    {"nhead", "H"},         {"heads", "H"},
    {"numkvheads", "HKV"},  {"nkvheads", "HKV"},
    {"kvheads", "HKV"},     {"batchsize", "B"},
    {"batch", "B"},         {"qidx", "q_idx"},
    {"kvidx", "kv_idx"},
};

/// Returns the name of the language that a name without indices and arguments means; empty if none.
std::string usualName(llvm::StringRef name) {
  std::string bare = name.lower();
  std::erase(bare, '_');
  for (auto& [usual, meant] : kUsual)
    if (bare == usual) return meant;
  return "";
}

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
    diagnostics.fail(loc, diag::absentFunction, path.str() + "." + name.str(), instead + declarationAt(loc, instead));
  std::string hint = closest(name, known);
  if (hint.empty())
    hint = "compute it beforehand and declare the result as a captured tensor" + declarationAt(loc, "captured tensor");
  diagnostics.fail(loc, diag::unknownMember, std::string_view(path), std::string_view(name), hint);
}

namespace {

bool has(const AssignStmt& assign, Loc loc) {
  return assign.targets.front()->loc.begin <= loc.begin && loc.begin < assign.value->loc.end;
}

/// Returns the assignment that has the place, also in functions, classes and blocks. Null if it is elsewhere.
const AssignStmt* assignmentAt(const Block& body, Loc loc) {
  const AssignStmt* found = nullptr;
  for (const Stmt* stmt : body) {
    if (found) break;
    switch (stmt->kind) {
    case StmtKind::Assign: {
      const auto* assign = llvm::cast<AssignStmt>(stmt);
      if (has(*assign, loc)) found = assign;
      break;
    }
    case StmtKind::Def: found = assignmentAt(llvm::cast<DefStmt>(stmt)->function->body, loc); break;
    case StmtKind::Class: found = assignmentAt(llvm::cast<ClassStmt>(stmt)->function->body, loc); break;
    case StmtKind::If:
      for (auto& [condition, clause] : llvm::cast<IfStmt>(stmt)->clauses)
        if (!found) found = assignmentAt(clause, loc);
      if (!found) found = assignmentAt(llvm::cast<IfStmt>(stmt)->otherwise, loc);
      break;
    case StmtKind::For: found = assignmentAt(llvm::cast<ForStmt>(stmt)->body, loc); break;
    case StmtKind::While: found = assignmentAt(llvm::cast<WhileStmt>(stmt)->body, loc); break;
    case StmtKind::With: found = assignmentAt(llvm::cast<WithStmt>(stmt)->body, loc); break;
    default: break;
    }
  }
  return found;
}

/// Returns the name that an assignment gives to a tensor: `bias` in `bias = ...` and in `self.bias = ...`.
llvm::StringRef boundName(const AssignStmt& assign) {
  const Expr& target = *assign.targets.front();
  if (const auto* name = llvm::dyn_cast<NameExpr>(&target)) return name->name;
  const auto* member = llvm::dyn_cast<AttributeExpr>(&target);
  const auto* object = member ? llvm::dyn_cast<NameExpr>(member->base) : nullptr;
  return object && object->name == "self" ? member->name : "";
}

} // namespace

/// Returns ", `bias: f32[H]`" for a hint that speaks of a captured tensor, if the place is in `bias = ...`.
std::string Tracer::declarationAt(Loc loc, llvm::StringRef hint) {
  if (!text || loc.text != 0 || !hint.contains("captured tensor")) return "";
  const AssignStmt* assign = assignmentAt(*text, loc);
  const llvm::StringRef name = assign ? boundName(*assign) : "";
  if (name.empty()) return "";
  const std::string declaration = declarationInText(name);
  if (declaration.empty()) return "";
  const bool isModules = llvm::is_contained(*text, assign);
  return ", `" + declaration + (isModules ? "`, in its place" : "`, at the top of the file") + " or by `--capture`";
}

std::string Tracer::declarationInText(llvm::StringRef name) {
  const std::string declaration = declarationOf(name, usageOf(*text, name));
  return declaration.empty() ? declarationOf(name, usageOf(*text, name, /*asParameter=*/true)) : declaration;
}

/// Fails with the declaration of a name whose value needs something of another line that attnc does not evaluate. What
/// its own line has is told as it is.
void Tracer::failComputed(const Expr& expr, const Deferred& why) {
  const auto* name = llvm::dyn_cast<NameExpr>(&expr);
  if (!name || !text || why.findings.empty()) return;
  const Loc reason = why.findings.front().loc;
  const auto found = computed.find({reason.begin, name->name});
  if (found == computed.end() || reason.text != 0) return;
  const auto [loc, isModules] = found->second;
  if (!isModules && !isInMod) return;
  const AssignStmt* line = assignmentAt(*text, loc);
  if (!line || has(*line, reason) || (isModules && !llvm::is_contained(*text, line))) return;
  const std::string declaration = declarationInText(name->name);
  if (!declaration.empty()) diagnostics.fail(loc, diag::computedName, std::string_view(name->name), declaration);
}

/// Fails with the declaration of an array that the text fills element by element, as Python does outside of mods.
void Tracer::failWritten(const Expr& array, Loc loc) {
  const auto* name = llvm::dyn_cast<NameExpr>(&array);
  const std::string declaration = name && text && loc.text == 0 ? declarationInText(name->name) : "";
  if (!declaration.empty()) diagnostics.fail(loc, diag::computedName, std::string_view(name->name), declaration);
}

void Tracer::failSyntax(std::string_view what) { fail(diag::unsupportedSyntax, what, syntaxRepair(what)); }

void Tracer::undefined(llvm::StringRef name, Scope* from) {
  if (const char* instead = insteadOf(name))
    fail(diag::absentFunction, std::string_view(name), instead + declarationAt(at, instead));
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
  if (usage.dims.empty() && !usage.isCalled)
    if (const std::string usual = usualName(name); !usual.empty()) meant = "did you mean `" + usual + "`?";
  if (usage.isCalled && meant.empty())
    meant = fmt::format("define the function in the text; a tensor is declared and indexed: `{0}: f32[N]`, `{0}[i]`",
                        name.str());
  std::string_view given = name;
  if (!meant.empty() || usage.isCalled) fail(diag::undefinedName, given, meant);
  if (!usage.member.empty()) fail(diag::undefinedObject, given, usage.member);
  if (!usage.dims.empty()) fail(diag::undeclaredTensor, given, declaration);
  if (usage.steers) fail(diag::undefinedConstant, given, exampleOf(usage));
  if (!declaration.empty()) fail(diag::undeclaredScalar, given, declaration, exampleOf(usage));
  fail(diag::undefinedName, given,
       fmt::format("declare what the launch gives, `{0}: int` or `{0}: f32[H]`, or define it: `{0} = 8`", name.str()));
}

} // namespace attnc::dsl
