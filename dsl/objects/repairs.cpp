#include "dsl/objects/repairs.h"

namespace attnc::dsl {

namespace {

constexpr size_t kMaxQuoted = 60;

bool isOfBits(std::string_view op) {
  return op == "&" || op == "|" || op == "^" || op == "~" || op == "<<" || op == ">>";
}

} // namespace

// It is here, and not in context.cpp, for its hint.
void Context::badOperands(const char* op, Object left, Object right) {
  fail(diag::badOperands, op, describe(left), describe(right), operandsRepair(op, left, right));
}

std::string describeOrigin(Context& context, Object value) {
  return context.describe(value) + (value.isTraced() ? " that the GPU computes" : "");
}

std::string shortTextOf(Context& context, Loc loc, const char* otherwise) {
  if (loc.end - loc.begin > kMaxQuoted) return otherwise;
  return context.diagnostics.textOf(loc);
}

void failCondition(Context& context, Object value) {
  const std::string condition = shortTextOf(context, context.at, "condition");
  context.fail(diag::tracedCondition, describeOrigin(context, value), condition, "a, b");
}

std::string operandRepair(std::string_view op, Object operand) {
  return op == "~" && operand.isNumber() ? "`~` is of bools and ints: compare first, or convert by `.int()`" : "";
}

std::string operandsRepair(std::string_view op, Object left, Object right) {
  for (Object one : {left, right}) {
    if (one.is<NoneObject>()) return "the value is None here: give it a number, or test `is None` first";
    if (one.is<const Str*>()) return "write the number without quotes; an infinity is `float(\"inf\")`";
    if (one.isCallable()) return "call the function: `f(...)`";
    if (one.is<Sequence*>()) return "take an item by its index, or wrap the list: `torch.tensor([...])`";
    if (one.is<Dict*>()) return "take an item by its key";
  }
  if (op == "@") return "a mod computes single numbers: write `*`; rows are multiplied by `torch.dot(x, y)`";
  if (isOfBits(op)) return "bits are of bools and ints: compare first, or convert by `.int()`";
  return "";
}

std::string counted(size_t count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string indexRepair(Context& context, Object base) {
  if (base.isNumber()) return "it is one number, that of this score: leave the index out";
  if (base.is<const Builtin*>()) {
    const std::string text = shortTextOf(context, context.at, "t["), name = text.substr(0, text.find('['));
    return "`" + name + "` is a function here; a tensor of this name is declared: `" + name + ": f32[N]`";
  }
  if (base.isCallable()) return "call it: `f(...)`";
  return "";
}

std::string callRepair(Context& context, Object callee) {
  if (callee.is<const Tensor*>()) {
    const unsigned number = callee.as<const Tensor*>()->number;
    return "index it by brackets: `" + elementText(context.module, number) + "`";
  }
  if (callee.isArrayLike() || callee.is<Sequence*>() || callee.is<Dict*>()) return "index it by brackets: `x[i]`";
  return callee.isNumber() ? "it is a number: leave the parentheses out, or write `*` before them" : "";
}

std::string syntaxRepair(std::string_view what) {
  if (what == "`match`") return "choose a value with `torch.where(h == 0, a, b)`";
  if (what == "`yield`" || what == "a generator") return "return a list: `attnc check --language` prints the language";
  if (what == "an `async` function" || what == "`async`" || what == "`await`") return "write it without `async`";
  if (what == "a complex number") return "scores are real: write two floats";
  return "`attnc check --language` prints what is";
}

std::string declarationText(const ir::Module& module, unsigned tensor) {
  const ir::TensorCapture& capture = module.tensors[tensor];
  std::string text = capture.name + ": " + std::string(attnc::dtypeName(capture.dtype)), dims;
  for (const ir::Extent& extent : capture.shape)
    dims += (dims.empty() ? "" : ", ") +
            (extent.isNamed ? module.dims[size_t(extent.value)] : std::to_string(extent.value));
  return dims.empty() ? text : text + "[" + dims + "]";
}

std::string elementText(const ir::Module& module, unsigned tensor) {
  // The coordinate along each named extent. The parameters of the mod may have other names.
  constexpr const char* kPositions[] = {"b", "h", "h // (H // HKV)", "q_idx", "kv_idx"};
  const ir::TensorCapture& capture = module.tensors[tensor];
  std::string element = capture.name + "[";
  for (const ir::Extent& extent : capture.shape) {
    const bool isPosition = extent.isNamed && extent.value < int64_t(ir::kBuiltinDims);
    element += (element.back() == '[' ? "" : ", ") + std::string(isPosition ? kPositions[extent.value]
                                                                 : !extent.isNamed && extent.value == 1 ? "0"
                                                                                                        : "i");
  }
  return element + "]";
}

} // namespace attnc::dsl
